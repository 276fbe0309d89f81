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
from gpudemand.jobs.table import COLUMNS, EARLIEST, LATEST, MAX_GPUS, TIME, check_jobs
from gpudemand.usage.stored_log import create_relation

KEYS = ("user", "group", "cluster", "gpu_type", "status")
_TEXT, _TIMES, _NUMBERS = ("job_id", *KEYS), ("submit", "start", "end"), ("gpus",)
_NEEDED = (*_TEXT, *_TIMES, *_NUMBERS)

#: A finished job without a recorded end counts as zero time, never as running.
_FINISHED = "('completed', 'failed', 'cancelled', 'timeout', 'out_of_memory', 'preempted')"

_TIME_COLUMNS = "submit_us, start_us, end_us"


def microseconds(time: pd.Timestamp) -> int:
    """Microseconds since 1970."""
    return int(time.as_unit("us").asm8.astype("int64"))


#: Reasons why a row of a file is unusable, as in `read_jobs` -> SQL condition.
_INVALID = {
    "no submit or start time": "submit_us IS NULL AND start_us IS NULL",
    "end before start": "end_us < coalesce(start_us, submit_us)",
    "start before submit": "start_us < submit_us",
    "negative number of GPUs": "gpus < 0",
    f"more than {MAX_GPUS:,} GPUs": f"gpus > {MAX_GPUS}",
    "time outside 1985 to 2200": (
        f"least({_TIME_COLUMNS}) < {microseconds(EARLIEST)} OR greatest({_TIME_COLUMNS}) > {microseconds(LATEST)}"
    ),
    "an unreadable cell": "unreadable",
}


@dataclass(frozen=True)
class Bounds:
    """First and last time of a log in microseconds since 1970, and counts of unknown GPUs and ends."""

    begin: int
    until: int
    unknown_gpus: int
    unknown_end: int


@contextmanager
def open_log(source: object, by: Sequence[str], *, pending: bool) -> Iterator[JobLogQuery]:
    """Open a job log for queries.

    Parameters
    ----------
    source : DataFrame, str or Path
        A canonical job table, or a Parquet or CSV file that holds one.
    by : sequence of str
        Columns whose values, joined by ``/``, name a series; empty for the total.
    pending : bool
        Whether intervals begin at the submit and include waiting.
    """
    with tempfile.TemporaryDirectory(prefix="gpudemand-") as spill:
        # A bounded memory pool; larger intermediates are spilled to disk.
        config: dict[str, Any] = {"temp_directory": spill, "memory_limit": "1GB", "preserve_insertion_order": "false"}
        with duckdb.connect(config=config) as db:
            yield JobLogQuery(db, source, by, pending=pending)


