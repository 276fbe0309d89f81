"""Studies of usage without jobs: the same answers as from jobs, gaps that are gaps, and reasons for what is missing."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gpudemand as gd
from gpudemand._validation import InputError, UnlikelyUsageWarning
from gpudemand.cli.app import app
from gpudemand.planning.scenarios import Growth
from gpudemand.store import arrow_table, open_store
from gpudemand.usage.read import pulled_usage, read_log
from tests.report.conftest import brief, make_log, quick_module, selected_once, undrawn  # noqa: F401
from tests.tiers import slow_beside

DAYS = 70
LOG = make_log(days=DAYS, per_day=24)
LOG = LOG.assign(submit=LOG["start"], user=LOG["user"].where(LOG["user"].str.len() < 30, "long"))
LOG.attrs = {"kind": "synthetic"}
GAP = (pd.Timestamp("2026-02-10", tz="UTC"), pd.Timestamp("2026-02-12", tz="UTC"))
OPTIONS = {"horizon": 7, "lead_time": "3D", "until": LOG["start"].max().normalize()}
pytestmark = pytest.mark.usefixtures("quick_module", "selected_once", "undrawn")


@cache
def usage(freq: str, by: str = "user") -> pd.DataFrame:
    """Of the log, its days before the end of the period."""
    table = gd.usage_series(LOG, by=by, freq=freq, value="gpus", until=OPTIONS["until"])
    attrs, table = table.attrs, table.assign(unique_id=table["unique_id"].str.replace("%2F", "/"))
    table.attrs = {"kind": attrs["kind"]}
    return table


@cache
def of_jobs(**options) -> gd.Study:
    return gd.Study(LOG, **OPTIONS, **options)


@cache
def of_usage(freq: str = "D", **options) -> gd.Study:
    return gd.Study(usage(freq), **OPTIONS, **options)


def without_gap(table: pd.DataFrame) -> pd.DataFrame:
    rest = table[(table["ds"] < GAP[0]) | (table["ds"] >= GAP[1])]
    rest.attrs = table.attrs
    return rest


@pytest.mark.parametrize("freq", slow_beside(["D"], ["D", "h"]))
def test_it_answers_as_from_jobs(freq):
    jobs, series = of_jobs(), of_usage(freq)
    np.testing.assert_allclose(series.usage["held"], jobs.usage["held"], rtol=1e-9)
    pd.testing.assert_frame_equal(series.segments, jobs.segments, rtol=1e-6)
    pd.testing.assert_frame_equal(series.drivers.head(5), jobs.drivers.head(5), rtol=1e-9)
    mean = [study.forecast.set_index("unique_id").loc["total"] for study in (series, jobs)]
    np.testing.assert_allclose(mean[0]["Study"], mean[1]["Study"], rtol=1e-6)
    required = [study.plan.set_index("basis").loc["mean", "required"] for study in (series, jobs)]
    # Intervals learn from the errors of all series, and the peaks differ.
    assert required[0] == pytest.approx(required[1], abs=2)
    shares = [study.usage_tables.tables["usage_shares"].set_index("user")["gpu_hours"] for study in (series, jobs)]
    np.testing.assert_allclose(shares[0], shares[1][shares[0].index], rtol=1e-9)


def test_a_peak_is_that_of_the_samples_or_not_known():
    hourly = of_usage("h")
    assert (hourly.usage["peak"] <= of_jobs().usage["peak"] + 1e-9).all()
    assert (hourly.usage["peak"] >= hourly.usage["held"]).all()
    daily = of_usage("D")
    assert daily.plan["basis"].tolist() == ["mean", "peak"]  # of its samples
    assert "peak" not in daily.usage
    assert daily.skipped["peak"] == "Usage is known as means over 1 days, so it is not known at most within bins of D."


def test_what_only_jobs_tell_is_refused_in_one_sentence():
    study = of_usage("D", wait="1h")
    for stage in ("waits", "wait_plan", "targets"):
        with pytest.raises(InputError, match=r"^this is usage over time and no jobs, so .* not known\.$"):
            getattr(study, stage)


@pytest.mark.slow
def test_scenarios_change_the_use():
    table = of_usage().scenarios.set_index("scenario")
    growth, base = table.loc["20% growth", "required"], table.loc["base case", "required"]
    assert growth == pytest.approx(1.2 * base, abs=1)
    largest = of_jobs().scenarios["scenario"].tolist()
    assert [name for name in table.index if name.endswith("leaves")] != []
    # Where there are no jobs, it is not known how much faster they run elsewhere.
    assert len(table) == len(largest) - 1


@pytest.mark.usefixtures("brief")
@pytest.mark.slow
def test_a_gap_is_no_zero(tmp_path):
    whole, study = of_usage("h"), gd.Study(without_gap(usage("h")), **OPTIONS)
    held = study.usage.set_index("ds")["held"]
    missing = held.index[held.isna()]
    assert missing.tolist() == list(pd.date_range(GAP[0], GAP[1], freq="D", inclusive="left"))
    known = held.dropna()
    np.testing.assert_allclose(known, whole.usage.set_index("ds")["held"][known.index])
    assert study.plan["required"].tolist() == pytest.approx(whole.plan["required"].tolist(), rel=0.1)
    page = study.report(tmp_path / "report").read_text()
    assert "Nothing was recorded for 48.0 hours in 1 gap, the longest from 10 Feb 2026 to 12 Feb 2026" in page
    assert pd.read_parquet(tmp_path / "report" / "tables" / "gaps.parquet")["hours"].tolist() == [48.0]


def test_rows_after_the_end_that_usage_states_are_counted_in_a_warning(recwarn):
    ds = pd.date_range("2026-03-01", periods=40, tz="UTC")
    table = pd.DataFrame({"unique_id": np.repeat(["a", "b"], 40), "ds": [*ds, *ds], "y": 2.0})
    table.attrs["until"] = "2026-04-01T00:00:00+00:00"
    said = "18 of 80 rows of this usage, from 2026-04-01 00:00:00+00:00 on, do not count"
    with pytest.warns(UnlikelyUsageWarning, match=re.escape(said)):
        study = gd.Study(table, horizon=4)
    assert study.usage["ds"].max() == ds[30]
    assert any(said in sentence for sentence in study.source.unlikely()), "the page says so, too"
    recwarn.clear()
    before = gd.Study(table, horizon=4, until=ds[20])
    table.attrs.pop("until")
    assert gd.Study(table, horizon=4).usage["ds"].max() == ds[-1]
    assert not [*before.source.unlikely(), *recwarn], "rows after the study's own end are none of its business"


def test_missing_values_are_unknown_and_missing_rows_zero():
    ds = pd.date_range("2026-03-01", periods=40, tz="UTC")
    table = pd.DataFrame({"unique_id": np.repeat(["a", "b"], 40), "ds": [*ds, *ds], "y": [2.0] * 40 + [3.0] * 40})
    unknown = gd.Study(table.assign(y=table["y"].where(table.index != 20)), horizon=4)
    assert unknown.usage["held"].isna().tolist() == [day == 20 for day in range(40)]
    absent = gd.Study(table.drop(index=20), horizon=4)
    assert absent.usage["held"].tolist() == [3.0 if day == 20 else 5.0 for day in range(40)]
    late = gd.Study(table.assign(y=table["y"].where(table.index >= 10)), horizon=4)
    assert late.usage["held"].tolist() == [3.0] * 10 + [5.0] * 30


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """Sixty days of hourly samples of three namespaces on two types of GPUs; forty GPUs, from day 30 on 48."""
    path = tmp_path_factory.mktemp("store") / "usage"
    ds = pd.date_range("2026-01-01", periods=60 * 24, freq="h", tz="UTC")
    ds = ds[(ds < GAP[0]) | (ds >= GAP[0] + pd.Timedelta("6h"))]
    rng, rows = np.random.default_rng(0), []
    for namespace, gpu_type, level in (("ml", "A100", 12), ("ml", "H100", 6), ("web", "H100", 4), ("lab", "A100", 3)):
        held = rng.poisson(level, len(ds)).astype(float)
        for measure, y in (("held", held), ("measured", held), ("used", held / 2), ("under_5", held / 4)):
            rows.append(
                pd.DataFrame({"measure": measure, "namespace": namespace, "gpu_type": gpu_type, "ds": ds, "y": y})
            )
        rows += [rows[-1].assign(measure=f"under_{percent}") for percent in (20, 50)]
    nodes = 40.0 + 8 * (ds >= "2026-01-31")
    rows.append(pd.DataFrame({"measure": "installed", "namespace": "", "gpu_type": "A100", "ds": ds, "y": nodes}))
    table = pd.concat(rows).assign(node="")
    with open_store(path) as opened:
        for month, part in table.groupby(table["ds"].dt.strftime("%Y-%m")):
            opened.merge("usage", month, arrow_table(part), arrow_table(part[["ds"]].drop_duplicates()), ["ds"])
        opened.about["pulls"]["prometheus"] = {"since": str(ds[0]), "until": str(ds[-1]), "step": "3600s"}
        opened.commit()
    return path


@pytest.mark.slow
def test_a_store_tells_what_is_installed(store):
    study = gd.Study(pulled_usage(store, by="namespace/gpu_type"), horizon=7)
    assert study.headline["installed"] == 48
    assert study.headline["installed_from"] == "pulled"
    assert gd.Study(pulled_usage(store), horizon=7, installed=99).settings.installed_from == "given"
    by_type = study.source.usage("gpu_type", "D", "gpus")
    assert by_type["unique_id"].unique().tolist() == ["A100", "H100"]
    for freq in ("h", "D"):  # as of samples
        binned = gd.Study(pulled_usage(store, freq=freq), horizon=7)
        np.testing.assert_allclose(binned.usage["held"], study.usage["held"])
        assert binned.headline["installed"] == 48
    assert study.source.usage("namespace", "D", "gpus")["unique_id"].unique().tolist() == ["lab", "ml", "web"]
    both = by_type.groupby("ds")["y"].sum(min_count=2)
    np.testing.assert_allclose(both, study.usage.set_index("ds")["held"])


@pytest.mark.slow
def test_types_of_the_nodes_are_installed_by_type(store):
    usage = pulled_usage(store, by="namespace/gpu_type")
    assert usage.attrs["installed_by_type"] == {"A100": usage.attrs["installed"]}
    half = {time: gpus / 2 for time, gpus in usage.attrs["installed"].items()}
    first, last = half
    usage.attrs["installed_by_type"] = {"A100": half, "H100": half, "B200": {first: 0.0, last: 8.0}}
    study = gd.Study(usage, horizon=7)
    types = study.gpu_type_plans.table.set_index("gpu_type")
    assert types["installed"].iloc[1:].to_dict() == {"A100": 24, "H100": 24, "B200": 8}
    short = (types["required"] - types["installed"]).clip(lower=0)
    assert types["shortfall"].iloc[1:].to_dict() == short.iloc[1:].to_dict()
    assert short["A100"] > short["H100"] > short["B200"] == 0
    assert study.headline["installed"] == 56
    assert study.headline["installed_from"] == "pulled"


@pytest.mark.slow
def test_a_type_that_no_node_has_or_that_usage_does_not_tell_leaves_the_sum(store):
    unknown = pulled_usage(store, by="namespace/gpu_type")
    assert gd.Study(unknown, horizon=7).gpu_type_plans.table["installed"].isna().tolist() == [False, True, True]


@pytest.fixture
def waiting(store, tmp_path) -> Path:
    """The store, and four GPUs that pods of `ml` waited for all the time, and two those of one that held none."""
    path = Path(shutil.copytree(store, tmp_path / "waiting"))
    with open_store(path) as opened:
        held = opened.read("usage").to_pandas()
        rows = held[(held["measure"] == "held") & (held["namespace"] == "lab")].assign(measure="pending")
        rows = pd.concat([rows.assign(namespace="ml", y=4.0), rows.assign(namespace="new", y=2.0)])
        keys = ["measure", "namespace", "ds"]
        for month, part in rows.groupby(rows["ds"].dt.strftime("%Y-%m")):
            opened.merge("usage", month, arrow_table(part), arrow_table(part[keys].drop_duplicates()), keys)
        opened.commit()
    return path


@pytest.mark.slow
def test_pods_that_wait_are_wanted_beside_held(store, waiting):
    options = {"horizon": 7, "tz": "Europe/Berlin"}
    held, wanted = (gd.Study(pulled_usage(path), **options) for path in (store, waiting))
    assert "wanted" not in held.usage
    np.testing.assert_allclose(wanted.usage["held"], held.usage["held"])
    np.testing.assert_allclose(wanted.usage["wanted"], held.usage["held"] + 6)
    assert wanted.usage["wanted"].isna().sum() == held.usage["held"].isna().sum()
    mean = [study.plan.set_index("basis").loc["mean", "required"] for study in (held, wanted)]
    assert mean[1] - mean[0] == pytest.approx(6 / 0.85, abs=2)
    by, by_held = (
        study.source.usage("namespace", "D", study.source.demand).groupby("unique_id")["y"].mean()
        for study in (wanted, held)
    )
    assert by["new"] == 2
    assert by["lab"] == by_held["lab"]
    assert "new" not in wanted.usage_tables.tables["usage_shares"]["namespace"].tolist()
    # What is wanted already, or known by other keys, is not added to.
    assert "wanted" not in gd.Study(pulled_usage(waiting, "wanted"), **options).usage
    split = gd.Study(pulled_usage(waiting, by="namespace/gpu_type"), by="gpu_type", **options)
    np.testing.assert_allclose(split.usage["wanted"], wanted.usage["wanted"])


@pytest.mark.slow
@pytest.mark.usefixtures("brief")
def test_a_page_shows_wanted_beside_held(waiting, tmp_path):
    index = gd.build_report(pulled_usage(waiting), tmp_path / "report", horizon=7)
    page, table = index.read_text(), pd.read_parquet(index.parent / "tables" / "wanted.parquet")
    np.testing.assert_allclose(table["wanted"], table["held"] + 6)
    assert "with those that pods waited for" in page
    assert "the mean of GPUs wanted per bin" in page
    assert json.loads((index.parent / "report.json").read_text())["settings"]["demand"] == "wanted"


@pytest.mark.slow
def test_the_shell_reports_on_a_store(store, tmp_path):
    options = ["--horizon", "7", "--quiet", "--json", "--out", str(tmp_path / "report")]
    result = CliRunner().invoke(app, ["report", str(store), *options])
    assert result.exit_code == 0, result.output
    numbers = json.loads(result.stdout)
    assert (numbers["jobs"], numbers["installed"], numbers["installed_from"]) == (None, 48, "pulled")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "<h2>Usage by namespaces</h2>" in page
    assert "of the nodes, as pulled" in page
    assert page.count("This is usage over time and no jobs") >= 3  # two sections, and the limitations
    # Half of the held time is known to be used, and a quarter of it hardly.
    assert "25% were held at under 5%" in page
    assert 'id="table-idle_namespace"' in page
    assert "Nothing was recorded for 6.0 hours in 1 gap" in page


@pytest.mark.slow
@pytest.mark.usefixtures("brief")
def test_the_shell_reads_files_of_usage(tmp_path):
    hourly = usage("h")
    hourly = hourly[hourly["unique_id"].isin(hourly["unique_id"].unique()[:3])]
    series = [
        {"metric": {"namespace": name}, "values": [[ds.timestamp(), str(y)] for ds, y in rows[["ds", "y"]].to_numpy()]}
        for name, rows in hourly.groupby("unique_id")
    ]
    (tmp_path / "held.json").write_text(json.dumps({"status": "success", "data": {"result": series}}))
    hourly.to_csv(tmp_path / "held.csv", index=False)
    hourly.to_parquet(tmp_path / "held.parquet")
    hourly.assign(ds=hourly["ds"].dt.tz_localize(None)).to_csv(tmp_path / "local.csv", index=False)
    options = ["--horizon", "7", "--quiet", "--json"]
    required = {}
    for name, more in {"held.json": ["--format", "prometheus"], "local.csv": ["--tz", "UTC"]}.items():
        result = CliRunner().invoke(
            app, ["report", str(tmp_path / name), *more, *options, "--out", str(tmp_path / "r")]
        )
        assert result.exit_code == 0, result.output
        required[name] = json.loads(result.stdout)["required"]
    assert len(set(required.values())) == 1
    for name in ("held.csv", "held.parquet"):
        pd.testing.assert_frame_equal(read_log(tmp_path / name), hourly, check_dtype=False)
    refused = CliRunner().invoke(app, ["report", str(tmp_path / "local.csv"), *options])
    assert refused.exit_code != 0
    assert "have no time zone; pass --tz" in refused.output


def test_usage_that_cannot_be_used():
    table = usage("D")
    with pytest.raises(InputError, match="no time zone"):
        gd.Study(table.assign(ds=table["ds"].dt.tz_localize(None)))
    with pytest.raises(InputError, match=r"means over 1 days, so it is not known in bins of h"):
        _ = gd.Study(table, freq="h", horizon=24).usage
    with pytest.raises(InputError, match="holds a GPU"):
        gd.Study(table.assign(y=0.0))
    hours = table.copy()
    hours.attrs["value"] = "gpu_hours"
    with pytest.raises(InputError, match=r"is in gpu_hours, not in mean GPUs; make it with value='gpus'"):
        gd.Study(hours)
    with pytest.raises(InputError, match="cannot be split by gpu_type"):
        gd.Study(table, horizon=7).source.usage("gpu_type", "D", "gpus")


@pytest.mark.parametrize("end", ["2026-03-30", "2026-10-26", "2026-11-05 06:00"])
def test_days_of_23_and_25_hours_are_those_of_the_log(end):
    times = pd.date_range("2026-02-02", pd.Timestamp(end) - pd.Timedelta("5h"), freq="5h", tz="Europe/Berlin")
    jobs = pd.DataFrame({"user": "a/b", "start": times, "end": times + pd.Timedelta("5h"), "gpus": 2.0})
    jobs.loc[len(jobs) - 1, "end"] = pd.Timestamp(end, tz="Europe/Berlin")
    known = {"tz": "Europe/Berlin", "until": end}
    of_log = gd.Study(jobs, horizon=7, **known).source
    held = gd.Study(gd.usage_series(jobs, value="gpus", **known), horizon=7).source
    assert held.settings.until == of_log.settings.until
    assert str(held.settings.end.tz) == "Europe/Berlin"
    for value in ("gpus", "gpu_hours"):
        pd.testing.assert_frame_equal(held.usage("user", "D", value), of_log.usage("user", "D", value))


def test_days_of_another_zone_are_refused():
    table = usage("D").assign(ds=lambda t: t["ds"].dt.tz_localize(None).dt.tz_localize("Europe/Berlin"))
    with pytest.raises(InputError, match=r"not those of tz='UTC'; leave tz= out"):
        gd.Study(table, tz="UTC")


def usage_of_types() -> pd.DataFrame:
    types = {name: f"type {n % 3}" for n, name in enumerate(usage("D")["unique_id"].unique())}
    return usage("D").replace({"unique_id": types}).groupby(["unique_id", "ds"], as_index=False)["y"].sum()


def test_scenarios_change_what_each_type_needs():
    installed = dict.fromkeys(("type 0", "type 1", "type 2"), 1.0)
    study = gd.Study(usage_of_types(), by="gpu_type", installed=installed, horizon=7, lead_time="3D")
    changes = {"doubled": Growth(2.0), "one doubled": Growth(2.0, "type 0", by="gpu_type")}
    orders = study.what_if(changes).set_index("scenario")["to_order"]
    assert orders["doubled"] == pytest.approx(2 * (orders["base case"] + 3) - 3, abs=3)
    assert orders["base case"] < orders["one doubled"] < orders["doubled"]


def test_gpu_types_neither_come_nor_leave():
    study = gd.Study(usage_of_types(), by="gpu_type", horizon=7)
    assert study.drivers["driver"].tolist()[0] == "total"
    assert study.drivers["driver"].str.startswith("GPU type").sum() == len(study.drivers) - 1 == 3
    assert not study.scenarios["scenario"].str.contains("more gpu_types").any()
