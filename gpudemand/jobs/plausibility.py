"""What in a log cannot be right: it is cut or capped with its reason, or said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._validation import nearest, shorten
from gpudemand.jobs.schema import COMPLETE_FROM, COMPLETE_UNTIL, DOUBTS, FINISHED, RAN_UNTIL, TIME
from gpudemand.jobs.table import begin_times, gave_up, start_times, to_nanoseconds
from gpudemand.units import format_count, format_number_of, format_seconds

_DAY_S = 86_400.0
#: Fewer jobs tell nothing of the others, nor how large they are.
_MIN_JOBS = 20
#: How many jobs must be missing, and how much of how what ran fades before the end they explain: more nearly all than
#: nothing, and not less than demand did itself. Chosen without Philly: `python -m benchmarks.truncated_logs`.
EVIDENCE, FADE = 5.0, (0.5, 1.25)
#: Less does not change a day's mean.
_MISSING_S = 0.5 * _DAY_S
#: How sure it must be that jobs without GPUs are no chance.
_CHANCE = 1e-6
#: GPU time that may be missing at the end of what is kept.
_MAY_MISS = 0.01
#: Of jobs that began so early, or late, that hardly any is in the log, no number of all of them can be told.
_LEAST_SHARE = 0.1
#: More jobs that end in the last second were running, and ended by those who wrote the log.
_AT_ONCE = 2
_SUSPENDED = 0.01
#: Clocks differ, and times are rounded: GPUs may have worked for so much more than a log says that they were held.
_MORE, _MORE_S = 1.02, 1.0
#: Words of a log that a sentence lists.
_SHOWN = 5


def plausible(jobs: pd.DataFrame, read: Iterable[str] = ()) -> pd.DataFrame:
    """Job table without what cannot be right, and with the reasons (``doubts``), after those of its reader (`read`).

    A job that runs far beyond its time limit has ended at it. GPUs work for no longer than they are held. A log of
    ended jobs only is complete until jobs are missing that still ran; one of all jobs that ran since some time is
    complete from then on, as before it has only those that lasted; and a log in which no job held GPUs before some time
    is complete from that time on (``complete_from`` and ``complete_until`` in ``attrs``). One that says how long jobs
    have been running reaches until then, though nothing else may have been recorded so late.
    """
    said, attrs = list(read), dict(jobs.attrs)
    jobs, planned = _without_planned_ends(jobs)
    said += planned
    newest = jobs[["submit", "start", "end"]].max().max()
    jobs, told = _told_until(jobs, newest)
    is_open = jobs["end"].isna()
    jobs, runaways = _without_runaways(jobs, told or newest)
    jobs, impossible = without_impossible_use(jobs)
    closed = is_open & jobs["end"].notna()
    said += [*runaways, *impossible]
    held = held_by(jobs)
    # The limit at which a record was closed here is no end that the log has.
    begin, why_from = _complete_from(jobs, held[~closed[held.index]])
    until, why_until = _complete_until(held)
    said += [*why_from, *why_until, *_suspended(jobs), *_ended_without_start(jobs)]
    for name, time in ((COMPLETE_FROM, begin), (COMPLETE_UNTIL, until or told)):
        if time is not None:
            attrs[name] = time.isoformat()
    if said:
        attrs[DOUBTS] = list(dict.fromkeys([*doubts(attrs), *said]))
    checked = jobs.copy(deep=False)
    checked.attrs = attrs
    return checked


def doubts(attrs: Mapping[Any, Any]) -> list[str]:
    """Sentences on what is doubtful, from the ``attrs`` of a table."""
    return list(attrs.get(DOUBTS, ()))


def not_counted(names: Sequence[str], shown: str = "", worth: str = "1") -> str:
    """Sentence on resources that may be accelerators; `shown`: what stands before their names in the log.

    `worth`: an example of what one of the first is worth.
    """
    return (
        f"{', '.join(shown + name for name in names)} did not count; if these are accelerators, say what one is worth: "
        f"gpu_share={{{names[0]!r}: {worth}}} (--gpu-share {names[0]}={worth})."
    )


def unused_shares(shares: Iterable[str], names: Iterable[str]) -> list[str]:
    """Sentence on names that have a share (in lower case), and no device of a log has; `names`: of these devices.

    >>> print(*unused_shares(["a100l1"], ["a100l.1", "h100"]))
    gpu_share (--gpu-share) names 'a100l1', which no device of this log has. Did you mean 'a100l.1'?
    """
    known = {name.lower(): name for name in names if name}
    unused = [name for name in shares if name not in known]
    if not unused:
        return []
    has = ", ".join([*map(repr, sorted(known.values()))][:_SHOWN]) or "none that is named"
    hint = nearest(unused[0], known.values()) or f" It has {has}."
    listed = ", ".join(repr(shorten(name)) for name in unused)
    return [f"gpu_share (--gpu-share) names {listed}, which no device of this log has.{hint}"]


def unknown_status(jobs: pd.DataFrame, words: pd.Series, usable: BoolArray) -> list[str]:
    """Sentences on jobs whose status (`words`) is not known, and on which it depends what they hold."""
    unsaid, starts = usable & jobs["status"].isna() & jobs["end"].isna(), jobs["start"].notna()
    waits, runs = unsaid & ~starts & starts.any(), unsaid & (starts | ~starts.any()) & words.notna()
    counts = [
        f"without {what} as {status} ({rows.sum():,})"
        for rows, what, status in ((waits, "a start", "pending"), (runs, "an end", "running"))
        if rows.any()
    ]
    if not counts:
        return []
    known = words[waits | runs].value_counts()
    listed = ", ".join(f"{shorten(word)!r} ({count:,})" for word, count in known.head(_SHOWN).items())
    more = f" and {len(known) - _SHOWN} others" if len(known) > _SHOWN else ""
    what = f"the status {listed}{more} is not known" if listed else "no status is given"
    return [f"{what}: such jobs count {' and '.join(counts)}. Write pending, running, completed, failed ..."]


def complete_period(
    attrs: Mapping[Any, Any], first: pd.Timestamp, newest: pd.Timestamp, *, runs: bool
) -> tuple[pd.Timestamp | None, pd.Timestamp | None]:
    """From when until when a log or a part of it is complete, None where it is so from its first or to its newest time.

    What the attributes say of the time before the first job of a part, or after its newest time if no job of it still
    `runs` then, is of the log and not of the part.
    """
    stated = (attrs.get(name) for name in (COMPLETE_FROM, COMPLETE_UNTIL))
    begin, until = (time and pd.to_datetime(time, utc=True) for time in stated)
    if begin is not None and begin <= first:
        begin = None
    if until is not None and until >= newest and not runs:
        until = None
    return begin, until


def complete_period_of(jobs: pd.DataFrame) -> tuple[pd.Timestamp | None, pd.Timestamp | None]:
    """`complete_period` of a canonical job table."""
    first, newest = jobs[["submit", "start"]].min().min(), jobs[["submit", "start", "end"]].max().max()
    return complete_period(jobs.attrs, first, newest, runs=bool(_running(jobs).any()))


def _without_planned_ends(jobs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Jobs, of which those that run have no end after all that was recorded; and what was changed."""
    runs = jobs["status"].eq("running")
    last = max(jobs[["submit", "start"]].max().max(), jobs["end"].mask(runs).max())
    planned = (runs & (jobs["end"] > last)).to_numpy(dtype=bool)
    # Those who publish a trace may end what ran when they cut it.
    if not planned.any() or jobs.attrs.get("kind") != "measured":
        return jobs, []
    said = (
        f"{_count(planned, 'runs', 'run')} and yet {'has' if planned.sum() == 1 else 'have'} an end after all else in "
        f"this log ({_job(jobs, planned)}: {jobs['end'][planned].iloc[0]:%Y-%m-%d}): when it is planned or due. "
        "They count as running."
    )
    return jobs.assign(end=jobs["end"].mask(planned)), [said]