class JobLogQuery:
    """Queries over a canonical job log that is not loaded into memory; see `open_log`."""

    def __init__(self, db: duckdb.DuckDBPyConnection, source: object, by: Sequence[str], *, pending: bool) -> None:
        self._db = db
        if isinstance(source, pd.DataFrame):
            self._register(check_jobs(source))
        else:
            self._open(Path(str(source)))
        self._create_runs_view(by, pending)

    def _register(self, jobs: pd.DataFrame) -> None:
        used = jobs[list(_NEEDED)]
        used = used.assign(**{name: used[name].dt.as_unit("us") for name in _TIMES if used[name].dtype == TIME})
        self._db.register("source", pa.Table.from_pandas(used, preserve_index=False))
        self._cast("source", text=False)

    def _open(self, path: Path) -> None:
        if not path.is_file():
            raise InputError(f"there is no log at {str(path)!r}.")
        suffix = next((s for s in (".parquet", ".csv", ".csv.gz") if path.name.endswith(s)), None)
        if suffix is None:
            raise InputError(f"{path.name} is neither Parquet nor CSV; convert it with `gpudemand convert` first.")
        try:
            reader = create_relation(self._db, path)
            columns = {row[0] for row in self._db.execute(f"DESCRIBE SELECT * FROM {reader}").fetchall()}
            missing = [name for name in COLUMNS if name not in columns]
            if missing:
                raise InputError(
                    f"{path.name} is no canonical job table (it lacks {', '.join(missing)}); "
                    "read it with read_jobs(path, format=...) or convert it with `gpudemand convert`."
                )
            self._cast(reader, text=suffix != ".parquet")
            self._check_rows(path.name)
        except duckdb.Error as error:
            raise InputError(
                f"{path.name} cannot be read as {suffix[1:]}: {str(error).splitlines()[0][:160]}"
            ) from error

    def _cast(self, relation: str, *, text: bool) -> None:
        """Create the view ``typed``: text, microseconds and numbers, and whether a cell is unreadable."""
        times = [f'epoch_us(TRY_CAST("{name}" AS TIMESTAMPTZ)) AS {name}_us' for name in _TIMES]
        numbers = [f'TRY_CAST("{name}" AS DOUBLE) AS {name}' for name in _NUMBERS]
        casts = [(name, "TIMESTAMPTZ") for name in _TIMES] + [(name, "DOUBLE") for name in _NUMBERS]
        bad = " OR ".join(f'("{name}" <> \'\' AND TRY_CAST("{name}" AS {kind}) IS NULL)' for name, kind in casts)
        names = [f'nullif(CAST("{name}" AS VARCHAR), \'\') AS "{name}"' for name in _TEXT]
        unreadable = f"coalesce({bad}, false)" if text else "false"
        columns = ", ".join([*names, *times, *numbers, f"{unreadable} AS unreadable"])
        self._db.execute(f"CREATE VIEW typed AS SELECT {columns} FROM {relation}")

    def _check_rows(self, name: str) -> None:
        counts = ", ".join(f"count(*) FILTER ({rule})" for rule in _INVALID.values())
        found = self._row(f"SELECT {counts} FROM typed")
        wrong = {reason: count for reason, count in zip(_INVALID, found, strict=True) if count}
        duplicated = self._row(
            "SELECT count(*) FROM (SELECT 1 FROM typed WHERE job_id IS NOT NULL "
            "GROUP BY cluster, job_id, start_us HAVING count(*) > 1)"
        )[0]
        if duplicated:
            wrong["duplicate job id"] = duplicated
        if wrong:
            parts = ", ".join(f"{count:,} {reason}" for reason, count in wrong.items())
            raise InputError(
                f"{name} has rows that cannot be counted ({parts}); clean it with `gpudemand convert` first."
            )

    def _create_runs_view(self, by: Sequence[str], pending: bool) -> None:
        """Create the view ``runs``: one row a job with its key, begin and end (NULL while it runs)."""
        parts = [f"coalesce(replace(\"{name}\", '/', '%2F'), 'unknown')" for name in by]
        key = " || '/' || ".join(parts) or "'total'"
        begin = "submit_us" if pending else "coalesce(start_us, submit_us)"
        # A pending job holds nothing: its missing start must not default to the submit.
        waiting = "false" if pending else "coalesce(status = 'pending', false) AND start_us IS NULL"
        unknown_end = f"coalesce(end_us IS NULL AND status IN {_FINISHED}, false)"
        self._db.execute(f"""CREATE VIEW runs AS SELECT {key} AS key, submit_us, gpus, {waiting} AS waiting,
            coalesce({begin}, start_us) AS begin_us, {unknown_end} AS unknown_end,
            CASE WHEN {unknown_end} THEN coalesce({begin}, start_us) ELSE end_us END AS end_us FROM typed""")

    def _row(self, query: str) -> tuple[int, ...]:
        row = self._db.execute(query).fetchone()
        assert row is not None
        return row

    def bounds(self) -> Bounds:
        """Period of the log, and counts of unknown values."""
        begin, until, gpus, ends = self._row(
            "SELECT min(least(begin_us, submit_us)), max(greatest(begin_us, submit_us, end_us)), "
            "count(*) FILTER (gpus IS NULL), count(*) FILTER (unknown_end) FROM runs"
        )
        if begin is None:
            raise InputError("the job log has no rows; there is nothing to add up.")
        return Bounds(begin, until, gpus, ends)

    def keys(self) -> list[str]:
        """Names of the series, sorted."""
        self._db.execute(
            "CREATE OR REPLACE TABLE names AS SELECT key, (row_number() OVER (ORDER BY key)) - 1 AS code "
            "FROM (SELECT DISTINCT key FROM runs)"
        )
        return [row[0] for row in self._db.execute("SELECT key FROM names ORDER BY code").fetchall()]

    def held(self, until: int) -> Iterator[tuple[IntArray, IntArray, IntArray, FloatArray]]:
        """Batches of key code, begin and end in microseconds, and GPUs."""
        yield from self._batches(f"""SELECT code, begin_us, coalesce(end_us, {until}) AS stop_us, coalesce(gpus, 0.0)
            FROM runs JOIN names USING (key) WHERE NOT waiting AND gpus > 0""")

    def peaks(self, edges: IntArray, begin: int, until: int) -> Iterator[tuple[IntArray, IntArray, Any, Any, Any]]:
        """Batches of key code, bin, peak, last level and first time of the changes of GPUs held, by key and bin."""
        self._db.register("edges", pa.table({"bin": np.arange(len(edges)), "edge": edges}))
        yield from self._batches(f"""WITH spans AS (SELECT code, greatest(begin_us, {begin}) AS a,
                least(coalesce(end_us, {until}), {until}) AS b, gpus
                FROM runs JOIN names USING (key) WHERE NOT waiting AND gpus > 0),
            changes AS (SELECT code, t, sum(d) AS d FROM (SELECT code, a AS t, gpus AS d FROM spans WHERE b > a
                UNION ALL SELECT code, b AS t, -gpus AS d FROM spans WHERE b > a) GROUP BY code, t),
            levels AS (SELECT code, t, round(sum(d) OVER (PARTITION BY code ORDER BY t), 9) AS level FROM changes)
            SELECT code, bin, max(level), arg_max(level, t), min(t)
            FROM levels ASOF JOIN edges ON levels.t >= edges.edge GROUP BY code, bin""")

    def submissions(self, edges: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Batches of key code and submit time in microseconds, inside the edges."""
        yield from self._batches(f"""SELECT code, submit_us FROM runs JOIN names USING (key)
            WHERE submit_us >= {edges[0]} AND submit_us < {edges[-1]}""")

    def _batches(self, query: str) -> Iterator[Any]:
        for batch in pa.RecordBatchReader.from_stream(self._db.sql(query)):
            yield tuple(np.asarray(column) for column in batch.columns)
