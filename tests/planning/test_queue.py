"""Simulated queues against theory, an independent simulation in plain Python, and the published values of a log."""

from __future__ import annotations

from math import factorial

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.jobs.read import read_jobs
from gpudemand.jobs.table import as_jobs, as_of
from gpudemand.planning.queue import simulate_queue
from gpudemand.planning.waits import effective_capacity, expected_queueing
from tests.planning.queue_reference import FOREVER, Job, Reference
from tests.tiers import slow_beside

BEGIN = pd.Timestamp("2026-03-01", tz="UTC")
POLICIES = ("fifo", "easy", "conservative", "eager")
WEEK_S = 7 * 86400


def at(seconds):
    return BEGIN + pd.to_timedelta(seconds, unit="s")


def random_log(n=400, seed=0, gpus=(1.0, 2.0, 8.0), run_s=2 * 3600):
    rng = np.random.default_rng(seed)
    submit = at(np.sort(rng.integers(0, WEEK_S, n)))
    run = pd.to_timedelta(rng.exponential(run_s, n).round() + 1, unit="s")
    log = pd.DataFrame({"user": rng.choice(["ada", "bob"], n), "submit": submit, "end": submit + run})
    log["requested_time"] = (run.total_seconds() * rng.uniform(1, 4, n)).round()
    return as_jobs(log.assign(gpus=rng.choice(gpus, n)), kind="synthetic")


def waits_s(jobs):
    return (jobs["start"] - jobs["submit"]).dt.total_seconds().to_numpy()


def most_held(jobs):
    """GPUs held at every start."""
    start, end = (jobs[name].to_numpy("datetime64[ns]") for name in ("start", "end"))
    return max(jobs["gpus"].to_numpy()[(start <= now) & (end > now)].sum() for now in start)


@pytest.mark.slow
def test_waits_follow_erlang():
    rng = np.random.default_rng(0)
    servers, load, n = 10, 8.0, 200_000
    submit = at(3600 * np.cumsum(rng.exponential(1 / load, n)))
    end = submit + pd.to_timedelta(3600 * rng.exponential(1.0, n), unit="s")
    log = as_jobs(pd.DataFrame({"submit": submit, "end": end, "gpus": 1.0}), kind="synthetic")
    wait_h = waits_s(simulate_queue(log, servers, "fifo")) / 3600
    top = load**servers / factorial(servers) * servers / (servers - load)
    chance = top / (sum(load**k / factorial(k) for k in range(servers)) + top)
    assert (wait_h > 1e-6).mean() == pytest.approx(chance, rel=0.05)
    assert wait_h.mean() == pytest.approx(chance / (servers - load), rel=0.1)


def test_published_waits_of_kth_sp2(shared_data):
    """Tsafrir, Etsion and Feitelson (IEEE TPDS 18, 2007) print 114 minutes and 90 for EASY with users' estimates."""
    jobs = read_jobs(shared_data / "traces/swf-kth-sp2/KTH-SP2-1996-2.swf.gz", format="swf")
    simulated = simulate_queue(jobs, 100)
    wait = waits_s(simulated)
    run = (simulated["end"] - simulated["start"]).dt.total_seconds().to_numpy()
    assert 114 <= wait.mean() / 60 <= 115
    assert 90 <= np.maximum((wait + run) / np.maximum(run, 10), 1).mean() <= 91


def random_case(rng, node_gpus, most=14):
    """A few jobs, with many ties; some run at the beginning, some requests are too short."""
    nodes = rng.integers(1, 4)
    gpus = int(nodes * (node_gpus or rng.integers(1, 5)))
    jobs = []
    for _ in range(rng.integers(1, most)):
        run = int(rng.integers(0, 8))
        submit, size = int(rng.integers(0, 12)), int(rng.integers(1, gpus + 1))
        jobs.append(Job(submit, run, int(rng.integers(0, 12)), size, int(rng.integers(0, 2))))
    running = 0
    for job in jobs:
        if running + job.gpus <= gpus and rng.random() < 0.3 and not node_gpus:
            running += job.gpus
            job.submit, job.started, job.run = 0, -int(rng.integers(1, 5)), job.run + 5
    changes = [(int(rng.integers(1, 20)), int(rng.integers(0, gpus + 1))) for _ in range(rng.integers(0, 3))]
    changes = sorted(dict(changes).items()) if rng.random() < 0.5 else []
    return jobs, [(-100, gpus), *changes, *([(60, gpus)] if changes else [])]


