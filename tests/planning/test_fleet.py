"""The queue of a fleet of several GPU types, beside plain Python that works everything out anew at every event."""

import numpy as np
import pandas as pd
import pytest

from gpudemand import InputError, simulate_queue
from gpudemand.planning.fleet_kernels import simulate_fleet
from gpudemand.planning.queue import fleet_of
from gpudemand.planning.queue_kernels import NEVER, QueuedJobs, simulate_events


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


class Reference:
    """Runs of jobs on a fleet, by lists."""

    def __init__(self, fleet, submit, patience):
        self.fleet, self.submit, self.patience = fleet, submit, patience
        self.n, self.n_types = fleet.run.shape
        self.free, self.running, self.waiting = fleet.capacity.copy(), [], []
        self.starts, self.types, self.began = [NEVER] * self.n, [-1] * self.n, [NEVER] * self.n
        self.ends, self.expected = [NEVER] * self.n, [NEVER] * self.n
        self.left, self.held, self.busy = [1.0] * self.n, [0.0] * self.n, np.zeros(self.n_types)

    def yields(self, job):
        return self.fleet.yields[self.fleet.kind[job]]

    def simulate(self):
        arrivals = list(range(self.n))
        while True:
            end = min((self.ends[j] for j in self.running), default=NEVER)
            came = self.submit[arrivals[0]] if arrivals else NEVER
            leaving = [j for j in self.waiting if self.starts[j] == NEVER] if self.patience < NEVER else []
            leaves = self.submit[leaving[0]] + self.patience if leaving else NEVER
            now = min(end, came, leaves)
            if now == NEVER:
                return self
            if now == end:
                # One at a time: who started first of those that end now.
                self.release(next(j for j in self.running if self.ends[j] == end), now)
            elif now == came:
                self.waiting.append(arrivals.pop(0))
            else:
                self.waiting.remove(leaving[0])
                self.starts[leaving[0]], self.types[leaving[0]] = now, self.n_types
            for yields in (False, True):
                self.start(now, yields)

    def release(self, job, now):
        self.running.remove(job)
        self.free[self.types[job]] += self.held[job]
        self.busy[self.types[job]] += self.held[job] * (now - self.began[job])

    def room(self, t, yields):
        taken = 0 if yields else sum(self.held[j] for j in self.running if self.types[j] == t and self.yields(j))
        return self.free[t] + taken

    def start(self, now, yields):
        fleet, window, spare = self.fleet, {}, {}
        for job in sorted(j for j in self.waiting if self.yields(j) == yields):
            times = {}
            for t in (t for t in fleet.order[fleet.kind[job]] if t >= 0):
                least = fleet.least[job, t]
                for room, longest in ((self.room(t, yields), window.get(t, NEVER)), (spare.get(t, -1), NEVER)):
                    room = min(room, self.room(t, yields))
                    gpus = fleet.gpus[job, t] if fleet.gpus[job, t] <= room else np.floor(room)
                    times_longer = self.left[job] * fleet.gpus[job, t] / gpus if gpus >= least else np.inf
                    if gpus >= least and np.ceil(fleet.requested[job, t] * times_longer) <= longest:
                        break
                else:
                    gpus = 0
                if gpus:
                    self.run(job, t, now, gpus, times_longer, window, spare)
                    break
                if t not in window:
                    there = self.room(t, yields)
                    others = [j for j in self.running if self.types[j] == t and (yields or not self.yields(j))]
                    for other in sorted(others, key=lambda j: self.expected[j]):
                        there += self.held[other]
                        if there >= least:
                            times[t] = self.expected[other]
                            break
            else:
                if times:
                    t = min(times, key=lambda each: times[each])
                    window[t] = max(times[t], now) - now
                    others = [j for j in self.running if self.types[j] == t and (yields or not self.yields(j))]
                    later = sum(self.held[j] for j in others if self.expected[j] <= times[t])
                    spare[t] = self.room(t, yields) + later - fleet.least[job, t]

    def run(self, job, t, now, gpus, longer, window, spare):
        self.waiting.remove(job)
        self.running.append(job)
        self.free[t] -= gpus
        run, requested = (int(np.ceil(times[job, t] * longer)) for times in (self.fleet.run, self.fleet.requested))
        if t in window and requested > window[t]:
            spare[t] -= gpus
        self.starts[job], self.began[job] = min(self.starts[job], now), now
        self.types[job], self.held[job] = t, gpus
        self.ends[job], self.expected[job] = now + run, now + requested
        while self.free[t] < 0:
            last = max((self.began[j], j) for j in self.running if self.types[j] == t and self.yields(j))[1]
            done = max(now - self.began[last] - self.fleet.lost[last], 0)
            self.left[last] *= 1 - done / max(self.ends[last] - self.began[last], 1)
            self.release(last, now)
            self.waiting.append(last)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("patience", [NEVER, 300])
