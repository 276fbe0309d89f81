"""Any table of jobs gives what the plain pandas frame of it gives, and stays as it was; no bad row is counted."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gpudemand as gd
from gpudemand import datasets, planning
from gpudemand._validation import InputError, UnlikelyJobsWarning
from gpudemand.jobs.schema import COLUMNS
from gpudemand.jobs.table import as_jobs, check_jobs
from tests.report.conftest import undrawn  # noqa: F401
from tests.tiers import slow_where

BEGIN = pd.Timestamp("2026-03-02", tz="UTC")
ORIGIN = BEGIN + pd.Timedelta("20D")
TIMES, TEXT = ("start", "end"), ("user",)
pytestmark = pytest.mark.usefixtures("undrawn")


def minimal_log(n=300):
    """Only what is needed: user, start, end, gpus. No two jobs start at once, so their order is no matter of taste."""
    rng = np.random.default_rng(0)
    start = BEGIN + pd.to_timedelta(np.sort(rng.choice(28 * 1440, n, replace=False)), "min")
    users = np.array(["ada", "bob", "eve"])[rng.integers(3, size=n)]
    end = start + pd.to_timedelta(rng.integers(10, 2000, n), "min")
    return pd.DataFrame({"user": users, "start": start, "end": end, "gpus": rng.integers(1, 5, n)})


LOG = minimal_log()
#: What predicted costs need beside.
TRAINING = LOG.assign(network="resnet50", batch_size=16, epochs=2, samples=1000, gpu_type="A100", precision="fp32")


class Costs:
    """Step times from the columns of the table, in place of a fitted `CostModel`."""

    def costs(self, jobs):
        step = jobs["batch_size"].to_numpy(dtype=float) / np.where(jobs["gpu_type"] == "A100", 100, 200)
        return pd.DataFrame({"step_time_s": step, "memory_gib": 1.0, "fits": 0.5}, index=jobs.index)

    def predict(self, jobs):
        return pd.DataFrame({"step_time_s": 0.1, "memory_gib": 1.0}, index=range(len(jobs)))

    def fits(self, job):
        return 0.5

    def calibrate(self, jobs, step_time_s):
        self.measured = step_time_s

    def on_one_host(self):
        return self


def step_time(jobs):
    return Costs().costs(jobs)["step_time_s"].to_numpy()


def cost_step_time():
    return planning.CostStepTime(Costs(), {"resnet50": (gd.OpGraph([], []), (3, 8, 8))})


def calibrated(jobs):
    return np.sort(cost_step_time().calibrate(jobs).model.measured)


@cache
def run_time_model():
    return planning.RunTimeModel(max_rows=2000).fit(LOG, until=ORIGIN)


@cache
def training_run_time():
    return gd.TrainingRunTime(step_time).fit(TRAINING)


def forecast():
    ds = pd.date_range(ORIGIN, periods=3, freq="D")
    return pd.DataFrame({"unique_id": "total", "ds": ds, "M": 5.0, "M-lo-90": 4.0, "M-hi-90": 6.0})


@cache
def held():
    return gd.usage_series(LOG, by=None, freq="D", value="gpus", partial=False)


def with_submit(jobs):
    """Submissions at the starts; a table of another library is given one as it is."""
    jobs = jobs if isinstance(jobs, pd.DataFrame) else gd.jobs.table.check_jobs(jobs)
    return jobs.assign(submit=jobs["start"])


def with_use(jobs):
    """One GPU in use; a table of another library is given as pandas checked it."""
    jobs = gd.jobs.table.check_jobs(jobs)
    return jobs.assign(used_gpu_seconds=(jobs["end"] - jobs["start"]).dt.total_seconds())


def written(write, suffix):
    def run(jobs, folder):
        write(jobs, folder / f"log{suffix}")
        return (folder / f"log{suffix}").read_text()

    return run


def report(jobs, folder):
    page = gd.build_report(jobs, folder, horizon=5, lead_time="5D")
    return pd.read_parquet(page.parent / "tables" / "usage_shares.parquet")


#: Public callables that take a job table -> a call whose result can be compared.
CALLS = {
    "usage_series": lambda jobs, _: gd.usage_series(jobs, freq="6h"),
    "idle_table": lambda jobs, _: gd.idle_table(with_use(jobs)),
    "write_jobs": written(gd.write_jobs, ".csv"),
    "wait_table": lambda jobs, _: gd.wait_table(with_submit(jobs), by="size"),
    "plan_waits": lambda jobs, _: gd.plan_waits(forecast(), jobs, installed=8, n_futures=3).to_frame(),
    "plan_capacity": lambda jobs, _: gd.plan_capacity(forecast(), installed=8, wait="1h", jobs=jobs).to_frame(),
    "effective_capacity": lambda jobs, _: np.array([gd.effective_capacity(jobs, 8, start=BEGIN, until=ORIGIN)]),
    "simulate_queue": lambda jobs, _: gd.simulate_queue(jobs, 8),
    "expected_queueing": lambda jobs, _: gd.expected_queueing(jobs, [6, 12]),
    "forecast_submissions": lambda jobs, _: planning.forecast_submissions(jobs, np.ones(len(LOG)), ORIGIN),
    "WhatIf": lambda jobs, _: gd.WhatIf(jobs, forecast(), installed=8).compare({"base": []}),
    "RunTimeModel.fit": lambda jobs, _: planning.RunTimeModel(max_rows=2000).fit(jobs).predict(LOG.head(9)),
    "RunTimeModel.predict": lambda jobs, _: run_time_model().predict(jobs),
    "RunTimeModel.curves": lambda jobs, _: run_time_model().curves(jobs).mean(),
    "RunTimeModel.predict_remaining": lambda jobs, _: run_time_model().predict_remaining(jobs).sort_values("elapsed_s"),
    "JobDemandModel.fit": lambda jobs, _: gd.JobDemandModel().fit(jobs, held()).predict(h=2),
    "demand_cross_validation": lambda jobs, _: gd.demand_cross_validation(gd.JobDemandModel(), jobs, held(), h=2),
    "build_report": report,
    "Study": lambda jobs, _: gd.Study(jobs, horizon=5, lead_time="5D").usage,
    "MeasuredRunTimes": lambda jobs, _: planning.MeasuredRunTimes(jobs).log_run.describe(),
    "MeasuredRunTimes.costs": lambda jobs, _: planning.MeasuredRunTimes(TRAINING, Costs()).costs(jobs),
    "MeasuredRunTimes.move": lambda jobs, _: planning.MeasuredRunTimes(TRAINING).move(jobs, "H100")[0],
    "MeasuredRunTimes.knows": lambda jobs, _: planning.MeasuredRunTimes(TRAINING, cost_step_time()).knows(jobs),
    "CostStepTime.costs": lambda jobs, _: cost_step_time().costs(jobs),
    "CostStepTime.__call__": lambda jobs, _: cost_step_time()(jobs),
    "TrainingRunTime.fit": lambda jobs, _: gd.TrainingRunTime(step_time).fit(jobs).predict(TRAINING),
    "TrainingRunTime.predict": lambda jobs, _: training_run_time().predict(jobs),
    "run_time_ratios": lambda jobs, _: planning.run_time_ratios(jobs, step_time),
    "costs_against_log": lambda jobs, _: planning.costs_against_log(jobs, step_time),
    "CostStepTime.calibrate": lambda jobs, _: calibrated(jobs),
    "CostStepTime.knows": lambda jobs, _: cost_step_time().knows(jobs),
    "fixed_length": lambda jobs, _: planning.fixed_length(jobs),
    "true_step_time": lambda jobs, _: datasets.true_step_time(jobs),
    "predicted_times": lambda jobs, _: np.hstack(planning.predicted_times(jobs, ["A100", "H100"], Costs())),
}
NEED_NETWORKS = {
    name
    for name in CALLS
    if name.startswith(
        (
            "CostStep",
            "costs_against",
            "TrainingRun",
            "run_time_r",
            "fits_on",
            "fewer_g",
            "Measured",
            "predicted_",
            "true_",
        )
    )
}
A_ROW_A_JOB = {"simulate_queue", "RunTimeModel.predict", "RunTimeModel.curves", "TrainingRunTime.predict"} | {
    name for name in CALLS if name.startswith(("CostStep", "MeasuredRunTimes.", "predicted_", "true_"))
} - {"CostStepTime.calibrate"}


def public_names():
    """Every public name of the package and of its folders."""
    folders = [
        gd,
        *(importlib.import_module(f"gpudemand.{m.name}") for m in pkgutil.iter_modules(gd.__path__) if m.ispkg),
    ]
    return {name: getattr(folder, name) for folder in folders for name in getattr(folder, "__all__", [])}


def takes_a_job_table(function):
    parameter = inspect.signature(function).parameters.get("jobs")
    return parameter is not None and "pd.DataFrame" in str(parameter.annotation)


def entry_points():
    found = set()
    for name, thing in public_names().items():
        if inspect.isclass(thing):
            methods = inspect.getmembers(thing, inspect.isfunction)
            public = [(m, f) for m, f in methods if not m.startswith("_") or m in ("__init__", "__call__")]
            found |= {f"{name}.{m}".removesuffix(".__init__") for m, f in public if takes_a_job_table(f)}
        elif callable(thing) and takes_a_job_table(thing):
            found.add(name)
    return found


def test_no_entry_point_is_forgotten():
    assert entry_points() == set(CALLS)


def python_datetimes(log):
    """Objects in a zone of their own each second row, as code that builds tables row by row makes them."""
    return log.assign(
        **{
            name: pd.Series(
                [
                    time.tz_convert("Asia/Kolkata" if row % 2 else "UTC").to_pydatetime()
                    for row, time in enumerate(log[name])
                ],
                index=log.index,
                dtype=object,
            )
            for name in TIMES
        }
    )


def read_only(log):
    columns = {name: log[name].to_numpy(copy=True) for name in ("user", "gpus")}
    for values in columns.values():
        values.flags.writeable = False
    return pd.DataFrame({**log, **columns}, copy=False)


def polars_table(log):
    polars = pytest.importorskip("polars")
    return polars.from_arrow(arrow(log)).with_columns(polars.col("user").cast(polars.Categorical))


def narwhals_table(log):
    return pytest.importorskip("narwhals").from_native(log)


def views_of_text(log):
    pytest.importorskip("pyarrow", minversion="18")
    return arrow(log).set_column(0, "user", arrow(log)["user"].cast(pa.string_view()))


def arrow(log):
    return pa.Table.from_pandas(log, preserve_index=False)


SHUFFLED = np.random.default_rng(1).permutation(len(LOG))
FORMS = {
    "pyarrow": arrow,
    "record batch": lambda log: arrow(log).combine_chunks().to_batches()[0],
    "dictionaries": lambda log: arrow(log).set_column(0, "user", arrow(log)["user"].dictionary_encode()),
    "views of text": views_of_text,
    "decimals": lambda log: arrow(log).set_column(3, "gpus", arrow(log)["gpus"].cast(pa.decimal128(22, 2))),
    "polars": polars_table,
    "narwhals": narwhals_table,
    "nullable": lambda log: log.convert_dtypes(),
    "nullable floats": lambda log: log.astype({"gpus": "Float64"}),
    "backed by Arrow": lambda log: log.convert_dtypes(dtype_backend="pyarrow"),
    "categories": lambda log: log.astype({"user": "category", "gpus": "category", "start": "category"}),
    "another zone": lambda log: log.assign(**{name: log[name].dt.tz_convert("Asia/Kolkata") for name in TIMES}),
    "Python datetimes": python_datetimes,
    "text": lambda log: log.assign(**{name: log[name].astype(str) for name in (*TIMES, "gpus")}),
    "objects": lambda log: log.astype(object),
    "shuffled": lambda log: log.iloc[SHUFFLED].set_axis([f"job {row}" for row in SHUFFLED]),
    "read-only": read_only,
    "not contiguous": lambda log: log.loc[log.index.repeat(2)].iloc[::2],
    "sparse": lambda log: log.astype({"gpus": pd.SparseDtype("float64")}),
}


def in_order(entry, form, result):
    """Values of a result without its index, in the order of the plain table."""
    if form == "shuffled" and entry in A_ROW_A_JOB:
        rows = np.empty(len(SHUFFLED), dtype=int)
        rows[SHUFFLED] = np.arange(len(SHUFFLED))
        result = result.iloc[rows] if isinstance(result, pd.DataFrame) else result[rows]
    return result.reset_index(drop=True) if isinstance(result, pd.DataFrame) else result


def assert_same(found, expected):
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected, check_dtype=False, check_index_type=False)
    elif isinstance(expected, str):
        assert found.splitlines() == expected.splitlines()
    else:
        np.testing.assert_allclose(found, expected)


@pytest.fixture(scope="module")
def plain_result(tmp_path_factory):
    """Result of an entry point for the plain pandas frame, computed once."""
    results = {}

    def result(entry):
        if entry not in results:
            results[entry] = CALLS[entry](table_for(entry), tmp_path_factory.mktemp("plain"))
        return results[entry]

    return result


def table_for(entry):
    return TRAINING if entry in NEED_NETWORKS else LOG


#: These take seconds.
SLOW = ("build_report", "plan_capacity", "plan_waits", "demand_cross_validation", "JobDemandModel.fit")
#: Forms for entry points, which all convert by `check_jobs` or `as_pandas`: one that left this out would fail on a
#: table of another library, one that relied on the index of its table on shuffled rows.
SOME_FORMS = ("pyarrow", "shuffled")


def forms(entry):
    return FORMS if entry == "CostStepTime.costs" else SOME_FORMS[:1] if entry in SLOW else SOME_FORMS


CASES = [(entry, form) for entry in CALLS for form in forms(entry)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("log", [LOG, TRAINING], ids=["log", "trainings"])
def test_any_table_becomes_the_plain_frame(log, form):
    table = FORMS[form](log)
    before = table.copy(deep=True) if isinstance(table, pd.DataFrame) else None
    found, expected = check_jobs(table), check_jobs(log)
    if form == "shuffled":
        assert found.index.tolist() == table.index.tolist()
        expected = expected.iloc[SHUFFLED]
    further = [name for name in log if name not in COLUMNS]
    pd.testing.assert_frame_equal(
        found.drop(columns=further).reset_index(drop=True),
        expected.drop(columns=further).reset_index(drop=True),
    )
    assert found[further].to_numpy().tolist() == expected[further].to_numpy().tolist()
    if before is not None:
        pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize(("entry", "form"), slow_where(lambda case: case[0] in SLOW, CASES))
def test_any_table_gives_what_the_plain_frame_gives(entry, form, plain_result, tmp_path):
    table = FORMS[form](table_for(entry))
    before = table.copy(deep=True) if isinstance(table, pd.DataFrame) else None
    found = CALLS[entry](table, tmp_path)
    if entry.startswith("write_") and form == "shuffled":
        found, expected = (sorted(text.splitlines()) for text in (found, plain_result(entry)))
        assert found == expected
        return
    assert_same(in_order(entry, form, found), in_order(entry, "plain", plain_result(entry)))
    if before is not None:
        pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize("entry", [entry for entry in CALLS if entry not in SLOW])
def test_the_ten_columns_of_a_log_need_no_others(entry, tmp_path):
    ten = table_for(entry).assign(
        job_id=[str(row) for row in range(len(LOG))], group="x", cluster="c", submit=LOG["start"], status="completed"
    )
    ten = ten.assign(gpu_type="A100")
    found, expected = CALLS[entry](ten, tmp_path), CALLS[entry](as_jobs(ten, kind="measured"), tmp_path)
    assert_same(in_order(entry, "plain", found), in_order(entry, "plain", expected))


FAULTS = {
    "infinite": ({"gpus": np.inf}, "1 more than 1,000,000 GPUs|1 an unreadable cell"),
    "huge": ({"gpus": 1e308}, "1 more than 1,000,000 GPUs"),
    "negative": ({"gpus": -1}, "1 negative number of GPUs"),
    "boolean": ({"gpus": True}, "1 an unreadable cell"),
    "mixed": ({"gpus": "two"}, "1 an unreadable cell"),
    "end before start": ({"end": pd.Timestamp("2020-01-01", tz="UTC")}, "1 end before start"),
    "unreadable": ({"start": "soon"}, "1 an unreadable cell"),
    "no time": ({"start": None}, "1 no submit or start time"),
    "far": ({"end": "9999-01-01T00:00:00Z"}, "1 time outside 1985 to 2200"),
    "naive": ({"start": "2026-03-02 10:00"}, "no time zone; pass tz="),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("as_file", [False, True])
def test_a_bad_row_is_refused_with_the_same_words_in_a_table_and_a_file(fault, as_file, tmp_path):
    values, message = FAULTS[fault]
    log = LOG.astype(object)
    for name, value in values.items():
        log.loc[7, name] = value
    if as_file:
        log.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(InputError, match=message):
        gd.usage_series(tmp_path / "log.csv" if as_file else log)


@pytest.mark.parametrize(
    "entry", [entry for entry in CALLS if entry not in NEED_NETWORKS or entry == "TrainingRunTime.fit"]
)
@pytest.mark.parametrize("fault", ["infinite", "end before start", "naive"])
def test_no_entry_point_counts_a_bad_row(entry, fault, tmp_path):
    log = table_for(entry).astype(object)
    (name, value), *_ = FAULTS[fault][0].items()
    log.loc[7, name] = value
    with pytest.raises(InputError, match=FAULTS[fault][1]):
        CALLS[entry](log, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_table_stacked_on_itself_is_refused(tmp_path):
    log = LOG.assign(job_id=[str(row) for row in range(len(LOG))])
    twice = pd.concat([log, log], ignore_index=True)
    twice.to_parquet(tmp_path / "log.parquet")
    for source in (twice, tmp_path / "log.parquet"):
        with pytest.raises(InputError, match="300 duplicate job id"):
            gd.usage_series(source)


def stacked(log):
    return pd.concat([log, log], ignore_index=True)


def overlapping(log):
    return pd.concat([log, log.iloc[100:200]], ignore_index=True)


@pytest.mark.parametrize(("put_together", "words"), [(stacked, "exactly twice"), (overlapping, "nearly all rows from")])
def test_a_table_without_ids_that_was_put_together_of_the_same_rows_is_said(put_together, words):
    log = LOG.sort_values("start")
    with pytest.warns(UnlikelyJobsWarning, match=words):
        jobs = check_jobs(put_together(log))
    assert words in jobs.attrs["doubts"][0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_jobs(jobs).attrs["doubts"] == jobs.attrs["doubts"]  # and once only
        for tells_apart in ("name", "job_id"):
            check_jobs(put_together(log).assign(**{tells_apart: range(len(jobs))}))


@pytest.mark.parametrize(
    "column",
    [
        *(np.arange(300, dtype=name) for name in ("float16", "longdouble", "complex128")),
        *([each] * 300 for each in (b"\xff", [1], None)),
        pd.period_range("2020", periods=300, freq="D"),
    ],
    ids=lambda column: type(column[0]).__name__,
)
def test_columns_of_any_kind_are_carried_through(column):
    log = LOG.assign(x=column)
    pd.testing.assert_series_equal(check_jobs(log)["x"], log["x"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_without_ids_that_holds_every_row_twice_is_said(suffix, tmp_path):
    path, log = tmp_path / f"log{suffix}", LOG
    for table, times in ((stacked(log), 1), (log, 0)):
        table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path, index=False)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            gd.usage_series(path)
        words = "600 of 600 rows stand in this log exactly twice"
        assert [words in str(each.message) for each in said] == [True] * times


#: Names of three jobs, and how they read.
NAMES = {
    "floats": ([1001.0, 1002.0, np.nan], ["1001", "1002", "unknown"]),
    "whole": ([1001, 1002, 1003], ["1001", "1002", "1003"]),
    "decimals": ([1.5, 2.5, np.nan], ["1.5", "2.5", "unknown"]),
    "text of floats": (["1001.0", "1002.0", None], ["1001", "1002", "unknown"]),
    "other text": (["1001.0", "x", None], ["1001.0", "unknown", "x"]),
    "text with zeros": (["007", "1.0", "10.00"], ["007", "1.0", "10.00"]),
}


NAMED = ["user", "group", "cluster", "gpu_type", "partition"]


@pytest.mark.parametrize(("case", "by"), [*((case, "user") for case in NAMES), *(("floats", by) for by in NAMED[1:])])
def test_a_name_that_is_a_number_is_the_same_in_all_ways(case, by, tmp_path):
    values, expected = NAMES[case]
    jobs = LOG[["start", "end", "gpus"]].head(3).assign(job_id=values, **dict.fromkeys(NAMED, values))
    sources = {"table": jobs, "arrow": pa.Table.from_pandas(jobs)}
    for suffix, write in ((".csv", jobs.to_csv), (".parquet", jobs.to_parquet)):
        write(tmp_path / f"log{suffix}", index=False)
        sources |= {suffix: tmp_path / f"log{suffix}", f"read {suffix}": gd.read_jobs(tmp_path / f"log{suffix}")}
    for source, given in sources.items():
        assert gd.usage_series(given, by=by)["unique_id"].unique().tolist() == expected, source
        if not isinstance(given, Path):
            found = check_jobs(given)[[*NAMED, "job_id"]].fillna("unknown")
            assert {name: sorted(found[name]) for name in found} == dict.fromkeys(found, expected), source


def test_a_missing_number_of_a_user_is_unknown_also_where_it_is_written_as_nan(tmp_path):
    jobs = pa.Table.from_pandas(LOG[["start", "end", "gpus"]].head(2))
    jobs = jobs.append_column("user", [np.array([1001.0, np.nan])])
    pq.write_table(jobs, tmp_path / "log.parquet")
    for source in (jobs, tmp_path / "log.parquet", gd.read_jobs(tmp_path / "log.parquet")):
        assert gd.usage_series(source)["unique_id"].unique().tolist() == ["1001", "unknown"]


@pytest.mark.parametrize("tz", ["Europe/Berlin", "+05:30"])
@pytest.mark.parametrize("form", ["table", "text", ".csv", ".parquet"])
def test_naive_times_are_in_tz_and_otherwise_refused(tz, form, tmp_path):
    zone = "Europe/Berlin" if "/" in tz else "Asia/Kolkata"
    naive = LOG.assign(**{name: LOG[name].dt.tz_convert(zone).dt.tz_localize(None) for name in TIMES})
    source = naive.astype(dict.fromkeys(TIMES, str)) if form == "text" else naive
    if form.startswith("."):
        source = tmp_path / f"log{form}"
        naive.to_csv(source, index=False) if form == ".csv" else naive.to_parquet(source)
    expected = gd.usage_series(LOG, freq="6h", tz=zone)
    np.testing.assert_allclose(gd.usage_series(source, freq="6h", tz=tz)["y"], expected["y"])
    with pytest.raises(InputError, match="no time zone; pass tz="):
        gd.usage_series(source, freq="6h")


@pytest.mark.parametrize("suffix", ["", ".csv", ".parquet"])
def test_an_hour_that_occurs_twice_is_the_first_and_one_that_does_not_occur_is_refused(suffix, tmp_path):
    def source(start, end):
        log = pd.DataFrame({"user": "ada", "start": pd.to_datetime([start]), "end": pd.to_datetime([end]), "gpus": 1})
        if not suffix:
            return log
        log.to_csv(tmp_path / "log.csv", index=False)
        log.to_parquet(tmp_path / "log.parquet")
        return tmp_path / f"log{suffix}"

    repeated = gd.usage_series(source("2026-10-25 02:30", "2026-10-25 04:30"), tz="Europe/Berlin")
    assert repeated["y"].sum() == 3
    with pytest.raises(InputError, match="1 local time that daylight saving skips"):
        gd.usage_series(source("2026-03-29 02:30", "2026-03-29 04:30"), tz="Europe/Berlin")


@pytest.mark.parametrize("word", ["PENDING", "Requeue_Hold", "pending"])
@pytest.mark.parametrize("suffix", ["", ".csv", ".parquet"])
def test_words_of_schedulers_are_understood(word, suffix, tmp_path):
    log = LOG.head(2).assign(submit=LOG["start"], status=["COMPLETED", word])
    log.loc[1, ["start", "end"]] = pd.NaT
    log.to_csv(tmp_path / "log.csv", index=False)
    log.to_parquet(tmp_path / "log.parquet")
    total = gd.usage_series(tmp_path / f"log{suffix}" if suffix else log, by=None)["y"].sum()
    assert total == pytest.approx(float((log["end"] - log["start"])[0].total_seconds() / 3600 * log["gpus"][0]))


@pytest.mark.parametrize("column", ["start", "end", "gpus", "user"])
def test_a_needed_column_is_named(column, tmp_path):
    log = LOG.drop(columns=column)
    log.to_parquet(tmp_path / "log.parquet")
    for source in (log, tmp_path / "log.parquet"):
        with pytest.raises(InputError, match=column):
            gd.usage_series(source)


@pytest.mark.parametrize("thing", [[1], None, {"user": ["ada"]}, 7, np.zeros((2, 4))])
def test_what_is_no_table_is_refused(thing):
    with pytest.raises(InputError, match="must be a table"):
        gd.usage_series(thing)


def test_a_column_that_occurs_twice_is_refused():
    with pytest.raises(InputError, match="the column 'gpus' more than once"):
        check_jobs(pd.concat([LOG, LOG[["gpus"]]], axis=1))


def test_ids_that_are_numbers_are_written_without_a_decimal_point():
    users = check_jobs(LOG.head(2).assign(user=[7.0, np.nan]))["user"]
    assert users.tolist()[0] == "7"
    assert users.isna().tolist() == [False, True]


def test_a_requeued_job_is_one_waiting_job_before_it_runs_again():
    """What `as_of` returns can be brought back: later runs of one job do not count as copies of it."""
    log = LOG.head(3).assign(job_id="a", submit=LOG["start"][0])
    past = gd.jobs.table.as_of(log, LOG["start"][0] + pd.Timedelta("1s"))
    assert past["status"].tolist() == ["running", "pending"]
    check_jobs(past)
