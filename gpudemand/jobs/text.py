"""Delimited text and Parquet files as tables, with one clear error for a file that cannot be read."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from gpudemand._typing import IntArray
from gpudemand._validation import InputError, nearest, shorten

#: One row must fit into a block; a field of a million characters does.
_BLOCK = 1 << 26
_DELIMITERS = {",": "commas", ";": "semicolons", "|": "vertical bars", "\t": "tabs"}
#: A quoted field over more lines than this has an unclosed quotation mark.
_MAX_FIELD_LINES = 20
WRONG_FIELDS = "with a wrong number of fields"


@dataclass(frozen=True)
class TextTable:
    """The rows of a file; columns of text files are text.

    Attributes
    ----------
    rows : pyarrow.Table
        One column a field.
    lines : ndarray of int
        Line of each row, counted from one.
    source : str
        Name of the file, for messages.
    bad : dict of int to str
        Line -> reason, for lines that are no row.
    header : dict of str to str
        Metadata in the file's header.
    """

    rows: Any
    lines: IntArray
    source: str
    bad: Mapping[int, str] = field(default_factory=dict)
    header: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.rows.column_names)


def existing_path(path: object) -> Path:
    """Return `path` if it exists; otherwise raise and suggest the file beside it with the nearest name."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"path must be the name of a file; got {type(path).__name__}.")
    place = Path(path).expanduser()
    try:
        found = place.exists()
    except (OSError, ValueError):  # a name that is too long, or that holds a null byte
        found = False
    if found:
        return place
    folder = f" in {shorten(str(place.parent))!r}" if place.parent.name else ""
    try:
        hint = nearest(place.name, [other.name for other in place.parent.iterdir()])
    except (OSError, ValueError):
        hint = ""
    raise InputError(f"there is no file {shorten(place.name)!r}{folder}.{hint}")


def read_bytes(path: Path) -> bytes:
    """Return the contents of a plain, gzip-compressed or tarred file that is neither empty nor binary.

    Raises
    ------
    InputError
        For a directory, an unreadable, empty or binary file, and a gzip file that is cut off.
    """
    if path.is_dir():
        raise InputError(f"{path.name!r} is a folder; name the file in it that holds the log.")
    try:
        data = _untar(_gunzip(path.read_bytes(), path.name), path.name)
    except OSError as error:
        raise InputError(f"{path.name!r} cannot be read ({error.strerror or error}).") from error
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise InputError(f"{path.name!r} is empty; there is nothing to read.")
    if b"\0" in data[:8192] and not data.startswith(b"PAR1"):
        raise InputError(
            f"{path.name!r} is not a text file in UTF-8 (it holds null bytes); unpack or export it as text."
        )
    return data


def _gunzip(data: bytes, name: str) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"the gzip file {name!r} is cut off or damaged ({error}); copy it again.") from error


def _untar(data: bytes, name: str) -> bytes:
    if data[257:262] != b"ustar":
        return data
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            files = [member for member in archive.getmembers() if member.isfile()]
            if len(files) != 1:
                raise InputError(f"the archive {name!r} holds {len(files)} files instead of one; unpack it first.")
            return archive.extractfile(files[0]).read()  # type: ignore[union-attr]
    except tarfile.TarError as error:
        raise InputError(f"the archive {name!r} is damaged ({error}); copy it again.") from error


