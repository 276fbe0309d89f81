"""GPUs so that jobs start in time, at the level of a forecast."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand._validation import InputError
from gpudemand.jobs.table import as_jobs, as_of
from gpudemand.planning.need import forecast_need, wait_target
from gpudemand.planning.quantiles import QuantileTable, mean_demand
from gpudemand.planning.queue import simulate_queue
from gpudemand.planning.wait_plan import plan_waits, wait_curve

BEGIN = pd.Timestamp("2026-01-05", tz="UTC")
END = BEGIN + pd.Timedelta("84D")


def stationary_log(n_weeks, seed, n_per_week=600):
    """Jobs of weeks that differ by chance only, most of them of office hours."""
    rng = np.random.default_rng(seed)
    n = n_per_week * n_weeks
    day, hour = rng.integers(0, 7 * n_weeks, n), rng.normal(14, 4, n) % 24
    submit = (BEGIN + pd.to_timedelta(np.sort(day * 24 + hour), unit="h")).round("s")
    run = pd.to_timedelta(np.exp(rng.normal(8.5, 1.0, n)).clip(10, 2 * 86400).round(), unit="s")
    frame = pd.DataFrame({"user": "ada", "submit": submit, "end": submit + run, "gpus": rng.choice([1.0, 2.0, 8.0], n)})
    return as_jobs(frame, kind="synthetic")


def forecast_of(level, spread, days=21):
    ds = END + pd.to_timedelta(np.arange(days), unit="D")
    reach = {80: 1.2816, 95: 1.96}
    bounds = {
        f"M-{side}-{p}": level + sign * z * spread for p, z in reach.items() for side, sign in (("lo", -1), ("hi", 1))
    }
    return pd.DataFrame({"unique_id": "total", "ds": ds, "M": level, **bounds})


def gpus_wanted(log, n_weeks):
    held = ((log["end"] - log["start"].fillna(log["submit"])).dt.total_seconds() * log["gpus"]).sum()
    return float(held / (n_weeks * 7 * 86400))


@pytest.fixture(scope="module")
def planned():
    log = simulate_queue(stationary_log(12, seed=0), 40)
    forecast = forecast_of(gpus_wanted(log, 12), spread=4.0)
    return log, forecast, gd.plan_capacity(forecast, installed=40, wait="1h", wait_share=0.9, jobs=log)


def share_in_time(log, gpus):
    wait = (simulate_queue(log, gpus)["start"] - log["submit"]).dt.total_seconds()
    return float((wait[log["submit"] >= BEGIN + pd.Timedelta("7D")] <= 3600).mean())


@pytest.mark.slow
def test_the_plan_meets_its_target_in_new_weeks_and_eight_gpus_fewer_do_not(planned):
    log = planned[0]
    required = plan_waits(forecast_of(gpus_wanted(log, 12), spread=0.5), log, installed=40).required
    new = [stationary_log(5, seed) for seed in range(1, 21)]
    assert np.mean([share_in_time(log, required) >= 0.9 for log in new]) >= 0.85
    assert np.mean([share_in_time(log, required - 8) >= 0.9 for log in new]) < 0.5


def test_a_level_that_is_known_needs_what_past_windows_needed(planned):
    """Without an error of the level what is left is the headroom of the windows of the log."""
    log, _, _ = planned
    level = gpus_wanted(log, 12)
    need = forecast_need(log, wait_target("1h", 0.9), END)
    plan = plan_waits(forecast_of(level, spread=1e-6), log, installed=40, until=END)
    expected = level * np.exp(need.headroom)
    assert plan.needed.min() == np.ceil(expected.min())
    assert plan.needed.max() == np.ceil(expected.max())


def test_jobs_that_run_for_weeks_need_their_gpus():
    """Three jobs of 4 GPUs start every two days and run for 60: more than a window."""
    submit = pd.Series(BEGIN + pd.to_timedelta(np.arange(0, 182, 2 / 3), unit="D"))
    frame = pd.DataFrame({"user": "ada", "submit": submit, "end": submit + pd.Timedelta("60D"), "gpus": 4.0})
    level = 60 * 1.5 * 4.0
    forecast = forecast_of(level, spread=0.03 * level)
    plan = plan_waits(forecast, as_jobs(frame, kind="synthetic"), installed=100, n_futures=20, until=submit.max())
    assert 0.9 * level < np.median(plan.needed) < 1.2 * level


def test_more_gpus_wait_less_and_save_less(planned):
    curve = planned[2].to_frame()
    assert curve["gpus"].is_monotonic_increasing
    assert curve["share_in_time"].is_monotonic_increasing
    assert curve["p_met"].is_monotonic_increasing
    assert curve["waited_hours"].is_monotonic_decreasing
    assert curve["mean_wait_s"].is_monotonic_decreasing
    assert (curve["share_in_time-lo-80"] <= curve["share_in_time-hi-80"]).all()
    assert (curve["mean_wait_s-lo-80"] <= curve["mean_wait_s-hi-80"]).all()
    at = curve.set_index("gpus")
    assert at.loc[planned[2].required, "p_met"] >= 0.95
    assert at.loc[planned[2].required, "share_in_time-lo-80"] >= 0.9


def test_the_plan_says_what_it_requires(planned):
    plan = planned[2]
    low, high = plan.required_range
    head = f"Wait plan: {plan.required:g} GPUs so that 90 % of the jobs start within 1 h, with probability 95 %"
    assert repr(plan).startswith(f"{head} ({low:g} to {high:g} GPUs); 40 installed\n")
    assert plan._repr_html_().startswith(f"<p>{head}")
    row = plan.summary.loc["total"]
    assert row["required"] == plan.required
    assert row["shortfall"] == max(row["required"] - 40, 0)
    assert row["p_met_installed"] == (plan.needed <= 40).mean()
    assert low <= np.median(plan.needed) <= high


def test_draws_are_those_of_their_seed(planned):
    log, forecast, _ = planned
    plans = [plan_waits(forecast, log, installed=40, n_futures=60, random_state=seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(plans[0].needed, plans[1].needed)
    assert not np.array_equal(plans[0].needed, plans[2].needed)
    assert plans[2].required == pytest.approx(plans[0].required, rel=0.1)


def test_the_share_of_gpus_that_runs_jobs_divides_the_requirement(planned):
    log, forecast, _ = planned
    whole, part = (plan_waits(forecast, log, installed=40, availability=share) for share in (1.0, 0.7))
    np.testing.assert_array_equal(part.needed, np.ceil(whole.needed / 0.7))
    assert part.required == np.ceil(whole.required / 0.7)
    assert part.required in set(part.to_frame()["gpus"])


@pytest.mark.slow
def test_a_stricter_target_and_a_less_certain_forecast_need_more(planned):
    log, forecast, _ = planned
    few = {"installed": 40, "n_futures": 40}
    base = plan_waits(forecast, log, **few).required
    assert plan_waits(forecast, log, wait="5min", **few).required > base
    assert plan_waits(forecast, log, wait_share=0.99, **few).required > base
    assert plan_waits(forecast, log, service_level=0.6, **few).required < base
    assert plan_waits(forecast, log, largest=1, **few).required < base
    assert plan_waits(forecast_of(forecast["M"][0], 8.0), log, **few).required > base
    assert plan_waits(forecast_of(2 * forecast["M"][0], 4.0), log, **few).required > 1.5 * base


def test_jobs_that_wait_as_the_log_ends_do_not_raise_the_requirement():
    level = gpus_wanted(stationary_log(12, seed=0), 12)
    log = as_of(simulate_queue(stationary_log(12, seed=0), round(level / 1.1)), END)
    assert (log["status"] == "pending").sum() > 100
    forecast = forecast_of(level, spread=1.0)
    behind, free = (plan_waits(forecast, jobs, installed=40, until=END) for jobs in (log, stationary_log(12, seed=0)))
    assert behind.required == pytest.approx(free.required, rel=0.1)


def test_a_job_that_waits_for_months_needs_no_gpus(planned):
    log, forecast, plan = planned
    held = log.tail(1).assign(submit=BEGIN, start=pd.NaT, end=pd.NaT, gpus=500.0, status="pending", job_id="held")
    assert plan_waits(forecast, pd.concat([log, held]), installed=40, until=END).required == plan.required


def test_a_demand_that_may_be_nothing_may_need_nothing(planned):
    plan = plan_waits(forecast_of(1.0, spread=4.0), planned[0], installed=40)
    assert plan.needed.min() == 0 < plan.required
    assert np.isfinite(plan.to_frame()).all(axis=None)


@pytest.mark.parametrize(
    ("shared", "expected"), [(0.0, 10 / np.sqrt(28)), (3.0, np.hypot(10 * np.sqrt(3), 10 / np.sqrt(28)))]
)
def test_what_intervals_exceed_the_noise_of_a_day_is_an_error_of_the_level(shared, expected):
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 1, 364)
    submit = BEGIN + pd.to_timedelta(np.arange(364), unit="D")
    gpus = 100 + 10 * (noise - noise.mean()) / noise.std()
    log = as_jobs(pd.DataFrame({"submit": submit, "end": submit + pd.Timedelta("1D"), "gpus": gpus}), kind="synthetic")
    forecast = forecast_of(100.0, 10 * np.sqrt(1 + shared), days=28)
    day = pd.Timedelta("1D")
    chances = np.array([0.1587, 0.8413])
    low, high = mean_demand(QuantileTable.from_forecast(forecast), chances, log, submit[-1] + day, day)
    assert (high - low) / 2 == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wait": "0s"}, "wait must be longer than 0 s"),
        ({"wait": "-1h"}, "wait must be longer than 0 s"),
        ({"wait": 3600}, "is not a length of time"),
        ({"wait_share": 1}, "wait_share must be"),
        ({"jobs": None}, "wait= needs a log of jobs"),
        ({"installed": 0}, "installed must be a number above 0"),
        ({"service_level": 0.2}, "service_level must be"),
        ({"target_utilization": 0.7}, "target_utilization does not apply to a plan with wait="),
        ({"lead_time": "soon"}, "lead_time does not apply"),
        ({"short_share": 0}, "short_share does not apply"),
        ({"held": "x"}, "held does not apply"),
    ],
)
def test_nonsense_gets_one_sentence(planned, change, message):
    with pytest.raises(InputError, match=message):
        gd.plan_capacity(planned[1], **({"installed": 40, "wait": "1h", "jobs": planned[0]} | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"largest": 0.5}, r"no job of the log has at most 0\.5 GPUs"),
        ({"availability": 0}, "availability must be"),
        ({"policy": "lifo"}, "policy"),
        ({"of": "users"}, "of="),
        ({"n_futures": 1}, "n_futures must be"),
    ],
)
def test_options_out_of_range_get_one_sentence(planned, change, message):
    with pytest.raises(InputError, match=message):
        plan_waits(planned[1], planned[0], **({"installed": 40} | change))


def test_a_pool_is_planned_by_its_own_jobs(planned):
    log, forecast, _ = planned
    other = stationary_log(6, seed=2, n_per_week=300)
    both = pd.concat([log.assign(gpu_type="A100"), other.assign(gpu_type="V100")], ignore_index=True)
    mine, options = forecast.assign(unique_id="A100"), {"installed": 40, "until": END}
    plan = plan_waits(mine, both, **options)
    np.testing.assert_array_equal(plan.needed, plan_waits(forecast, log, **options).needed)
    assert plan.summary.index.tolist() == ["A100"]


@pytest.mark.parametrize("plan", [plan_waits, partial(gd.plan_capacity, wait="1h")])
def test_several_pools_get_one_sentence(planned, plan):
    log, forecast, _ = planned
    two = pd.concat([forecast, forecast.assign(unique_id="V100")])
    for several, installed in ((two, 40), (forecast, {"total": 40})):
        with pytest.raises(InputError, match="one pool"):
            plan(several, jobs=log, installed=installed)


def test_the_curve_tells_the_chance_with_a_node_less(planned):
    plan = planned[2]
    chance = plan.to_frame().set_index("gpus")["p_met"]
    assert {40, plan.required - 8, plan.required + 8} < set(chance.index)
    assert chance[plan.required - 8] < plan.service_level <= chance[plan.required] <= chance[plan.required + 8]


def test_a_window_that_needs_twice_as_many_gpus_is_as_well_off_on_twice_as_many():
    outcomes = pd.DataFrame(
        {
            "ratio": [0.5, 1.0, 2.0],
            "share_in_time": [0.2, 0.9, 1.0],
            "mean_wait_s": [9000.0, 600.0, 0.0],
            "waited_hours": [500.0, 40.0, 0.0],
        }
    )
    curves = [wait_curve(scale * np.array([50.0, 100.0, 200.0]), np.full(3, scale * 100), outcomes) for scale in (1, 2)]
    for name in outcomes.columns[1:]:
        assert curves[0][name].tolist() == curves[1][name].tolist() == outcomes[name].tolist()
    assert curves[1]["p_met"].tolist() == [0, 1, 1]
