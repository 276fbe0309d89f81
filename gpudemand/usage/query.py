"""The query that bins a job log which is not loaded, in DuckDB, on files and stores."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import InputError, is_out_of_memory, require_names
from gpudemand.jobs import schema
from gpudemand.jobs.columns import DURATION, FLOAT_NAME, NO_LIMIT, NUMBER, STATUS_OF_WORD, path_part_sql, unread_cells
from gpudemand.jobs.files import LIMITS, NO_LIMITS, csv_batches, open_parquet
from gpudemand.jobs.log_formats import TOTAL_ROW, TOTALS
from gpudemand.jobs.plausibility import Edge, edge_of_ages, survivors_before, tracked_since
from gpudemand.jobs.read import not_eligible
from gpudemand.jobs.slurm import with_array_tasks
from gpudemand.jobs.table import most_twice, unusable, warn_doubts
from gpudemand.jobs.times import NO_SUCH_TIME, NULL_MARKERS, TimeParser, parse_timezone
from gpudemand.store import exact_name, is_store, read_store

_TEXT = ("job_id", "user", "group", "cluster", "gpu_type", *schema.OTHER_KEYS)
_TIMES = ("submit", "start", "end")
_INSTANT = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
_LIMIT = "requested_time"
_NUMBERS = ("gpus", _LIMIT)
_LOCAL = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "DATE")
_NUMERIC = (
    *("DOUBLE", "FLOAT", "DECIMAL", "TINYINT", "SMALLINT", "INTEGER", "BIGINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER"),
)
_MINUTE, _DAY = 60_000_000, 86_400_000_000
#: A day more on either side, because local times differ from UTC by up to 14 hours.
_FIRST, _LAST = (
    schema.microseconds(time + pd.Timedelta(days=days)) for time, days in ((schema.EARLIEST, -1), (schema.LATEST, 1))
)


def _create_typed_view(db: duckdb.DuckDBPyConnection, name: str, tz: object) -> list[str]:
    """Create the view ``typed`` of ``stored``: keys, microseconds of UTC, GPUs, status, and why a cell is unreadable.

    A column that is lacking is NULL. `TimeParser` localizes times, as for `read_jobs`. Returns sentences on cells that
    are unreadable and not needed.
    """
    kinds = {row[0]: str(row[1]) for row in db.execute("DESCRIBE SELECT * FROM stored").fetchall()}
    hint = "read it with read_jobs(path, format=...), or convert it with `gpudemand convert`."
    needed = ("submit" if "submit" in kinds else "start", "end", "gpus")
    require_names(kinds, needed, name, f" It is no canonical job table: {hint}")
    written = [column for column in (*_TIMES, *_NUMBERS) if column in kinds and not _is_typed(column, kinds[column])]
    # Trimmed text of a cell, NULL for words that mean nothing is there.
    texts = {column: f'trim(CAST("{column}" AS VARCHAR))' for column in written}
    cells = ", ".join(
        f'CASE WHEN lower({text}) NOT IN ({_nothing(column)}) THEN {text} END AS "{column}"'
        for column, text in texts.items()
    )
    source = f"(SELECT * REPLACE ({cells}) FROM stored)" if written else "stored"
    parsed = [f'{_text(column, kinds)} AS "{column}"' for column in _TEXT]
    parsed += [_time_columns(column, kinds.get(column)) for column in _TIMES]
    parsed += [f"{_status(kinds)} AS status", _number_of_gpus(kinds["gpus"]), _time_limit(kinds.get(_LIMIT))]
    # Text is read once, into a table that DuckDB spills to disk; typed columns are read when a query needs them.
    db.execute(f"CREATE {'TABLE' if written else 'VIEW'} parsed AS SELECT {', '.join(parsed)} FROM {source}")
    local = [column for column in _TIMES if kinds.get(column) not in (None, *_INSTANT)]
    db.register("minutes", _local_minutes(db, local, TimeParser(parse_timezone(tz), source=name)))
    joins = [f"LEFT JOIN minutes AS {column}_m ON {column}_wall // {_MINUTE} = {column}_m.minute" for column in local]
    times = [f"{_utc(column) if column in local else f'{column}_at'} AS {column}_us" for column in _TIMES]
    names = ", ".join(f'"{column}"' for column in (*_TEXT, "status", *_NUMBERS))
    columns = f"{names}, {', '.join(times)}, {_unreadable()} AS unreadable"
    db.execute(f"CREATE VIEW typed AS SELECT {columns} FROM parsed {' '.join(joins)}")
    return [*(_unread_limits(db) if _LIMIT in written else []), *_doubled(db)]


def _doubled(db: duckdb.DuckDBPyConnection) -> list[str]:
    """Sentence on a file without job ids in which most rows stand exactly twice."""
    if db.execute("SELECT 1 FROM typed WHERE job_id IS NOT NULL LIMIT 1").fetchall():
        return []
    hashed = "(SELECT hash(stored) AS hash FROM stored)"
    rows, different = db.execute(f"SELECT count(*), approx_count_distinct(hash) FROM {hashed}").fetchall()[0]
    if different > 0.8 * rows:  # of most twice .75 at most are different; an estimate needs no table of all rows
        return []
    counts = f"(SELECT count(*) AS times FROM {hashed} GROUP BY hash)"
    (twice,) = db.execute(f"SELECT count(*) FILTER (times = 2) FROM {counts}").fetchall()[0]
    return [said] if (said := most_twice(twice, rows)) else []


def _nothing(column: str) -> str:
    """Literals of the words in a column that mean nothing is there."""
    return ", ".join(f"'{word}'" for word in (NULL_MARKERS + NO_LIMIT if column == _LIMIT else NULL_MARKERS))


def _is_typed(column: str, kind: str) -> bool:
    return kind.split("(")[0] in _NUMERIC if column in _NUMBERS else kind in (*_INSTANT, *_LOCAL)


def _checked_bounds(db: duckdb.DuckDBPyConnection, name: str) -> Bounds | None:
    """Bounds of the view ``runs``; an `InputError` counts the rows that no total can include, by reason."""
    # Of rows that count, none begins before its submission or ends before it begins.
    query = """SELECT reason, count(*), min(submit_us), max(coalesce(end_us, begin_us)), count(*) FILTER (gpus IS NULL),
        count(*) FILTER (unknown_end), count(*) FILTER (gave_up AND gpus > 0),
        count(*) FILTER (end_us IS NULL AND NOT waiting) FROM runs GROUP BY 1 ORDER BY 2 DESC, 1"""
    rows = db.execute(query).fetchall()
    counts = {reason: n for reason, n, *_ in rows if reason}
    if _maybe_duplicates(db, sum(row[1] for row in rows)):
        [(duplicates,)] = db.execute(schema.COUNT_DUPLICATES.format(relation="typed")).fetchall()
        counts |= {schema.DUPLICATE: int(duplicates)} if duplicates else {}
    [(totals,)] = db.execute(_COUNT_TOTALS).fetchall()
    counts |= {TOTAL_ROW: int(totals)} if totals else {}
    if counts:
        raise InputError(f"{name} has {unusable(counts)}; clean it with `gpudemand convert` first.")
    return Bounds(*rows[0][2:]) if rows else None


_COUNT_TOTALS = f"""SELECT count(*) FROM typed WHERE gpus > 0
    AND (lower(job_id) IN {TOTALS} OR lower("user") IN {TOTALS} OR lower("group") IN {TOTALS})
    AND abs(gpus - (SELECT sum(gpus) / 2 FROM typed)) < 1e-6"""
#: Hashes that are sorted at once; bounds memory only.
_HASHES = 100_000_000


def _maybe_duplicates(db: duckdb.DuckDBPyConnection, n: int) -> bool:
    """Whether two of the `n` rows of the view ``typed`` may be one run of one job: whether they have one hash."""
    # In most logs no job id comes twice, which is quicker to see.
    queries = (schema.HASHES.format(of=of, relation="typed") for of in ("job_id", schema.RUN))
    return all(_repeats(db, n, query) for query in queries)


def _repeats(db: duckdb.DuckDBPyConnection, n: int, query: str) -> bool:
    """Whether two of at most `n` hashes that a query gives are equal."""
    hashes, parts = np.empty(n, dtype=np.uint64), max(-(-n // _HASHES), 1)
    for part in range(parts):
        end = 0
        for batch in pa.RecordBatchReader.from_stream(db.sql(f"{query} AND hash % {parts} = {part}")):
            begin, end = end, end + len(batch)
            hashes[begin:end] = batch.columns[0]
        found = hashes[:end]
        found.sort()
        if (found[1:] == found[:-1]).any():
            return True
    return False


def _text(column: str, kinds: Mapping[str, str]) -> str:
    text = f'CAST("{column}" AS VARCHAR)'
    if kinds.get(column) in ("DOUBLE", "FLOAT"):  # some programs write NaN where a number is missing
        return f'CASE WHEN NOT isnan("{column}") THEN {text} END'
    if column not in kinds:
        return "NULL::VARCHAR"
    # Few texts are to be trimmed, which takes ten times as long as to see that their ends are letters of ASCII.
    outer = f"{text} < '!' OR {text} >= chr(133) OR ({text})[-1] NOT BETWEEN '!' AND '~'"
    return f"nullif(CASE WHEN {outer} THEN trim({text}, '{_SPACES}') ELSE {text} END, '')"


#: What `LogColumns.text` trims, as Python does; by itself DuckDB trims neither tabs nor line breaks.
_SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))


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


def _number_of_gpus(kind: str) -> str:
    """Number of GPUs, and whether there is text that is none."""
    if _is_typed("gpus", kind):
        return "CASE WHEN NOT isnan(CAST(gpus AS DOUBLE)) THEN CAST(gpus AS DOUBLE) END AS gpus, false AS gpus_bad"
    value = _number("gpus")
    return f"{value} AS gpus, gpus IS NOT NULL AND ({value}) IS NULL AS gpus_bad"


def _number(column: str) -> str:
    return f"CASE WHEN regexp_matches({column}, '{NUMBER}') THEN TRY_CAST({column} AS DOUBLE) END"


def _time_limit(kind: str | None) -> str:
    """Seconds that were asked for, and text that cannot be read as such, which no total depends on."""
    if kind is None:
        return f"NULL::DOUBLE AS {_LIMIT}"
    if _is_typed(_LIMIT, kind):
        return f"CASE WHEN isfinite(CAST({_LIMIT} AS DOUBLE)) THEN CAST({_LIMIT} AS DOUBLE) END AS {_LIMIT}"
    parts = (f"CAST(nullif(regexp_extract({_LIMIT}, '{DURATION}', {place}), '') AS DOUBLE)" for place in range(1, 5))
    days, first, second, third = parts
    # As `parse_slurm_seconds`: without days, two parts are minutes and seconds.
    whole = f"coalesce({days}, 0) * 86400 + {first} * 3600 + coalesce({second}, 0) * 60 + coalesce({third}, 0)"
    short = f"{first} * 60 + {second}"
    clock = f"CASE WHEN {days} IS NULL AND {third} IS NULL THEN {short} ELSE {whole} END"
    value = f"coalesce({_number(_LIMIT)}, {clock})"
    known = f"coalesce(isfinite({value}), false)"
    return f"CASE WHEN {known} THEN {value} END AS {_LIMIT}, CASE WHEN NOT {known} THEN {_LIMIT} END AS {_LIMIT}_text"


def _unread_limits(db: duckdb.DuckDBPyConnection) -> list[str]:
    """Sentence on the time limits that cannot be read."""
    query = f"SELECT count({_LIMIT}_text), min({_LIMIT}_text), count(*) FROM parsed"
    [(count, text, total)] = db.execute(query).fetchall()
    return [unread_cells(_LIMIT, text, count, total)] if count else []


def _status(kinds: Mapping[str, str]) -> str:
    """Status in the canonical words; NULL for others."""
    text = _text("status", kinds)
    words = ", ".join(f"'{word}': '{status}'" for word, status in STATUS_OF_WORD.items())
    other = f"MAP {{{words}}}[regexp_extract(lower({text}), '[a-z_]+')]"
    return f"CASE WHEN {text} IN {schema.STATUSES} THEN {text} ELSE {other} END"


def _utc(column: str) -> str:
    """Microseconds of UTC of any time; those outside the known range stay as they are, to be refused for that."""
    local = f"{column}_m.utc_us + {column}_wall % {_MINUTE}"
    outside = f"CASE WHEN {column}_wall NOT BETWEEN {_FIRST} AND {_LAST} THEN {column}_wall END"
    return f"coalesce({column}_at, {local}, {outside})"


def _unreadable() -> str:
    """Why no total can include a row, NULL where one can; an unreadable request, on which none depends, is none."""
    bad = " OR ".join(f"{column}_bad" for column in (*_TIMES, "gpus"))
    skipped = " OR ".join(f"({column}_wall IS NOT NULL AND {column}_us IS NULL)" for column in _TIMES)
    return schema.first_reason({schema.UNREADABLE: bad, NO_SUCH_TIME: skipped})


def _local_minutes(db: duckdb.DuckDBPyConnection, local: list[str], parser: TimeParser) -> pa.Table:
    """Minutes of local time in the log, and their microseconds of UTC, NULL where daylight saving skips them."""
    walls = " UNION ALL ".join(f"SELECT {column}_wall AS wall FROM parsed" for column in local)
    query = f"SELECT DISTINCT wall // {_MINUTE} FROM ({walls}) WHERE wall BETWEEN {_FIRST} AND {_LAST}"
    minutes = np.array([], dtype=np.int64) if not local else np.asarray(pa.table(db.sql(query))[0], dtype=np.int64)
    times = pd.DatetimeIndex((minutes * _MINUTE).view("datetime64[us]"))
    utc = parser.localize(times) if len(times) else times.tz_localize("UTC")
    return pa.table({"minute": minutes, "utc_us": pa.array(utc.as_unit("us")).cast(pa.int64())})


#: Neither kind of file is held in memory, so that only single lines and the number of columns are limited.
_LIMITS = replace(LIMITS, size=NO_LIMITS.size, rows=NO_LIMITS.rows)


def _create_stored(db: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Make the rows of a file the relation ``stored``: Parquet and stores in place, CSV as text in a table on disk."""
    if is_store(path) or path.name.endswith(".parquet"):
        files = list(read_store(path).months("jobs").values()) if is_store(path) else [path]
        if not files:
            raise InputError(f"the store {path.name!r} holds no jobs yet; pull them with `gpudemand pull slurm`.")
        for file in files:
            open_parquet(file, _LIMITS).close()
        quoted = [exact_name(file).replace("'", "''") for file in files]
        names = ", ".join(f"'{name}'" for name in quoted)
        options = "hive_partitioning=false, union_by_name=true"
        rows = f"SELECT * FROM read_parquet([{names}], {options})"
        db.execute(f"CREATE VIEW stored AS {_with_waiting(db, rows) if is_store(path) else rows}")
        return
    command = "CREATE TABLE stored AS"
    for batch in csv_batches(path, _LIMITS):
        if batch.bad:
            line = min(batch.bad)
            raise InputError(f"line {line} of {path.name!r} is a row {batch.bad[line]}; repair that line.")
        db.register("batch", batch.rows)
        db.execute(f"{command} SELECT * FROM batch")
        db.unregister("batch")
        command = "INSERT INTO stored"


