"""GPUs that windows of four weeks need, and their distribution: laws that no series of numbers may break."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.jobs.table import as_jobs, as_of
from gpudemand.planning import need as need_module
from gpudemand.planning.need import (
    RESOLUTION,
    JobTimes,
    NeedForecast,
    WaitTarget,
    Window,
    fewest_gpus,
    forecast_need,
    forecast_peaks,
    wait_target,
)
from gpudemand.planning.queue import simulate_queue
from gpudemand.planning.queue_kernels import NEVER, QueuedJobs
from tests.tiers import slow_beside

END = pd.Timestamp("2026-03-01", tz="UTC")
TARGET = wait_target("1h", 0.9)
DAY = pd.Timedelta("1D")


def table(submit_days, hours, gpus, **columns):
    """Jobs submitted some days before the end of the log, that start when submitted."""
    submit = END - (pd.to_timedelta(np.asarray(submit_days, dtype=float), unit="D")).round("s")
    run = pd.to_timedelta(np.broadcast_to(np.asarray(hours, dtype=float), len(submit)), unit="h").round("s")
    frame = {"user": "ada", "submit": submit, "start": submit, "end": submit + run, "gpus": gpus, "status": "completed"}
    return as_jobs(pd.DataFrame({**frame, **columns}).sort_values("submit", ignore_index=True), kind="synthetic")


def without(log, *names):
    """The log without some of its times."""
    return log.assign(**{name: log[name].where(log.index < 0) for name in names})


def random_log(n, days, seed, sizes=(1.0, 1.0, 2.0, 4.0, 8.0)):
    rng = np.random.default_rng(seed)
    hours = np.exp(rng.normal(1.0, 1.2, n)).clip(0.01, 100)
    requested_s = (3600 * hours * rng.uniform(1, 4, n)).round()
    return table(days * rng.random(n), hours, rng.choice(sizes, n), requested_time=requested_s)


def window_of(log, end_s=0.0):
    return JobTimes.from_log(log, END).window(end_s)


# Needs of windows in the past.


def share_by_queue(log, gpus, target, policy="easy"):
    """Share in time by the public simulation, of the jobs of the last four weeks behind those of the week before."""
    begin = END - 35 * DAY
    log = log[(log["submit"] >= begin) | (log["end"] > begin)].reset_index(drop=True)
    too_large = log["gpus"].to_numpy() > gpus
    longer = np.where(too_large, log["gpus"].to_numpy() / gpus, 1.0)
    run_s = (log["end"] - log["start"]).dt.total_seconds() * longer
    requested = log["requested_time"] * longer
    queued = log.assign(
        end=log["start"] + pd.to_timedelta(run_s, unit="s"), requested_time=requested, gpus=log["gpus"].clip(upper=gpus)
    )
    ran = simulate_queue(queued, gpus, policy)
    wait_s = (ran["start"] - log["submit"]).dt.total_seconds().to_numpy()
    counts = ((log["submit"] >= END - 28 * DAY) & (log["gpus"] <= target.largest)).to_numpy()
    run_s = (log["end"] - log["start"]).dt.total_seconds().to_numpy()
    weight = counts * (log["gpus"].to_numpy() * run_s if target.of == "gpu_hours" else 1.0)
    return float(weight[(wait_s <= target.wait_s) & ~too_large].sum() / weight.sum())


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.3, 2.0, 3.0])
def test_work_that_changes_is_so_many_times_as_much(factor):
    rng, n = np.random.default_rng(0), 3000
    submit, run = np.sort(rng.integers(1, round(35 * 86400e6), n)), np.full(n, 7_200_000_000)
    window = Window(QueuedJobs(submit, run, run, np.full(n, NEVER), np.ones(n)), submit >= 7 * 86400e6, np.arange(n))
    changed = [window.changed(np.full(n, factor), np.ones(n), np.arange(n) % 7, seed) for seed in range(5)]
    hours = np.mean([each.hours_wanted().sum() for each in changed])
    assert hours / window.hours_wanted().sum() == pytest.approx(factor, rel=0.02)
    assert all((np.diff(each.jobs.submit) >= 0).all() for each in changed)


@pytest.mark.parametrize(
    ("target", "policy"),
    [
        (TARGET, "easy"),
        (wait_target("10min", 0.75), "fifo"),
        (wait_target("1h", 0.9, "gpu_hours"), "easy"),
        (wait_target("1h", 0.95, largest=2), "eager"),
    ],
)
@pytest.mark.parametrize("seed", slow_beside([0], range(3)))
def test_the_fewest_gpus_are_those_of_trying_them_one_after_another(target, policy, seed):
    log = random_log(120, 35, seed)
    window = window_of(log)
    shares = np.array([share_by_queue(log, gpus, target, policy) for gpus in range(1, 23)])
    found = fewest_gpus(window, target, policy)
    assert 1 < found < 22
    assert shares[int(found) - 1] >= target.share
    # Where one more does not suffice, there are several numbers below which one fewer does not.
    crossings = 1 + np.flatnonzero((shares >= target.share) & (np.r_[0.0, shares[:-1]] < target.share))
    assert found in crossings
    if len(crossings) == 1:
        assert found == 1 + np.argmax(shares >= target.share)
    for gpus in (2, found, 22):
        waits = window.waits_s(float(gpus), policy)
        assert target.share_in_time(window, waits) == pytest.approx(shares[int(gpus) - 1])


def test_a_guess_changes_the_way_and_not_the_number():
    for seed in range(6):
        window = window_of(random_log(300, 35, seed))
        met = {gpus: TARGET.share_in_time(window, window.waits_s(float(gpus))) >= 0.9 for gpus in range(1, 40)}
        crossings = {gpus for gpus in range(2, 40) if met[gpus] and not met[gpus - 1]}
        found = {fewest_gpus(window, TARGET, guess=guess) for guess in (None, 1.0, 10.0, 20.0, 500.0)}
        assert found <= crossings
        assert len(found) == 1 or len(crossings) > 1


def test_of_many_gpus_the_fewest_are_known_to_their_precision():
    log = random_log(400, 35, seed=2, sizes=(100.0, 200.0, 800.0))
    window = window_of(log)
    found = fewest_gpus(window, TARGET)
    meets = [TARGET.share_in_time(window, window.waits_s(gpus)) >= TARGET.share for gpus in (found, 0.9 * found)]
    assert meets == [True, False]
    assert fewest_gpus(window, TARGET, guess=found) == pytest.approx(found, rel=2 * RESOLUTION)


def test_jobs_that_are_too_large_are_not_in_time():
    log = table([20, 15, 10, 5], 1.0, [1.0, 4.0, 16.0, 64.0])
    window = window_of(log)
    assert np.isinf(window.waits_s(16.0)).tolist() == [False, False, False, True]
    assert window.waits_s(64.0).tolist() == [0, 0, 0, 0]
    for share, gpus in ((0.25, 1), (0.5, 4), (0.75, 16), (0.76, 64)):
        assert fewest_gpus(window, wait_target("1h", share)) == gpus
    assert fewest_gpus(window, wait_target("1h", 0.99, largest=16)) == 16


def test_work_of_jobs_that_are_too_large_delays_the_others():
    """Of 40 jobs of an hour each, the second to the last come while a job of twice the GPUs would run."""
    log = table([20, *(20 - np.arange(1, 40) / 24)], [20.0, *[1.0] * 39], [8.0, *[1.0] * 39])
    window = window_of(log)
    waits = window.waits_s(4.0)
    assert np.isinf(waits[0])
    assert waits[1] == pytest.approx(39 * 3600, abs=2)  # twice the GPUs, so twice the 20 hours
    assert TARGET.share_in_time(window, window.waits_s(9.0)) == 1


def test_a_job_of_before_the_window_holds_its_gpus_in_it():
    quiet = table(np.linspace(27.9, 0.1, 200), 10.0, 1.0)
    running = table([60.0], 24 * 90, 8.0)
    need = [fewest_gpus(window_of(log), TARGET) for log in (quiet, pd.concat([running, quiet], ignore_index=True))]
    assert need[1] == need[0] + 8
    over = table([60.0], 24 * 20, 8.0)
    assert fewest_gpus(window_of(pd.concat([over, quiet], ignore_index=True)), TARGET) == need[0]
    assert fewest_gpus(window_of(running), TARGET) == 8


def test_a_job_that_came_after_the_window_is_not_in_it():
    log = random_log(300, 70, seed=3)
    early = log[log["submit"] < END - 28 * DAY]
    windows = window_of(log, -28 * 86400.0), window_of(early, -28 * 86400.0)
    for one, other in zip(windows[0].jobs, windows[1].jobs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_mean_wanted_is_that_of_each_second():
    log = random_log(300, 70, seed=4)
    seconds = np.arange(0, 28 * 86400, 600.0) + 300
    times = JobTimes.from_log(log, END)
    for end_s in (0.0, -14 * 86400.0):
        at = end_s - seconds
        held = ((times.submit_s[:, None] <= at) & (times.submit_s + times.run_s)[:, None].__gt__(at)).T @ times.gpus
        assert times.mean_wanted(end_s) == pytest.approx(held.mean(), rel=0.01)


# Times of jobs that are not over.


def test_jobs_that_run_and_wait_as_the_log_ends_are_expected_to_run():
    log = table(
        [30.0, 29.0, 28.0, 10.0, 9.0, 8.0, 0.5, 0.4, 0.3],
        [2.0, 4.0, 6.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        1.0,
        user=["ada", "ada", "ada", "bob", "bob", "bob", "ada", "new", "ada"],
        requested_time=[np.nan, np.nan, np.nan, np.nan, 300 * 3600.0, np.nan, np.nan, np.nan, 3 * 3600.0],
        status=["completed"] * 3 + ["running"] * 2 + ["cancelled"] + ["pending"] * 3,
    )
    runs, waits, gave_up = log["status"].eq("running"), log["status"].eq("pending"), log["status"].eq("cancelled")
    log["end"] = log["end"].mask(runs | waits).mask(gave_up, log["start"])
    log["start"] = log["start"].mask(waits)
    times = JobTimes.from_log(log, END)
    assert times.stuck == 0
    assert times.length_s == 30 * 86400
    # As long again (240 h so far), but at most as requested (300 h of 216 h so far); the median of a user, of all, and
    # at most as requested. Who gave up is left out.
    np.testing.assert_allclose(times.run_s / 3600, [2, 4, 6, 480, 300, 4, 4, 3])
    assert (times.requested_s >= times.run_s).all()
    # One that runs for longer than it requested ends now.
    over = log.assign(requested_time=log["requested_time"].mask(runs, 3600.0))
    np.testing.assert_allclose(JobTimes.from_log(over, END).run_s[3:5] / 3600, [240, 216])


def test_a_job_that_waits_for_longer_than_any_that_started_is_left_out():
    log = random_log(100, 30, seed=5)
    log["start"] += pd.Timedelta("30h")
    log["end"] += pd.Timedelta("30h")
    log = as_of(log, END)
    assert log["status"].eq("pending").any()
    open_ = without(table([300.0, 1.2], 1.0, 4.0, status="pending"), "start", "end")
    both = pd.concat([log, open_], ignore_index=True)
    times, others = JobTimes.from_log(both, END), JobTimes.from_log(log, END)
    assert times.stuck == 1  # 1.2 days are less than the 30 h that all waited
    assert len(times.gpus) == len(log) + 1
    assert times.length_s == others.length_s < 31 * 86400
    assert forecast_need(both, TARGET, END).stuck == 1
    # Where nobody waited, a day is not yet long.
    idle = pd.concat([table([3.0], 1.0, 1.0), open_.assign(submit=[END - 2 * DAY, END - 0.9 * DAY])])
    assert JobTimes.from_log(idle, END).stuck == 1


def test_a_job_that_runs_in_a_log_without_starts_runs_since_it_was_submitted():
    log = table([40.0, 20.0], 2.0, [1.0, 4.0], status=["completed", "running"])
    log = without(log, "start").assign(end=log["end"].mask(log["status"].eq("running")))
    times = JobTimes.from_log(log, END)
    np.testing.assert_allclose(times.run_s, [2 * 3600, 2 * 20 * 86400])
    assert times.stuck == 0


# The need of a log as it was.


@pytest.fixture(scope="module")
def stationary():
    log = random_log(1500, 100, seed=6)
    return log, forecast_need(log, TARGET, END)


def test_what_the_need_consists_of(stationary):
    log, need = stationary
    times = JobTimes.from_log(log, END)
    assert need.weekly[0] == need.last == fewest_gpus(window_of(log), TARGET)
    assert len(need.weekly) == len(need.means) == (100 - 28) // 7 + 1
    for week in (3, 9):
        assert need.weekly[week] == pytest.approx(fewest_gpus(times.window(-7 * 86400.0 * week), TARGET), abs=1)
        assert need.means[week] == pytest.approx(times.mean_wanted(-7 * 86400.0 * week))
    ends = [fewest_gpus(times.window(-86400.0 * day), TARGET) for day in range(29)]
    assert need.recent == pytest.approx(max(ends), abs=1)
    weights = 0.5 ** (np.arange(11) / 8)
    assert need.usual == pytest.approx(np.exp(np.average(np.log(need.weekly), weights=weights)))
    np.testing.assert_allclose(need.headroom, np.log(need.weekly / need.means))


def test_seconds_names_and_zones_change_nothing(stationary):
    log, need = stationary
    later = log.assign(**{name: log[name] + pd.Timedelta("2s") for name in ("submit", "start", "end")})
    moved = forecast_need(later, TARGET, END + pd.Timedelta("2s"))
    assert moved.recent == need.recent
    np.testing.assert_array_equal(moved.weekly, need.weekly)
    early = log.assign(submit=log["submit"] - pd.Timedelta("2s"))
    others = [
        later,
        early,
        log.assign(user=[f"u{number % 7}" for number in range(len(log))]),
        log.assign(**{name: log[name].dt.tz_convert("Asia/Tokyo") for name in ("submit", "start", "end")}),
        log.sample(frac=1, random_state=0),
    ]
    for jobs in others:
        changed = forecast_need(jobs, TARGET, END)
        assert changed.recent == pytest.approx(need.recent, abs=1)
        np.testing.assert_allclose(changed.weekly, need.weekly, atol=1)


def test_a_log_of_many_jobs_simulates_fewer_windows_and_knows_as_long_a_past(monkeypatch):
    day = 200 * (1 - np.linspace(0, 1, 3000) ** 0.7)  # ever more jobs
    log = table(np.sort(day)[::-1] + 0.01, np.random.default_rng(0).exponential(60.0, 3000), 1.0)
    every = forecast_need(log, TARGET, END)
    simulated = []
    monkeypatch.setattr(need_module, "_MOST_SIMULATED", 1)
    monkeypatch.setattr(need_module, "fewest_gpus", lambda *args: simulated.append(1) or fewest_gpus(*args))
    some = forecast_need(log, TARGET, END)
    assert len(simulated) < 0.5 * len(every.weekly)
    assert len(some.weekly) == len(every.weekly)
    np.testing.assert_allclose(some.weekly, every.weekly, rtol=0.1, atol=1)
    for days in (28, 90):
        assert some.quantile(0.95, days) == pytest.approx(every.quantile(0.95, days), rel=0.03)


@pytest.mark.parametrize("jobs_a_day", [0, 1, 20, 200])
def test_services_of_long_ago_need_the_gpus_that_they_hold(jobs_a_day):
    """They wait for nothing, and the small jobs of today would pass them where they did not fit."""
    services = table([100.0] * 10, 2400.0, 8.0)
    small = table(np.linspace(99.9, 0.1, 100 * jobs_a_day), 1.0, 1.0)
    need = forecast_need(pd.concat([services, small], ignore_index=True), TARGET, END)
    assert (need.weekly >= 80 + jobs_a_day / 24).all()
    assert need.quantile(0.5, 28) > 70


def test_jobs_of_twice_the_gpus_need_twice_as_many(stationary):
    log, need = stationary
    double = forecast_need(log.assign(gpus=2 * log["gpus"]), TARGET, END)
    np.testing.assert_allclose(double.weekly, 2 * need.weekly, atol=1)
    assert double.recent == pytest.approx(2 * need.recent, rel=0.01)
    assert double.rate == pytest.approx(need.rate, abs=0.003)


def test_a_stricter_target_needs_more(stationary):
    log, need = stationary
    recent = [forecast_need(log, wait_target("1h", share), END).recent for share in (0.7, 0.9, 0.99)]
    assert recent[0] < recent[1] == need.recent < recent[2]
    assert forecast_need(log, wait_target("8h", 0.9), END).recent < need.recent
    with pytest.raises(InputError, match=r"no job of the log has at most 0\.5 GPUs"):
        forecast_need(log, wait_target("1h", 0.9, largest=0.5), END)


def test_a_log_of_two_days_needs_what_it_shows():
    need = forecast_need(random_log(200, 2, seed=7), TARGET, END)
    assert len(need.weekly) == 1
    assert need.recent > 10
    assert need.quantile(0.05, 28) < need.quantile(0.95, 28) < 10 * need.recent
    assert need.backtest(0.95, 28).empty


def test_a_log_that_was_idle_for_eight_weeks_needs_nothing():
    log = random_log(300, 30, seed=8)
    moved = log.assign(**{name: log[name] - 90 * DAY for name in ("submit", "start", "end")})
    need = forecast_need(moved, TARGET, END)
    assert need.recent == need.last == need.quantile(0.95, 28) == need.exceedance(1.0, 28) == 0
    assert need.weekly.any()
    assert need.outcomes(TARGET)["share_in_time"].eq(1).all()


def test_days_before_a_cluster_came_back_do_not_lower_its_need():
    """All but one job of a year are of the last three days: of ends a week apart, some know of no job."""
    busy = random_log(200, 3, seed=9)
    need = forecast_need(pd.concat([table([300.0], 1.0, 1.0), busy], ignore_index=True), TARGET, END)
    assert need.recent >= need.last
    assert need.quantile(0.5, 90) > 0.5 * need.last
    assert forecast_need(busy, TARGET, END).recent > 0.5 * need.last


# Its distribution to come.


def forecast(weekly, kind="jobs", **options):
    weekly = np.asarray(weekly, dtype=float)
    return NeedForecast(float(weekly[:5].max()), weekly, kind=kind, **options)


SHARES = (0.05, 0.1, 0.25, 0.45, 0.5, 0.55, 0.75, 0.9, 0.95, 0.99)


@pytest.mark.parametrize("kind", ["jobs", "series"])
@pytest.mark.parametrize("days", [0, 28, 90, 400])
@pytest.mark.parametrize("weeks", [1, 14, 52])
def test_quantiles_ascend_and_invert_the_risk(kind, days, weeks):
    weekly = 200 + 40 * np.random.default_rng(0).standard_normal(weeks)
    need = forecast(weekly, kind)
    quantiles = [need.quantile(share, days) for share in SHARES]
    assert (np.diff(quantiles) > 0).all()
    assert [need.exceedance(gpus, days) for gpus in quantiles] == pytest.approx([1 - share for share in SHARES])
    assert need.exceedance(0.0, days) == 1
    ten = replace(need, recent=10 * need.recent, weekly=10 * need.weekly)
    assert ten.quantile(0.9, days) == pytest.approx(10 * need.quantile(0.9, days))


@pytest.mark.parametrize("days", [28, 90])
def test_a_need_that_grew_is_expected_to_go_on(days):
    """A line in logarithms has no scatter, so all of its slope is believed."""
    rate = 0.02
    flat, changed = forecast(np.full(40, 100.0)), forecast(100 * np.exp(-rate * np.arange(40)))
    assert changed.rate == pytest.approx(rate)
    ratio = changed.quantile(0.5, days) / flat.quantile(0.5, days)
    assert ratio == pytest.approx(changed.level(days) / flat.level(days) * changed.growth(days), rel=0.1)
    assert changed.growth(days) == pytest.approx(np.exp(rate * (days + 28) / 7))


@pytest.mark.parametrize("weeks", [9, 13, 20, 40])
@pytest.mark.parametrize("small", [4, 8])
def test_a_cluster_that_began_is_neither_growth_nor_scatter(weeks, small):
    """Some weeks of a pilot, a month in which it fills, and then always the same."""
    weekly = np.r_[np.full(weeks, 100.0), 76.0, 52.0, 28.0, np.full(small, 5.0)]
    need = forecast(weekly)
    assert need.rate == pytest.approx(0, abs=1e-3)
    for days in (28, 90):
        assert 100 < need.quantile(0.95, days) < 150
    soon = forecast(weekly[weeks:])  # while it fills, growth goes on, but no faster than a cluster grows
    assert soon.quantile(0.95, 90) < 2.5 * soon.recent
    assert forecast(100 * 0.5 ** np.arange(30)).rate == pytest.approx(np.log(4) / 52)


@pytest.mark.parametrize("weeks", [5, 8, 12, 16])
def test_a_fall_is_not_carried_on(weeks):
    need = forecast(np.r_[np.full(weeks, 30.0), 47.0, 65.0, 82.0, np.full(30, 100.0)])
    assert need.rate == 0
    assert min(need.quantile(0.95, 28), need.quantile(0.95, 90)) > 30
    assert forecast(30.0 * 1.02 ** np.arange(40)).rate == 0


@pytest.mark.parametrize("factor", [1.3, 1.6, 2.0])
@pytest.mark.parametrize("weeks", [5, 7, 9, 11, 14])
def test_a_step_is_no_growth(weeks, factor):
    """Two levels with some noise, and the four windows of which a part is after the step."""
    rng = np.random.default_rng(0)
    level = np.r_[np.full(weeks, factor), 1 + (factor - 1) * np.array([0.75, 0.5, 0.25]), np.ones(26 - 3 - weeks)]
    rates = [forecast(100 * level * np.exp(0.04 * rng.standard_normal(26))).rate for _ in range(50)]
    assert np.mean(rates) < 0.15 * np.log(factor) / 13
    rate = np.log(factor) / 26
    grown = [forecast(100 * np.exp(0.02 * rng.standard_normal(26) - rate * np.arange(26))).rate for _ in range(50)]
    assert np.mean(grown) > 0.8 * rate


def test_growth_is_not_believed_within_its_scatter_or_of_two_windows():
    rng = np.random.default_rng(0)
    for _ in range(20):
        noise = np.repeat(0.2 * rng.standard_normal(11), 4)[:40]  # windows that overlap are alike
        assert abs(forecast(100 * np.exp(noise)).rate) < 0.02
    short = 100 * np.exp(-0.02 * np.arange(9))
    assert forecast(short).rate == pytest.approx(0.02)
    assert forecast(short[:8]).rate == 0
    for _ in range(20):  # three windows side by side leave one degree of freedom for their scatter
        assert forecast(short * np.exp(0.02 * rng.standard_normal(9))).rate == 0
    noisy = 100 * np.exp(-0.02 * np.arange(26) + 0.1 * rng.standard_normal(26))
    assert 0 <= forecast(noisy).rate < 0.03


def test_the_longer_the_lead_the_less_the_recent_need_counts():
    burst = forecast(np.r_[200.0, np.full(51, 100.0)])
    levels = [burst.level(days) for days in (0, 28, 90, 365)]
    assert levels[0] == levels[1] == burst.recent == 200
    assert levels[1] > levels[2] > levels[3] > burst.usual > 100
    assert [burst.weight(days) for days in (28, 84, 196)] == [1, 0.5, 0.25]


@pytest.mark.parametrize("kind", ["jobs", "series"])
def test_a_need_that_stayed_the_same_is_known_better(kind):
    weekly = [np.full(weeks, 100.0) for weeks in (1, 16, 52)]
    bands = [forecast(each, kind).quantile(0.95, 28) / forecast(each, kind).quantile(0.05, 28) for each in weekly]
    assert bands[0] > bands[1] > bands[2] > 1
    restless = 100 * np.where(np.arange(52) % 16 < 8, 1.0, 0.4)
    assert forecast(restless, kind).quantile(0.95, 28) > forecast(weekly[2], kind).quantile(0.95, 28)


def test_windows_without_jobs_tell_nothing():
    gaps = np.where(np.arange(30) % 3 == 1, 0.0, 100.0)
    assert forecast(gaps).usual == pytest.approx(100)
    assert forecast(gaps).rate == 0
    assert forecast(gaps).quantile(0.5, 28) > 0


# What it would have said.


def test_a_backtest_compares_a_plan_with_the_window_after_its_lead():
    weekly = 100.0 + np.arange(30)
    for days, ahead in ((28, 8), (63, 13)):
        result = forecast(weekly).backtest(0.9, days)
        assert result["weeks_ago"].tolist() == list(range(ahead, 30))
        assert result["need"].tolist() == (weekly[result["weeks_ago"] - ahead]).tolist()
        present = [max(weekly[week], weekly[week + 4] if week + 4 < 30 else 0) for week in result["weeks_ago"]]
        assert result["rule"].tolist() == np.ceil(1.15 * np.array(present)).tolist()


def test_a_backtest_knows_nothing_of_later():
    rng = np.random.default_rng(0)
    weekly, means = 100 * np.exp(0.2 * rng.standard_normal(40)), 50 * np.exp(0.2 * rng.standard_normal(40))
    before = forecast(weekly, means=means).backtest(0.95, 28).set_index("weeks_ago")
    for origin in (10, 20, 30):
        later = np.arange(40) < origin
        changed = forecast(np.where(later, 3 * weekly, weekly), means=np.where(later, means / 2, means))
        after = changed.backtest(0.95, 28).set_index("weeks_ago")
        pd.testing.assert_frame_equal(after.loc[origin:, ["plan", "rule"]], before.loc[origin:, ["plan", "rule"]])
        assert not np.allclose(after.loc[: origin + 7, "need"], before.loc[: origin + 7, "need"])


def test_a_backtest_says_what_a_log_of_that_day_says(stationary):
    log, need = stationary
    weeks_ago = 8
    then = END - weeks_ago * 7 * DAY
    known = forecast_need(as_of(log, then), TARGET, then)
    plan = need.backtest(0.95, 28).set_index("weeks_ago").loc[weeks_ago, "plan"]
    assert plan == pytest.approx(known.quantile(0.95, 28), rel=0.1)


# Usage without jobs.


@pytest.mark.parametrize("days", [1, 20, 40, 200])
def test_the_peak_of_a_flat_series_is_its_need(days):
    need = forecast_peaks(np.full(days, 64.0), np.full(days, 32.0))
    assert need.recent == need.last == 64
    assert need.usual == pytest.approx(64)
    assert set(need.weekly) == {64.0}
    assert need.kind == "series"


def test_peaks_are_those_of_windows():
    peaks = np.random.default_rng(0).uniform(10, 100, 150)
    need = forecast_peaks(peaks, peaks / 2)
    expected = [peaks[150 - 7 * week - 28 : 150 - 7 * week].max() for week in range(len(need.weekly))]
    assert need.weekly.tolist() == expected
    assert len(need.weekly) == (150 - 28) // 7 + 1
    assert need.recent == peaks[150 - 56 :].max()


def test_days_that_are_not_known_tell_nothing():
    peaks = np.random.default_rng(1).uniform(10, 100, 120)
    unknown = np.arange(120) % 5 == 4
    need = forecast_peaks(np.where(unknown, np.nan, peaks), np.where(unknown, np.nan, 20.0))
    zero = forecast_peaks(np.where(unknown, 0.0, peaks), np.where(unknown, np.nan, 20.0))
    assert need.recent == zero.recent
    np.testing.assert_array_equal(need.weekly, zero.weekly)
    np.testing.assert_allclose(need.means, 20)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_usage_of_nothing_needs_nothing(value):
    need = forecast_peaks(np.full(90, value), np.full(90, value))
    assert need.recent == need.quantile(0.95, 28) == need.exceedance(1.0, 28) == 0


# Work that is known.


def work(begin_days, hours, gpus):
    """Jobs that begin some days after the end of the log."""
    submit = END + pd.to_timedelta(np.atleast_1d(np.asarray(begin_days, dtype=float)), unit="D")
    end = submit + pd.to_timedelta(np.broadcast_to(np.asarray(hours, dtype=float), len(submit)), unit="h")
    return pd.DataFrame({"submit": submit, "end": end, "gpus": np.broadcast_to(np.asarray(gpus, float), len(submit))})


def test_a_job_that_runs_through_a_quiet_window_adds_its_gpus():
    need = forecast_need(table(np.linspace(60, 0.1, 600), 10.0, 1.0), TARGET, END)
    begin = END + 28 * DAY
    for gpus in (8.0, 40.0):
        through = work(25.0, 24 * 60, gpus)
        assert need.extra_gpus(through, begin, TARGET) == pytest.approx(gpus, abs=1)
        assert need.extra_gpus(through, begin + 28 * DAY, TARGET) == pytest.approx(gpus, abs=1)
    for outside in (work(-20.0, 24 * 30, 40.0), work(28.0 + 28, 24.0, 40.0)):
        assert need.extra_gpus(outside, begin, TARGET) == 0


def test_many_jobs_add_about_what_they_hold():
    need = forecast_need(table(np.linspace(60, 0.1, 600), 10.0, 1.0), TARGET, END)
    many = work(28 + np.linspace(0.01, 27.99, 280), 24.0, 2.0)  # 10 a day, 20 GPUs at once
    assert need.extra_gpus(many, END + 28 * DAY, TARGET) == pytest.approx(20, abs=3)


def test_a_log_without_jobs_needs_only_the_work():
    none = NeedForecast.none()
    assert none.quantile(0.95, 28) == none.exceedance(1.0, 28) == 0
    begin = END + 28 * DAY
    assert none.extra_gpus(work(30.0, 48.0, 16.0), begin, TARGET) == 16
    assert none.extra_gpus(work([30.0, 30.0], 48.0, 16.0), begin, TARGET) == 32
    # Also where all of it has begun before.
    assert none.extra_gpus(work(5.0, 24 * 60, 16.0), begin, TARGET) == 16
    assert none.extra_gpus(work(5.0, 24.0, 16.0), begin, TARGET) == 0


# What other numbers of GPUs would have met.


def test_outcomes_improve_with_the_gpus(stationary):
    need = stationary[1]
    outcomes = need.outcomes(TARGET)
    assert outcomes["ratio"].iloc[[0, -1]].tolist() == pytest.approx([0.25, 4.0])
    assert outcomes["share_in_time"].is_monotonic_increasing
    enough = outcomes["ratio"] >= 1
    assert (outcomes.loc[enough, "share_in_time"] >= TARGET.share - 0.01).all()
    assert outcomes["share_in_time"].iloc[-1] == 1
    assert outcomes["mean_wait_s"].iloc[-1] == outcomes["waited_hours"].iloc[-1] == 0
    window = need.window
    waits = window.waits_s(outcomes["ratio"].iloc[20] * need.last)
    assert outcomes["waited_hours"].iloc[20] == pytest.approx(waits[np.isfinite(waits)].sum() / 3600 / 4)


def test_on_half_of_what_a_large_log_needs_hardly_a_job_starts_in_time(stationary, monkeypatch):
    need = stationary[1]
    known = need.outcomes(TARGET)
    monkeypatch.setattr(need_module, "_MANY_JOBS", 0)
    few = need.outcomes(TARGET)
    assert len(few) < len(known) / 2
    short = [np.interp(0.5, table["ratio"], table["share_in_time"]) for table in (few, known)]
    assert short == pytest.approx([short[1]] * 2, abs=0.05)


def test_a_target_says_what_it_is():
    assert str(WaitTarget(3600.0, 0.9)) == "90 % of the jobs start within 1 h"
    assert str(wait_target("30min", 0.95, "gpu_hours", 8)) == (
        "95 % of the GPU-hours of at most 8 GPUs start within 30 min"
    )