def as_log(cases):
    """Cases as clusters of one log."""
    rows = [
        {
            "cluster": f"case {number}",
            "submit": at(job.submit if job.started is None else job.started),
            "start": None if job.started is None else at(job.started),
            "end": at((job.submit if job.started is None else job.started) + job.run),
            "gpus": job.gpus,
            "requested_time": job.requested or np.nan,
            "priority": job.priority,
        }
        for number, (jobs, _) in enumerate(cases)
        for job in jobs
    ]
    frame = pd.DataFrame(rows)
    frame["start"] = pd.to_datetime(frame["start"], utc=True).astype("datetime64[ns, UTC]")
    return as_jobs(frame, kind="synthetic")


def as_capacity(changes):
    return pd.Series({at(time): gpus for time, gpus in changes}) if len(changes) > 1 else float(changes[0][1])


def assert_equal_to_reference(n_cases, policy, node_gpus, seed, most=14):
    rng = np.random.default_rng(seed)
    cases = [random_case(rng, node_gpus, most) for _ in range(n_cases)]
    capacity = {f"case {number}": as_capacity(changes) for number, (_, changes) in enumerate(cases)}
    simulated = simulate_queue(
        as_log(cases), capacity, policy, start=BEGIN, priority="priority", gpus_per_node=node_gpus
    )
    expected = []
    for jobs, changes in cases:
        Reference(jobs, changes, policy, node_gpus).simulate()
        expected += [job.start for job in jobs]
    found = (simulated["start"] - BEGIN).dt.total_seconds().fillna(FOREVER)
    wrong = simulated["cluster"][found.to_numpy() != np.array(expected)]
    assert wrong.empty, wrong.unique()[:5]


@pytest.mark.parametrize("policy", slow_beside(["fifo", "easy"], POLICIES))
def test_small_cases_equal_those_of_plain_python(policy):
    """1,000 a policy, about half of them on nodes of 4 GPUs."""
    for seed in range(4):
        assert_equal_to_reference(250, policy, None if policy == "conservative" or seed % 2 else 4, seed)


@pytest.mark.parametrize("policy", slow_beside(["fifo", "easy"], POLICIES))
def test_long_queues_equal_those_of_plain_python(policy):
    """Reservations move many times while sixty jobs wait."""
    assert_equal_to_reference(15, policy, None, seed=0, most=80)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_gpu_is_used_twice_and_no_job_starts_early(policy):
    log = random_log()
    simulated = simulate_queue(log, 24, policy)
    assert (waits_s(simulated) >= 0).all()
    assert most_held(simulated) <= 24
    assert ((simulated["end"] - simulated["start"]) == (log["end"] - log["start"].fillna(log["submit"]))).all()
    columns = ["job_id", "user", "gpus", "submit", "requested_time"]
    pd.testing.assert_frame_equal(simulated[columns], log[columns])


def test_jobs_that_run_at_the_start_keep_their_times_and_hold_their_gpus():
    log = simulate_queue(random_log(), 8)
    start = BEGIN + pd.Timedelta("3D")
    before = log["start"] < start
    again = simulate_queue(log, 64, start=start)
    pd.testing.assert_frame_equal(again[before], log[before])
    assert waits_s(again[~before]).sum() < waits_s(log[~before]).sum()
    crowded = simulate_queue(log.assign(gpus=log["gpus"].where(before, 8.0)), 8, start=start)
    assert (crowded["start"][~before] >= log["end"][before].max()).all()


def test_jobs_without_an_end_run_as_long_as_expected():
    log = random_log()
    until = log["submit"].max()
    log["end"] = log["end"].mask(log["end"] > until)
    log.loc[[395, 399], "status"] = "pending"
    simulated = simulate_queue(log, 64)
    assert simulated["end"].notna().all()
    running = log.index[log["end"].isna() & (log["status"] != "pending")]
    assert (simulated["end"][running] > until).all()
    assert set(simulated["status"][log["end"].isna()]) == {"completed"}


def test_jobs_that_all_wait_run_as_long_as_expected():
    log = random_log()
    log.loc[399, "end"] = pd.NaT
    log.loc[399, "status"] = "pending"
    assert simulate_queue(log, 64)["end"].notna().all()


