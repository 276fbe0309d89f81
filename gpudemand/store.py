"""A folder of tables that grows: Parquet files by month, and a manifest with checksums."""

from __future__ import annotations

import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from gpudemand._files import file_sha256, lock, manifest_text, named, read_manifest, replace_file, utf8_name, wait_for
from gpudemand._validation import InputError, is_out_of_memory, shorten


@contextmanager
def locked_folder(path: Path, own: str, what: str) -> Iterator[None]:
    """Hold the lock of a folder; another process that wants it waits for half a minute, and a killed one gives it back.

    `path`: the folder, made if absent; anything in it is refused unless the file `own` is there, too.
    """
    if path.is_file():
        raise InputError(f"{str(path)!r} is a file; name a folder.")
    if path.is_symlink() and not path.exists():
        raise InputError(
            f"{str(path)!r} is a link to {os.readlink(path)!r}, which is not there; make or mount it first."
        )
    exact_name(path)
    path.mkdir(parents=True, exist_ok=True)
    held = [place.name for place in path.iterdir() if place.name[0] != "."]
    if held and not (path / own).is_file():
        raise InputError(f"{str(path)!r} holds {min(held)!r} and no {what}; name an empty or a new folder.")
    with (path / ".lock").open("a+b") as file:
        wait_for(lambda: lock(file.fileno()), path, lambda: _holder(path))
        (path / _HOLDER).write_text(f"process {os.getpid()} on {platform.node()} since {time.strftime('%F %T %Z')}")
        try:
            yield
        finally:
            (path / _HOLDER).unlink(missing_ok=True)


#: Beside the lock, which Windows lets nobody else read.
_HOLDER = ".lock-holder"


def _holder(path: Path) -> str:
    try:
        return (path / _HOLDER).read_text(encoding="utf-8", errors="replace")[:200]
    except OSError:
        return "another process"


MANIFEST = "store.json"
FORMAT = 1
_TMP = ".gpudemand-new"
#: Rows of one month are compressed in groups of this many, which queries skip as a whole.
_GROUP = 1 << 18
_OWN = re.compile(r".+\.[0-9a-f]{16}\.parquet")


def is_store(path: Path) -> bool:
    """Whether a folder holds a store."""
    return (path / MANIFEST).is_file()


