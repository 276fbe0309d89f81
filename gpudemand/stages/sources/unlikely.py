"""Jobs whose times or GPUs are so far from those of all others that a wrong entry is likely."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray
from gpudemand._validation import shorten
from gpudemand.jobs.as_of import gave_up, to_nanoseconds
from gpudemand.stages.sources.settings import Settings
from gpudemand.units import format_count, format_number_of
from gpudemand.usage.series import checked_usage

_TIMES = {"submit": "submission", "start": "start", "end": "end"}
#: Largest share of the jobs that is set apart: a clock may be wrong for days, a number is mistyped now and then.
_FEW_TIMES, _FEW_GPUS = 0.05, 0.01
#: Fewer jobs do not show how large others are.
_MIN_JOBS = 20
#: Users pause for months; clocks that are wrong, and typed years, are so by years.
_LEAST_GAP = pd.Timedelta("365D")
#: A digit too many.
_TIMES_LARGER = 10


def unlikely_jobs(jobs: pd.DataFrame, settings: Settings) -> list[str]:
    """Sentences on jobs that are likely entered wrong, what they change, and what to do; none in an ordinary log.

    Times are unlikely where at most 5 % of the jobs lie before or after a gap of a year that is longer than all
    other jobs span. A number of GPUs is where it is at least ten times that of all jobs but at most 1 %, and more than
    twice what all others held at once, so that the cluster was never half full without it, unless as many are
    installed.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    settings : Settings
        ``installed`` is read.

    Returns
    -------
    list of str

    Examples
    --------
    >>> times = pd.date_range("2026-03-01", periods=50, tz="UTC").to_series(index=range(50))
    >>> times[3] = pd.Timestamp("1970-01-01", tz="UTC")
    >>> jobs = pd.DataFrame({"submit": times, "start": times, "end": times, "gpus": 0, "status": "failed"})
    >>> text = unlikely_jobs(jobs.assign(job_id=range(50)), Settings())[0]
    >>> text.split("; ")[0]
    '1 of 50 jobs has a submission, start and end years from those of all others (job 3: 1 Jan 1970)'
    """
    return [*_unlikely_times(jobs), *_unlikely_gpus(jobs, settings)]


def _unlikely_times(jobs: pd.DataFrame) -> list[str]:
    far = {name: rows for name in _TIMES if (rows := _far(jobs[name])).any()}
    if not far:
        return []
    *names, last = (_TIMES[name] for name in far)
    what = f"{', '.join(names)} and {last}" if names else last
    name, rows = next(iter(far.items()))
    time = pd.Timestamp(jobs.loc[rows, name].iloc[0])
    return [
        f"{_count(np.logical_or.reduce([*far.values()]))} a{'n' * what.startswith('end')} {what} years from those of "
        f"all others ({_example(jobs, rows)}: {time.day} {time:%b %Y}); the time between counts as without demand, "
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


def _unlikely_gpus(jobs: pd.DataFrame, settings: Settings) -> list[str]:
    counted = (jobs["gpus"].gt(0) & ~gave_up(jobs)).to_numpy(dtype=bool)
    sizes = np.sort(jobs["gpus"].to_numpy(dtype=float)[counted])
    tail = sizes[-max(int(_FEW_GPUS * len(sizes)), 1) - 1 :] if len(sizes) >= _MIN_JOBS else sizes[:0]
    jumps = tail[1:] >= _TIMES_LARGER * tail[:-1]
    rows = counted & jobs["gpus"].ge(tail[1:][jumps.argmax()] if jumps.any() else np.inf).to_numpy(dtype=bool)
    if not rows.any():
        return []
    most = checked_usage(jobs[~rows], None, settings.freq, "gpus_peak", tz=settings.tz)["y"].max()
    installed = settings.total_installed
    rows &= jobs["gpus"].gt(max(2 * most, 0.0 if installed is None else float(np.max(installed)))).to_numpy(dtype=bool)
    if not rows.any():
        return []
    gpus, also = format_number_of("GPU", jobs.loc[rows, "gpus"].iloc[0]), " and installed" * (installed is None)
    return [
        f"{_count(rows)} far more GPUs than all others held at once, {format_count(most)} ({_example(jobs, rows)}: "
        f"{gpus}); they count as held{also}. Correct the number, or leave such jobs out; if it is right, say how many "
        "GPUs are installed."
    ]


def _count(rows: BoolArray) -> str:
    few = int(rows.sum())
    return f"{few:,} of {format_number_of('job', len(rows))} {'has' if few == 1 else 'have'}"


def _example(jobs: pd.DataFrame, rows: BoolArray) -> str:
    position = int(rows.argmax())
    name = jobs["job_id"].iloc[position]
    return f"row {position + 1}" if pd.isna(name) else f"job {shorten(name)}"