def _with_waiting(db: duckdb.DuckDBPyConnection, rows: str) -> str:
    """Query for the rows of a store, of which those that wait are as `read_jobs` has them."""
    waiting = pa.table(db.sql(f"{rows} WHERE status = 'pending'"))
    jobs = pa.table({name: waiting[name] for name in waiting.column_names if name in ("job_id", "status", "reason")})
    frame = jobs.to_pandas()
    tasks = with_array_tasks(frame[~not_eligible(frame)])
    place = waiting.column_names.index("job_id")
    waiting = waiting.take(tasks.index.to_numpy()).set_column(place, "job_id", pa.array(tasks["job_id"], pa.string()))
    db.register("tasks", waiting)
    db.execute(f"""CREATE TABLE waiting AS SELECT * FROM tasks WHERE NOT EXISTS (SELECT 1 FROM ({rows}) AS began
        WHERE began.job_id = tasks.job_id AND began.cluster = tasks.cluster AND began.start >= tasks.submit)""")
    db.unregister("tasks")
    return f"{rows} WHERE status IS DISTINCT FROM 'pending' UNION ALL BY NAME SELECT * FROM waiting"


KEYS = ("user", "group", "cluster", "partition", "qos", "gpu_type", "status")


@dataclass(frozen=True)
class Bounds:
    """First and last time of a log in microseconds since 1970, and counts of jobs."""

    begin: int
    until: int
    unknown_gpus: int
    unknown_end: int
    gave_up: int
    running: int