def read_json(data: bytes, source: str) -> Any:
    """Parse JSON, with an `InputError` for data that are none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source!r} is not JSON ({error}); is the file cut off?") from error


def read_text(path: Path) -> bytes:
    r"""Return the contents of a text file as valid UTF-8 with ``\n`` line ends.

    Bytes that are not UTF-8 are escaped (``M\xfcller``) rather than replaced, so that distinct names stay distinct.
    """
    data = read_bytes(path)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        data = data.decode("utf-8", errors="backslashreplace").encode("utf-8")
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def read_csv(path: Path, delimiter: str = ",", *, quoted: bool = True) -> TextTable:
    """Read a file with a header line, every field as text.

    Rows with a wrong number of fields are listed in ``bad``; empty rows are skipped.
    """
    data = read_text(path)
    names = _header(data.partition(b"\n")[0].decode("utf-8"), delimiter, quoted, path.name)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"the header of {path.name!r} names the column {shorten(twice[0])!r} twice; rename one.")
    return parse_rows(data + b"\n", names, path.name, delimiter=delimiter, quoted=quoted, skip=1)


def _header(line: str, delimiter: str, quoted: bool, source: str) -> list[str]:
    try:
        names = next(csv.reader([line], delimiter=delimiter), []) if quoted else line.split(delimiter)
    except csv.Error as error:
        raise InputError(f"the header of {source!r} cannot be read ({error}).") from error
    if not line.strip():
        raise InputError(f"the first line of {source!r} is blank; it must name the columns.")
    return [name.strip() for name in names]


def parse_rows(
    data: bytes, names: list[str], source: str, *, delimiter: str = ",", quoted: bool = True, skip: int = 0
) -> TextTable:
    """Parse text into columns `names`, without the first `skip` lines."""
    bad: list[tuple[int, str]] = []

    def refuse(row: Any) -> str:
        """Keep number and text of a row with a wrong number of fields, and skip it."""
        bad.append((row.number, row.text))
        return "skip"

    schema = pa.schema([(name, pa.string()) for name in names])
    try:
        rows = pa_csv.read_csv(
            pa.BufferReader(data),
            pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=names, skip_rows=skip),
            pa_csv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if quoted else False,
                newlines_in_values=quoted,
                ignore_empty_lines=False,
                invalid_row_handler=refuse,
            ),
            pa_csv.ConvertOptions(column_types=schema, strings_can_be_null=True, null_values=[""]),
        )
        rows = rows.combine_chunks() if rows.num_rows else schema.empty_table()
    except pa.ArrowInvalid as error:
        raise InputError(f"{source!r} cannot be read as a table ({shorten(str(error), 120)}).") from error
    return _with_lines(rows, bad, source, skip, data.count(b'"') % 2 == 1 if quoted else False)


def _with_lines(rows: Any, bad: list[tuple[int, str]], source: str, skip: int, odd_quotes: bool) -> TextTable:
    """Add line numbers to the rows and drop blank ones."""
    wrong = {number: text for number, text in bad if text.strip()}
    every = np.arange(skip + 1, skip + 1 + rows.num_rows + len(bad))
    lines = np.setdiff1d(every, [number for number, _ in bad], assume_unique=True)
    filled = np.zeros(rows.num_rows, dtype=bool)
    for column in rows.columns:
        filled |= column.is_valid().to_numpy()
    table = TextTable(rows.filter(pa.array(filled)), lines[filled], source, _bad_lines(wrong))
    _check_quotes(table, wrong, odd_quotes)
    return table


def _bad_lines(wrong: Mapping[int, str]) -> dict[int, str]:
    """Every line that a bad row covers; a stray quotation mark can join many lines."""
    return {number + i: WRONG_FIELDS for number, text in wrong.items() for i in range(text.strip("\n").count("\n") + 1)}


def _check_quotes(table: TextTable, wrong: Mapping[int, str], odd_quotes: bool) -> None:
    """Raise if an unclosed quotation mark joined rows, which would be missing from every total."""
    limit = 1 if odd_quotes else _MAX_FIELD_LINES
    starts = [number for number, text in wrong.items() if text.strip("\n").count("\n") >= limit]
    for column in table.rows.columns:
        over = pc.fill_null(pc.greater_equal(pc.count_substring(column, "\n"), limit), False)
        starts += table.lines[over.to_numpy()].tolist()
    if starts:
        raise InputError(
            f"a quotation mark on line {min(starts)} of {table.source!r} is never closed; repair that line."
        )


def read_parquet(path: Path) -> TextTable:
    """Read a Parquet file; its columns keep their types."""
    try:
        rows = pq.read_table(path).combine_chunks()
    except (pa.ArrowException, OSError) as error:
        message = f"{path.name!r} is not a Parquet file that can be read ({shorten(str(error), 120)})."
        raise InputError(message) from error
    return TextTable(rows, np.arange(1, rows.num_rows + 1), path.name)


def read_table(path: Path) -> TextTable:
    """Read a Parquet file, recognised by its first bytes, or else CSV."""
    if path.is_dir():
        raise InputError(f"{path.name!r} is a folder; name the file in it that holds the log.")
    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    return read_parquet(path) if is_parquet else read_csv(path)


def check_header(table: TextTable, required: tuple[str, ...]) -> None:
    """Raise if a table lacks a required column; ``"A|B"`` is satisfied by either."""
    missing = [names.replace("|", " or ") for names in required if not set(names.split("|")) & set(table.names)]
    if missing:
        has = ", ".join(str(shorten(name)) for name in table.names[:12])
        raise InputError(f"{table.source!r} lacks the column(s) {', '.join(missing)}; it has {has}.{_separator(table)}")


def _separator(table: TextTable) -> str:
    if len(table.names) > 1:
        return ""
    counts = {words: table.names[0].count(mark) for mark, words in _DELIMITERS.items()}
    likely = max(counts, key=lambda words: counts[words])
    return f" Its header seems to be separated by {likely}." if counts[likely] else ""
