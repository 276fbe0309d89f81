"""Random sequences of pulls: a store holds all that its sources have ever said, the newest where they said it twice."""

from __future__ import annotations

import itertools
import os
import random
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.pull import kubernetes, prometheus, slurm
from gpudemand.store import read_store
from tests.tiers import slow_beside

BEGIN = pd.Timestamp("2026-03-01", tz="UTC")
HOUR = pd.Timedelta("1h")


def seeds(quick: int, count: int):
    """Numbers of random sequences: the quick tests try the first, `make test-all` all. (The first 1,000 were tried.)"""
    return pytest.mark.parametrize("seeds", [range(quick), pytest.param(range(quick, count), marks=pytest.mark.slow)])


pytestmark = pytest.mark.usefixtures("quick_stores")


class Server:
    """Stands for a `PrometheusClient`: two namespaces, outages, and a retention that forgets."""

    def __init__(self, place: str, rng: random.Random) -> None:
        self.place, self.earliest, self.fails_after = place, BEGIN, 99
        first = rng.randrange(0, 700)
        self.down = {BEGIN + (first + k) * HOUR for k in range(30)}
        self.said: dict[tuple[object, ...], float] = {}
        self.part: dict[tuple[object, ...], float] = {}
        self.warned: set[str] = set()

    def samples(self, query, times, refused=None):
        self.fails_after -= 1
        if self.fails_after < 0:
            raise InputError("outage")
        kept = [time for time in times if time >= self.earliest and time not in self.down]
        found = []
        if query == kubernetes.ALLOCATABLE:
            found = [self.rows(kept, "installed", 8.0, node="n1", resource="nvidia_com_gpu")]
        if query == kubernetes.PODS:
            names = {"resource": "nvidia_com_gpu", "phase": "Running", "node": "n1"}
            found = [self.rows(kept[k::3], "held", 1.0 + k, namespace=f"{self.place}{k}", **names) for k in range(2)]
        if query == kubernetes.KUEUE_WORKLOADS:  # the last of a part, which is now stored as a whole
            self.said |= {key: value for key, value in self.part.items() if key[0] in times}
            self.part = {}
        return prometheus.stacked(found)

    def rows(self, times, measure, value, **labels):
        self.part |= {(time, measure, labels.get("namespace", "")): value for time in times}
        return pd.DataFrame({**labels, "ds": pd.DatetimeIndex(times, tz="UTC"), "y": value})


@seeds(4, 100)
def test_prometheus(tmp_path, seeds):
    for seed in seeds:
        rng, store = random.Random(seed), tmp_path / str(seed)
        servers, source, now = [Server("one", rng), Server("two", rng)], None, BEGIN + 48 * HOUR
        for _ in range(rng.randint(2, 5)):
            now += rng.randrange(1, 200) * HOUR
            server = rng.choice(servers)
            server.earliest = max(server.earliest, now - rng.choice([48, 200, 10_000]) * HOUR)
            server.fails_after = rng.choice([99, 99, 99, rng.randrange(0, 20)])
            since = rng.choice([None, BEGIN, now - rng.randrange(1, 300) * HOUR])
            options = {"since": since, "until": now, "step": "1h", "points": rng.choice([150, 2000])}
            asked, server.part = server.fails_after, {}
            with suppress(InputError):
                prometheus.pull_prometheus(store, server, **options)
            # Another server than before is not even asked.
            assert source in (None, server) or server.fails_after == asked
            source = source or (server if server.said else None)
            assert stored_samples(store) == (source.said if source else {})


def test_prometheus_reads_what_a_later_since_left_out(tmp_path):
    server, days = Server("one", random.Random(0)), [BEGIN + pd.Timedelta(days=day) for day in (0, 1, 3, 4, 5)]
    server.down = set()
    for since, until in ((days[0], days[1]), (days[2], days[3]), (None, days[4])):
        prometheus.pull_prometheus(tmp_path, server, since=since, until=until, step="1h")
    found = {key[0] for key in stored_samples(tmp_path) if key[1] == "installed"}
    assert found == set(pd.date_range(days[0], days[4], freq="h", inclusive="left"))


