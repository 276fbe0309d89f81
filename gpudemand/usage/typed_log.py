"""A stored job log as a DuckDB view of typed columns, whatever its times and numbers are stored as."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from gpudemand._validation import InputError, require_names
from gpudemand.jobs.log_columns import NUMBER, STATUS_OF_WORD
from gpudemand.jobs.schema import (
    COUNT_DUPLICATES,
    DUPLICATE,
    EARLIEST,
    LATEST,
    OTHER_KEYS,
    RULES,
    RUN,
    STATUSES,
    UNREADABLE,
    first_reason,
    microseconds,
)
from gpudemand.jobs.table import unusable
from gpudemand.jobs.time_parser import NO_SUCH_TIME, NULL_MARKERS, TimeParser, parse_timezone

_TEXT = ("job_id", "user", "group", "cluster", "gpu_type", *OTHER_KEYS)
_TIMES = ("submit", "start", "end")
_INSTANT = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
_NUMBERS = ("gpus", "requested_time")
_LOCAL = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "DATE")
_NUMERIC = (
    "DOUBLE",
    "FLOAT",
    "DECIMAL",
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
)
_HINT = (
    " It is no canonical job table: read it with read_jobs(path, format=...), or convert it with `gpudemand convert`."
)
_MINUTE = 60_000_000
#: Whether two runs may be the same. Of 100 million runs, hashes fit into memory where names and times do not.
_EQUAL_HASHES = f"SELECT 1 FROM typed WHERE job_id IS NOT NULL GROUP BY hash({RUN}) HAVING count(*) > 1 LIMIT 1"
#: A day more on either side, because local times differ from UTC by up to 14 hours.
_FIRST, _LAST = (microseconds(time + pd.Timedelta(days=days)) for time, days in ((EARLIEST, -1), (LATEST, 1)))


def create_typed_view(db: duckdb.DuckDBPyConnection, relation: str, name: str, tz: object) -> None:
    """Create the view ``typed`` of a job log: keys, microseconds of UTC, GPUs, status, and why a cell is unreadable.

    Parameters
    ----------
    db : duckdb.DuckDBPyConnection
    relation : str
        Table, view or table function. A column that it lacks is NULL.
    name : str
        Name of the log, for messages.
    tz : str, tzinfo or None
        Zone of times without one, which `TimeParser` localizes, as it does for `read_jobs`.

    Raises
    ------
    InputError
        If a needed column is missing, or times have no zone and `tz` is None.
    """
    kinds = {row[0]: str(row[1]) for row in db.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()}
    require_names(kinds, ("submit" if "submit" in kinds else "start", "end", "gpus"), name, _HINT)
    written = [column for column in (*_TIMES, *_NUMBERS) if column in kinds and not _is_typed(column, kinds[column])]
    cells = ", ".join(f'{_cell(column)} AS "{column}"' for column in written)
    source = f"(SELECT * REPLACE ({cells}) FROM {relation})" if written else relation
    parsed = [f'{_text(column, kinds)} AS "{column}"' for column in _TEXT]
    parsed += [_time_columns(column, kinds.get(column)) for column in _TIMES]
    parsed += [f"{_status(kinds)} AS status", *(_number_columns(column, kinds.get(column)) for column in _NUMBERS)]
    # Text is read once, into a table that DuckDB spills to disk; typed columns are read when a query needs them.
    db.execute(f"CREATE {'TABLE' if written else 'VIEW'} parsed AS SELECT {', '.join(parsed)} FROM {source}")
    local = [column for column in _TIMES if kinds.get(column) not in (None, *_INSTANT)]
    db.register("minutes", _local_minutes(db, local, TimeParser(parse_timezone(tz), source=name)))
    joins = [f"LEFT JOIN minutes AS {column}_m ON {column}_wall // {_MINUTE} = {column}_m.minute" for column in local]
    times = [f"{_utc(column) if column in local else f'{column}_at'} AS {column}_us" for column in _TIMES]
    names = ", ".join(f'"{column}"' for column in (*_TEXT, "status", *_NUMBERS))
    columns = f"{names}, {', '.join(times)}, {_unreadable()} AS unreadable"
    db.execute(f"CREATE VIEW typed AS SELECT {columns} FROM parsed {' '.join(joins)}")


def _is_typed(column: str, kind: str) -> bool:
    return kind.split("(")[0] in _NUMERIC if column in _NUMBERS else kind in (*_INSTANT, *_LOCAL)


def check_rows(db: duckdb.DuckDBPyConnection, name: str) -> None:
    """Raise an `InputError` that counts the rows of the view ``typed`` that no total can include, by reason."""
    reason = f"coalesce(unreadable, {first_reason(RULES)})"
    query = f"SELECT {reason}, count(*) FROM typed GROUP BY 1 ORDER BY 2 DESC, 1"
    counts = {reason: count for reason, count in db.execute(query).fetchall() if reason}
    if db.execute(_EQUAL_HASHES).fetchall():
        [(duplicates,)] = db.execute(COUNT_DUPLICATES.format(relation="typed")).fetchall()
        counts |= {DUPLICATE: int(duplicates)} if duplicates else {}
    if counts:
        raise InputError(f"{name} has {unusable(counts)}; clean it with `gpudemand convert` first.")


def _text(column: str, kinds: Mapping[str, str]) -> str:
    return f"nullif(CAST(\"{column}\" AS VARCHAR), '')" if column in kinds else "NULL::VARCHAR"


def _cell(column: str) -> str:
    """Trimmed text of a cell, NULL for words that mean nothing is there."""
    text = f'trim(CAST("{column}" AS VARCHAR))'
    return f"CASE WHEN lower({text}) NOT IN {NULL_MARKERS} THEN {text} END"


def _time_columns(column: str, kind: str | None) -> str:
    """Time with a zone (``_at``) and without (``_wall``) in microseconds, and whether there is text that is neither."""
    at = wall = "NULL::BIGINT"
    bad = "false"
    if kind in _INSTANT:
        at = f'epoch_us(CAST("{column}" AS TIMESTAMPTZ))'
    elif kind in _LOCAL:
        wall = f'epoch_us(CAST("{column}" AS TIMESTAMP))'
    elif kind is not None:
        # After YYYY-MM-DD HH:MM there is a sign or a Z only if there is a zone; words such as 'epoch' are no times.
        zone, dated = f'substr("{column}", 17)', f"substr(\"{column}\", 5, 1) = '-'"
        zoned = f"(contains({zone}, '+') OR contains({zone}, '-') OR contains({zone}, 'Z'))"
        instant = f"TRY_CAST(replace(\"{column}\", ' +', '+') AS TIMESTAMPTZ)"
        at = f"CASE WHEN {dated} AND {zoned} THEN epoch_us({instant}) END"
        wall = f'CASE WHEN {dated} AND NOT {zoned} THEN epoch_us(TRY_CAST("{column}" AS TIMESTAMP)) END'
        bad = f'"{column}" IS NOT NULL AND ({at}) IS NULL AND ({wall}) IS NULL'
    return f"{at} AS {column}_at, {wall} AS {column}_wall, {bad} AS {column}_bad"


def _number_columns(column: str, kind: str | None) -> str:
    if kind is None:
        return f"NULL::DOUBLE AS {column}, false AS {column}_bad"
    if _is_typed(column, kind):
        value = f'CAST("{column}" AS DOUBLE)'
        return f"CASE WHEN NOT isnan({value}) THEN {value} END AS {column}, false AS {column}_bad"
    value = f"CASE WHEN regexp_matches({column}, '{NUMBER}') THEN TRY_CAST({column} AS DOUBLE) END"
    return f"{value} AS {column}, {column} IS NOT NULL AND ({value}) IS NULL AS {column}_bad"


def _status(kinds: Mapping[str, str]) -> str:
    """Status in the canonical words; NULL for others."""
    text = _text("status", kinds)
    words = ", ".join(f"'{word}': '{status}'" for word, status in STATUS_OF_WORD.items())
    return (
        f"CASE WHEN {text} IN {STATUSES} THEN {text} ELSE MAP {{{words}}}[regexp_extract(lower({text}), '[a-z_]+')] END"
    )


def _utc(column: str) -> str:
    """Microseconds of UTC of any time; those outside the known range stay as they are, to be refused for that."""
    local = f"{column}_m.utc_us + {column}_wall % {_MINUTE}"
    outside = f"CASE WHEN {column}_wall NOT BETWEEN {_FIRST} AND {_LAST} THEN {column}_wall END"
    return f"coalesce({column}_at, {local}, {outside})"


def _unreadable() -> str:
    """Why no total can include a row, NULL where one can; an unreadable request, on which none depends, is none."""
    bad = " OR ".join(f"{column}_bad" for column in (*_TIMES, "gpus"))
    skipped = " OR ".join(f"({column}_wall IS NOT NULL AND {column}_us IS NULL)" for column in _TIMES)
    return first_reason({UNREADABLE: bad, NO_SUCH_TIME: skipped})


def _local_minutes(db: duckdb.DuckDBPyConnection, local: list[str], parser: TimeParser) -> pa.Table:
    """Minutes of local time in the log, and their microseconds of UTC, NULL where daylight saving skips them."""
    walls = " UNION ALL ".join(f"SELECT {column}_wall AS wall FROM parsed" for column in local)
    query = f"SELECT DISTINCT wall // {_MINUTE} FROM ({walls}) WHERE wall BETWEEN {_FIRST} AND {_LAST}"
    minutes = np.array([], dtype=np.int64) if not local else np.asarray(pa.table(db.sql(query))[0], dtype=np.int64)
    times = pd.DatetimeIndex((minutes * _MINUTE).view("datetime64[us]"))
    utc = parser.localize(times) if len(times) else times.tz_localize("UTC")
    return pa.table({"minute": minutes, "utc_us": pa.array(utc.as_unit("us")).cast(pa.int64())})