@pytest.mark.parametrize("which", ["rigid", "elastic", "interruptible", "both"])
def test_equals_plain_python(seed, patience, which):
    jobs, ratios, kind, order, capacity = draw(seed, 1 + seed % 3)
    rng = np.random.default_rng(seed)
    least = rng.choice([0.25, 0.5, 1.0], (len(kind), 1)) if which in ("elastic", "both") else 1.0
    lost = rng.choice([0.0, 50.0, np.nan], len(kind)) if which in ("interruptible", "both") else None
    fleet = fleet_of(jobs, capacity, ratios, kind, order, least=least, lost=lost)
    found = simulate_fleet(fleet, jobs.submit, patience)
    expected = Reference(fleet, jobs.submit, patience).simulate()
    np.testing.assert_array_equal(found.types, expected.types)
    np.testing.assert_array_equal(found.starts, expected.starts)
    on = found.types >= 0
    on &= found.types < len(capacity)
    np.testing.assert_array_equal(found.ends[on], np.array(expected.ends)[on])
    np.testing.assert_array_equal(found.gpus[on], np.array(expected.held)[on])
    np.testing.assert_allclose(found.busy, expected.busy)
    assert (found.starts > jobs.submit).any()


@pytest.mark.parametrize("seed", range(20, 30))
def test_one_type_is_the_queue_of_one_pool(seed):
    jobs, ratios, kind, _, capacity = draw(seed, 1)
    fleet = fleet_of(jobs, capacity, np.ones_like(ratios), kind, np.zeros((3, 1), np.int64))
    always, n_jobs = np.array([np.iinfo(np.int64).min]), len(jobs.gpus)
    expected = simulate_events(jobs, np.arange(n_jobs), always, capacity, np.inf, 1)
    np.testing.assert_array_equal(simulate_fleet(fleet, jobs.submit, NEVER).starts, expected)


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


def test_elastic_jobs_take_what_is_free_and_run_longer():
    jobs = log([pd.NA] * 3, gpus=4.0).assign(fewest=[4, 2, pd.NA])
    found = simulate_queue(jobs, 7, elastic="fewest")
    assert found["gpus"].tolist() == [4.0, 3.0, 4.0]
    assert found["end"].sub(found["start"]).dt.total_seconds().tolist() == [3600, 4800, 3600]
    assert "gpu_type" not in found or found["gpu_type"].isna().all()


def test_jobs_that_yield_lose_work_each_time_that_they_are_stopped():
    jobs = log(["A100"] * 3, hours=[2.0, 1.0, 1.0], gpus=[8.0, 4.0, 8.0]).assign(lost=[60.0, None, None])
    found = simulate_queue(jobs, {"A100": 8}, interruptible="lost")
    start = (found["start"] - jobs["submit"].iloc[0]).dt.total_seconds().div(60).tolist()
    end = (found["end"] - jobs["submit"].iloc[0]).dt.total_seconds().div(60).tolist()
    # It did nothing in its first minute, which it lost, and has to wait for both others.
    assert start == [0, 1, 61]
    assert end == [121 + 120, 61, 121]


@pytest.mark.parametrize(("column", "said"), [("gpus", None), ("none", "none"), ("user", "finite"), ("low", "above 0")])
def test_columns_of_elastic_jobs_are_checked(column, said):
    jobs = log(["A100"]).assign(low=-1.0)
    if said is None:
        simulate_queue(jobs, 4, elastic=column)
    else:
        with pytest.raises(InputError, match=said):
            simulate_queue(jobs, 4, elastic=column)
    with pytest.raises(InputError, match="policy='easy'"):
        simulate_queue(jobs, 4, "fifo", interruptible=column)


@pytest.mark.parametrize(
    ("capacity", "alternatives", "said"),
    [
        ({"A100": 8}, {"A100": {"H1OO": 0.5}}, "H1OO"),
        ({"A100": 8}, {"A100": {"A100": 0.0}}, "must be a number above 0"),
        (8, {"A100": {}}, "by GPU type"),
        ({"H100": 8}, {}, "may run nowhere"),
        ({"A100": 3, "H100": 2}, {"A100": {"H100": 0.5}}, "1 job of up to 4 GPUs can never start on any GPU type"),
        ({"A100": 3, "H100": 8}, {}, "1 job of up to 4 GPUs can never start on any GPU type"),
    ],
)
def test_what_cannot_be_is_refused(capacity, alternatives, said):
    with pytest.raises(InputError, match=said):
        simulate_queue(log(["A100"]), capacity, alternatives=alternatives)