def stored_samples(store: Path) -> dict[tuple[object, ...], float]:
    found = read_store(store).read("usage")
    rows = pd.DataFrame(columns=["ds", "measure", "namespace", "y"]) if found is None else found.to_pandas()
    assert not rows.duplicated(["ds", "measure", "namespace"]).any()
    keys = rows[["ds", "measure", "namespace"]].itertuples(index=False, name=None)
    return dict(zip(keys, rows["y"], strict=True))


class Accounting:
    """Stands for Slurm's commands: two clusters, jobs that run on, users who see only their own, and purges."""

    def __init__(self, rng: random.Random) -> None:
        self.now, self.purged, self.user, self.fails_after = BEGIN, BEGIN, None, 99
        self.said: dict[tuple[str, str], list[str]] = {}
        self.jobs = []
        for number in range(60):
            submit = BEGIN + rng.randrange(0, 900) * HOUR
            end = submit + rng.choice([2, 5, 300]) * HOUR
            self.jobs.append((rng.choice(["alpha", "beta"]), str(number), rng.choice(["u1", "u2", "u3"]), submit, end))

    def run(self, words, stdout) -> bytes:
        text = self.answer(list(words))
        if not isinstance(stdout, int) or stdout < 0:
            return text.encode()
        os.write(stdout, text.encode())
        return b""

    def answer(self, words) -> str:
        command, *options = words
        if command == "sacctmgr" and "cluster" in options:
            return "alpha\nbeta\n"
        if command != "sacct":
            return ""
        if "-e" in options:
            return " ".join((*slurm.NEEDED, *slurm.OPTIONAL))
        self.fails_after -= 1
        if self.fails_after < 0:
            raise InputError("outage")
        option = dict(itertools.pairwise(options))
        fields, asked = option["-o"].split(","), option.get("-M", "alpha").split(",")
        rows = [self.row(job) for job in self.jobs if job[0] in asked and self.shows(job, option)]
        if len(fields) > 1:
            self.said |= {(row["Cluster"], row["JobIDRaw"]): row["End"] for row in rows}
        return "".join("|".join(line) + "\n" for line in [fields, *([row[name] for name in fields] for row in rows)])

    def shows(self, job, option) -> bool:
        _, number, user, submit, end = job
        if submit > self.now or (end <= self.now and end < self.purged) or self.user not in (None, user):
            return False
        if "-j" in option:
            return number in option["-j"].split(",")
        begin, until = (pd.Timestamp(option[name], tz="UTC") for name in ("-S", "-E"))
        if user not in option.get("-u", user).split(","):
            return False
        return submit < until and (end > self.now or end >= begin)

    def row(self, job) -> dict[str, str]:
        cluster, number, user, submit, end = job
        begin, over = (f"{time.timestamp():.0f}" for time in (submit, end))
        times = {"Submit": begin, "Eligible": begin, "Start": begin, "End": over if end <= self.now else "Unknown"}
        what = {"JobIDRaw": number, "JobID": number, "Cluster": cluster, "User": user, "Account": "a"}
        state = {"State": "COMPLETED" if end <= self.now else "RUNNING", "AllocTRES": "gres/gpu=4"}
        return dict.fromkeys((*slurm.NEEDED, *slurm.OPTIONAL), "") | what | times | state


