"""A stored job log as a DuckDB relation; the file is the one of exactly the given name, never a pattern."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import duckdb

from gpudemand._validation import InputError
from gpudemand.jobs.files import LIMITS, NO_LIMITS
from gpudemand.jobs.text import csv_batches, open_parquet
from gpudemand.store import is_store, read_store

#: Neither kind of file is held in memory, so that only single lines and the number of columns are limited.
_LIMITS = replace(LIMITS, size=NO_LIMITS.size, rows=NO_LIMITS.rows)
RELATION = "stored"


def create_relation(db: duckdb.DuckDBPyConnection, path: Path) -> str:
    """Make the rows of a file a relation, and return its name.

    Parameters
    ----------
    db : duckdb.DuckDBPyConnection
    path : Path
        A Parquet file or a store of jobs, which are queried in place, or a CSV file, whose fields are copied as text to
        a table that DuckDB spills to disk.

    Raises
    ------
    InputError
        As for `read_jobs`; also for a line of CSV that is no row, since no total may leave it out in silence.
    """
    if is_store(path) or path.name.endswith(".parquet"):
        files = list(read_store(path).months("jobs").values()) if is_store(path) else [path]
        if not files:
            raise InputError(f"the store {path.name!r} holds no jobs yet; pull them with `gpudemand pull slurm`.")
        for file in files:
            open_parquet(file, _LIMITS).close()
        exact = [re.sub(r"([*?\[{])", r"[\1]", os.fspath(file.resolve())).replace("'", "''") for file in files]
        names = ", ".join(f"'{name}'" for name in exact)
        options = "hive_partitioning=false, union_by_name=true"
        db.execute(f"CREATE VIEW {RELATION} AS SELECT * FROM read_parquet([{names}], {options})")
    else:
        _copy_csv(db, path)
    return RELATION


def _copy_csv(db: duckdb.DuckDBPyConnection, path: Path) -> None:
    command = f"CREATE TABLE {RELATION} AS SELECT * FROM batch"
    for batch in csv_batches(path, _LIMITS):
        if batch.bad:
            line = min(batch.bad)
            raise InputError(f"line {line} of {path.name!r} is a row {batch.bad[line]}; repair that line.")
        db.register("batch", batch.rows)
        db.execute(command)
        db.unregister("batch")
        command = f"INSERT INTO {RELATION} SELECT * FROM batch"