class Store:
    """A folder of tables, each of them Parquet files by month.

    What a manifest lists is complete: files are written under names of their own contents and never changed, and take
    effect together when the manifest is replaced. A process that is killed leaves the store as it was. Those that read
    while another process writes start again with what it wrote. `about`: what the manifest says besides: ``zone`` of
    all times, and what was pulled when. `files`: ``jobs/2026-03.<hash>.parquet`` -> SHA-256.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], files: Mapping[str, str]) -> None:
        self.path = path
        self.about = dict(about)
        self.files = dict(files)

    def months(self, table: str) -> dict[str, Path]:
        """Files of a table by month, in order."""
        parts = {name.split("/")[1].split(".")[0]: name for name in self.files if name.startswith(f"{table}/")}
        return {month: self.path / name for month, name in sorted(parts.items())}

    def read(self, table: str, columns: list[str] | None = None) -> pa.Table | None:
        """Rows of a table, or None if the store has none."""
        parts = self._files_as_of_now(
            table, lambda files: [pq.read_table(file, columns=columns, partitioning=None) for file in files]
        )
        return pa.concat_tables(parts, promote_options="permissive") if parts else None

    def query(self, table: str, sql: str) -> pa.Table | None:
        """Result of a query on the rows of a table, which it calls ``stored``; None if the store has none."""

        def run(files: list[Path]) -> pa.Table:
            with _database() as db:
                rows = db.read_parquet([*map(exact_name, files)], union_by_name=True, hive_partitioning=False)
                return pa.table(rows.query("stored", sql))

        return self._files_as_of_now(table, run)

    def _files_as_of_now(self, table: str, work: Callable[[list[Path]], Any]) -> Any:
        """Result of work on the files of a table, done again if another process has replaced them meanwhile."""
        while files := list(self.months(table).values()):
            try:
                return work(files)
            except (OSError, duckdb.Error, pa.ArrowException) as error:
                if is_out_of_memory(error):
                    raise
                newer = read_store(self.path).files
                if newer == self.files:
                    place = f"the table {table!r} of the store {str(self.path)!r}"
                    raise InputError(f"{place} cannot be read ({shorten(str(error), 120)}); pull it anew.") from error
                self.files = newer
        return None

    def merge(self, table: str, month: str, rows: pa.Table, keys: pa.Table, order: Sequence[str] = ()) -> None:
        """Put rows into the file of one month, such as ``"2026-03"``, in the place of older ones; `commit` stores them.

        `keys`: values without NULL; the older rows that have them are dropped. `order`: columns by which the rows are
        sorted.
        """
        old_name = next((name for name in self.files if name.startswith(f"{table}/{month}.")), None)
        with _database() as db:
            db.register("new", rows)
            merged = "SELECT * FROM new"
            if old_name:
                db.register("keys", keys)
                db.register("old", pq.read_table(self.path / old_name, partitioning=None))
                merged += f" UNION ALL BY NAME SELECT * FROM old ANTI JOIN keys USING ({_names(keys.column_names)})"
            result = pa.table(db.sql(f"SELECT * FROM ({merged}) ORDER BY {_names(order or keys.column_names)}"))
        if old_name:
            del self.files[old_name]
        if result.num_rows:
            self._write(table, month, result)

    def _write(self, table: str, month: str, rows: pa.Table) -> None:
        (self.path / table).mkdir(exist_ok=True)
        with self.scratch(f"{table}-{month}.parquet") as new:
            pq.write_table(rows, new, compression="zstd", row_group_size=_GROUP)
            checksum = file_sha256(new)
            name = f"{table}/{month}.{checksum[:16]}.parquet"
            with new.open("r+b") as file:
                os.fsync(file.fileno())
            os.replace(new, self.path / name)
        self.files[name] = checksum

    def commit(self) -> None:
        """Make all that was merged since the last time the contents of the store, in one step."""
        with replace_file(self.path / MANIFEST) as new:
            new.write_text(manifest_text({"format": FORMAT, **self.about, "files": self.files}), encoding="utf-8")
        self.remove_unlisted()

    def remove_unlisted(self) -> None:
        """Delete files that the manifest does not list, such as those that an earlier process left."""
        for file in list(self.path.glob("[!.]*/*.parquet")):
            if _OWN.fullmatch(file.name) and file.relative_to(self.path).as_posix() not in self.files:
                file.unlink()

    @contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """Yield the path of a file that is deleted afterwards."""
        file = self.path / _TMP / name
        file.parent.mkdir(exist_ok=True)
        try:
            with named(self.path):
                yield file
        finally:
            file.unlink(missing_ok=True)


def covered(state: Mapping[str, str], begin: pd.Timestamp, end: pd.Timestamp) -> dict[str, str]:
    """Period, without a hole, that was read of a source: with what was read now if both touch.

    >>> day = pd.Timestamp
    >>> state = {"since": "2026-03-01T00:00:00", "until": "2026-03-08T00:00:00"}
    >>> covered(state, day("2026-03-07"), day("2026-03-09"))["until"]
    '2026-03-09T00:00:00'
    >>> covered(state, day("2026-03-10"), day("2026-03-12")) == state
    True
    """
    since, until = (pd.Timestamp(state[name]) if state else time for name, time in (("since", begin), ("until", end)))
    if begin <= until and end >= since:
        since, until = min(since, begin), max(until, end)
    return {"since": since.isoformat(), "until": until.isoformat()}


def arrow_table(frame: pd.DataFrame) -> pa.Table:
    """Columns of a frame as a store keeps them: times in microseconds of UTC, and text also where all is missing."""
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    types = {field.name: field.type for field in table.schema}
    for name, kind in types.items():
        if pa.types.is_timestamp(kind):
            types[name] = pa.timestamp("us", "UTC")
        elif pa.types.is_null(kind) or pa.types.is_large_string(kind):
            types[name] = pa.string()
    return table.cast(pa.schema(types))


def exact_name(file: Path) -> str:
    """Name of a file for DuckDB, in which nothing is a pattern or an address elsewhere."""
    return re.sub(r"([*?\[{])", r"[\1]", utf8_name(file.resolve()))


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _database() -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
    return db


def read_store(path: Path) -> Store:
    """Open a store for reading, after a look at the checksums of all its files."""
    if not is_store(path):
        raise InputError(f"{str(path)!r} holds no store; `gpudemand pull --help` shows how to make one.")
    exact_name(path)
    before = None
    while before != (before := (path / MANIFEST).read_bytes()):
        with suppress(InputError, FileNotFoundError):  # of what another process replaces just now
            return _store(path)
    return _store(path)


def _store(path: Path) -> Store:
    content = read_manifest(path, MANIFEST, FORMAT)
    if not isinstance(content.get("pulls"), dict):
        raise InputError(f"{MANIFEST} in {str(path)!r} has no pulls, as a store does; name the folder of a store.")
    about = {name: value for name, value in content.items() if name not in ("format", "files")}
    return Store(path, about, content["files"])


@contextmanager
def open_store(path: Path) -> Iterator[Store]:
    """Open a store for writing, made if the folder is absent or empty; one process at a time, others wait."""
    with locked_folder(path, MANIFEST, "store"):
        if not is_store(path):  # before any other file is there
            Store(path, {"zone": "UTC", "pulls": {}}, {}).commit()
        store = read_store(path)
        store.remove_unlisted()
        try:
            yield store
        except FileNotFoundError as error:
            if is_store(path):
                raise
            raise InputError(f"{str(path)!r} was moved or deleted while it was written; try again.") from error
        shutil.rmtree(path / _TMP, ignore_errors=True)