@seeds(1, 30)
def test_slurm(tmp_path, monkeypatch, seeds):
    for seed in seeds:
        rng, store = random.Random(seed), tmp_path / str(seed)
        slurm_ = Accounting(rng)
        monkeypatch.setattr(slurm, "_run", slurm_.run)
        monkeypatch.setattr(slurm, "_now", lambda slurm_=slurm_: slurm_.now)
        # What somebody may see can change, or other people ask.
        one = rng.choice([True, False])
        monkeypatch.setattr(slurm, "_viewer", lambda slurm_=slurm_, one=one: "one" if one else slurm_.user or "root")
        slurm_.now += 24 * HOUR
        for _ in range(rng.randint(2, 5)):
            slurm_.now += rng.randrange(1, 200) * HOUR
            slurm_.user = rng.choice([None, None, "u1", "u2"])
            slurm_.purged = max(slurm_.purged, slurm_.now - rng.choice([200, 10_000]) * HOUR)
            slurm_.fails_after = rng.choice([99, 99, 99, rng.randrange(0, 4)])
            since = rng.choice([BEGIN, BEGIN, slurm_.now - rng.randrange(1, 300) * HOUR])
            with suppress(InputError):
                slurm.pull_slurm(store, since=since, clusters=rng.choice([None, "alpha", "beta", "alpha,beta", "all"]))
            assert_nothing_lost(stored_ends(store), slurm_)
        # A last pull by somebody who sees everything has what is not purged, whoever pulled before.
        slurm_.user, slurm_.fails_after = None, 999
        slurm_.now += HOUR
        slurm.pull_slurm(store, since=BEGIN, clusters="all")
        found = stored_ends(store)
        assert_nothing_lost(found, slurm_)
        missing = [
            job for job in slurm_.jobs if job[3] < slurm_.now and job[4] >= slurm_.purged and job[:2] not in found
        ]
        # Nothing tells the same person that old runs of people may be seen now until one of their new runs is shown.
        known = {(job[0], job[2]) for job in slurm_.jobs if job[:2] in found}
        assert not [job for job in missing if not one or (job[0], job[2]) in known], seed
        for job in slurm_.jobs:
            if job[:2] in found and slurm_.purged <= job[4] <= slurm_.now:
                assert found[job[:2]] != "Unknown", seed


@pytest.mark.parametrize("fails_after", slow_beside([2], range(1, 5)))
def test_slurm_reads_what_a_user_may_see_now_also_after_a_failure(tmp_path, monkeypatch, fails_after):
    slurm_ = Accounting(random.Random(0))
    monkeypatch.setattr(slurm, "_run", slurm_.run)
    monkeypatch.setattr(slurm, "_now", lambda: slurm_.now)
    monkeypatch.setattr(slurm, "_viewer", lambda: "operator")
    for hours, user, allowed in ((600, "u1", 99), (200, None, fails_after), (100, None, 99)):
        slurm_.now, slurm_.user, slurm_.fails_after = slurm_.now + hours * HOUR, user, allowed
        with suppress(InputError):
            slurm.pull_slurm(tmp_path, since=BEGIN, clusters="alpha")
    assert stored_ends(tmp_path).keys() == {job[:2] for job in slurm_.jobs if job[0] == "alpha" and job[3] < slurm_.now}


@pytest.mark.slow
def test_slurm_reads_people_whom_another_viewer_had_stored(tmp_path, monkeypatch):
    slurm_ = Accounting(random.Random(0))
    monkeypatch.setattr(slurm, "_run", slurm_.run)
    monkeypatch.setattr(slurm, "_now", lambda: slurm_.now)
    # Root sees all; Ada sees her own runs for long, and then all.
    for hours, viewer, user in ((300, "root", None), (100, "ada", "u1"), (500, "ada", "u1"), (1, "ada", None)):
        monkeypatch.setattr(slurm, "_viewer", lambda viewer=viewer: viewer)
        slurm_.now, slurm_.user = slurm_.now + hours * HOUR, user
        slurm.pull_slurm(tmp_path, since=BEGIN, clusters="alpha")
    assert stored_ends(tmp_path).keys() == {job[:2] for job in slurm_.jobs if job[0] == "alpha" and job[3] < slurm_.now}


def assert_nothing_lost(found, slurm_: Accounting) -> None:
    """All is there, but for runs that were open when Slurm told them last, and that it has purged since."""
    purged = {job[:2] for job in slurm_.jobs if job[4] < slurm_.purged}
    gone = {key for key in slurm_.said.keys() - found.keys() if slurm_.said[key] == "Unknown" and key in purged}
    assert found == {key: end for key, end in slurm_.said.items() if key not in gone}


def stored_ends(store: Path) -> dict[tuple[str, str], str]:
    found = read_store(store).read("jobs") if store.exists() else None
    if found is None:
        return {}
    rows = found.to_pandas()
    assert not rows.duplicated(["cluster", "job_id_raw"]).any()
    ends = ["Unknown" if pd.isna(end) else f"{end.timestamp():.0f}" for end in rows["end"]]
    return dict(zip(zip(rows["cluster"], rows["job_id_raw"], strict=True), ends, strict=True))
