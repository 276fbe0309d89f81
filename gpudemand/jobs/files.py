"""Contents of files by their exact name: plain, compressed or archived, up to stated limits."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc

from gpudemand._validation import InputError, nearest, shorten

_BLOCK = 1 << 24
_MAGIC_GZIP = b"\x1f\x8b"
_TAR = slice(257, 262)


@dataclass(frozen=True)
class Limits:
    """The largest log that is read: what is larger is a damaged file or a decompression bomb, or needs more memory.

    Parameters
    ----------
    size : int
        Characters (bytes of Parquet and JSON) after decompression.
    rows : int
        Lines of text, rows of Parquet.
    columns : int
        Columns.
    line : int
        Characters of one line.

    Examples
    --------
    >>> Limits(rows=10**9).rows
    1000000000
    """

    size: int = 1 << 32
    rows: int = 100_000_000
    columns: int = 10_000
    line: int = 1 << 24

    def check(self, source: str, **found: int) -> None:
        """Raise an `InputError` for the first of some sizes, given by attribute, that exceeds its limit."""
        for name, value in found.items():
            limit: int = getattr(self, name)
            if value > limit:
                message = f"{source!r} has more than {limit:,} {_UNITS[name]}"
                raise InputError(f"{message}; if it is undamaged, pass limits=None (--no-limits) to read it.")


_UNITS = {"size": "characters", "rows": "rows", "columns": "columns", "line": "characters in one line"}
LIMITS = Limits()
NO_LIMITS = Limits(*[1 << 62] * 4)


def existing_path(path: object) -> Path:
    """Return `path` if it exists; otherwise raise and suggest the file beside it with the nearest name."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"path must be the name of a file; got {type(path).__name__}.")
    try:
        for place in (Path(path), Path(path).expanduser()):
            if place.exists():
                return place
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, the home of an unknown user
        place = Path(path)
    folder = f" in {shorten(str(place.parent))!r}" if place.parent.name else ""
    try:
        hint = nearest(place.name, [other.name for other in place.parent.iterdir()])
    except (OSError, ValueError):
        hint = ""
    raise InputError(f"there is no file {shorten(place.name)!r}{folder}.{hint}")


@contextmanager
def open_binary(path: Path) -> Iterator[io.BufferedReader]:
    """Open a plain, gzip-compressed or tarred file as a stream of its contents.

    Raises
    ------
    InputError
        For a folder, a file that cannot be read, and a compressed one that is cut off or damaged; also while reading.
    """
    if path.is_dir():
        raise InputError(f"{path.name!r} is a folder; name the file in it that holds the log.")
    try:
        with path.open("rb") as raw, _decompress(raw) as stream:
            if stream.peek(_TAR.stop)[_TAR] == b"ustar":
                yield from _single_member(stream, path.name)
            else:
                yield stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"the gzip file {path.name!r} is cut off or damaged ({error}); copy it again.") from error
    except tarfile.TarError as error:
        raise InputError(f"the archive {path.name!r} is damaged ({error}); copy it again.") from error
    except OSError as error:
        raise InputError(f"{path.name!r} cannot be read ({error.strerror or error}).") from error


def _decompress(raw: io.BufferedReader) -> io.BufferedReader:
    if raw.peek(2)[:2] != _MAGIC_GZIP:
        return raw
    return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw)), 1 << 20)


def _single_member(stream: BinaryIO, name: str) -> Iterator[io.BufferedReader]:
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        files = (archive.extractfile(member) for member in archive if member.isfile())
        file = next(files, None)
        if file is None:
            raise InputError(f"the archive {name!r} holds no file.")
        yield cast(io.BufferedReader, file)
        if next(files, None) is not None:
            raise InputError(f"the archive {name!r} holds more than one file; unpack it first.")


def is_parquet(path: Path) -> bool:
    """Whether a file begins like Parquet."""
    with open_binary(path) as file:
        return file.read(4) == b"PAR1"


def line_blocks(path: Path, limits: Limits = LIMITS) -> Iterator[tuple[int, Any]]:
    r"""Iterate over the lines of a text file in blocks of some 16 MB.

    Bytes that are not UTF-8 are escaped (``M\xfcller``) rather than replaced, so that distinct names stay distinct.

    Yields
    ------
    first : int
        Number of the block's first line, counted from one.
    lines : pyarrow.LargeStringArray
        The lines, without their ends (``\n``, ``\r\n`` or ``\r``).

    Raises
    ------
    InputError
        For a file that is empty, binary or larger than `limits`, and as for `open_binary`.
    """
    first, size, rest = 1, 0, ""
    with open_binary(path) as stream, io.TextIOWrapper(stream, "utf-8-sig", "backslashreplace") as text:
        while block := text.read(_BLOCK):
            _check_first(block if not size else "?", path.name)
            size += len(block)
            whole, end, rest = (rest + block).rpartition("\n")
            limits.check(path.name, size=size, line=len(rest))
            if end:
                lines = _split(whole)
                _check_lines(lines, first, path.name, limits)
                yield first, lines
                first += len(lines)
    if not size:
        _check_first("", path.name)
    if rest:
        yield first, _split(rest)


def _check_first(block: str, name: str) -> None:
    """Raise for a file whose first block is blank or binary."""
    if not block or block.isspace():
        raise InputError(f"{name!r} is empty; there is nothing to read.")
    if block.startswith("PK\3\4"):
        raise InputError(f"{name!r} is a workbook or an archive; save the sheet as CSV, or unpack it.")
    if "\0" in block[:8192]:
        raise InputError(f"{name!r} is not a text file in UTF-8 (it holds null bytes); unpack or export it as text.")


def _split(text: str) -> Any:
    return pc.split_pattern(pa.array([text], pa.large_string()), "\n").values


def _check_lines(lines: Any, first: int, name: str, limits: Limits) -> None:
    limits.check(name, rows=first - 1 + len(lines), line=pc.max(pc.binary_length(lines)).as_py())


def read_json(path: Path, limits: Limits = LIMITS) -> Any:
    """Parse a JSON file.

    Raises
    ------
    InputError
        For data that are no JSON, in which an object has a key twice, or which are larger than `limits`.
    """
    data = bytearray()
    with open_binary(path) as stream:
        while block := stream.read(_BLOCK):
            data += block
            limits.check(path.name, size=len(data))
    text = data.decode("utf-8-sig", "backslashreplace")
    _check_first(text, path.name)
    try:
        return json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name!r} is not JSON ({error}); is the file cut off?") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {shorten(name)!r} twice in one object")
    return found
