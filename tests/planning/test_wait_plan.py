"""GPUs so that jobs start in time: on a cluster whose coming weeks are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand._validation import InputError
from gpudemand.jobs.table import as_jobs
from gpudemand.planning.quantiles import QuantileTable, mean_demand
from gpudemand.planning.queue import simulate_queue
from gpudemand.planning.wait_plan import WaitTarget, gpus_needed, plan_waits, wait_curve, wait_target
from gpudemand.planning.waits import WEEK_S, Futures, Weeks, draw_future
from gpudemand.usage.series import recorded_until

BEGIN = pd.Timestamp("2026-01-05", tz="UTC")


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
    ds = BEGIN + pd.to_timedelta(84 + np.arange(days), unit="D")
    reach = {80: 1.2816, 95: 1.96}
    bounds = {
        f"M-{side}-{p}": level + sign * z * spread for p, z in reach.items() for side, sign in (("lo", -1), ("hi", 1))
    }
    return pd.DataFrame({"unique_id": "total", "ds": ds, "M": level, **bounds})


def gpus_wanted(log, n_weeks):
    held = ((log["end"] - log["start"].fillna(log["submit"])).dt.total_seconds() * log["gpus"]).sum()
    return float(held / (n_weeks * WEEK_S))


@pytest.fixture(scope="module")
def planned():
    log = simulate_queue(stationary_log(12, seed=0), 40)
    forecast = forecast_of(gpus_wanted(log, 12), spread=4.0)
    return log, forecast, gd.plan_capacity(forecast, installed=40, wait="1h", wait_share=0.9, jobs=log)


def test_jobs_that_run_for_weeks_are_there_in_every_future():
    """Three jobs of 4 GPUs start every two days and run for 60: more than the weeks that are drawn."""
    submit = pd.Series(BEGIN + pd.to_timedelta(np.arange(0, 182, 2 / 3), unit="D"))
    frame = pd.DataFrame({"user": "ada", "submit": submit, "end": submit + pd.Timedelta("60D"), "gpus": 4.0})
    level = 60 * 1.5 * 4.0
    forecast = forecast_of(level, spread=0.03 * level)
    until = submit.max()
    needed = plan_waits(forecast, as_jobs(frame, kind="synthetic"), installed=100, wait="1h", n_futures=20, until=until)
    assert 0.9 * level < np.median(needed.needed) < 1.2 * level


def share_in_time(log, gpus):
    wait = (simulate_queue(log, gpus)["start"] - log["submit"]).dt.total_seconds()
    return float((wait[log["submit"] >= BEGIN + pd.Timedelta("7D")] <= 3600).mean())


@pytest.mark.slow
def test_the_plan_meets_its_target_in_new_weeks_and_eight_gpus_fewer_do_not(planned):
    new = [stationary_log(4, seed) for seed in range(1, 21)]
    required = planned[2].required
    assert np.mean([share_in_time(log, required) >= 0.9 for log in new]) >= 0.85
    assert np.mean([share_in_time(log, required - 8) >= 0.9 for log in new]) < 0.5


def test_more_gpus_wait_less_and_save_less(planned):
    curve = planned[2].to_frame()
    assert curve["gpus"].is_monotonic_increasing
    assert curve["share_in_time"].is_monotonic_increasing
    assert curve["p_met"].is_monotonic_increasing
    assert curve["waited_hours"].is_monotonic_decreasing
    assert (curve["share_in_time-lo-80"] <= curve["share_in_time-hi-80"]).all()
    at = curve.set_index("gpus")
    assert at.loc[planned[2].required, "p_met"] >= 0.95
    assert "GPUs so that 90 % of the jobs start within 1 h" in repr(planned[2])
    row = planned[2].summary.loc["total"]
    assert row["shortfall"] == max(row["required"] - 40, 0)


@pytest.mark.parametrize("availability", [1.0, 0.5])
def test_the_curve_begins_at_the_gpus_wanted_but_for_those_installed_and_a_node_less(availability):
    submit = BEGIN + pd.to_timedelta(np.arange(0, 84 * 24 * 60, 15), unit="min")
    frame = pd.DataFrame({"user": "ada", "submit": submit, "end": submit + pd.Timedelta("10h"), "gpus": 1.0})
    log, forecast = as_jobs(frame, kind="synthetic"), forecast_of(40.0, 1.0)
    plan = plan_waits(forecast, log, installed=30, availability=availability, n_futures=4)
    assert plan.required < 45 / availability  # so .6 times the requirement would be too few
    gpus = plan.to_frame()["gpus"].tolist()
    asked = {30, plan.required - 8}
    assert asked < set(gpus)
    assert min(set(gpus) - asked) == pytest.approx(40 / availability, abs=1 / availability)


def test_a_stricter_target_and_a_less_certain_forecast_need_more(planned):
    log, forecast, _ = planned
    few = {"installed": 40, "n_futures": 20}
    base = plan_waits(forecast, log, **few).required
    assert plan_waits(forecast, log, wait="5min", **few).required > base
    assert plan_waits(forecast, log, wait_share=0.99, **few).required > base
    assert plan_waits(forecast, log, largest=1, **few).required < base
    assert plan_waits(forecast_of(2 * forecast["M"][0], 4.0), log, **few).required > 1.5 * base
    assert plan_waits(forecast, log, **few).required == base


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


@pytest.mark.parametrize(("level", "slack"), [(8.0, 1), (20.0, 1), (300.0, 6)])
def test_gpus_needed_are_the_fewest(level, slack):
    log = stationary_log(12, seed=0)
    past, target = Weeks.from_log(log, recorded_until(log)), WaitTarget(3600.0, 0.9)
    futures = Futures(past, 2, np.full(5, level), np.random.SeedSequence(0).spawn(5))
    for future, gpus in zip(futures, gpus_needed(futures, target, "easy"), strict=True):
        assert target.excess(future, gpus + slack - 1, "easy") >= 0
        assert target.excess(future, gpus - slack, "easy") < 0


def test_a_future_has_the_level_and_the_hours_of_its_weeks():
    log = stationary_log(12, seed=0)
    past = Weeks.from_log(log, recorded_until(log))
    assert past.n_weeks == 11
    rng = np.random.default_rng(0)
    for level in (10.0, 25.0, 60.0):
        future = draw_future(past, 20, level, rng)
        wanted = (future.jobs.run * future.jobs.gpus).sum() / 1e6 / (21 * WEEK_S)
        assert wanted == pytest.approx(level, rel=0.05)
        offset = ((past.submit_s // 3600) % 24 == 0).mean()
        assert ((future.jobs.submit // 3_600_000_000) % 24 == 0).mean() == pytest.approx(offset, abs=0.02)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wait": "0s"}, "wait must be longer than 0 s"),
        ({"wait": "-1h"}, "wait must be longer than 0 s"),
        ({"wait": 3600}, "is not a length of time"),
        ({"wait_share": 1}, "wait_share must be"),
        ({"jobs": None}, "wait= needs jobs="),
        ({"installed": 0}, "installed must be a number above 0"),
        ({"service_level": 0.2}, "service_level must be"),
    ],
)
def test_nonsense_gets_one_sentence(planned, change, message):
    with pytest.raises(InputError, match=message):
        gd.plan_capacity(planned[1], **({"installed": 40, "wait": "1h", "jobs": planned[0]} | change))


def test_a_log_of_a_week_is_too_short(planned):
    short = stationary_log(1, seed=0)
    with pytest.raises(InputError, match="fewer than two weeks"):
        plan_waits(planned[1], short, installed=40)


@pytest.fixture(scope="module")
def two_pools():
    large, small = stationary_log(6, seed=1), stationary_log(6, seed=2, n_per_week=300)
    log = pd.concat([large.assign(gpu_type="A100"), small.assign(gpu_type="V100")], ignore_index=True)
    own = {name: forecast_of(gpus_wanted(part, 6), spread=3.0) for name, part in log.groupby("gpu_type")}
    return log, pd.concat([rows.assign(unique_id=name) for name, rows in own.items()], ignore_index=True)


INSTALLED = {"A100": 60, "V100": 24}


def test_each_pool_is_planned_as_if_alone(two_pools):
    log, forecast = two_pools
    plan = gd.plan_capacity(forecast, installed=INSTALLED, wait="1h", jobs=log)
    assert plan.summary.index.tolist() == list(INSTALLED)
    for name, gpus in INSTALLED.items():
        alone = plan_waits(
            forecast[forecast["unique_id"] == name], log[log["gpu_type"] == name], installed=gpus
        ).summary.loc[["total"]]
        pd.testing.assert_frame_equal(plan.summary.loc[[name]].reset_index(drop=True), alone.reset_index(drop=True))
    assert plan.to_frame().groupby("unique_id").size().index.tolist() == list(INSTALLED)
    assert [line.split()[0] for line in repr(plan).splitlines()[2:]] == list(INSTALLED)


def test_a_forecast_of_the_total_is_shared_out(two_pools):
    log, forecast = two_pools
    total = forecast_of(gpus_wanted(log, 6), spread=4.0)
    by_pool = plan_waits(forecast, log, installed=INSTALLED, n_futures=40).summary["required"]
    shared = plan_waits(total, log, installed=INSTALLED, n_futures=40).summary["required"]
    assert (shared / by_pool).between(0.8, 1.2).all()


def test_pools_that_do_not_match_get_one_sentence(two_pools):
    log, forecast = two_pools
    with pytest.raises(InputError, match="installed says nothing about gpu_type 'V100'"):
        plan_waits(forecast, log, installed={"A100": 60})
    with pytest.raises(InputError, match="the forecast has no series of the pool 'V100'"):
        plan_waits(forecast[forecast["unique_id"] == "A100"], log, installed=INSTALLED)
    with pytest.raises(InputError, match="the forecast has 2 series; give installed= by pool"):
        plan_waits(forecast, log, installed=60)


def test_the_curve_tells_the_chance_with_a_node_less():
    plan = plan_waits(forecast_of(70.0, 6.0), stationary_log(12, 0), installed=100, n_futures=40)
    chance = plan.to_frame().set_index("gpus")["p_met"]
    assert chance[plan.required - 8] < plan.service_level <= chance[plan.required] <= chance[plan.required + 8]


def test_a_target_of_no_job_is_refused(planned):
    with pytest.raises(InputError, match=r"no job of the log has at most 0\.5 GPUs"):
        plan_waits(planned[1], planned[0], installed=40, largest=0.5)


def test_what_the_next_8_gpus_save_is_what_is_waited_less(planned):
    log, forecast, plan = planned
    last = plan.to_frame().iloc[-1]
    further = plan_waits(forecast, log, installed=40, wait="1h", capacities=[last["gpus"] + 8]).to_frame()
    rows = further.set_index("gpus")["waited_hours"].loc[[last["gpus"], last["gpus"] + 8]]
    assert last["saved_hours"] == pytest.approx(rows.iloc[0] - rows.iloc[1])
    assert last["saved_hours"] > 0


def test_work_to_come_is_added_to_the_jobs_drawn_and_not_in_their_place(planned):
    log, forecast, plan = planned
    begin = forecast["ds"].min()
    few = gd.Programme("few", 1, begin, begin + pd.Timedelta("1D"), hours=0.01, gpus=1).jobs()
    over = gd.Programme("over", 40, begin - pd.Timedelta("60D"), begin - pd.Timedelta("30D"), hours=6, gpus=64).jobs()
    large = gd.Programme("large", 4, begin, begin + pd.Timedelta("10D"), hours=6, gpus=256).jobs()
    options = {"installed": 40, "wait": "1h", "wait_share": 0.9}
    for work in (few, over):
        assert plan_waits(forecast, log, work=work, **options).required == plan.required
    more = forecast_of(forecast["M"].iloc[0] + 4 * 6 * 256 / (21 * 24), spread=4.0)
    assert plan_waits(more, log, work=large, **options).required >= 256
    with pytest.raises(InputError, match="work= is for one pool"):
        plan_waits(forecast, log, installed={"a": 20}, work=few)


def test_more_gpus_start_no_fewer_jobs_in_time():
    # Large jobs that fewer GPUs have no room for, and of which twice as many run side by side and leave no room.
    rng, week = np.random.default_rng(0), np.repeat([0, 1], 300)
    submit_s, large = np.tile(np.sort(rng.random(300) * WEEK_S), 2), np.arange(600) % 30 == 0
    run_s = np.where(large, 24, 4) * 3600.0
    past = Weeks(week, submit_s, run_s, run_s, np.where(large, 64.0, 1.0), 2)
    levels = np.full(2, (past.run_s * past.gpus).sum() / 2 / WEEK_S)
    futures = Futures(past, 2, levels, np.random.SeedSequence(0).spawn(2))
    curve = wait_curve(np.arange(40.0, 145.0, 8.0), futures, wait_target("1h", 0.9), "easy")
    assert curve["share_in_time"].is_monotonic_increasing
    few, many = curve.iloc[0], curve.iloc[-1]
    assert few["share_in_time"] < 0.5 < many["share_in_time"]
    assert few["mean_wait_s"] > many["mean_wait_s"]
    (future,) = futures.take(np.array([0]))
    assert np.isinf(future.waits_s(40.0)[future.jobs.gpus[future.counted] > 40]).all()
    assert np.isinf(future.waits_s(0.0)).all()
