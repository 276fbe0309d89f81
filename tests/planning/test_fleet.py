"""The queue of a fleet of several GPU types, beside plain Python that works everything out anew at every event."""

import numpy as np
import pandas as pd
import pytest

from gpudemand import InputError, simulate_queue
from gpudemand.planning.queue import fleet_of
from gpudemand.planning.queue_kernels import NEVER, QueuedJobs, simulate_events, simulate_fleet


def draw(seed, n_types, n_jobs=120, gpus=16):
    """Jobs that load the fleet, with run times by type, and the types that each kind may take."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, 10_000, n_jobs))
    size = 2.0 ** rng.integers(0, 4, n_jobs)
    mean = rng.uniform(0.5, 2.0) * 10_000 * gpus * n_types / (n_jobs * size.mean())
    run = np.maximum(rng.exponential(mean, n_jobs), 1).astype(np.int64)
    jobs = QueuedJobs(submit, run, run * rng.integers(1, 4, n_jobs), np.full(n_jobs, NEVER), size)
    ratios = rng.uniform(0.4, 1.5, (n_jobs, n_types)).round(2)
    order = np.full((3, n_types), -1)
    for row in order:
        some = rng.permutation(n_types)[: rng.integers(1, n_types + 1)]
        row[: len(some)] = some
    return jobs, ratios, rng.integers(0, 3, n_jobs), order, np.full(n_types, float(gpus))


def reference(fleet, submit, patience):  # noqa: C901 (as plain as can be)
    """Starts and types, by lists."""
    n_jobs, n_types = fleet.run.shape
    free, running, waiting = fleet.capacity.copy(), [], []
    starts, types, arrivals = [NEVER] * n_jobs, [-1] * n_jobs, list(range(n_jobs))
    while True:
        end = min((starts[j] + fleet.run[j, types[j]] for j in running), default=NEVER)
        came = submit[arrivals[0]] if arrivals else NEVER
        leaves = submit[waiting[0]] + patience if waiting and patience < NEVER else NEVER
        now = min(end, came, leaves)
        if now == NEVER:
            return np.array(starts), np.array(types)
        if now == end:
            done = [j for j in running if starts[j] + fleet.run[j, types[j]] == end]
            for job in done:
                running.remove(job)
                free[types[job]] += fleet.gpus[job, types[job]]
        elif now == came:
            waiting.append(arrivals.pop(0))
        else:
            job = waiting.pop(0)
            starts[job], types[job] = now, n_types
        window, spare = {}, {}
        for job in list(waiting):
            times = {}
            for t in (t for t in fleet.order[fleet.kind[job]] if t >= 0):
                gpus, requested = fleet.gpus[job, t], fleet.requested[job, t]
                short = t not in window or requested <= window[t]
                if gpus <= free[t] and (short or gpus <= spare[t]):
                    waiting.remove(job)
                    running.append(job)
                    free[t] -= gpus
                    if t in window and not short:
                        spare[t] -= gpus
                    starts[job], types[job] = now, t
                    break
                if t not in window:
                    there = free[t]
                    for time, other in sorted((starts[j] + fleet.requested[j, t], j) for j in running if types[j] == t):
                        there += fleet.gpus[other, t]
                        if there >= gpus:
                            times[t] = time
                            break
            else:
                if times:
                    t = min(times, key=lambda each: times[each])
                    window[t] = max(times[t], now) - now
                    later = [j for j in running if types[j] == t and starts[j] + fleet.requested[j, t] <= times[t]]
                    spare[t] = free[t] + sum(fleet.gpus[j, t] for j in later) - fleet.gpus[job, t]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("patience", [NEVER, 300])
def test_equals_plain_python(seed, patience):
    jobs, ratios, kind, order, capacity = draw(seed, 1 + seed % 3)
    fleet = fleet_of(jobs, capacity, ratios, kind, order)
    starts, types = simulate_fleet(fleet, jobs.submit, patience)
    expected = reference(fleet, jobs.submit, patience)
    np.testing.assert_array_equal(types, expected[1])
    np.testing.assert_array_equal(starts, expected[0])
    assert (starts > jobs.submit).any()


@pytest.mark.parametrize("seed", range(20, 30))
def test_one_type_is_the_queue_of_one_pool(seed):
    jobs, ratios, kind, _, capacity = draw(seed, 1)
    fleet = fleet_of(jobs, capacity, np.ones_like(ratios), kind, np.zeros((3, 1), np.int64))
    always, n_jobs = np.array([np.iinfo(np.int64).min]), len(jobs.gpus)
    expected = simulate_events(jobs, np.arange(n_jobs), always, capacity, np.inf, 1)
    np.testing.assert_array_equal(simulate_fleet(fleet, jobs.submit, NEVER)[0], expected)


def log(types, hours=1.0, gpus=4.0):
    submit = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(np.arange(len(types)), "min")
    end = submit + pd.to_timedelta(hours, "h")
    return pd.DataFrame({"user": "ada", "submit": submit, "start": submit, "end": end, "gpus": gpus, "gpu_type": types})


def test_jobs_take_other_types_in_the_order_that_is_said():
    jobs = log(["A100", "A100", "A100", "V100"])
    others = {"A100": {"H100": 0.5, "V100": 2.0}, "V100": {"A100": 0.5}}
    found = simulate_queue(jobs, {"A100": 4, "H100": 4, "V100": 4}, alternatives=others)
    assert found["gpu_type"].tolist() == ["A100", "H100", "V100", "A100"]
    hours = ((found["end"] - found["start"]).dt.total_seconds() / 3600).tolist()
    assert hours == [1.0, 0.5, 2.0, 0.5]


def test_a_type_that_leaves_sends_its_jobs_elsewhere():
    found = simulate_queue(log(["V100"]), {"A100": 4}, alternatives={"V100": {"A100": 0.5}})
    assert found["gpu_type"].tolist() == ["A100"]


@pytest.mark.parametrize(
    ("capacity", "alternatives", "said"),
    [
        ({"A100": 8}, {"A100": {"H1OO": 0.5}}, "H1OO"),
        ({"A100": 8}, {"A100": {"A100": 0.0}}, "must be a number above 0"),
        (8, {"A100": {}}, "by GPU type"),
        ({"H100": 8}, {}, "may run nowhere"),
    ],
)
def test_what_cannot_be_is_refused(capacity, alternatives, said):
    with pytest.raises(InputError, match=said):
        simulate_queue(log(["A100"]), capacity, alternatives=alternatives)
