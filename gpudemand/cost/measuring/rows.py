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


def parse_rows(content: bytes, name: str) -> list[list[str]]:
    """Return the header and the rows of a CSV file, each row with as many fields as the header and on one line.

    Parameters
    ----------
    content : bytes
        Complete lines.
    name : str
        Of the file, for the message.

    Raises
    ------
    InputError
        If a row has another number of fields, or is no CSV in UTF-8.
    """
    rows: list[list[str]] = []
    try:
        for fields in filter(None, csv.reader(io.StringIO(content.decode(), newline=""), strict=True)):
            rows.append(fields)
            if len(fields) != len(rows[0]):
                raise ValueError(f"it has {len(fields)} fields instead of {len(rows[0])}")
            if any(set(field) & set("\r\n") for field in fields):
                raise ValueError("a quotation mark is not closed on its line")
    except (ValueError, csv.Error) as error:
        place = f"row {max(len(rows) - 1, 1)} of {name}"
        raise InputError(f"{place} is damaged ({error}); remove it, or choose another file.") from error
    return rows


class RowFile:
    """Append rows to a CSV file, each synced to disk.

    Opening creates the file, or locks one of the same columns against other writers where the system can, and truncates
    an incomplete last line. Any other file is refused with `InputError`, before it is opened for writing.

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
        if self.path.exists():
            self._check(self.path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = self.path.open("a+b", buffering=0)
        try:
            self._lock()
            self._truncate_incomplete_line()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row; missing columns stay empty, and line breaks become spaces."""
        values = [row.get(name) for name in self.columns]
        self._write(["" if value is None else " ".join(str(value).splitlines()) for value in values])

    def read(self) -> list[dict[str, str]]:
        """Return the rows as text."""
        self._file.seek(0)
        rows = parse_rows(self._file.read(), self.path.name)[1:]
        return [dict(zip(self.columns, row, strict=True)) for row in rows]

    def _check(self, path: Path) -> None:
        """Refuse what is no file of these columns; one that was interrupted in its first line has a part of them."""
        if not path.is_file():
            raise InputError(f"{path.name} is no file; choose another name.")
        header = self._line(self.columns)
        with path.open("rb") as file:
            first = file.readline(2 * len(header)).replace(b"\r\n", b"\n")
            if not header.startswith(first):
                raise InputError(f"{path.name} has other columns than this version writes; choose another file.")
            content = first + file.read()
        parse_rows(content[: content.rfind(b"\n") + 1], path.name)

    def _truncate_incomplete_line(self) -> None:
        self._file.seek(0)
        complete = self._file.read().rfind(b"\n") + 1
        self._file.truncate(complete)
        if not complete:
            self._write(self.columns)

    @staticmethod
    def _line(values: Sequence[Any]) -> bytes:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(values)
        return line.getvalue().encode()

    def _write(self, values: Sequence[Any]) -> None:
        """Append a line, whole or not at all; a kill leaves at most this line incomplete."""
        end, line = self._file.seek(0, os.SEEK_END), self._line(values)
        try:
            while line:  # a full disk takes a part
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except BaseException:
            self._file.truncate(end)
            raise

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
