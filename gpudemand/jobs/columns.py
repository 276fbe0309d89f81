"""Columns of a log as canonical columns: times, numbers, states."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from gpudemand._array import STRING, BoolArray
from gpudemand._validation import InputError, shorten
from gpudemand.jobs.files import TextTable
from gpudemand.jobs.schema import EARLIEST, LATEST, OUTSIDE, TIME
from gpudemand.jobs.times import (
    EPOCH,
    MAX_SHIFT_S,
    NO_SUCH_TIME,
    NULL_MARKERS,
    UNREADABLE_TIME,
    TimeParser,
    add_seconds,
)
from gpudemand.units import parse_slurm_seconds

#: Text of a number.
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?$"
#: Text of a duration in Slurm's notation: days, and two or three parts of a clock.
DURATION = r"^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?(?:\.\d+)?$"
#: Name that is a whole number and was made a float, as pandas makes all of a column of which one is missing.
FLOAT_NAME = r"^-?\d+\.0+$"
#: What schedulers write of a job without a time limit, in lower case.
NO_LIMIT = ("unlimited", "infinite", "infinity", "inf", "partition_limit", "not_set")

#: Canonical status -> the words that schedulers use for it: sacct, Kubernetes and its queues; then the short ones of
#: squeue (-o %t), PBS and Torque (qstat), LSF (bjobs), Grid Engine (qstat) and HTCondor (condor_q). Where they differ,
#: as on F, it is Slurm's, but for STOPPED, which all others write of jobs that are over.
STATUS_WORDS = {
    "completed": "completed complete done finished pass passed succeed succeeded success terminated cd c",
    "failed": "failed fail failure error node_fail boot_fail launch_failed reconfig_fail crashed dead lost exit exited "
    "f nf bf",
    "cancelled": "cancelled canceled cancel killed kill deleted stopped stopped_by_user revoked aborted removed ca rv "
    "x",
    "timeout": "timeout timelimit deadline expired to dl",
    "out_of_memory": "out_of_memory oom oom_killed",
    "preempted": "preempted evicted pr",
    "requeued": "requeued rq",
    "resized": "resized resizing rs",
    "running": "running completing suspended signaling stage_out configuring started starting terminating "
    "active run ssusp ususp r cg s st si so cf",
    "pending": "pending waiting queued requeue_hold requeue_fed resv_del_hold special_exit inqueue queueing queuing "
    "submitted held hold idle unschedulable schedulinggated pend psusp qw hqw eqw pd q h w i rh rf rd se",
}
STATUS_OF_WORD = {word: status for status, words in STATUS_WORDS.items() for word in words.split()}


def canonical_status(text: str) -> str | None:
    """Canonical status of a scheduler's word, or None if the word is not known.

    >>> canonical_status("CANCELLED by 1000"), canonical_status("NODE_FAIL"), canonical_status("odd")
    ('cancelled', 'failed', None)
    """
    words = re.findall(r"[a-z_]+", text.lower())
    return STATUS_OF_WORD.get(words[0]) if words else None


def map_unique(text: pd.Series, function: Callable[[str], Any], dtype: Any = object) -> pd.Series:
    """Apply a function once to each unique value."""
    codes, unique = pd.factorize(text)
    missing = np.nan if dtype == "float64" else None
    values = np.empty(len(unique) + 1, dtype=dtype)
    values[:] = [*(function(str(value)) for value in unique), missing]
    return pd.Series(values[codes], index=text.index, dtype=STRING if dtype is object else dtype)


def without_decimals(names: pd.Series) -> pd.Series:
    """Names without decimals, if all of them are whole numbers that were made floats.

    >>> without_decimals(pd.Series(["1001.0", None], dtype=STRING)).tolist()
    ['1001', nan]
    """
    known = names.notna().to_numpy(dtype=bool)
    first = names.iloc[known.argmax()] if known.any() else ""  # tells it of most columns
    if re.match(FLOAT_NAME, first) and names[known].str.match(FLOAT_NAME).all():
        return names.str.replace(r"\.0+$", "", regex=True)
    return names


#: What stands for ``/`` inside a name, where names are joined by it; in one that has it already, its ``%`` is ``%25``.
_SLASH = "%2F"
_ESCAPED = "%((25)*2F)"


def path_part(name: str) -> str:
    """Name as a part of the name of a series, in which ``/`` stands between names; `name_of_part` is the inverse.

    >>> [path_part(name) for name in ("a/b", "a%2Fb", "100%")]
    ['a%2Fb', 'a%252Fb', '100%']
    """
    return re.sub(_ESCAPED, r"%25\1", name).replace("/", _SLASH)


def path_part_sql(name: str) -> str:
    """Expression for the `path_part` of an expression, in DuckDB."""
    return rf"replace(regexp_replace({name}, '{_ESCAPED}', '%25\1', 'g'), '/', '{_SLASH}')"


def name_of_part(part: str) -> str:
    """Name of which `path_part` has made a part.

    >>> [name_of_part(part) for part in ("a%2Fb", "a%252Fb", "100%")]
    ['a/b', 'a%2Fb', '100%']
    """
    return re.sub("%25((25)*2F)", r"%\1", part.replace(_SLASH, "/"))


def unread_cells(name: str, example: str, count: int, total: int) -> str:
    """Sentence on cells that cannot be read, in a column that no job needs.

    >>> unread_cells("requested_time", "soon", 2, 1000)
    "2 of 1,000 cells of requested_time cannot be read, such as 'soon', and are unknown. Write seconds or 1-00:00:00."
    """
    what = f"{count:,} of {total:,} cells of {name} cannot be read, such as {shorten(example)!r}, and are unknown."
    return f"{what} Write {'seconds or 1-00:00:00' if name == 'requested_time' else 'numbers'}."


class LogColumns:
    """Typed access to the columns of a log, with a record of rejected and excluded rows.

    `path`: some logs are named after their cluster. `shards_per_gpu`: Slurm's shards that make one GPU; by node where
    nodes differ. `gpu_share`: share of a GPU that one device of a type is, by the name of the type in lower case.
    `doubts`: what is in the log and not understood, as sentences. `unknown_words`: those of a status that are not
    known, by row. `reject_reason`, `exclude_reason`: shape (n_rows,); why a row is invalid, or valid and no job of its
    own (a job step, a tax), or None.
    """

    def __init__(
        self,
        table: TextTable,
        parser: TimeParser,
        path: Path | None = None,
        shards_per_gpu: float | Mapping[str, float] | None = None,
    ) -> None:
        self.table = table
        self.parser = parser
        self.shards_per_gpu = shards_per_gpu
        self.gpu_share: dict[str, float] = {}
        self.doubts: list[str] = []
        self.unknown_words = pd.Series(None, index=range(len(table.lines)), dtype=STRING)
        self.path = path or Path(table.source)
        self.reject_reason = np.full(len(table.lines), None, dtype=object)
        self.exclude_reason = self.reject_reason.copy()
        self._has_outside = False
        self._unread: dict[str, pd.Series] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.table.names

    def first_present(self, *names: str) -> str:
        """First of some column names that this log has; the last one if it has none."""
        return next((name for name in names if name in self), names[-1])

    def raw(self, name: str) -> pd.Series:
        """Column as stored: text in CSV, any type in Parquet."""
        column = self.table.rows[name]
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        return self.text(name) if is_text else pd.Series(column.to_pandas())

    def text(self, name: str, *, null_markers: bool = False) -> pd.Series:
        """Column as stripped text; missing where it is empty, absent, or with `null_markers` a word for nothing."""
        if name not in self:
            return pd.Series(None, index=range(len(self.table.lines)), dtype=STRING)
        column = pc.utf8_trim_whitespace(self._as_text(name))
        column = pc.if_else(pc.equal(column, ""), None, column)
        text = pd.Series(column.to_pandas(types_mapper={pa.string(): STRING}.get), dtype=STRING)
        return text.mask(text.str.lower().isin(NULL_MARKERS).to_numpy(dtype=bool)) if null_markers else text

    def _as_text(self, name: str) -> Any:
        column = self.table.rows[name]
        if pa.types.is_nested(column.type):
            texts = [None if value is None else str(value) for value in column.to_pylist()]
            return pa.chunked_array([pa.array(texts, pa.string())])
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
        if not pa.types.is_duration(column.type):
            try:
                return column.cast(pa.string())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # bytes that are no text, types without words
                pass
        kind = f"the column {name!r} of {self.table.source!r} holds {column.type}"
        raise InputError(f"{kind}, which is neither text, a number nor a time; convert it.")

    def texts(self, **columns: str) -> dict[str, pd.Series]:
        """Several columns of names: canonical name -> column of the log."""
        return {name: without_decimals(self.text(column)) for name, column in columns.items()}

    def number(self, name: str, *, required: bool = False) -> pd.Series:
        """Column of floats; an unreadable value rejects its row, and so does a missing one if it is `required`."""
        values, missing = self._numbers(name)
        self.reject(~missing & values.isna(), f"unreadable {name}")
        if required:
            self.reject(missing, f"without {name}")
        return values

    def optional_number(self, name: str) -> pd.Series:
        """Column of floats that no job needs; an unreadable value is missing, which `unread` says."""
        values, missing = self._numbers(name)
        bad = ~missing & values.isna()
        if bad.any():
            self._unread[name] = self.text(name)[bad]
        return values

    def time_limit(self, name: str) -> pd.Series:
        """Column of seconds, also in Slurm's notation, of which a word for no limit is missing; no job needs it."""
        values = self.optional_number(name)
        if name in self._unread:
            text = self._unread.pop(name)
            text = text[~text.str.lower().isin(NO_LIMIT)]
            seconds = map_unique(text.mask(text.str.match(NUMBER)), parse_slurm_seconds, "float64")
            values[seconds.index] = seconds = seconds.where(np.isfinite(seconds))
            self._unread[name] = text[seconds.isna()]
        return values

    def unread(self) -> list[str]:
        """Sentences on unreadable values of the rows that count, without which these count all the same."""
        usable = self.usable()
        texts = {name: text[usable[text.index]] for name, text in self._unread.items()}
        total = int(usable.sum())
        return [unread_cells(name, text.min(), len(text), total) for name, text in texts.items() if len(text)]

    def _numbers(self, name: str) -> tuple[pd.Series, pd.Series]:
        """Column of floats, NaN where none can be read, and where nothing is written."""
        column = self.table.rows[name] if name in self else None
        if column is not None and (pa.types.is_float64(column.type) or pa.types.is_integer(column.type)):
            values = pd.Series(column.cast(pa.float64(), safe=False).to_pandas(), dtype="float64")
            missing = values.isna()
        else:
            text = self.text(name, null_markers=True)
            fits, missing = text.str.match(NUMBER, na=False).to_numpy(dtype=bool), text.isna()
            values = pd.to_numeric(text.where(fits), errors="coerce").astype("float64")
        return values.where(np.isfinite(values)), missing

    def time(self, name: str, *, required: bool = False) -> pd.Series:
        """Column of times in UTC; an unreadable one rejects its row, and so does a missing one if it is `required`."""
        column = self.table.rows[name] if name in self else None
        if column is not None and (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
            times, invalid = self._typed_time(column)
        else:
            times, invalid = self.parser.parse(self.text(name, null_markers=True))
        for reason, rows in invalid.items():
            self.reject(rows, reason)
            self._has_outside |= reason == OUTSIDE and bool(rows.any())
        if required:
            self.reject(times.isna(), f"without {name}")
        return times

    def accept_open(self, jobs: pd.DataFrame) -> None:
        """Accept jobs that wait or run whose end is a time outside all logs, as programs write what has not come."""
        if not self._has_outside or "status" not in jobs:
            return
        known = [jobs[name].notna() for name in ("submit", "start") if name in jobs]
        is_open = jobs["status"].eq("pending") & known[0] | jobs["status"].eq("running") & known[0] & known[-1]
        self.reject_reason[is_open.fillna(False).to_numpy(dtype=bool) & (self.reject_reason == OUTSIDE)] = None

    def _typed_time(self, column: Any) -> tuple[pd.Series, dict[str, BoolArray]]:
        column = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False)
        stamps = pd.DatetimeIndex(column.to_pandas())
        stamps = self.parser.localize(stamps) if stamps.tz is None else stamps.tz_convert("UTC")
        outside = (stamps < EARLIEST) | (stamps > LATEST)
        times = pd.Series(pd.DatetimeIndex(stamps.where(~outside)).as_unit("ns"), dtype=TIME)
        return times, {OUTSIDE: outside, NO_SUCH_TIME: column.is_valid().to_numpy() & stamps.isna() & ~outside}

    def time_since_origin(self, name: str, *, required: bool = False) -> pd.Series:
        """Column of seconds since the origin, as times in UTC."""
        return self.since_origin(self.number(name, required=required))

    def since_origin(self, seconds: pd.Series, otherwise: pd.Timestamp | None = None) -> pd.Series:
        """Seconds since the origin, or another where none was given, as times in UTC.

        Where most are so many that the log would be older than any, they are seconds since 1970.
        """
        start = self.parser.start or otherwise
        if seconds.notna().any() and seconds.median() >= EARLIEST.timestamp():
            if self.parser.start not in (None, EPOCH):
                times = f"the times in {self.table.source!r} are seconds since 1970 already"
                first = pd.Timestamp(seconds.min(), unit="s")
                raise InputError(f"{times}, from {first:%Y-%m-%d} on; leave origin= out.")
            start = EPOCH
        return self.shifted(pd.Series(start or self.parser.origin(), index=seconds.index, dtype=TIME), seconds)

    def shifted(self, times: pd.Series, seconds: pd.Series) -> pd.Series:
        """Times plus seconds; a row with an implausibly long shift is rejected."""
        self.reject(seconds.abs() > MAX_SHIFT_S, "duration above 60 years (milliseconds?)")
        return add_seconds(times, seconds)

    def status(self, name: str, words: Mapping[str, str] | None = None) -> pd.Series:
        """Column of states in the canonical vocabulary, or by `words` (in lower case); missing where not known."""
        text, own = self.text(name), words or {}
        status = map_unique(text, lambda word: own.get(word.lower(), canonical_status(word)))
        self.unknown_words = text.mask(status.notna())
        return status

    def reject(self, rows: pd.Series | BoolArray, reason: str) -> None:
        """Mark rows as invalid; the first reason is kept."""
        _mark(self.reject_reason, rows, reason)

    def exclude(self, rows: pd.Series | BoolArray, reason: str) -> None:
        """Mark valid rows that are not counted as jobs."""
        _mark(self.exclude_reason, rows, reason)

    def usable(self) -> BoolArray:
        """Rows that are jobs and valid, as a mask."""
        return (self.reject_reason == None) & (self.exclude_reason == None)  # noqa: E711 (element by element)

    def rejection_counts(self, *, strict: bool = False) -> dict[str, int]:
        """Number of rows that are left out, by reason."""
        rejected = np.flatnonzero((self.reject_reason != None) & (self.exclude_reason == None))  # noqa: E711
        excluded = self.exclude_reason[self.exclude_reason != None]  # noqa: E711
        counts = Counter([*self.table.bad.values(), *self.reject_reason[rejected], *excluded])
        if not self.usable().any():
            listed = ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common())
            hint = " Write times as 2026-01-05 10:00." if UNREADABLE_TIME in counts else ""
            raise InputError(f"no row of {self.table.source!r} can be used: {listed or 'it has none'}.{hint}")
        if strict and (rejected.size or self.table.bad):
            lines = self.table.lines[rejected].tolist()
            bad = {**self.table.bad, **dict(zip(lines, self.reject_reason[rejected], strict=True))}
            first = "; ".join(f"line {line}: {bad[line]}" for line in sorted(bad)[:10])
            raise InputError(f"{len(bad):,} rows of {self.table.source!r} are bad ({first}); repair them.")
        return dict(counts)


def _mark(reasons: Any, rows: pd.Series | BoolArray, reason: str) -> None:
    mask = np.asarray(rows, dtype=bool)
    reasons[mask & (reasons == None)] = reason  # noqa: E711 (element by element)


def start_unstarted_at_end(jobs: pd.DataFrame) -> pd.DataFrame:
    """Set the start of jobs that ended without starting to their end (or submit): they held nothing."""
    over = jobs["status"].notna() & ~jobs["status"].isin(["running", "pending"]) & jobs["start"].isna()
    end = jobs["end"].fillna(jobs["submit"])
    return jobs.assign(start=jobs["start"].mask(over, end), end=jobs["end"].mask(over, end))