def test_pools_queue_apart_and_capacity_changes_in_time():
    log = random_log().assign(gpu_type=np.where(np.arange(400) % 2, "A100", "H100"))
    both = simulate_queue(log, {"A100": 8, "H100": 16, "L4": 2})
    for name, gpus in (("A100", 8), ("H100", 16)):
        mine = log["gpu_type"] == name
        pd.testing.assert_series_equal(both["start"][mine], simulate_queue(log[mine], gpus)["start"])
    delivered = BEGIN + pd.Timedelta("2D")
    series = pd.Series([4.0, 64.0], pd.DatetimeIndex([BEGIN, delivered]))
    small = log.assign(gpus=1.0)
    grown = simulate_queue(small, series)
    assert most_held(grown[grown["end"] < delivered]) <= 4
    assert (waits_s(grown[grown["submit"] > delivered]) == 0).all()
    outage = simulate_queue(small, pd.Series([64.0, 0.0], pd.DatetimeIndex([BEGIN, delivered])))
    assert (outage["status"][outage["submit"] >= delivered] == "pending").all()
    assert outage["end"][outage["submit"] >= delivered].isna().all()


def test_whole_nodes_are_needed_for_gangs():
    submit = at([0, 1, 2])
    log = pd.DataFrame({"submit": submit, "end": submit + pd.Timedelta("1h"), "gpus": [2, 8, 2]})
    assert waits_s(simulate_queue(log, 12)).tolist() == [0, 0, 0]
    assert waits_s(simulate_queue(log, 16, gpus_per_node=8)).tolist() == [0, 0, 0]
    assert waits_s(simulate_queue(log, 12, gpus_per_node=4)).tolist() == [0, 0, 0]
    spread = pd.DataFrame({"submit": at([0, 1]), "end": at([3600, 3601]), "gpus": [5, 8]})
    assert waits_s(simulate_queue(spread, 16)).tolist() == [0, 0]
    assert waits_s(simulate_queue(spread, 12, gpus_per_node=4)).tolist() == [0, 3599]


def test_what_waits_for_no_gpu_stays_as_it_was():
    log = random_log()
    log.loc[3, "gpus"] = 0
    log.loc[5, "status"] = "cancelled"
    log.loc[5, ["start", "end"]] = log.loc[5, "submit"] + pd.Timedelta("5h")
    columns = ["start", "end", "status"]
    pd.testing.assert_frame_equal(simulate_queue(log, 8)[columns].loc[[3, 5]], log[columns].loc[[3, 5]])


def test_a_higher_priority_goes_first():
    submit = at([0, 1, 2])
    log = pd.DataFrame({"submit": submit, "end": submit + pd.Timedelta("1h"), "gpus": 8, "class": [0, 0, 5]})
    assert waits_s(simulate_queue(log, 8)).tolist() == [0, 3599, 7198]
    assert waits_s(simulate_queue(log, 8, priority="class")).tolist() == [0, 7199, 3598]


NONSENSE = {
    "400 jobs of up to 8 GPUs can never start on the 4 GPUs;": {"capacity": 4, "gpus_per_node": 4},
    "capacity must be a number above 0; got 0": {"capacity": 0},
    "capacity must be a number above 0; got nan": {"capacity": np.nan},
    "policy='esy' is not known. Did you mean 'easy'?": {"policy": "esy"},
    "capacity says nothing about gpu_type 'A100'. Did you mean 'A10'?": {"capacity": {"A10": 8}},
    "capacity\\['A100'\\] must be a number above 0; got -1": {"capacity": {"A100": -1}},
    "capacity over time needs times with a zone": {"capacity": pd.Series([8.0], pd.to_datetime(["2026-03-01"]))},
    "jobs lacks the column\\(s\\) fair_share": {"priority": "fair_share"},
    "gpus_per_node must be a number above 0": {"gpus_per_node": -8},
    "start='soon' is not a time": {"start": "soon"},
    "can never start on the 6 GPUs of 'A100'": {"capacity": {"A100": 6}},
    "for interchangeable GPUs": {"policy": "conservative", "gpus_per_node": 8},
}


@pytest.mark.parametrize("message", NONSENSE)
def test_nonsense_gets_one_sentence(message):
    log = random_log().assign(gpu_type="A100", gpus=8.0)
    with pytest.raises(InputError, match=message):
        simulate_queue(log, **({"capacity": 8} | NONSENSE[message]))


