"""Work to come and jobs without a type in the pool of the GPU type that they are assigned to."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from gpudemand import Study
from gpudemand._validation import InputError
from gpudemand.planning import Programme
from gpudemand.planning.need import NeedForecast
from gpudemand.study.gpu_types import ALL, Pools, plan_gpu_types
from gpudemand.study.plan_file import read_plan
from gpudemand.study.pools import check_aliases, rename_series
from gpudemand.study.selection import select_and_forecast
from gpudemand.study.settings import Settings
from gpudemand.study.source import JobSource, SeriesSource
from gpudemand.study.usage_tables import compute_usage_tables
from gpudemand.study.waits import Need, needed_gpus
from tests.report.conftest import make_log, requirement_of

WEEK = ("2026-03-02", "2026-03-09")
#: 24 GPUs all week.
WORK = {"runs": 84, "start": WEEK[0], "end": WEEK[1], "hours": 12, "gpus": 4}
pytestmark = pytest.mark.usefixtures("quick_module", "selected_once")


@pytest.fixture(scope="module")
def log():
    return make_log(days=60)


@pytest.fixture(scope="module")
def medians(log, quick_module):
    """GPUs required of each type and of all, at the median and all of them usable, for programmes with some types."""
    source = JobSource.of(log, Settings(horizon=7, lead_time="1D"))
    selected = select_and_forecast(compute_usage_tables(source).total, 7)
    requirement, settings = requirement_of(source, selected), source.settings
    need = needed_gpus(source, (), settings)

    def plan(*types, at="required_p50"):
        work = [Programme(f"work {name}", **WORK, gpu_type=name) for name in types]
        table = plan_gpu_types(source, selected, None, requirement, need, settings, programmes=work).table
        return table.set_index("gpu_type")[at]

    return plan


def test_work_counts_in_the_pool_of_its_type_and_in_no_other(medians):
    alone, more = medians(), medians("H100")
    assert more["A100"] == alone["A100"]
    # Of its 24 GPUs, those that the other jobs leave idle now and then need not be added.
    assert alone["H100"] + 8 <= more["H100"] <= alone["H100"] + 26


@pytest.mark.slow
def test_work_without_a_type_is_spread(medians):
    added = (medians(None) - medians()).drop(ALL)
    assert (added > 0).all()
    assert 8 <= added.sum() <= 26


def test_parts_of_work_that_is_spread_sum_to_all_of_it():
    # Needs of pools sum to more than that of all as one, which was divided by.
    one, log_end = pd.Timedelta("1D"), pd.Timestamp(WEEK[0], tz="UTC")
    every, *needs = (Need(NeedForecast(gpus, np.full(30, gpus)), None, (), log_end, one) for gpus in (80.0, 56.0, 39.0))
    work = [Programme("work", **WORK)]
    pools = Pools("gpu_type", "M", pd.DataFrame(), dict(zip("ab", needs, strict=True)), {}, every)
    shares = [need.share for need in pools._with_programmes([], work).values()]
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] / shares[1] == pytest.approx(56 / 39)
    none = {"a": Need(NeedForecast.none(), None, (), log_end, one)}
    assert Pools("gpu_type", "M", pd.DataFrame(), none, {}, every)._with_programmes([], work) == none


@pytest.mark.slow
def test_work_on_a_type_that_no_job_has_had_is_a_pool(medians):
    alone, more = medians(), medians("B200")
    # Of work that is spread over the week at random, more than its mean of 24 is wanted now and then.
    assert 24 <= more["B200"] <= 40
    assert more[["A100", "H100"]].to_dict() == alone[["A100", "H100"]].to_dict()


@pytest.mark.slow
def test_types_still_require_as_many_as_one_pool(log):
    work = [Programme("training", **WORK, gpu_type="H100")]
    table = Study(log, horizon=7, programmes=work).gpu_type_plans.table.set_index("gpu_type")
    for at in ("required_p50", "required_p95", "required_p99"):
        assert table[at].drop(ALL).sum() >= table.loc[ALL, at], at


@pytest.mark.slow
def test_a_study_has_the_new_type_with_what_is_installed_of_it(log):
    work = [Programme("training", **WORK, gpu_type="B200")]
    installed = {"A100": 100.0, "H100": 100.0, "B200": 0.0}
    table = Study(log, horizon=7, lead_time="1D", programmes=work, installed=installed).gpu_type_plans.table
    row = table.set_index("gpu_type").loc["B200"]
    assert (row["installed"], row["shortfall"]) == (0, row["required"])
    assert 24 <= row["required"] <= 40
    assert row["first_crossing"] <= pd.Timestamp(WEEK[0], tz="UTC")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "programme 'x' is on GPU type 'h10', which neither the log nor installed names. Did you mean 'H100'?"),
        ({"installed": {"A100": 1, "H100": 1, "B200": 1}}, "Give installed by GPU type, with 0 for one that is yet"),
        ({"installed": {"A100": 1, "H100": 1, "h10": 1}, "lead_time": {"A100": "1D", "H100": "1D"}}, "for 'h10'"),
    ],
)
def test_a_type_that_nobody_knows_is_refused(log, options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        Study(log, horizon=7, programmes=[Programme("x", **WORK, gpu_type="h10")], **options)


def test_a_plan_file_assigns_work_and_jobs(tmp_path):
    text = """
    type_aliases = { "1g.10gb" = "A100", unknown = "A100" }
    [[programmes]]
    name = "tuning"
    runs = 84
    start = 2026-03-02T00:00:00Z
    end = 2026-03-09T00:00:00Z
    hours = 12
    gpus = 4
    gpu_type = "H100"
    """
    (tmp_path / "plan.toml").write_text(text)
    plan = read_plan(tmp_path / "plan.toml")
    assert plan.programmes[0].gpu_type == "H100"
    assert plan.study_options()["type_aliases"] == {"1g.10gb": "A100", "unknown": "A100"}
    for wrong, message in (
        ('unknown = "A100"', "type_aliases must be a table of texts"),
        ("{ unknown = 1 }", r"type_aliases\.unknown must be text in quotes"),
        ('{ a = "b", b = "c" }', "counts 'a' as 'b', which counts as another; name the last one"),
    ):
        (tmp_path / "plan.toml").write_text(f"type_aliases = {wrong if '{' in wrong else repr(wrong)}")
        with pytest.raises(InputError, match=message):
            read_plan(tmp_path / "plan.toml")


def unnamed(log):
    """The log, whose A100 are of no type on every second job, and slices on every fourth."""
    types = log["gpu_type"].where(log.index % 2 == 0).mask(log.index % 4 == 1, "1g.10gb")
    types = log["gpu_type"].mask(log["gpu_type"].eq("A100"), types)
    out = log.assign(gpu_type=types.astype("string"))
    out.attrs = dict(log.attrs)
    return out


def test_jobs_without_a_type_count_as_the_one_they_are_assigned_to(log):
    aliases = {"unknown": "A100", "1g.10gb": "A100"}
    given, left = (JobSource.of(unnamed(log), Settings(by="gpu_type", type_aliases=types)) for types in (aliases, None))
    assert left.names("gpu_type") == ["1g.10gb", "A100", "H100"]
    assert "unknown" in set(left.usage("gpu_type", "D", "wanted")["unique_id"])
    assert given.names("gpu_type") == ["A100", "H100"]
    true = JobSource.of(log, Settings(by="gpu_type")).usage("gpu_type", "D", "wanted")
    pd.testing.assert_frame_equal(given.usage("gpu_type", "D", "wanted"), true)


def test_an_alias_of_no_type_is_refused(log):
    with pytest.raises(InputError, match=r"type_aliases has 'A10', and no job .* Did you mean 'A100'\? Types are A100"):
        Study(log, horizon=7, type_aliases={"A10": "H100"})
    JobSource.of(log, Settings(type_aliases={"unknown": "H100"}))  # there may be none this month
    with pytest.raises(InputError, match="must be names of GPU types"):
        check_aliases({"a": ""})


def test_nodes_have_the_types_that_theirs_count_as(log):
    day = "2026-01-01T00:00:00+00:00"
    log = unnamed(log).assign(cluster="lab")
    log.attrs["installed_by_cluster"] = {"lab": {"A100": {day: 7.0}, "1g.10gb": {day: 1.0}, "H100": {day: 8.0}}}
    settings = JobSource.of(log, Settings(type_aliases={"1g.10gb": "A100"})).settings
    assert settings.installed_from == "pulled"
    assert {name: gpus.tolist() for name, gpus in settings.installed.items()} == {"A100": [8.0], "H100": [8.0]}


def test_pods_that_wait_count_as_the_type_they_are_assigned_to():
    ds = pd.date_range("2026-03-01", periods=3, freq="D", tz="UTC")
    rows = {"ml/A100": [1.0, 2.0, 3.0], "ml/unknown": [4.0, None, 6.0], "cv/H100": [8.0, 8.0, 8.0]}
    usage = pd.concat([pd.DataFrame({"unique_id": name, "ds": ds, "y": y}) for name, y in rows.items()])
    usage.attrs = {"by": "namespace/gpu_type"}
    source = SeriesSource.of(usage, Settings(type_aliases={"unknown": "A100"}))
    assert source.names("gpu_type") == ["A100", "H100"]
    wide = source.usage("gpu_type", "D", "gpus").pivot(index="ds", columns="unique_id", values="y")
    assert wide["A100"].fillna(-1).tolist() == [5.0, -1, 9.0]
    with pytest.raises(InputError, match="as a key of this usage"):
        rename_series(source.wide, ("namespace", "node"), {"unknown": "A100"}, {})