def _told_until(jobs: pd.DataFrame, newest: pd.Timestamp) -> tuple[pd.DataFrame, pd.Timestamp | None]:
    """Jobs without the times until which they ran, and the last of these, if nothing is newer."""
    if RAN_UNTIL not in jobs:
        return jobs, None
    last = pd.to_datetime(jobs[RAN_UNTIL], utc=True).max()
    return jobs.drop(columns=RAN_UNTIL), last if last > newest else None


def _running(jobs: pd.DataFrame) -> pd.Series:
    return jobs["end"].isna() & ~jobs["status"].isin(("pending", *FINISHED)) & begin_times(jobs).notna()


def _without_runaways(jobs: pd.DataFrame, now: pd.Timestamp) -> tuple[pd.DataFrame, list[str]]:
    """Jobs, of which those that run a day longer than their limit have ended at it; and what was changed."""
    running = _running(jobs)
    if not running.any():
        return jobs, []
    age = (now - begin_times(jobs)).dt.total_seconds()
    limit = jobs["requested_time"].where(jobs["requested_time"] > 0)
    # A scheduler kills within minutes; clocks and queues of its accounting are hours off at most.
    over = (running & (age > limit + np.maximum(limit, _DAY_S))).to_numpy(dtype=bool)
    said = []
    if over.any():
        ends = begin_times(jobs) + pd.to_timedelta(limit.where(over), unit="s")
        example = f"{_job(jobs, over)}, running for {format_seconds(age[over].max())}"
        said = [
            f"{_count(over)} running far beyond the time limit ({example}): a record that was never closed, as "
            "`sacctmgr show runawayjobs` lists them. It counts until its limit."
        ]
        jobs = jobs.assign(end=jobs["end"].mask(over, ends).astype(TIME), status=jobs["status"].mask(over, "timeout"))
        running &= ~over
    ended = (jobs["end"] - begin_times(jobs)).dt.total_seconds().where(jobs["gpus"] > 0)
    longest = max(ended.max(), _DAY_S)
    unlimited = running & limit.isna() & (jobs["gpus"] > 0)
    old = (unlimited & (age > max(5 * longest, 30 * _DAY_S))).to_numpy(dtype=bool)
    if old.any() and old.sum() <= max(1, 0.01 * len(jobs)) and (ended > 0).sum() >= _MIN_JOBS:
        said.append(
            f"{_count(old)} running without a limit since more than five times as long as any job that ended "
            f"({_job(jobs, old)}, {format_seconds(age[old].max())}): perhaps a record that was never closed. It counts "
            "as running; leave it out if it is not."
        )
    return jobs, said


