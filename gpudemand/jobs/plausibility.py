"""What in a log cannot be right: it is cut or capped with its reason, or said."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import BoolArray, FloatArray
from gpudemand._validation import UnlikelyJobsWarning, shorten
from gpudemand.jobs.schema import FINISHED, TIME
from gpudemand.jobs.table import begin_times, gave_up, start_times, to_nanoseconds
from gpudemand.units import format_count, format_number_of, format_seconds

#: Sentences on what is doubtful in a log; times in ISO form before and after which it is not complete.
DOUBTS, COMPLETE_FROM, COMPLETE_UNTIL = "doubts", "complete_from", "complete_until"

_DAY_S = 86_400.0
#: Fewer jobs tell nothing of the others, nor how large they are.
_MIN_JOBS = 20
#: Jobs that should be in a log before its first end, and after its end, of which none is; by chance this is so in one
#: of 150 (e^-5) and, where what is held fades at the same time, of 7.
_SHOULD_BE = (5.0, 2.0)
#: How sure it must be that jobs without GPUs are no chance.
_CHANCE = 1e-6
#: GPU time that may be missing from the last day that is kept.
_MAY_MISS = 0.01
#: Of jobs that began so early, or late, that hardly any is in the log, no number of all of them can be told.
_LEAST_SHARE = 0.1
#: Of what was held before, at most so much is in the last quarters of the time in which jobs go missing.
_FADED = (0.78, 0.5)
_SUSPENDED = 0.01


def plausible(jobs: pd.DataFrame, read: Iterable[str] = ()) -> pd.DataFrame:
    """Job table without what cannot be right, and with the reasons.

    A job that runs far beyond its time limit has ended at it. A log of ended jobs only is complete until jobs are
    missing that still ran; one of all jobs that ran since some time is complete from then on, as before it has only
    those that lasted; and a log in which no job held GPUs before some time is complete from that time on.

    `jobs`: canonical job table. `read`: sentences of the reader of its format. Returns the table with ``doubts`` and,
    where it is complete for a part only, ``complete_from`` and ``complete_until`` in its ``attrs``.
    """
    said, attrs = list(read), dict(jobs.attrs)
    jobs, runaways = _without_runaways(jobs, jobs[["submit", "start", "end"]].max().max())
    said += runaways
    held = _held(jobs)
    begin, why_from = _complete_from(jobs, held)
    until, why_until = _complete_until(jobs, held)
    said += [*why_from, *why_until, *_suspended(jobs)]
    for name, time in ((COMPLETE_FROM, begin), (COMPLETE_UNTIL, until)):
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


def not_counted(names: Sequence[str], shown: str = "") -> str:
    """Sentence on resources that may be accelerators; `shown`: what stands before their names in the log."""
    return (
        f"{', '.join(shown + name for name in names)} did not count; if these are accelerators, say what one is worth: "
        f"gpu_share={{{names[0]!r}: 1}} (--gpu-share {names[0]}=1)."
    )


def warn_doubts(sentences: Iterable[str], source: str) -> None:
    """Warn of each thing that is doubtful in a log."""
    for sentence in sentences:
        warnings.warn(f"{source}: {sentence}", UnlikelyJobsWarning, stacklevel=3)


def complete_period(jobs: pd.DataFrame) -> tuple[pd.Timestamp | None, pd.Timestamp | None]:
    """From when until when a log is complete, None where it is so from its begin or to its end."""
    begin, until = (jobs.attrs.get(name) for name in (COMPLETE_FROM, COMPLETE_UNTIL))
    return begin and pd.Timestamp(begin), until and pd.Timestamp(until)


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


def _count(rows: BoolArray, one: str = "is", several: str = "are") -> str:
    few = int(rows.sum())
    return f"{few:,} of {format_number_of('job', len(rows))} {one if few == 1 else several}"


def _job(jobs: pd.DataFrame, rows: BoolArray) -> str:
    position = int(rows.argmax())
    name = jobs["job_id"].iloc[position]
    return f"row {position + 1}" if pd.isna(name) else f"job {shorten(name)}"


def _held(jobs: pd.DataFrame) -> pd.DataFrame:
    """Begin and end in seconds (NaN while it runs), GPUs and user of jobs that held GPUs."""
    begin = begin_times(jobs)
    ran = (jobs["gpus"] > 0) & ((jobs["end"] > begin) | _running(jobs)) & begin.notna()
    part, zero = jobs[ran.to_numpy(dtype=bool)], pd.Timestamp(0, tz="UTC")
    seconds = {name: (times[ran] - zero).dt.total_seconds() for name, times in (("begin", begin), ("end", jobs["end"]))}
    return pd.DataFrame({**seconds, "gpus": part["gpus"], "user": part["user"].fillna("")})


def _expected(ages: FloatArray, lengths: FloatArray, *, gone: bool) -> FloatArray:
    """For each job in the log, how many of the same age should be in it that are not.

    `ages`: shape (n_jobs,); how long before the edge of the log they began. `lengths`: run times of jobs away from the
    edges. `gone`: whether those are missing that had ended by then, rather than those that still ran.
    """
    ended = np.searchsorted(np.sort(lengths), ages, side="right") / len(lengths)
    missing, seen = (ended, 1 - ended) if gone else (1 - ended, ended)
    return np.where(seen >= _LEAST_SHARE, missing / np.maximum(seen, _LEAST_SHARE), 0.0)


def _thinned(held: pd.DataFrame, name: str, span: float) -> pd.DataFrame:
    """One job a user and part of a span: many of one user at once are no independent observations."""
    part = (held[name] // (span / 20)).astype("int64")
    return held[~pd.DataFrame({"user": held["user"], "part": part}).duplicated()]


def _complete_until(jobs: pd.DataFrame, held: pd.DataFrame) -> tuple[pd.Timestamp | None, list[str]]:
    """Time until which a log of ended jobs is complete: later, the jobs are missing that had not ended."""
    if jobs["end"].isna().any() or len(held) < 2 * _MIN_JOBS:
        return None, []
    last, lengths = held["end"].max(), held["end"] - held["begin"]
    inner = held["begin"] <= last - lengths.max()
    if inner.sum() < _MIN_JOBS:
        return None, []
    late = _thinned(held[~inner], "begin", lengths.max())
    known = _thinned(held[inner], "begin", lengths.max())
    ages = (last - late["begin"]).to_numpy(dtype=float)
    should = _expected(ages, (known["end"] - known["begin"]).to_numpy(dtype=float), gone=False).sum()
    if should < _SHOULD_BE[1]:
        return None, []
    lag = _lag(lengths[inner].to_numpy(dtype=float), held["gpus"][inner].to_numpy(dtype=float))
    # Where none begins for long, the log is one of all jobs that were submitted until some time.
    if lag < _DAY_S or last - held["begin"].max() > lag / 2 or not _fades(held, last, lag):
        return None, []
    until = pd.Timestamp(last - lag, unit="s", tz="UTC").round("s")
    return until, [
        "no job of this log runs at its end, though jobs began until then: it holds ended jobs only, and those that "
        f"still ran are missing. It counts until {until:%Y-%m-%d %H:%M} UTC, before which hardly any is; for the rest, "
        "add the jobs that run (sacct without --state, or qstat, bjobs, condor_q)."
    ]


def _lag(lengths: FloatArray, gpus: FloatArray) -> float:
    """How long before the end of a log of ended jobs nearly all GPU time is in it, from jobs away from its end."""
    lags, may_miss = np.quantile(lengths, np.linspace(0, 1, 201)), _MAY_MISS * float((gpus * lengths).sum())
    return float(lags[bisect_left(lags, -may_miss, key=lambda lag: -(gpus * np.maximum(lengths - lag, 0.0)).sum())])


def _fades(held: pd.DataFrame, last: float, lag: float) -> bool:
    """Whether little is held at the end of a log, and ever less, as where what still ran is missing."""
    before, *rest = (_mean_held(held, *span) for span in pairwise(last - lag * np.array([2, 1, 0.5, 0.25, 0])))
    return rest[1] < _FADED[0] * before and rest[2] < _FADED[1] * before and rest[0] > rest[1] > rest[2]


def _mean_held(held: pd.DataFrame, begin: float, end: float) -> float:
    """Mean number of GPUs held in a period."""
    inside = held["end"].clip(begin, end) - held["begin"].clip(begin, end)
    return float((inside * held["gpus"]).sum() / (end - begin))


def _complete_from(jobs: pd.DataFrame, held: pd.DataFrame) -> tuple[pd.Timestamp | None, list[str]]:
    begin, said = _tracked_from(jobs)
    # Traces that are published begin where they were cut.
    if begin is not None or jobs.attrs.get("kind") != "measured":
        return begin, said
    ends = held["end"].dropna()
    if len(ends) < 2 * _MIN_JOBS:
        return None, said
    first = ends.min()
    before, after = held[held["begin"] < first], held[(held["begin"] >= first) & held["end"].notna()]
    if len(after) < _MIN_JOBS:
        return None, said
    lengths = (after["end"] - after["begin"]).to_numpy(dtype=float)
    span = float(first - before["begin"].min()) if len(before) else 0.0
    if span < _DAY_S:
        return None, said
    before = _thinned(before, "begin", span)
    ages = (first - before["begin"]).to_numpy(dtype=float)
    if _expected(ages, lengths, gone=True).sum() < _SHOULD_BE[0]:
        return None, said
    begin = pd.Timestamp(first, unit="s", tz="UTC")
    begin = max(begin.floor("D"), begin_times(jobs).min())
    return begin, [
        *said,
        f"no job of this log ended before {begin:%Y-%m-%d}, though many began: of the time before, it holds only the "
        "jobs that still ran then (sacct -S prints these with their whole length). It counts from that day on.",
    ]


def _tracked_from(jobs: pd.DataFrame) -> tuple[pd.Timestamp | None, list[str]]:
    """Time from which on GPUs are in a log, where its jobs had none before though those like them do after."""
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
    share = has[after].mean()
    if before.sum() < _MIN_JOBS or share < 0.5 or (1 - share) ** float(before.sum()) > _CHANCE:
        return None, []
    begin = pd.Timestamp(first).tz_convert("UTC")
    return begin, [
        f"none of {format_count(before.sum())} jobs before {begin:%Y-%m-%d} names a GPU, and {share:.0%} of those "
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

    Times are unlikely where at most 5 % of the jobs lie before or after a gap of a year that is longer than all
    other jobs span. A number of GPUs is where it is at least ten times that of all jobs but at most 1 %, and more than
    twice what all others held at once, so that the cluster was never half full without it, unless as many are
    installed.

    `jobs`: canonical job table. `installed`: GPUs at the most, or a number for each time.

    >>> times = pd.date_range("2026-03-01", periods=50, tz="UTC").to_series(index=range(50))
    >>> times[3] = pd.Timestamp("1970-01-01", tz="UTC")
    >>> jobs = pd.DataFrame({"submit": times, "start": times, "end": times, "gpus": 0, "status": "failed"})
    >>> text = unlikely_jobs(jobs.assign(job_id=range(50)))[0]
    >>> text.split("; ")[0]
    '1 of 50 jobs has a submission, start and end years from those of all others (job 3: 1 Jan 1970)'
    """
    return [*_unlikely_times(jobs), *_unlikely_gpus(jobs, installed)]


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
    gpus, also = format_number_of("GPU", jobs.loc[rows, "gpus"].iloc[0]), " and installed" * (installed is None)
    several, example = _count(rows, "has", "have"), _job(jobs, rows)
    return [
        f"{several} far more GPUs than all others held at once, {format_count(most)} ({example}: {gpus}); "
        f"they count as held{also}. Correct the number, or leave such jobs out; if it is right, say how many "
        "GPUs are installed."
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
