"""CSV file that grows by one row at a time and survives being killed at any point."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from gpudemand._validation import InputError


class RowFile:
    """Append rows to a CSV file, each synced to disk.

    Opening creates the file or truncates an incomplete last line, checks the header, and locks the file against other
    writers where the system can; it raises `InputError` for another header or a locked file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.csv"
    >>> with RowFile(path, ["key", "value"]) as rows:
    ...     rows.append({"key": "a", "value": 1.5})
    >>> with RowFile(path, ["key", "value"]) as rows:
    ...     [row["key"] for row in rows.read()]
    ['a']
    """

    def __init__(self, path: str | os.PathLike[str], columns: Sequence[str]) -> None:
        self.path = Path(path)
        self.columns = list(columns)

    def __enter__(self) -> RowFile:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = self.path.open("a+b", buffering=0)
        try:
            self._lock()
            self._truncate_incomplete_line()
        except InputError:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row; missing columns stay empty."""
        self._write([row.get(name, "") for name in self.columns])

    def read(self) -> list[dict[str, str]]:
        """Return the rows as text."""
        self._file.seek(0)
        return list(csv.DictReader(io.StringIO(self._file.read().decode())))

    def _truncate_incomplete_line(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        complete = content.rfind(b"\n") + 1
        self._file.truncate(complete)
        header = content[:complete].split(b"\n", 1)[0].decode()
        if not header:
            self._write(self.columns)
        elif header.rstrip("\r").split(",") != self.columns:
            raise InputError(f"{self.path.name} has other columns than this version writes; choose another file.")

    def _write(self, values: Sequence[Any]) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(values)
        self._file.write(line.getvalue().encode())  # a single write: a kill leaves at most this line incomplete
        os.fsync(self._file.fileno())

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # Windows
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            message = f"another process is writing {self.path.name}; wait for it or choose another file."
            raise InputError(message) from error