def without_impossible_use(jobs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Jobs without ``used_gpu_seconds`` below 0 or above what their GPUs could do in their time; what was changed."""
    used = jobs.get("used_gpu_seconds")
    if used is None or used.isna().all():
        return jobs, []
    run = (jobs["end"] - begin_times(jobs)).dt.total_seconds()
    most = jobs["gpus"] * (_MORE * run + _MORE_S)
    rows = ((used < 0) | (used > most) | np.isinf(used)).to_numpy(dtype=bool)
    if not rows.any():
        return jobs, []
    said = (
        f"{_count(rows, 'has', 'have')} used_gpu_seconds below 0 or above GPUs times run time "
        f"({_job(jobs, rows)}: {used[rows].iloc[0]:.6g}), which are unknown. They are utilization, from 0 to 1, times "
        "GPUs times seconds."
    )
    return jobs.assign(used_gpu_seconds=used.mask(rows)), [said]


def _count(rows: BoolArray, one: str = "is", several: str = "are") -> str:
    few = int(rows.sum())
    return f"{few:,} of {format_number_of('job', len(rows))} {one if few == 1 else several}"


def _job(jobs: pd.DataFrame, rows: BoolArray) -> str:
    position = int(rows.argmax())
    row = jobs.iloc[position]
    if pd.notna(row["job_id"]):
        return f"job {shorten(row['job_id'])}"
    owner, time = ("" if pd.isna(row["user"]) else f" of {shorten(row['user'])}"), row["submit"]
    return f"a job{owner} submitted {time:%Y-%m-%d %H:%M}" if pd.notna(time) else f"a job{owner}"


def held_by(jobs: pd.DataFrame) -> pd.DataFrame:
    """Begin and end in seconds (NaN while it runs), GPUs and user of jobs that held GPUs."""
    begin = begin_times(jobs)
    ran = (jobs["gpus"] > 0) & ((jobs["end"] > begin) | _running(jobs)) & begin.notna()
    ran, zero = ran.to_numpy(dtype=bool), pd.Timestamp(0, tz="UTC")
    seconds = {name: (times[ran] - zero).dt.total_seconds() for name, times in (("begin", begin), ("end", jobs["end"]))}
    return pd.DataFrame({**seconds, "gpus": jobs["gpus"][ran], "user": jobs["user"][ran].fillna("")})


class Edge(NamedTuple):
    """What tells whether jobs are missing at an edge of a log.

    `evidence`: minus the logarithm of the chance that none is. `length_s`: how far from the edge hardly any is.
    `remaining_s`: mean remaining run time of what is held at once, so that so much of it is missing. `fade`: share of
    the fading before the end that these jobs explain. `stops`: whether jobs ceased to begin, or ended all at once,
    before the end.
    """

    evidence: float
    length_s: float
    remaining_s: float = 0.0
    fade: float = 0.0
    stops: bool = False


def end_of_log(held: pd.DataFrame) -> Edge | None:
    """What tells whether a log holds ended jobs only; None where too few are far from its end.

    Of jobs that began at an age before the end, those are in such a log that were shorter; and of what was held then,
    what remained for less, a share that run times far from the end give.
    """
    last, run = held["end"].max(), (held["end"] - held["begin"]).to_numpy(dtype=float)
    begin, gpus = held["begin"].to_numpy(dtype=float), held["gpus"].to_numpy(dtype=float)
    longest = min(run.max(), (last - begin.min()) / 2)
    inner = begin <= last - longest
    if inner.sum() < _MIN_JOBS or inner.all():
        return None
    order = np.argsort(run[inner])
    known, weight = run[inner][order], gpus[inner][order]
    share = np.searchsorted(known, last - begin[~inner], side="right") / len(known)
    # The number that should be missing.
    evidence = (1 / share[share >= _LEAST_SHARE] - 1).sum()
    quiet, times = last - begin.max(), np.sort(begin[inner])
    unseen = np.maximum(quiet - known, 0).sum() / max(np.ptp(times), 1.0)
    stops = (unseen > EVIDENCE and quiet > np.diff(times).max()) or (held["end"] == last).sum() > _AT_ONCE
    ages = np.append(0.0, np.geomspace(1.0, longest, 500))
    length = float(np.interp(1 - _MAY_MISS, _seen(known, weight, ages), ages))
    # Jobs rather than GPUs, of which a few large ones decide; in each of ten periods, as many that run would end.
    running, seen = held.assign(gpus=1.0), _seen(known, np.ones(len(known)), ages)
    edges = last - np.interp(np.linspace(0, 0.95, 11), seen, ages)
    lacks = 1 - np.linspace(0, 0.95, 21)[1::2]
    before = _mean_held(running, max(last - 2 * length, begin.min()), last - length)
    lost = 1 - np.array([_mean_held(running, early, late) for late, early in pairwise(edges)]) / (before or np.nan)
    fade = float(lacks @ lost / (lacks @ lacks))
    return Edge(evidence, length, (weight @ known**2) / (weight @ known) / 2, fade, bool(stops))


def _seen(run: FloatArray, weight: FloatArray, ages: FloatArray) -> FloatArray:
    """Share of what was held at some time that ended within each age, of jobs sorted by run time."""
    place = np.searchsorted(run, ages)
    time, number = (np.append(np.cumsum(each[::-1])[::-1], 0.0)[place] for each in (weight * run, weight))
    share: FloatArray = 1 - (time - ages * number) / (weight @ run)
    return share


def begin_of_log(held: pd.DataFrame) -> Edge | None:
    """What tells whether a log holds, of the time before its first end, only those jobs that still ran then."""
    first = held["end"].min()
    early, ended = held["begin"] < first, held["end"].notna()
    run = np.sort((held["end"] - held["begin"])[~early & ended].to_numpy(dtype=float))
    ages = (first - held["begin"][early]).to_numpy(dtype=float)
    return edge_of_ages(ages, len(run) - np.searchsorted(run, ages, side="left"), len(run))


def edge_of_ages(ages: FloatArray, longer: IntArray, n: int) -> Edge | None:
    """`begin_of_log` from the ages of the jobs that ran at the first end, in seconds.

    `longer`: how many of the `n` jobs that began and ended later ran at least as long as each age.
    """
    if n < _MIN_JOBS or not len(ages):
        return None
    return Edge(-np.log(np.maximum(longer, 1) / n).sum(), ages.max())


def survivors_before(first: float, edge: Edge | None) -> tuple[pd.Timestamp | None, list[str]]:
    """From when on a log is complete that holds, of before its `first` end (s since 1970), what ran then; and why."""
    if edge is None or edge.length_s < _DAY_S or edge.evidence < EVIDENCE:
        return None, []
    begin = pd.Timestamp(first, unit="s", tz="UTC").floor("s")
    return begin, [
        f"no job of this log ended before {begin:%Y-%m-%d %H:%M} UTC, though many began: of the time before, it holds "
        "only the jobs that still ran then (sacct -S prints these with their whole length). It counts from then on."
    ]


def _complete_until(held: pd.DataFrame) -> tuple[pd.Timestamp | None, list[str]]:
    """Time until which a log of ended jobs is complete: later, the jobs are missing that had not ended."""
    if held["end"].isna().any() or len(held) < 2 * _MIN_JOBS:
        return None, []
    edge = end_of_log(held)
    if edge is None or edge.remaining_s < _MISSING_S or not ends_only(edge):
        return None, []
    until = pd.Timestamp(held["end"].max() - edge.length_s, unit="s", tz="UTC").round("s")
    return until, [
        "no job of this log runs at its end, though jobs began until then: it holds ended jobs only, and those that "
        f"still ran are missing. It counts until {until:%Y-%m-%d %H:%M} UTC, before which hardly any is; for the rest, "
        "add the jobs that run (sacct without --state, or qstat, bjobs, condor_q)."
    ]


def ends_only(edge: Edge) -> bool:
    """Whether jobs are missing at the end of a log."""
    least, most = FADE
    return edge.evidence > EVIDENCE and least < edge.fade < most and not edge.stops


def _mean_held(held: pd.DataFrame, begin: float, end: float) -> float:
    """Mean number of GPUs held in a period."""
    inside = held["end"].clip(begin, end) - held["begin"].clip(begin, end)
    return float((inside * held["gpus"]).sum() / max(end - begin, 1.0))


def _complete_from(jobs: pd.DataFrame, held: pd.DataFrame) -> tuple[pd.Timestamp | None, list[str]]:
    begin, said = _tracked_from(jobs)
    # Traces that are published begin where they were cut.
    if begin is not None or jobs.attrs.get("kind") != "measured":
        return begin, said
    return survivors_before(held["end"].min(), begin_of_log(held))


def _tracked_from(jobs: pd.DataFrame) -> tuple[pd.Timestamp | None, list[str]]:
    ran = jobs[(begin_times(jobs).notna() & jobs["gpus"].notna()).to_numpy(dtype=bool)]
    has = (ran["gpus"] > 0).to_numpy(dtype=bool)
    if has.all() or not has.any():
        return None, []
    times = begin_times(ran)
    first = times[has].min()
    # Of queues without GPUs nothing can be told.
    queue = ran["partition"] if "partition" in ran else pd.Series("", index=ran.index)
    queue = queue.fillna("").astype(object)
    with_gpus = queue.isin(set(queue[has])).to_numpy(dtype=bool)
    before, after = with_gpus & (times < first).to_numpy(), with_gpus & (times >= first).to_numpy()
    return tracked_since(pd.Timestamp(first).tz_convert("UTC"), int(before.sum()), has[after].mean())


def tracked_since(begin: pd.Timestamp, before: int, share: float) -> tuple[pd.Timestamp | None, list[str]]:
    """Time from which on GPUs are in a log, where its jobs had none before though those like them do after; and why.

    `begin`: of the first job with GPUs. `before`: number of jobs before it, of queues with GPUs. `share`: of those
    after it, how many have GPUs.
    """
    if before < _MIN_JOBS or share < 0.5 or (1 - share) ** float(before) > _CHANCE:
        return None, []
    return begin, [
        f"none of {format_count(before)} jobs before {begin:%Y-%m-%d} names a GPU, and {share:.0%} of those "
        "after it in the same queues do: GPUs were not recorded before (Slurm: AccountingStorageTRES=gres/gpu). The "
        "log counts from that day on."
    ]


def _suspended(jobs: pd.DataFrame) -> list[str]:
    """What part of the GPU time was held by jobs that were suspended."""
    if "suspended_s" not in jobs:
        return []
    held = ((jobs["end"] - begin_times(jobs)).dt.total_seconds() * jobs["gpus"]).sum() / 3600
    hours = (jobs["suspended_s"] * jobs["gpus"]).sum() / 3600
    if not hours > _SUSPENDED * held:
        return []
    return [
        f"{format_count(hours)} of {format_count(held)} GPU-hours were held by jobs while they were suspended; Slurm "
        "keeps the GPUs of a suspended job for it, so they count as held."
    ]


_TIMES = {"submit": "submission", "start": "start", "end": "end"}
#: Largest share of the jobs that is set apart: a clock may be wrong for days, a number is mistyped now and then.
_FEW_TIMES, _FEW_GPUS = 0.05, 0.01
#: Users pause for months; clocks that are wrong, and typed years, are so by years.
_LEAST_GAP = pd.Timedelta("365D")
#: A digit too many.
_TIMES_LARGER = 10


def unlikely_jobs(jobs: pd.DataFrame, installed: Any = None) -> list[str]:
    """Sentences on jobs that are likely entered wrong, what they change, and what to do; none in an ordinary log.

    Times are unlikely where at most 5 % of the jobs lie before or after a gap of a year that is longer than all other
    jobs span. A number of GPUs is where it is at least ten times that of all jobs but at most 1 %, and more than twice
    what all others held at once, so that the cluster was never half full without it, unless as many are installed.
    Utilization is where GPUs would have worked for longer than they were held. Tables that were put together
    (``merge``, ``concat``) have lost from when on they are complete, which is said where it shows.

    >>> times = pd.date_range("2026-03-01", periods=50, tz="UTC").to_series(index=range(50))
    >>> times[3] = pd.Timestamp("1970-01-01", tz="UTC")
    >>> jobs = pd.DataFrame({"submit": times, "start": times, "end": times, "gpus": 0, "status": "failed"})
    >>> jobs = jobs.assign(user="ada")
    >>> text = unlikely_jobs(jobs.assign(job_id=range(50)))[0]
    >>> text.split("; ")[0]
    '1 of 50 jobs has a submission, start and end years from those of all others (job 3: 1 Jan 1970)'
    """
    said = [*_unlikely_times(jobs), *_unlikely_gpus(jobs, installed), *without_impossible_use(jobs)[1]]
    return [*said, *_ended_without_start(jobs), *_without_ends(jobs), *_without_gpus(jobs), *_survivors(jobs)]


def _survivors(jobs: pd.DataFrame) -> list[str]:
    """Sentences on a table that counts in a time of which it holds only the jobs that still ran later."""
    if jobs.attrs.get("kind", "measured") != "measured":
        return []
    stated, is_open = complete_period_of(jobs)[0], jobs["end"].isna().to_numpy()
    closed, _ = _without_runaways(jobs.reset_index(drop=True), jobs[["submit", "start", "end"]].max().max())
    held = held_by(closed[~is_open | closed["end"].isna()])
    if stated is not None:
        held = held[held["begin"] >= stated.timestamp()]
    begin, _ = survivors_before(held["end"].min(), begin_of_log(held))
    if begin is None:
        return []
    return [
        f"no job of this table ended before {begin:%Y-%m-%d %H:%M} UTC, though many began: of the time before, it "
        "holds only the jobs that still ran then, which count as if there had been no others. Let it begin then: "
        f"jobs.attrs['complete_from'] = '{begin.isoformat()}' (merge and concat lose what read_jobs wrote there)."
    ]


def _ended_without_start(jobs: pd.DataFrame) -> list[str]:
    """Sentences on jobs that are over and may never have started, where others tell their start."""
    rows = (jobs["start"].isna() & jobs["end"].notna() & jobs["status"].isna()).to_numpy(dtype=bool)
    if not rows.any() or jobs["start"].isna().all():
        return []
    return [
        f"{_count(rows)} over without a start or a known status ({_job(jobs, rows)}), and count as held from the "
        "submission on. Where they gave up while they waited, write cancelled for their status."
    ]


def _without_ends(jobs: pd.DataFrame) -> list[str]:
    """Sentence on a table without an end, unless it says that its jobs run."""
    rows = (_running(jobs) & ~jobs["status"].eq("running").fillna(False)).to_numpy(dtype=bool)
    if jobs["end"].notna().any() or not rows.any():
        return []
    return [
        f"no job of this table has an end, so {_count(rows, 'counts', 'count')} as running from the start on "
        f"({_job(jobs, rows)}). Where they have ended, say when; where they run, write running for their status."
    ]


def _without_gpus(jobs: pd.DataFrame) -> list[str]:
    rows = jobs["gpus"].isna().to_numpy(dtype=bool)
    if not rows.any():
        return []
    return [
        f"{_count(rows, 'has', 'have')} no number of GPUs and count as none ({_job(jobs, rows)}); say what they had."
    ]


def _unlikely_times(jobs: pd.DataFrame) -> list[str]:
    far = {name: rows for name in _TIMES if (rows := _far(jobs[name])).any()}
    if not far:
        return []
    *names, last = (_TIMES[name] for name in far)
    what = f"{', '.join(names)} and {last}" if names else last
    name, rows = next(iter(far.items()))
    time = pd.Timestamp(jobs.loc[rows, name].iloc[0])
    several = _count(np.logical_or.reduce([*far.values()]), "has", "have")
    return [
        f"{several} a{'n' * what.startswith('end')} {what} years from those of "
        f"all others ({_job(jobs, rows)}: {time.day} {time:%b %Y}); the time between counts as without demand, "
        "waits as years, and GPUs as held until the log ends. Correct the times, or leave such jobs out."
    ]


def _far(times: pd.Series) -> BoolArray:
    """Times beyond a gap that is longer than nearly all times span."""
    known = np.sort(to_nanoseconds(times.dropna()))
    if len(known) < 3:
        return np.zeros(len(times), dtype=bool)
    few = max(int(_FEW_TIMES * len(known)), 1)
    limit = max(known[-few - 1] - known[few], _LEAST_GAP.value)
    early, late = np.diff(known[: few + 1]) > limit, np.diff(known[-few - 1 :]) > limit
    begin = known[few - early[::-1].argmax()] if early.any() else known[0]
    end = known[late.argmax() - few - 1] if late.any() else known[-1]
    zone = times.dt.tz
    return ((times < pd.Timestamp(begin, tz=zone)) | (times > pd.Timestamp(end, tz=zone))).to_numpy(dtype=bool)


def _unlikely_gpus(jobs: pd.DataFrame, installed: Any) -> list[str]:
    counted = (jobs["gpus"].gt(0) & ~gave_up(jobs)).to_numpy(dtype=bool)
    sizes = np.sort(jobs["gpus"].to_numpy(dtype=float)[counted])
    tail = sizes[-max(int(_FEW_GPUS * len(sizes)), 1) - 1 :] if len(sizes) >= _MIN_JOBS else sizes[:0]
    jumps = tail[1:] >= _TIMES_LARGER * tail[:-1]
    rows = counted & jobs["gpus"].ge(tail[1:][jumps.argmax()] if jumps.any() else np.inf).to_numpy(dtype=bool)
    if not rows.any():
        return []
    most = _most_at_once(jobs[~rows])
    rows &= jobs["gpus"].gt(max(2 * most, 0.0 if installed is None else float(np.max(installed)))).to_numpy(dtype=bool)
    if not rows.any():
        return []
    gpus = format_number_of("GPU", jobs.loc[rows, "gpus"].iloc[0])
    several, example = _count(rows, "has", "have"), _job(jobs, rows)
    return [
        f"{several} far more GPUs than all others held at once, {format_count(most)} ({example}: {gpus}); "
        "they count as held. Correct the number, or leave such jobs out; if it is right, say how many GPUs are "
        "installed."
    ]


def _most_at_once(jobs: pd.DataFrame) -> float:
    """Most GPUs that jobs held at once."""
    begin = start_times(jobs)
    over = jobs["end"].isna() & jobs["status"].isin(FINISHED)
    held = (begin.notna() & (jobs["gpus"] > 0) & ~over).to_numpy(dtype=bool)
    gpus = jobs["gpus"][held].to_numpy(dtype=float)
    times = [begin[held], jobs["end"][held].fillna(pd.Timestamp.max.tz_localize("UTC"))]
    # Jobs that end at a time go before those that begin then.
    changes = pd.DataFrame({"time": pd.concat(times).to_numpy(), "change": np.concatenate([gpus, -gpus])})
    return float(changes.sort_values(["time", "change"])["change"].cumsum().max()) if held.any() else 0.0
