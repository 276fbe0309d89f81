"""Scenarios: each change by hand, in sequence, and with the true costs of the synthetic cluster."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.cost import CostModel
from gpudemand.datasets import make_cluster
from gpudemand.datasets.simulate import true_step_time
from gpudemand.planning import CostStepTime
from gpudemand.planning.scenarios import (
    Growth,
    LargerBatch,
    MeasuredRunTimes,
    MoreUsers,
    MoveTo,
    Precision,
    RemoveGroup,
    Reweight,
    StepEvent,
    WhatIf,
    check_scenarios,
)
from tests.planning.test_capacity import normal_forecast

ORIGIN = pd.Timestamp("2026-03-01", tz="UTC")
MEMORY = {"V100": 16, "A100": 40, "H100": 80, "H200": 141, "GeForce RTX 3090": 24}


class TrueCosts:
    """True costs of the synthetic cluster; memory is a GiB for every eight samples of anything."""

    def costs(self, jobs):
        known = jobs["gpu_type"].map(MEMORY).to_numpy(dtype=float)
        memory = jobs["batch_size"].to_numpy(dtype=float) / 8
        step = true_step_time(jobs) if set(jobs["gpu_type"]) <= {"V100", "A100", "H100", "H200"} else np.nan
        return pd.DataFrame(
            {"step_time_s": step, "memory_gib": memory, "fits": (memory < known) * 1.0}, index=jobs.index
        )


@pytest.fixture(scope="module")
def jobs():
    return make_cluster(n_users=40, n_days=60, random_state=2)[0]


@pytest.fixture(scope="module")
def total(jobs):
    return WhatIf(jobs, normal_forecast([100.0, 110.0, 120.0], 10), installed=150, costs=TrueCosts())


@pytest.fixture(scope="module")
def by_type(jobs):
    names = ("A100", "H100", "V100")
    installed = dict.fromkeys(names, 100)
    return WhatIf(jobs, normal_forecast([100.0, 110.0], 10, names=names), installed=installed, costs=TrueCosts())


def median(what_if, scenario):
    return what_if.plan(scenario).to_frame()["demand_p50"].to_numpy()


def test_growth_and_its_inverse(total):
    base = median(total, [])
    np.testing.assert_allclose(base, [100, 110, 120])
    np.testing.assert_allclose(median(total, Growth(1.3)), 1.3 * base)
    np.testing.assert_allclose(median(total, [Growth(2.0), Growth(0.5)]), base)
    assert (median(total, Growth(0.0)) == 0).all()


def test_expected_values_change_as_the_forecast_does(jobs):
    forecast = normal_forecast([100.0, 110.0], 10).set_index("unique_id", drop=False)
    forecast = forecast.assign(**{"M-mean": 2 * forecast["M"]})
    found = WhatIf(jobs, forecast, installed=150).changed_forecast([Growth(1.5), StepEvent(9, start="2026-03-01")])
    np.testing.assert_allclose(found["M-mean"] - 9, 2 * (found["M"] - 9))


def test_removing_a_group_removes_its_share(total):
    work = total.workload
    share = work.groupby("group")["gpu_hours"].sum() / work["gpu_hours"].sum()
    np.testing.assert_allclose(median(total, RemoveGroup("vision", by="group"))[0], 100 * (1 - share["vision"]))
    everyone = [RemoveGroup(name, by="group") for name in share.index[:-1]]
    np.testing.assert_allclose(median(total, everyone)[0], 100 * share.iloc[-1])


def test_more_users_of_a_group_and_of_a_segment(total):
    users = total.workload.loc[total.workload["group"] == "vision", "user"].nunique()
    twice = median(total, MoreUsers(users, like="vision"))
    np.testing.assert_allclose(twice, median(total, Growth(2.0, "vision")))
    segment = dict.fromkeys(total.workload.loc[total.workload["group"] == "vision", "user"].unique(), "large")
    np.testing.assert_allclose(median(total, MoreUsers(users, like="large", by=segment)), twice)


def test_reweighting_keeps_the_total(total):
    np.testing.assert_allclose(median(total, Reweight({"vision": 0.5, "language": 0.1})), [100, 110, 120])
    work = Reweight({"vision": 0.5}).apply(total.workload)
    share = work.groupby("group")["gpu_hours"].sum() / work["gpu_hours"].sum()
    assert share["vision"] == pytest.approx(0.5)


def test_shares_that_no_workload_can_take_are_refused():
    work = pd.DataFrame({"group": ["a", "b", "c"], "gpu_hours": [50.0, 30.0, 0.0]})
    assert Reweight({"a": 0.25, "b": 0.75}).apply(work)["gpu_hours"].tolist() == [20, 60, 0]
    assert Reweight({"a": 0.25, "c": 0.0}).apply(work)["gpu_hours"].tolist() == [20, 60, 0]
    for shares, reason in (({"a": 0.5, "b": 0.3}, "add up to 0.8, and nothing else"), ({"c": 0.5}, "'c' has no GPU-h")):
        with pytest.raises(InputError, match=reason):
            Reweight(shares).apply(work)


def test_a_step_event_adds_from_one_date_to_another(total):
    event = StepEvent(40, start="2026-03-02", end="2026-03-03")
    np.testing.assert_allclose(median(total, event), [100, 150, 120])
    np.testing.assert_allclose(median(total, [Growth(2.0), event]), [200, 260, 240])


def test_a_move_uses_the_speed_up_of_each_job(by_type):
    work = by_type.workload
    moving = work[work["gpu_type"] == "V100"]
    fits = (moving["batch_size"] / 8 < MEMORY["H100"]).to_numpy()
    there = moving.assign(gpu_type="H100")
    hours = moving["gpu_hours"].to_numpy() * true_step_time(there) / true_step_time(moving)
    old = work.groupby("gpu_type")["gpu_hours"].sum()
    table = by_type.plan(MoveTo("H100", source="V100")).to_frame().groupby("unique_id")["demand_p50"].first()
    assert table["A100"] == pytest.approx(100)
    assert table["H100"] == pytest.approx(100 * (1 + hours[fits].sum() / old["H100"]))
    assert table["V100"] == pytest.approx(100 * moving["gpu_hours"].to_numpy()[~fits].sum() / old["V100"])
    assert 0 < fits.mean() <= 1


def test_what_does_not_fit_stays(by_type):
    before = median(by_type, [])
    np.testing.assert_allclose(median(by_type, LargerBatch(10_000.0)), before)
    assert (median(by_type, LargerBatch(2.0)) <= before + 1e-9).all()


def test_mixed_precision_only_where_the_gpu_has_it(by_type):
    table = by_type.plan(Precision("bf16")).to_frame().groupby("unique_id")["demand_p50"].first()
    assert table["V100"] == pytest.approx(100)
    assert table["A100"] < 90
    with pytest.raises(InputError, match="Did you mean 'bf16'"):
        by_type.plan(Precision("bf61"))


def test_comparing_scenarios_is_fast(total, jobs):
    scenarios = {"base": [], "half": Growth(0.5), "moved": MoveTo("H200")}
    begin = time.process_time()
    table = total.compare(scenarios)
    assert (time.process_time() - begin) / 3 < 0.3
    assert table["scenario"].tolist() == ["base", "half", "moved"]
    assert table["required"].iloc[1] < table["required"].iloc[0]


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        (RemoveGroup("visoin", by="group"), "Did you mean 'vision'"),
        (RemoveGroup("vision", by="gruop"), "Did you mean 'group'"),
        (RemoveGroup("nobody at all"), "no recent job has the user 'nobody at all'"),
        (MoreUsers(3, like="sales"), "no recent job has the group 'sales'"),
        (Growth(-1.0), "of at least 0"),
        (Growth(float("nan")), "of at least 0"),
        (StepEvent(float("nan")), "gpus must be a number"),
        (Reweight({"vision": 0.8, "language": 0.5}), "add up to 1.3"),
        (MoreUsers(-1000, like="vision"), "must be a whole number"),
        (StepEvent(5, series="H900"), "is not known"),
    ],
)
def test_invalid_arguments_raise_a_clear_error(total, scenario, reason):
    with pytest.raises(InputError, match=reason):
        total.plan(scenario)


def test_options_are_those_of_a_plan_without_waits(jobs):
    for options, reason in (({"wait": "1h"}, "option='wait' is not known"), ({"lead": "9D"}, "mean 'lead_time'")):
        with pytest.raises(InputError, match=reason):
            WhatIf(jobs, normal_forecast([100.0], 10), installed=150, options=options)
    later = WhatIf(jobs, normal_forecast([100.0], 10), installed=150, options={"lead_time": "9D"})
    assert later.plan().lead_time == pd.Timedelta("9D")


def test_changes_of_hardware_need_costs(jobs):
    what_if = WhatIf(jobs, normal_forecast([100.0], 10), installed=150)
    with pytest.raises(InputError, match="CostStepTime"):
        what_if.plan(MoveTo("H100"))


def test_a_gpu_type_without_a_device_row_and_a_network_without_a_graph(jobs):
    steps = CostStepTime(CostModel(), {})
    what_if = WhatIf(jobs, normal_forecast([100.0], 10), installed=150, costs=steps)
    with pytest.raises(InputError, match="networks says nothing about"):
        what_if.plan(MoveTo("H100"))
    with pytest.raises(InputError, match="GTX 9999"):
        Precision("bf16").apply(what_if.workload.assign(gpu_type="GTX 9999"), steps)


def _two_types(n, spread, seed=0):
    """Work of 30 users in 3 networks on two GPU types, of which the new one is 2, 3 and 4 times as fast."""
    rng = np.random.default_rng(seed)
    user, network = rng.integers(0, 30, n), rng.integers(0, 3, n)
    new = rng.random(n) < 0.4
    hours = np.exp(rng.normal(0, 1, (30, 3)))[user, network] * np.exp(rng.normal(0, spread, n))
    start = ORIGIN - pd.to_timedelta(rng.uniform(24, 27 * 24, n), "h")
    end = start + pd.to_timedelta(hours / np.where(new, network + 2, 1), "h")
    names = {"user": user.astype(str), "network": network.astype(str), "gpu_type": np.where(new, "H100", "A100")}
    return pd.DataFrame({**names, "start": start, "end": end, "gpus": 1.0, "status": "completed"})


def test_jobs_move_by_the_ratios_that_the_log_shows():
    jobs = _two_types(4000, 0.6)
    moving = jobs[jobs["gpu_type"] == "A100"]
    hours = (moving["end"] - moving["start"]).dt.total_seconds()
    true = (hours / (moving["network"].astype(int) + 2)).sum() / hours.sum()
    total = WhatIf(jobs, normal_forecast([100.0], 10), installed=150, costs=MeasuredRunTimes(jobs))
    old = total.workload.groupby("gpu_type")["gpu_hours"].sum()
    expected = 100 * (old["H100"] + true * old["A100"]) / old.sum()
    assert median(total, MoveTo("H100", source="A100"))[0] == pytest.approx(expected, rel=0.03)
    with pytest.raises(InputError, match="step_costs=CostStepTime"):
        MeasuredRunTimes(jobs).costs(jobs)
    with pytest.raises(InputError, match="batch_size"):
        total.plan(LargerBatch(2.0))


def test_jobs_that_are_on_the_target_already_stay_as_they_are():
    jobs = _two_types(200, 0.6)
    costs = MeasuredRunTimes(jobs)
    same, other = costs.ratios("A100", "A100"), costs.ratios("A100", "H100")
    assert same.empty
    assert (same.dtypes == other.dtypes).all()
    assert same.attrs == {"others": 0.0, "error": 0.0}
    for ratio in costs.move(jobs, "A100"):
        assert (ratio[jobs["gpu_type"] == "A100"] == 1).all()
    total = WhatIf(jobs, normal_forecast([100.0], 10), installed=150, costs=costs)
    assert median(total, MoveTo("A100", source="A100")) == median(total, [])
    gone = WhatIf(jobs[jobs["gpu_type"] == "A100"], normal_forecast([100.0], 10), installed=150, costs=costs)
    for change in (MoveTo("A100"), MoveTo("A100", "A100")):
        assert median(gone, change) == median(gone, [])


@pytest.mark.parametrize("scenarios", [[Growth(1.2)], None, {"x": 1.2}, {"x": [1.2]}])
def test_what_is_no_scenario_is_one_sentence(scenarios):
    with pytest.raises(InputError, match="half more"):
        check_scenarios(scenarios)


def test_ratios_are_shrunk_by_their_evidence():
    table = MeasuredRunTimes(_two_types(4000, 0.6)).ratios("A100", "H100")
    true = 1 / (table.index.str.split().str[1].astype(int) + 2)
    assert len(table) == 90
    assert np.abs(np.log(table["ratio"] / true)).mean() < np.abs(np.log(table["measured"] / true)).mean()
    few = MeasuredRunTimes(_two_types(40, 2.0)).ratios("A100", "H100")
    assert (
        np.abs(np.log(few["ratio"] / few["predicted"])) < np.abs(np.log(few["measured"] / few["predicted"]))
    ).mean() > 0.9
    # Rows of several tables, whose numbers repeat, are as good as others.
    parts = [_two_types(4000, 0.6).assign(job_id=[f"{part} {row}" for row in range(4000)]) for part in "ab"]
    pd.testing.assert_frame_equal(
        MeasuredRunTimes(pd.concat(parts)).ratios("A100", "H100"),
        MeasuredRunTimes(pd.concat(parts, ignore_index=True)).ratios("A100", "H100"),
    )
    # Without any pair the data sheets remain.
    old = _two_types(4000, 0.6).assign(gpu_type="V100")
    ratio, fits = MeasuredRunTimes(old).move(old, "H100")
    assert (fits == 1).all()
    assert ratio == pytest.approx(np.sqrt(900 / 3350 * 15.7 / 66.9), rel=0.05)
