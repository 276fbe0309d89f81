"""One log, read field by field; it remembers which rows cannot be used, and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from gpudemand._typing import STRING, BoolArray, IntArray
from gpudemand._validation import InputError
from gpudemand.jobs.clock import LONGEST_S, MISSING, OUTSIDE, Clock, later, parse_times
from gpudemand.jobs.table import EARLIEST, LATEST, TIME
from gpudemand.jobs.text import TextTable

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?$"

#: What schedulers call a state -> what the canonical table calls it.
STATUS_WORDS = {
    "completed": "completed complete done finished pass passed succeed succeeded success terminated",
    "failed": "failed fail failure error node_fail boot_fail launch_failed reconfig_fail",
    "cancelled": "cancelled canceled cancel killed kill deleted stopped_by_user revoked",
    "timeout": "timeout timelimit deadline",
    "out_of_memory": "out_of_memory oom oom_killed",
    "preempted": "preempted requeued evicted",
    "running": "running completing suspended resizing stopped signaling stage_out configuring",
    "pending": "pending waiting queued requeue_hold requeue_fed resv_del_hold special_exit",
}
_STATUS = {word: status for status, words in STATUS_WORDS.items() for word in words.split()}


def known_status(text: str) -> str | None:
    """Return the canonical status that a scheduler's word means, or None.

    Examples
    --------
    >>> known_status("CANCELLED by 1000"), known_status("NODE_FAIL"), known_status("odd")
    ('cancelled', 'failed', None)
    """
    words = re.findall(r"[a-z_]+", text.lower())
    return _STATUS.get(words[0]) if words else None


def map_distinct(text: pd.Series, function: Callable[[str], Any], dtype: Any = object) -> pd.Series:
    """Apply a function once to each distinct text; a log repeats itself."""
    codes, distinct = pd.factorize(text)
    missing = np.nan if dtype == "float64" else None
    values = np.empty(len(distinct) + 1, dtype=dtype)
    values[:] = [*(function(str(value)) for value in distinct), missing]
    return pd.Series(values[codes], index=text.index, dtype=STRING if dtype is object else dtype)


class Log:
    """The rows of a log and its clock.

    Parameters
    ----------
    table : TextTable
        The rows.
    clock : Clock
        Zone and origin of its times.
    path : Path, optional
        Where it lies; some logs are named after their cluster.

    Attributes
    ----------
    refused : ndarray of object
        Why a row is bad, or None.
    aside : ndarray of object
        Why a sound row is no job of its own (a job step, a tax), or None.
    """

    def __init__(self, table: TextTable, clock: Clock, path: Path | None = None) -> None:
        self.table = table
        self.clock = clock
        self.path = path or Path(table.source)
        self.refused = np.full(len(table.lines), None, dtype=object)
        self.aside = self.refused.copy()

    def __contains__(self, name: str) -> bool:
        return name in self.table.names

    def __len__(self) -> int:
        return len(self.table.lines)

    @property
    def lines(self) -> IntArray:
        """Line of each row in the file."""
        return self.table.lines

    def first(self, *names: str) -> str:
        """Return the first of some columns that this log has; the last one if it has none."""
        return next((name for name in names if name in self), names[-1])

    def original(self, name: str) -> pd.Series:
        """Return a column as the file has it: text in CSV, any type in Parquet."""
        column = self.table.rows[name]
        return self.text(name) if _is_text(column) else pd.Series(column.to_pandas())

    def text(self, name: str) -> pd.Series:
        """Return a column as text without blanks around it; missing where it is empty or absent."""
        if name not in self:
            return pd.Series(None, index=range(len(self)), dtype=STRING)
        column = pc.utf8_trim_whitespace(_as_text(self.table.rows[name]))
        column = pc.if_else(pc.equal(column, ""), None, column)
        return pd.Series(column.to_pandas(types_mapper={pa.string(): STRING}.get), dtype=STRING)

    def present(self, name: str) -> pd.Series:
        """Return a column as text, missing also where it holds a word for nothing (``None``, ``Unknown``, ...)."""
        text = self.text(name)
        return text.mask(text.str.lower().isin(MISSING).to_numpy(dtype=bool))

    def number(self, name: str, *, needed: bool = False) -> pd.Series:
        """Return a column of numbers; a row with an unreadable one is refused, one without one if it is `needed`."""
        text = self.present(name)
        fits = text.str.match(_NUMBER, na=False).to_numpy(dtype=bool)
        values = pd.to_numeric(text.where(fits), errors="coerce").astype("float64")
        values = values.where(np.isfinite(values))
        self.refuse(text.notna() & values.isna(), f"unreadable {name}")
        if needed:
            self.refuse(text.isna(), f"without {name}")
        return values

    def time(self, name: str, *, needed: bool = False) -> pd.Series:
        """Return a column of times in UTC; an unreadable one refuses its row, a missing one does if it is `needed`."""
        column = self.table.rows[name] if name in self else None
        if column is not None and (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
            times, wrong = self._typed_time(column)
        else:
            times, wrong = parse_times(self.present(name), self.clock)
        for reason, rows in wrong.items():
            self.refuse(rows, reason)
        if needed:
            self.refuse(times.isna(), f"without {name}")
        return times

    def _typed_time(self, column: Any) -> tuple[pd.Series, dict[str, BoolArray]]:
        column = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False)
        stamps = pd.DatetimeIndex(column.to_pandas())
        stamps = self.clock.localize(stamps) if stamps.tz is None else stamps.tz_convert("UTC")
        outside = (stamps < EARLIEST) | (stamps > LATEST)
        times = pd.Series(pd.DatetimeIndex(stamps.where(~outside)).as_unit("ns"), dtype=TIME)
        return times, {OUTSIDE: outside, "unreadable time": column.is_valid().to_numpy() & stamps.isna() & ~outside}

    def since_origin(self, name: str, *, needed: bool = False) -> pd.Series:
        """Return a column of seconds since the origin, as times."""
        origin = pd.Series(self.clock.origin(), index=range(len(self)), dtype=TIME)
        return self.after(origin, self.number(name, needed=needed))

    def after(self, times: pd.Series, seconds: pd.Series) -> pd.Series:
        """Return times moved by seconds; a row whose step is absurd is refused."""
        self.refuse(seconds.abs() > LONGEST_S, "duration above 60 years (milliseconds?)")
        return later(times, seconds)

    def status(self, name: str) -> pd.Series:
        """Return a column of states in the canonical vocabulary; missing where the word is not known."""
        return map_distinct(self.text(name), known_status)

    def refuse(self, rows: pd.Series | BoolArray, reason: str) -> None:
        """Mark rows as bad; the first reason stands."""
        _mark(self.refused, rows, reason)

    def refuse_each(self, reasons: pd.Series) -> None:
        """Mark rows as bad, each for its own reason; NaN where a row is fine."""
        new = reasons.notna().to_numpy() & (self.refused == None)  # noqa: E711 (element by element)
        self.refused[new] = reasons.to_numpy(dtype=object)[new]

    def set_aside(self, rows: pd.Series | BoolArray, reason: str) -> None:
        """Mark sound rows that are not to be counted as jobs."""
        _mark(self.aside, rows, reason)

    def usable(self) -> BoolArray:
        """Return which rows are jobs and can be used."""
        return (self.refused == None) & (self.aside == None)  # noqa: E711 (element by element)

    def rejected(self, *, strict: bool) -> dict[str, int]:
        """Count the rows that are left out, by reason.

        Raises
        ------
        InputError
            If no row is left, or if some are bad and `strict` is asked for.
        """
        refused = np.flatnonzero((self.refused != None) & (self.aside == None))  # noqa: E711 (element by element)
        counts = Counter([*self.table.bad.values(), *self.refused[refused], *self.aside[self.aside != None]])  # noqa: E711
        if not self.usable().any():
            raise InputError(f"no row of {self.table.source!r} can be used: {_listed(counts) or 'it has none'}.")
        if strict and (refused.size or self.table.bad):
            bad = {**self.table.bad, **dict(zip(self.lines[refused].tolist(), self.refused[refused], strict=True))}
            first = "; ".join(f"line {line}: {bad[line]}" for line in sorted(bad)[:10])
            raise InputError(f"{len(bad):,} rows of {self.table.source!r} are bad ({first}); repair them.")
        return dict(counts)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common())


def _mark(reasons: Any, rows: pd.Series | BoolArray, reason: str) -> None:
    mask = np.asarray(rows, dtype=bool)
    reasons[mask & (reasons == None)] = reason  # noqa: E711 (element by element)


def _is_text(column: Any) -> bool:
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _as_text(column: Any) -> Any:
    if pa.types.is_nested(column.type):
        return pa.chunked_array([pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())])
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def start_or_never(jobs: pd.DataFrame) -> pd.DataFrame:
    """Let jobs that ended without ever starting start when they end (or were submitted): they held nothing."""
    over = jobs["status"].notna() & ~jobs["status"].isin(["running", "pending"]) & jobs["start"].isna()
    end = jobs["end"].fillna(jobs["submit"])
    return jobs.assign(start=jobs["start"].mask(over, end), end=jobs["end"].mask(over, end))
