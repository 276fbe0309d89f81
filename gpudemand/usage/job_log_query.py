"""DuckDB queries over a job log: the same SQL for a table in memory and for a file larger than memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.jobs.schema import UNKNOWN_END
from gpudemand.jobs.table import database, in_microseconds
from gpudemand.store import is_store
from gpudemand.usage.stored_log import create_relation
from gpudemand.usage.typed_log import check_rows, create_typed_view

KEYS = ("user", "group", "cluster", "partition", "qos", "gpu_type", "status")


@dataclass(frozen=True)
class Bounds:
    """First and last time of a log in microseconds since 1970, and counts of jobs.

    These are jobs with unknown GPUs, with an unknown end, and those that were cancelled while they waited.
    """

    begin: int
    until: int
    unknown_gpus: int
    unknown_end: int
    gave_up: int


@contextmanager
def open_log(
    source: pd.DataFrame | Path, by: Sequence[str], *, pending: bool, tz: object = None
) -> Iterator[JobLogQuery]:
    """Open a job log for queries.

    Parameters
    ----------
    source : DataFrame or Path
        What `check_jobs` returned, or a Parquet or CSV file of a job table.
    by : sequence of str
        Columns whose values, joined by ``/``, name a series; empty for the total.
    pending : bool
        Whether intervals begin at the submit and include waiting.
    tz : str or tzinfo, optional
        Zone of times that have none.
    """
    with _database_of_file() if isinstance(source, Path) else database().cursor() as db:
        db.execute("SET enable_progress_bar = false")
        yield JobLogQuery(db, source, by, pending=pending, tz=tz)


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

    def __init__(
        self,
        db: duckdb.DuckDBPyConnection,
        source: pd.DataFrame | Path,
        by: Sequence[str],
        *,
        pending: bool,
        tz: object = None,
    ) -> None:
        self._db = db
        if isinstance(source, Path):
            self._open(source, tz)
        else:
            self._db.register("typed", in_microseconds(source))
        self._create_runs_view(by, pending)

    def _open(self, path: Path, tz: object) -> None:
        if not path.is_file() and not is_store(path):
            raise InputError(f"there is no log at {str(path)!r}.")
        suffix = next((s for s in (".parquet", ".csv", ".csv.gz") if is_store(path) or path.name.endswith(s)), None)
        if suffix is None:
            raise InputError(f"{path.name} is neither Parquet nor CSV; convert it with `gpudemand convert` first.")
        try:
            create_typed_view(self._db, create_relation(self._db, path), path.name, tz)
            check_rows(self._db, path.name)
        except duckdb.Error as error:
            raise InputError(
                f"{path.name} cannot be read as {suffix[1:]}: {str(error).splitlines()[0][:160]}"
            ) from error

    def _create_runs_view(self, by: Sequence[str], pending: bool) -> None:
        """Create the view ``runs``: one row a job with its key, begin and end (NULL while it runs)."""
        parts = [f"coalesce(replace(\"{name}\", '/', '%2F'), 'unknown')" for name in by]
        key = " || '/' || ".join(parts) or "'total'"
        submit = "coalesce(submit_us, start_us)"
        # Where a log has starts, a cancelled job without one never held anything, until its end.
        starts = self._row("SELECT count(*) FROM (SELECT 1 FROM typed WHERE start_us IS NOT NULL LIMIT 1)")[0]
        start = "CASE WHEN status = 'cancelled' THEN coalesce(start_us, end_us) ELSE start_us END" if starts else "NULL"
        begin = submit if pending else f"coalesce({start}, submit_us)"
        # A pending job holds nothing: its missing start must not default to the submit.
        waiting = "false" if pending else "coalesce(status = 'pending', false) AND start_us IS NULL"
        unknown_end = f"coalesce({UNKNOWN_END}, false)"
        self._db.execute(f"""CREATE TEMP VIEW runs AS SELECT {key} AS key, {submit} AS submit_us, gpus,
            {waiting} AS waiting, {begin} AS begin_us, {unknown_end} AS unknown_end,
            CASE WHEN requested_time > 0 THEN requested_time * 1e6 END AS asked,
            CASE WHEN {unknown_end} THEN {begin} ELSE end_us END AS end_us,
            coalesce(status = 'cancelled' AND end_us <= coalesce({start}, submit_us), false) AS gave_up FROM typed""")

    def _row(self, query: str) -> tuple[int, ...]:
        return self._db.execute(query).fetchall()[0]

    def bounds(self) -> Bounds:
        """Period of the log, and counts of unknown values."""
        begin, until, gpus, ends, gave_up = self._row(
            "SELECT min(least(begin_us, submit_us)), max(greatest(begin_us, submit_us, end_us)), "
            "count(*) FILTER (gpus IS NULL), count(*) FILTER (unknown_end), count(*) FILTER (gave_up AND gpus > 0) "
            "FROM runs"
        )
        if begin is None:
            raise InputError("the job log has no rows; there is nothing to add up.")
        return Bounds(begin, until, gpus, ends, gave_up)

    def named(self, columns: Sequence[str] = KEYS) -> list[str]:
        """Those of some columns, by default of all `KEYS`, that have a value for some job."""
        if not columns:
            return []
        counts = self._row("SELECT " + ", ".join(f'count("{name}")' for name in columns) + " FROM typed")
        return [name for name, count in zip(columns, counts, strict=True) if count]

    def keys(self) -> list[str]:
        """Names of the series, sorted."""
        self._db.execute(
            "CREATE OR REPLACE TEMP TABLE names AS SELECT key, (row_number() OVER (ORDER BY key)) - 1 AS code "
            "FROM (SELECT DISTINCT key FROM runs)"
        )
        return [row[0] for row in self._db.execute("SELECT key FROM names ORDER BY code").fetchall()]

    def held(self, until: int) -> Iterator[tuple[IntArray, IntArray, IntArray, FloatArray]]:
        """Batches of key code, begin and end in microseconds, and GPUs."""
        yield from self._batches(f"""SELECT code, begin_us, coalesce(end_us, {until}) AS stop_us, coalesce(gpus, 0.0)
            FROM runs JOIN names USING (key) WHERE NOT waiting AND gpus > 0""")

    def wanted(self, until: int) -> Iterator[tuple[IntArray, IntArray, IntArray, FloatArray]]:
        """As `held`, each job from its submission for as long as it ran.

        Jobs without an end run for the share of their request that others took that took at least as much of theirs.
        The others were submitted before the first that still waits: of later ones the short have passed the long.
        Requests count as the longest run at most. Where there is none, jobs run as long as others of as many GPUs did
        on average that ran at least as long; those that wait longer, by a factor with which the later ones are as long
        on average. Sorted, as sums of numbers depend on their order.
        """
        yield from self._batches(f"""SELECT code, submit_us, submit_us + end_us - begin_us, gpus
            FROM runs JOIN names USING (key)
            WHERE gpus > 0 AND NOT gave_up AND NOT waiting AND submit_us < {until} AND end_us IS NOT NULL""")
        if self._row("SELECT count(*) FROM runs WHERE end_us IS NULL")[0]:
            yield from self._wanted_by_open(until)

    def _wanted_by_open(self, until: int) -> Iterator[tuple[IntArray, IntArray, IntArray, FloatArray]]:
        yield from self._batches(f"""WITH lengths AS (SELECT code, submit_us, gpus, waiting, asked,
                end_us IS NULL AS open,
                CASE WHEN waiting THEN 0 ELSE coalesce(end_us, {until}) - begin_us END AS length
                FROM runs JOIN names USING (key) WHERE gpus > 0 AND NOT gave_up AND submit_us < {until}),
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
                FROM runs JOIN names USING (key) WHERE NOT waiting AND gpus > 0)
            SELECT code, a AS t, gpus AS change FROM spans WHERE b > a
            UNION ALL SELECT code, b, -gpus FROM spans WHERE b > a ORDER BY code, t""")

    def submissions(self, edges: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Batches of key code and submit time in microseconds, inside the edges."""
        yield from self._batches(f"""SELECT code, submit_us FROM runs JOIN names USING (key)
            WHERE submit_us >= {edges[0]} AND submit_us < {edges[-1]}""")

    def _batches(self, query: str) -> Iterator[Any]:
        for batch in pa.RecordBatchReader.from_stream(self._db.sql(query)):
            yield tuple(np.asarray(column) for column in batch.columns)