def test_more_gpus_less_waiting_and_a_job_too_large_never_runs():
    log = random_log(500, seed=1, gpus=(1.0, 4.0, 16.0))
    table = expected_queueing(log, [8, 16, 64])
    assert table["mean_wait_s"].loc[[16, 64]].is_monotonic_decreasing
    assert table["never"].tolist() == [pytest.approx((log["gpus"] == 16).mean()), 0, 0]


def test_growth_keeps_the_shape_of_the_day():
    """Jobs of the night only: with twice as many there is no waiting in the day, which squeezed times would have."""
    submit = (BEGIN + pd.to_timedelta(np.arange(20), "D")).repeat(8)
    log = pd.DataFrame({"job_id": range(160), "submit": submit, "end": submit + pd.Timedelta("1h"), "gpus": 1.0})
    table = expected_queueing(log, [8, 16]), expected_queueing(log, [8, 16, 32], growth=2.0)
    assert table[0]["mean_wait_s"].tolist() == [0, 0]
    assert table[1]["mean_wait_s"].loc[8] > 1000
    assert table[1]["mean_wait_s"].loc[32] == 0
    assert table[1]["utilization"].loc[32] == pytest.approx(table[0]["utilization"].loc[16], rel=0.1)


@pytest.mark.parametrize("effective", [20, 24, 28])
def test_the_effective_capacity_reproduces_the_waits(effective):
    """32 installed, of which some are always down; the first day's jobs run or wait already."""
    log = simulate_queue(random_log(900, run_s=3600), effective)
    start, until = BEGIN + pd.Timedelta("1D"), BEGIN + pd.Timedelta("6D")
    assert effective_capacity(log, 32, start=start, until=until) == pytest.approx(effective, abs=1)


def test_a_period_without_starts_has_no_effective_capacity():
    with pytest.raises(InputError, match="choose another period"):
        effective_capacity(random_log(), 8, start=BEGIN + pd.Timedelta("30D"), until=BEGIN + pd.Timedelta("60D"))


def test_waits_are_those_of_the_erlang_c_formula_to_the_nanosecond():
    rng, n, servers, rate = np.random.default_rng(3), 60_000, 10, 8.0
    submit = BEGIN + pd.to_timedelta(np.cumsum(rng.exponential(3600 / rate, n)), unit="s")
    run = pd.to_timedelta(rng.exponential(3600, n), unit="s")
    log = pd.DataFrame({"submit": submit, "end": submit + run, "gpus": 1.0})
    ran = simulate_queue(log, servers)
    wait = ran["start"] - log["submit"]
    terms = np.cumprod(np.r_[1.0, rate / np.arange(1, servers + 1)])
    queued = terms[-1] / (1 - rate / servers)
    chance = queued / (terms[:-1].sum() + queued)
    assert (wait > pd.Timedelta(0)).mean() == pytest.approx(chance, rel=0.1)
    assert wait.mean() / pd.Timedelta("1h") == pytest.approx(chance / (servers - rate), rel=0.15)
    assert (ran["end"] - ran["start"] == run).all()


def test_a_queue_without_end_is_refused():
    log = random_log().assign(gpus=1.0)
    log["end"] = log["submit"] + pd.Timedelta(days=36500)
    with pytest.raises(InputError, match="some jobs would start after 2200 only; give more GPUs"):
        simulate_queue(log, 1)


@pytest.mark.slow
def test_the_effective_capacity_of_a_queue_that_grows_counts_those_that_still_wait():
    rng, days, gpus = np.random.default_rng(1), 42, 32
    sizes, run_s = rng.choice([1, 2, 4, 8], 20_000), rng.lognormal(np.log(7200), 1.2, 20_000).round()
    n = int(1.3 * gpus * 86400 * days / (sizes * run_s).mean())
    submit = BEGIN + pd.to_timedelta(np.sort(rng.integers(0, 86400 * days, n)), unit="s")
    log = pd.DataFrame({"submit": submit, "end": submit + pd.to_timedelta(run_s[:n], unit="s"), "gpus": sizes[:n]})
    until = BEGIN + pd.Timedelta(days=days)
    seen = as_of(simulate_queue(log.assign(status="completed"), gpus), until)
    assert (seen["status"] == "pending").sum() > 100
    for start in (BEGIN, until - pd.Timedelta("14D")):
        assert effective_capacity(seen, 40, start=start, until=until) == pytest.approx(gpus, abs=1.5)
