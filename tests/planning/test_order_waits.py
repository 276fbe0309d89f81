"""Waits until an order arrives and after it, behind the jobs that run and wait as the log ends."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.jobs.table import as_of
from gpudemand.planning.programmes import Programme
from gpudemand.planning.queue import simulate_queue
from gpudemand.planning.queue_kernels import NEVER, QueuedJobs
from gpudemand.planning.wait_plan import plan_waits
from gpudemand.planning.waits import WEEK_S, Future, Steps, unfinished_jobs, with_expected_ends
from tests.planning.test_wait_plan import BEGIN, forecast_of, gpus_wanted, stationary_log
from tests.tiers import slow_beside

END = BEGIN + pd.Timedelta("84D")
ARRIVAL, LATER = END + pd.Timedelta("28D"), END + pd.Timedelta("49D")


#: Mean GPUs wanted by many such logs.
LEVEL = float(np.mean([gpus_wanted(stationary_log(12, seed), 12) for seed in range(8)]))


def cluster(load, seed=0):
    """GPUs, what ran on them, and the log as it stands after twelve weeks."""
    jobs = stationary_log(12, seed)
    gpus = round(LEVEL / load)
    past = simulate_queue(jobs, gpus)
    return gpus, past, as_of(past, END)


def plans(gpus):
    """GPUs without an order, and with one that doubles them."""
    return [pd.Series([float(gpus)], [BEGIN]), pd.Series([float(gpus), 2.0 * gpus], [BEGIN, ARRIVAL])]


def true_waits(past, steps, seed):
    new = stationary_log(7, seed)
    shift = END - BEGIN
    new = new.assign(submit=new["submit"] + shift, end=new["end"] + shift)
    ran = simulate_queue(pd.concat([past[past["end"] > END], new], ignore_index=True), steps, start=END)
    ran = ran[(ran["submit"] >= END) & (ran["submit"] < LATER)]
    wait = (ran["start"] - ran["submit"]).dt.total_seconds()
    return [wait[ran["submit"] < ARRIVAL].mean(), wait.mean()]


@pytest.mark.parametrize(("load", "factor"), slow_beside([(1.0, 1.5)], [(0.7, 1.3), (1.0, 1.5), (1.3, 1.2)]))
def test_waits_are_those_of_the_futures_that_come(load, factor):
    gpus, past, log = cluster(load, seed=20)
    plan = plan_waits(forecast_of(LEVEL, spread=1.0), log, installed=gpus, n_futures=20)
    found = plan.mean_waits(plans(gpus), [(END, ARRIVAL), (END, LATER)])
    true = [np.median([true_waits(past, steps, seed) for seed in range(1, 10)], axis=0) for steps in plans(gpus)]
    assert (np.abs(np.log((found + 60) / (np.array(true) + 60))) < np.log(factor)).all(), (found, true)
    # An order changes nothing before it is there, and shortens waits from then on.
    assert found[0, 0] > 0.8 * found[1, 0]
    assert found[1, 1] < found[0, 1]


def test_jobs_that_wait_as_the_log_ends_do_not_raise_the_requirement():
    gpus, _, log = cluster(1.3)
    forecast = forecast_of(LEVEL, spread=1.0)
    required = plan_waits(forecast, log, installed=gpus, n_futures=60).required
    free = plan_waits(forecast, stationary_log(12, seed=0), installed=gpus, n_futures=60, until=END).required
    assert required == pytest.approx(free, rel=0.15)


def test_after_a_log_of_finished_jobs_a_drawn_week_fills_the_cluster():
    gpus, past, _ = cluster(0.7)
    forecast = forecast_of(LEVEL, spread=1.0)
    plan = plan_waits(forecast, past[past["end"] < END], installed=gpus, n_futures=20, until=END)
    assert plan.ahead.unfinished is None
    (behind,) = plan.mean_waits(plans(gpus)[:1], [(END, LATER)])
    (truth,) = plan_waits(forecast, past, installed=gpus, n_futures=20, until=END).mean_waits(
        plans(gpus)[:1], [(END, LATER)]
    )
    assert behind == pytest.approx(truth, rel=0.3)


def test_what_runs_and_waits_is_read_off_the_log():
    _, past, log = cluster(1.3)
    expected = with_expected_ends(log, until=END)
    found, true = (unfinished_jobs(table, END) for table in (expected, past))
    assert (found.started == NEVER).sum() == (true.started == NEVER).sum() > 100
    np.testing.assert_array_equal(found.started[found.started < NEVER], true.started[true.started < NEVER])
    work = [(jobs.run * jobs.gpus).sum() for jobs in (found, true)]
    assert work[0] == pytest.approx(work[1], rel=0.1)
    # Ends that are expected once are kept, and jobs that wait do not start before the log ends.
    pd.testing.assert_frame_equal(with_expected_ends(expected), expected)
    assert (expected["start"][log["status"].eq("pending").to_numpy()] == END).all()


def test_a_job_larger_than_the_share_that_runs_does_not_wait_for_an_order():
    submit = WEEK_S * 10**6 + 3600 * 10**6 * np.arange(4)
    run = np.full(4, 600 * 10**6)
    jobs = QueuedJobs(submit, run, run, np.full(4, NEVER), np.array([1.0, 10.0, 1.0, 16.0]))
    future = Future(jobs, np.ones(4, dtype=bool), availability=0.8)
    waits = future.waits_s(Steps(np.array([0.0, 5 * 3600.0]), np.array([10.0, 20.0])))
    # 10 of the 10 GPUs installed, of which 8 run jobs; 16 are there from the fifth hour on.
    np.testing.assert_allclose(waits, [0, 0, 0, 2 * 3600])


def test_of_jobs_that_never_start_no_wait_is_known():
    gpus, _, log = cluster(0.7)
    forecast = forecast_of(LEVEL, spread=1.0)
    large = Programme("large", 1, END, LATER, hours=10, gpus=3 * gpus)
    plan = plan_waits(forecast, log, installed=gpus, n_futures=10, work=large.jobs())
    retired = pd.Series([float(gpus), 0.0], [BEGIN, ARRIVAL])
    delivered = pd.Series([float(gpus), 4.0 * gpus], [BEGIN, ARRIVAL])
    spans = [(END, LATER), (END, END)]
    waits = plan.mean_waits([*plans(gpus), retired, delivered], spans)
    assert np.isnan(waits[:3, 0]).all()
    assert 0 < waits[3, 0] < np.inf
    assert (waits[3:, 1] == 0).all()


def test_jobs_have_to_start_in_time_beside_a_programme_that_takes_every_gpu():
    gpus, _, log = cluster(0.7)
    run = Programme("all", 1, END, END + pd.Timedelta("14D"), hours=240, gpus=2 * gpus)
    forecast = forecast_of(LEVEL + 2 * gpus * 240 / (21 * 24), spread=1.0)
    plan = plan_waits(forecast, log, installed=gpus, n_futures=10, work=run.jobs())
    # On exactly as many GPUs as the run takes nothing else starts for ten of 21 days.
    assert plan.required > 2 * gpus * 1.3
    curve = plan.to_frame().set_index("gpus")
    assert curve.loc[plan.required, "share_in_time"] >= 0.9