@contextmanager
def open_log(path: Path, by: Sequence[str], *, pending: bool, tz: object = None) -> Iterator[JobLogQuery]:
    """Open a file of a job table (Parquet or CSV), or a store, for queries.

    `by`: columns whose values, joined by ``/``, name a series. `pending`: whether intervals begin at the submit and
    include waiting.
    """
    with _database_of_file() as db:
        db.execute("SET enable_progress_bar = false")
        yield JobLogQuery(db, path, by, pending, tz)


@contextmanager
def _database_of_file() -> Iterator[duckdb.DuckDBPyConnection]:
    """Database for a file that may be larger than memory."""
    with tempfile.TemporaryDirectory(prefix="gpudemand-") as spill:
        # A bounded memory pool; larger intermediates are spilled to disk.
        config: dict[str, Any] = {"temp_directory": spill, "memory_limit": "1GB", "preserve_insertion_order": "false"}
        with duckdb.connect(config=config) as db:
            yield db


class JobLogQuery:
    """Queries over a canonical job log that is not loaded into memory; see `open_log`."""

    def __init__(self, db: duckdb.DuckDBPyConnection, path: Path, by: Sequence[str], pending: bool, tz: object) -> None:
        self._db, self._source = db, path.name
        if not path.is_file() and not is_store(path):
            raise InputError(f"there is no log at {str(path)!r}.")
        suffix = next((s for s in (".parquet", ".csv", ".csv.gz") if is_store(path) or path.name.endswith(s)), None)
        if suffix is None:
            raise InputError(f"{path.name} is neither Parquet nor CSV; convert it with `gpudemand convert` first.")
        try:
            _create_stored(self._db, path)
            doubts = _create_typed_view(self._db, path.name, tz)
            self._create_runs_view(by, pending)
            self._bounds = _checked_bounds(self._db, path.name)
        except duckdb.Error as error:
            if is_out_of_memory(error):
                raise
            said = str(error).splitlines()[0][:160]
            raise InputError(f"{path.name} cannot be read as {suffix[1:]}: {said}") from error
        warn_doubts(doubts, path.name)

    def _create_runs_view(self, by: Sequence[str], pending: bool) -> None:
        """Create the view ``runs``: a job's names, begin, end (NULL while it runs), and why it cannot count."""
        self._parts = [f"part_{place}" for place in range(len(by))]
        parts = "".join(f'"{name}" AS {part}, ' for name, part in zip(by, self._parts, strict=True))
        submit = "least(submit_us, start_us)"  # of jobs that started at once, one of the times may be rounded
        # Where a log has starts, a cancelled job without one never held anything, until its end.
        starts = self._row("SELECT count(*) FROM (SELECT 1 FROM typed WHERE start_us IS NOT NULL LIMIT 1)")[0]
        start = "CASE WHEN status = 'cancelled' THEN coalesce(start_us, end_us) ELSE start_us END" if starts else "NULL"
        # So does one of which nothing is known but that it was submitted: it waits, as in tables.
        unsaid = "status IS NULL AND start_us IS NULL AND end_us IS NULL" if starts else "false"
        status = f"CASE WHEN {unsaid} THEN 'pending' ELSE status END AS status"
        begin = submit if pending else f"coalesce({start}, submit_us)"
        # A pending job holds nothing: its missing start must not default to the submit.
        waiting = "false" if pending else "coalesce(status = 'pending', false) AND start_us IS NULL"
        unknown_end = f"coalesce({schema.UNKNOWN_END}, false)"
        reason = f"coalesce(unreadable, {schema.first_reason(schema.RULES)}) AS reason"
        self._db.execute(f"""CREATE TEMP VIEW runs AS SELECT {parts}{submit} AS submit_us, gpus,
            reason, {waiting} AS waiting, {begin} AS begin_us, {unknown_end} AS unknown_end,
            CASE WHEN requested_time > 0 THEN requested_time * 1e6 END AS asked,
            CASE WHEN {unknown_end} THEN {begin} ELSE end_us END AS end_us,
            coalesce(status = 'cancelled' AND end_us <= coalesce({start}, submit_us), false) AS gave_up
            FROM (SELECT * REPLACE ({status}), {reason} FROM typed)""")

    def _row(self, query: str) -> tuple[int, ...]:
        return self._db.execute(query).fetchall()[0]

    def bounds(self) -> Bounds:
        """Period of the log, and counts of unknown values."""
        if self._bounds is None:
            raise InputError("the job log has no rows; there is nothing to add up.")
        return self._bounds

    def complete_period(self) -> tuple[pd.Timestamp | None, pd.Timestamp | None]:
        """From when until when a store of jobs is complete, as `read_jobs` tells it; a warning says why.

        Records without an end that are never closed do not count as what still ran. Whether it holds ended jobs only
        is not looked at, for which all of them would have to be in memory.
        """
        self._db.execute(f"""CREATE OR REPLACE TEMP VIEW held AS
            SELECT coalesce(start_us, submit_us) AS begin_us, end_us, requested_time * 1e6 AS asked
            FROM typed WHERE gpus > 0 AND (end_us > coalesce(start_us, submit_us)
                OR end_us IS NULL AND coalesce(status, '') NOT IN {("pending", *schema.FINISHED)})""")
        newest = self.bounds().until
        told = self._told_until()
        begin, why = self._tracked_from()
        if begin is None:
            begin, why = survivors_before(*self._survivors(max(newest, told)))
        warn_doubts(why, self._source)
        return begin, pd.Timestamp(told, unit="us", tz="UTC") if told > newest else None

    def _tracked_from(self) -> tuple[pd.Timestamp | None, list[str]]:
        """Time from which on GPUs are in the log, as for tables."""
        begin = "coalesce(start_us, submit_us)"
        first, before, share = self._row(f"""WITH
            first AS (SELECT min({begin}) AS first_us FROM typed WHERE gpus > 0),
            queues AS (SELECT count(*) FILTER (gpus > 0) AS has, count(*) FILTER ({begin} < first_us) AS before,
                count(*) FILTER ({begin} >= first_us) AS after
                FROM typed, first WHERE gpus IS NOT NULL GROUP BY partition)
            SELECT (SELECT first_us FROM first), sum(before), sum(has) / sum(after) FROM queues WHERE has > 0""")
        return (None, []) if first is None else tracked_since(pd.Timestamp(first, unit="us", tz="UTC"), before, share)

    def _told_until(self) -> int:
        """Last time at which a job is known to have run that has not ended."""
        names = [name for name, *_ in self._db.execute("DESCRIBE SELECT * FROM stored").fetchall()]
        if schema.RAN_UNTIL not in names:
            return 0
        return self._row(f"SELECT coalesce(max(epoch_us({schema.RAN_UNTIL})), 0) FROM stored")[0]

    def _survivors(self, now: int) -> tuple[float, Edge | None]:
        """First end in seconds, and what tells whether of the time before there is only what ran then."""
        first = self._row("SELECT min(end_us) FROM held")[0]
        if first is None:
            return 0.0, None
        never_closed = f"end_us IS NULL AND {now} - begin_us > asked + greatest(asked, {_DAY})"
        early = f"SELECT {first} - begin_us FROM held WHERE begin_us < {first} AND NOT coalesce({never_closed}, false)"
        ages = np.sort(np.asarray(pa.table(self._db.sql(early))[0], dtype=np.int64))
        counts = np.zeros(len(ages) + 1, dtype=np.int64)
        later = f"SELECT end_us - begin_us FROM held WHERE begin_us >= {first} AND end_us IS NOT NULL"
        for (run,) in self._batches(later):
            counts += np.bincount(np.searchsorted(ages, run, side="right"), minlength=len(counts))
        longer = np.cumsum(counts[::-1])[::-1][1:]
        return first / 1e6, edge_of_ages(ages / 1e6, longer, int(counts.sum()))

    def named(self, columns: Sequence[str] = KEYS) -> list[str]:
        """Those of some columns, by default of all `KEYS`, that have a value for some job."""
        if not columns:
            return []
        counts = self._row("SELECT " + ", ".join(f'count("{name}")' for name in columns) + " FROM typed")
        return [name for name, count in zip(columns, counts, strict=True) if count]

    def keys(self) -> list[str]:
        """Names of the series, sorted."""
        # Names are put together of what is distinct, which is much less than all.
        self._db.execute(
            f"CREATE OR REPLACE TEMP TABLE parts AS SELECT DISTINCT {', '.join(self._parts) or '1'} FROM runs"
        )
        key = " || '/' || ".join(f"coalesce({self._name(part)}, 'unknown')" for part in self._parts)
        named = f"SELECT *, {key or repr('total')} AS key FROM parts"
        code = "dense_rank() OVER (ORDER BY key) - 1 AS code"
        self._db.execute(f"CREATE OR REPLACE TEMP TABLE names AS SELECT *, {code} FROM ({named})")
        return [row[0] for row in self._db.execute("SELECT DISTINCT key FROM names ORDER BY key").fetchall()]

    def _name(self, part: str) -> str:
        """Expression of the name in a part of the key; as `without_decimals` makes it in tables."""
        is_float = self._row(f"SELECT coalesce(bool_and(regexp_matches({part}, '{FLOAT_NAME}')), false) FROM parts")[0]
        return f"regexp_replace({part}, '[.]0+$', '')" if is_float else path_part_sql(part)

    @property
    def _coded(self) -> str:
        """The view ``runs`` with the code of the series of each job."""
        same = [f"runs.{part} IS NOT DISTINCT FROM names.{part}" for part in self._parts]
        return f"runs JOIN names ON {' AND '.join(same) or 'true'}"

    def held(self, until: int) -> Iterator[tuple[IntArray, IntArray, IntArray, FloatArray]]:
        """Batches of key code, begin and end in microseconds, and GPUs."""
        yield from self._batches(f"""SELECT code, begin_us, coalesce(end_us, {until}) AS stop_us, coalesce(gpus, 0.0)
            FROM {self._coded} WHERE NOT waiting AND gpus > 0""")

    def wanted(self, until: int) -> Iterator[tuple[IntArray, IntArray, IntArray, FloatArray]]:
        """As `held`, each job from its submission for as long as it ran, an open one as `Runs.expected` says.

        Sorted, as sums of numbers depend on their order.
        """
        yield from self._batches(f"""SELECT code, submit_us, submit_us + end_us - begin_us, gpus
            FROM {self._coded}
            WHERE gpus > 0 AND NOT gave_up AND NOT waiting AND submit_us < {until} AND end_us IS NOT NULL""")
        if self._row("SELECT count(*) FROM runs WHERE end_us IS NULL")[0]:
            yield from self._wanted_by_open(until)

    def _wanted_by_open(self, until: int) -> Iterator[tuple[IntArray, IntArray, IntArray, FloatArray]]:
        yield from self._batches(f"""WITH lengths AS (SELECT code, submit_us, gpus, waiting, asked,
                end_us IS NULL AS open,
                CASE WHEN waiting THEN 0 ELSE coalesce(end_us, {until}) - begin_us END AS length
                FROM {self._coded} WHERE gpus > 0 AND NOT gave_up AND submit_us < {until}),
            waits AS (SELECT min(submit_us) AS first_us FROM lengths WHERE waiting),
            began AS (SELECT *, submit_us < coalesce(first_us, {until}) AS started FROM lengths, waits),
            counted AS (SELECT * REPLACE (CASE WHEN asked > 0
                THEN TRY_CAST(least(asked, max(length) FILTER (started) OVER ()) AS BIGINT) END AS asked) FROM began),
            total AS (SELECT coalesce(avg(length) FILTER (started), avg(length) FILTER (NOT waiting)) AS mean
                FROM counted),
            passed AS (SELECT (count(*) - coalesce(sum(length) / nullif(any_value(mean), 0), 0)) / count(*)
                FILTER (waiting) AS factor FROM counted, total WHERE NOT started),
            means AS (SELECT *, avg(length) FILTER (started) OVER (PARTITION BY gpus ORDER BY length DESC) AS expected,
                asked * (sum(length) FILTER (started AND asked > 0) OVER shares)
                / sum(asked) FILTER (started AND asked > 0) OVER shares AS of_request
                FROM counted WINDOW shares AS (ORDER BY length / nullif(asked, 0) DESC NULLS LAST))
            SELECT code, submit_us, CAST(least({until}, submit_us + coalesce(
                CASE WHEN of_request IS NOT NULL THEN greatest(length, of_request) END,
                CASE WHEN waiting THEN greatest(1, factor) ELSE 1 END * coalesce(expected, greatest(length, mean), 0)
                )) AS BIGINT), gpus
            FROM means, total, passed WHERE open ORDER BY ALL""")

    def changes(self, begin: int, until: int) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """Batches of key code, time and change of the GPUs held, sorted; those of a key sum to zero."""
        yield from self._batches(f"""WITH spans AS (SELECT code, greatest(begin_us, {begin}) AS a,
                least(coalesce(end_us, {until}), {until}) AS b, gpus
                FROM {self._coded} WHERE NOT waiting AND gpus > 0)
            SELECT code, a AS t, gpus AS change FROM spans WHERE b > a
            UNION ALL SELECT code, b, -gpus FROM spans WHERE b > a ORDER BY code, t""")

    def submissions(self, edges: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Batches of key code and submit time in microseconds, inside the edges."""
        yield from self._batches(f"""SELECT code, submit_us FROM {self._coded}
            WHERE submit_us >= {edges[0]} AND submit_us < {edges[-1]}""")

    def _batches(self, query: str) -> Iterator[Any]:
        for batch in pa.RecordBatchReader.from_stream(self._db.sql(query)):
            # Copies: compiled functions would be compiled once more for arrays that cannot be written to.
            yield tuple(np.array(column) for column in batch.columns)
