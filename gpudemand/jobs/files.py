"""Files of logs as blocks of lines and tables of text, within limits."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import tarfile
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from gpudemand._array import BoolArray, IntArray
from gpudemand._files import open_to_read
from gpudemand._validation import InputError, UnlikelyJobsWarning, nearest, require_names, shorten, stack_level
from gpudemand.jobs.times import parse_timezone
from gpudemand.units import format_number_of

_BLOCK = 1 << 24
_TAR = slice(257, 262)


@dataclass(frozen=True)
class Limits:
    """The largest log that is read: what is larger is a damaged file or a decompression bomb, or needs more memory.

    `size`: characters (bytes of Parquet and JSON) after decompression. `rows`: lines of text, rows of Parquet.
    `columns`: columns. `line`: characters of one line.

    >>> Limits(rows=10**9).rows
    1000000000
    """

    size: int = 1 << 32
    rows: int = 100_000_000
    columns: int = 10_000
    line: int = 1 << 24

    def check(self, source: str, **found: int) -> None:
        """Raise an `InputError` for the first of some sizes, given by attribute, that exceeds its limit."""
        units = {"size": "characters", "line": "characters in one line"}
        for name, value in found.items():
            limit: int = getattr(self, name)
            if value > limit:
                message = f"{source!r} has more than {limit:,} {units.get(name, name)}"
                raise InputError(f"{message}; if it is undamaged, pass limits=None (--no-limits) to read it.")


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
def as_file(path: Path, limits: Limits = LIMITS) -> Iterator[Path]:
    """Yield a file that can be read more than once: of a pipe (``/dev/stdin``, ``<(zcat log)``) all that it holds."""
    if path.exists() and not (path.is_file() or path.is_dir() or path.is_fifo()):
        raise InputError(f"{str(path)!r} is a device, not a file; name the log.")
    if not path.is_fifo():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="gpudemand-") as folder:
        whole = Path(folder, path.name)
        with _pipe(path) as pipe, whole.open("wb") as file:
            size = 0
            while block := pipe.read(_BLOCK):
                size += len(block)
                limits.check(path.name, size=size)
                file.write(block)
        yield whole


def _pipe(path: Path) -> BinaryIO:
    try:
        return open_to_read(path)
    except TimeoutError as error:
        raise InputError(f"{error}.") from None


@contextmanager
def open_binary(path: Path) -> Iterator[io.BufferedReader]:
    """Open a plain, gzip-compressed or tarred file as a stream of its contents."""
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder; name the file in it that holds the log.")
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


def first_bytes(path: Path) -> str:
    """Text with which a file begins."""
    with open_binary(path) as file:
        return file.peek(4096)[:4096].removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


def _decompress(raw: io.BufferedReader) -> io.BufferedReader:
    if raw.peek(2)[:2] != b"\x1f\x8b":
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


def line_blocks(path: Path, limits: Limits = LIMITS) -> Iterator[tuple[int, Any]]:
    r"""Iterate over blocks of some 16 MB: the number of the first line, counted from one, and lines without their ends.

    Bytes that are not UTF-8 are escaped (``M\xfcller``) rather than replaced, so that distinct names stay distinct, and
    are told; see `encoding_doubts`.
    """
    first, size, rest, escaped = 1, 0, "", 0
    with open_binary(path) as stream, io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape") as text:
        while block := text.read(_BLOCK):
            _check_first(block if not size else "?", path.name)
            size += len(block)
            whole, end, rest = (rest + block).rpartition("\n")
            limits.check(path.name, size=size, line=len(rest))
            if end:
                lines, n_escaped = _split(whole)
                escaped += n_escaped
                first += len(lines)
                limits.check(path.name, rows=first - 1, line=pc.max(pc.binary_length(lines)).as_py())
                yield first - len(lines), lines
    if not size:
        _check_first("", path.name)
    if rest:
        lines, n_escaped = _split(rest)
        escaped += n_escaped
        yield first, lines
    _say_escaped(escaped, path.name)


def _check_first(block: str, name: str) -> None:
    """Raise for a file whose first block is blank or binary."""
    if not block or block.isspace():
        raise InputError(f"{name!r} is empty; there is nothing to read.")
    if block.startswith("PK\3\4"):
        raise InputError(f"{name!r} is a workbook or an archive; save the sheet as CSV, or unpack it.")
    if block.startswith(("\udcff\udcfe", "\udcfe\udcff")):  # what is not UTF-8 is decoded to surrogates
        raise InputError(f"{name!r} is text in UTF-16; save it as UTF-8 (of a spreadsheet: as CSV UTF-8).")
    if "\0" in block[:8192]:
        raise InputError(f"{name!r} is not a text file in UTF-8 (it holds null bytes); unpack or export it as text.")


def _split(text: str) -> tuple[Any, int]:
    """Lines, and how many of them are not UTF-8, of text in which such bytes are surrogates."""
    try:
        array, n_escaped = pa.array([text], pa.large_string()), 0
    except UnicodeEncodeError:
        escaped, n_escaped = _escape(text)
        array = pa.array([escaped], pa.large_string())
    return pc.split_pattern(array, "\n").values, n_escaped


def _escape(text: str) -> tuple[str, int]:
    """Text with codes in place of the bytes that surrogates stand for, and the number of lines that have some."""
    n_lines = len(re.findall("[\udc80-\udcff].*", text))
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"), n_lines


#: Sentences for whoever collects them.
_COLLECTED: ContextVar[list[str] | None] = ContextVar("collected", default=None)


@contextmanager
def encoding_doubts() -> Iterator[list[str]]:
    """Collect a sentence on each file that is read meanwhile and is not UTF-8, or cut off, in place of a warning."""
    said: list[str] = []
    token = _COLLECTED.set(said)
    try:
        yield said
    finally:
        _COLLECTED.reset(token)


def _say_escaped(n_lines: int, source: str) -> None:
    if n_lines:
        lines = format_number_of("line", n_lines)
        codes = "so that names hold codes such as \\xfc; export the file as UTF-8."
        _say(f"text in {lines} is not UTF-8, {codes}", source)


def say_if_cut_off(path: Path) -> None:
    """Say so of a file whose last line does not end, as those of a program do; of gzip and tar, their readers tell."""
    with path.open("rb") as file:
        if file.read(2) == b"\x1f\x8b":
            return
        file.seek(max(file.seek(0, os.SEEK_END) - 64, 0))
        if not file.read().rstrip(b" \t").endswith((b"\n", b"\r", b"\0")) and file.tell():
            _say(
                "the last line does not end in a line break, so its last field may be cut off, as by a copy that broke "
                "off: copy the file again, or, if the line is whole, end it.",
                path.name,
            )


def _say(sentence: str, source: str) -> None:
    """Hand a sentence to whoever collects them, or else warn."""
    if (said := _COLLECTED.get()) is not None:
        said.append(sentence)
    else:
        warnings.warn(f"{source}: {sentence}", UnlikelyJobsWarning, stacklevel=stack_level())


def read_json(path: Path, limits: Limits = LIMITS) -> Any:
    """Parse a JSON file."""
    data = bytearray()
    with open_binary(path) as stream:
        while block := stream.read(_BLOCK):
            data += block
            limits.check(path.name, size=len(data))
    try:
        text, n_escaped = data.decode("utf-8-sig"), 0
    except UnicodeDecodeError:
        text, n_escaped = _escape(data.decode("utf-8-sig", "surrogateescape"))
    _check_first(text, path.name)
    try:
        return json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        several = str(error).startswith("Extra data")
        hint = "write its parts into one list (jq -s .)." if several else "is the file cut off?"
        hint = "export it as UTF-8." if n_escaped else hint  # codes are no escapes of JSON
        raise InputError(f"{path.name!r} is not JSON ({error}); {hint}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {shorten(name)!r} twice in one object")
    return found


_FIELD = r'(?:"(?:[^"]|"")*"|[^",\n][^,\n]*|)'
#: From lines and the names of columns to as many lines.
Mend = Callable[[Any, list[str]], Any]


@dataclass(frozen=True)
class TextTable:
    """The rows of a file; columns of text files are text.

    `lines`: line of each row, counted from one. `bad`: line -> reason, for lines that are no row. `header`: metadata in
    the file's header.
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

    def __len__(self) -> int:
        """Number of lines that should be rows."""
        return len(self.lines) + len(self.bad)


def concatenate(tables: Iterable[TextTable]) -> TextTable:
    """Join the batches of one file."""
    parts = list(tables)
    bad = {line: reason for part in parts for line, reason in part.bad.items()}
    rows = pa.concat_tables([part.rows for part in parts]).combine_chunks()
    return TextTable(rows, np.concatenate([part.lines for part in parts]), parts[0].source, bad)


def read_csv(
    path: Path, limits: Limits = LIMITS, delimiter: str = ",", mend: Mend | None = None, *, breaks: bool = False
) -> TextTable:
    """Read a file with a header line, every field as text; see `csv_batches`."""
    return concatenate(csv_batches(path, limits, delimiter, mend, breaks=breaks))


def csv_batches(
    path: Path, limits: Limits = LIMITS, delimiter: str = ",", mend: Mend | None = None, *, breaks: bool = False
) -> Iterator[TextTable]:
    """Read a file with a header line in batches, every field as text.

    Every line that is not blank is a row of a batch or is listed in its ``bad``. Only fields between commas may be
    quoted. `mend` may change the lines of a block before they are parsed, not their number. `breaks`: whether quoted
    fields may hold line breaks.
    """
    blocks = _joined(line_blocks(path, limits)) if breaks else line_blocks(path, limits)
    first, lines = next(blocks)
    names = _header(lines[0].as_py(), delimiter, path.name)
    _check_names(names, path.name, limits)
    sound = mend or (lambda lines, names: lines)
    yield parse_lines(sound(lines[1:], names), first + 1, names, path.name, delimiter, breaks=breaks)
    for first, lines in blocks:
        yield parse_lines(sound(lines, names), first, names, path.name, delimiter, breaks=breaks)


def _joined(blocks: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Blocks of lines, of which those with an open quotation mark hold the lines up to its end, then blank."""
    for first, lines in blocks:
        parts, marks = [lines], pc.count_substring(lines, '"').to_numpy(zero_copy_only=False)
        while marks.sum() % 2 and (more := next(blocks, None)) is not None:
            parts.append(more[1])
            marks = np.append(marks, pc.count_substring(more[1], '"').to_numpy(zero_copy_only=False))
        if not (marks % 2).any():
            yield first, lines
            continue
        text = np.array(pa.concat_arrays(parts).to_pylist(), dtype=object)
        inside = np.cumsum(marks) % 2 == 1  # after each line
        for begin in np.flatnonzero(np.diff(inside, prepend=False) & inside):
            end = begin + int(np.argmin(inside[begin:])) + 1 if not inside[begin:].all() else len(text)
            text[begin], text[begin + 1 : end] = "\n".join(text[begin:end]), ""
        yield first, pa.array(text, pa.large_string())


def read_headerless(
    path: Path, names: list[str], limits: Limits = LIMITS, delimiter: str = ",", mend: Mend | None = None
) -> TextTable:
    """Read a file without a header line, whose columns are `names`."""
    _check_names(names, path.name, limits)
    sound = mend or (lambda lines, names: lines)
    blocks = line_blocks(path, limits)
    return concatenate(parse_lines(sound(lines, names), first, names, path.name, delimiter) for first, lines in blocks)


def _header(line: str, delimiter: str, source: str) -> list[str]:
    if not line.strip():
        raise InputError(f"the first line of {source!r} is blank; it must name the columns.")
    if re.fullmatch(r"sep=.", line.strip(), re.IGNORECASE):
        raise InputError(f"the first line of {source!r}, {line.strip()!r}, is for spreadsheets only; remove it.")
    if line.lstrip()[0] in "{[":
        raise InputError(f"{source!r} is JSON; export it as CSV or Parquet.")
    if delimiter != ",":
        return [name.strip() for name in line.split(delimiter)]
    try:
        return [name.strip() for name in next(csv.reader([line], strict=True))]
    except csv.Error as error:
        raise InputError(f"line 1 of {source!r}, its header, cannot be read ({error}).") from error


def _check_names(names: list[str], source: str, limits: Limits) -> None:
    limits.check(source, columns=len(names))
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if "" in repeated:
        raise InputError(f"the first line of {source!r} must name all columns; remove a title above its header.")
    if repeated:
        raise InputError(f"the header of {source!r} names the column {shorten(min(repeated))!r} twice; rename one.")


def parse_lines(
    lines: Any, first: int, names: list[str], source: str, delimiter: str = ",", *, breaks: bool = False
) -> TextTable:
    """Parse lines of text, the first of them line `first` of the file, into columns `names`."""
    numbers = np.arange(first, first + len(lines))
    bad: dict[int, str] = {}

    def keep(mask: BoolArray, reason: str = "") -> None:
        nonlocal lines, numbers
        if reason:
            bad.update(dict.fromkeys(numbers[~mask].tolist(), reason))
        lines, numbers = (lines, numbers) if mask.all() else (lines.filter(pa.array(mask)), numbers[mask])

    keep(~_matches(lines, r"^\s*$"))
    keep(~_matches(lines, r"\x00"), "with a null byte")
    if delimiter == ",":
        keep(_well_quoted(lines, numbers, source), "with a misplaced quotation mark")
    rows, wrong = _parse(lines, names, source, delimiter, breaks=breaks)
    fits = np.ones(len(numbers), dtype=bool)
    fits[wrong] = False
    keep(fits, "with a wrong number of fields")
    return TextTable(rows, numbers, source, bad)


def _matches(lines: Any, regex: str) -> BoolArray:
    found: BoolArray = pc.match_substring_regex(lines, regex).to_numpy(zero_copy_only=False)
    return found


def _well_quoted(lines: Any, numbers: IntArray, source: str) -> BoolArray:
    """Whether the quotation marks of each line enclose fields; raises for a mark that is not closed on its line."""
    quoted = np.flatnonzero(pc.match_substring(lines, '"').to_numpy(zero_copy_only=False))
    some = lines.take(pa.array(quoted))
    valid = np.ones(len(lines), dtype=bool)
    # RFC 4180 but for line ends inside quotation marks, which cannot be told from a mark that was forgotten.
    valid[quoted] = _matches(some, rf"^{_FIELD}(?:,{_FIELD})*$")
    unclosed = quoted[_matches(some, rf'^(?:{_FIELD},)*"(?:[^"]|"")*$')]
    if unclosed.size:
        place = f"a quotation mark on line {numbers[unclosed[0]]} of {source!r} is never closed on that line"
        raise InputError(f"{place}; remove the mark, or the line break inside the field.")
    return valid


def _parse(lines: Any, names: list[str], source: str, delimiter: str, *, breaks: bool = False) -> tuple[Any, list[int]]:
    """Table of the lines, and the positions of those with a wrong number of fields."""
    schema = pa.schema([(name, pa.string()) for name in names])
    if not len(lines):
        return schema.empty_table(), []
    wrong: list[int] = []

    def skip(row: Any) -> str:
        wrong.append(row.number - 1)
        return "skip"

    text = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), pa.scalar("\n", lines.type))[0].as_buffer()
    quote = {"quote_char": '"' if delimiter == "," else False, "newlines_in_values": breaks}
    try:
        rows = pa_csv.read_csv(
            pa.BufferReader(text),
            pa_csv.ReadOptions(use_threads=False, block_size=text.size + 1, column_names=names),
            pa_csv.ParseOptions(delimiter=delimiter, invalid_row_handler=skip, **quote),
            pa_csv.ConvertOptions(column_types=schema, strings_can_be_null=True, null_values=[""]),
        )
    except (pa.ArrowInvalid, OverflowError) as error:
        raise InputError(f"{source!r} cannot be read as a table ({shorten(str(error), 120)}).") from error
    return rows if rows.num_rows else schema.empty_table(), wrong


def read_parquet(path: Path, limits: Limits = LIMITS) -> TextTable:
    """Read the Parquet file of exactly this name; its columns keep their types."""
    with open_parquet(path, limits) as file:
        try:
            limits.check(path.name, size=_text_size(path, file, limits))
            rows = file.read()
            rows.validate(full=True)
        except MemoryError as error:  # a damaged file may state any size
            how = "take less of the log or, if it is no larger than that, copy it again"
            raise InputError(f"{path.name!r} needs more memory than there is to read; {how}.") from error
        except (pa.ArrowException, OSError) as error:
            raise _damaged(path, error) from error
    return TextTable(rows.combine_chunks(), np.arange(1, rows.num_rows + 1), path.name)


def open_parquet(path: Path, limits: Limits = LIMITS) -> Any:
    """Open a Parquet file of known zones and of a size within `limits`; also a context manager."""
    try:
        file = pq.ParquetFile(pa.OSFile(os.fsencode(path)))
        about, schema = file.metadata, file.schema_arrow
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(path, error) from error
    size = sum(about.row_group(group).total_byte_size for group in range(about.num_row_groups))
    limits.check(path.name, rows=about.num_rows, size=size)
    _check_names(schema.names, path.name, limits)
    for column in schema:
        try:
            parse_timezone(getattr(column.type, "tz", None))
        except InputError as error:
            times = f"the times in {shorten(column.name)!r} of {path.name!r}"
            raise InputError(f"{times} have no known zone: {error}") from error
    return file


def _text_size(path: Path, file: Any, limits: Limits) -> int:
    """Bytes of all text of a Parquet file, where it can be over a limit: each row may be a copy of one long value."""
    about = file.metadata
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    if sum(group.num_rows * group.total_byte_size for group in groups) <= limits.size:
        return 0
    text = [field.name for field in file.schema_arrow if pa.types.is_string(field.type)]
    size = 0
    with pq.ParquetFile(pa.OSFile(os.fsencode(path)), read_dictionary=text) as coded:
        for batch in coded.iter_batches(columns=text):
            for column in batch.columns:
                size += pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0
                limits.check(path.name, size=size)
    return size


def _damaged(path: Path, error: BaseException) -> InputError:
    return InputError(f"{path.name!r} is not a Parquet file that can be read ({shorten(str(error), 120)}).")


def read_table(path: Path, limits: Limits = LIMITS, *, breaks: bool = False) -> TextTable:
    """Read a Parquet file, recognised by its first bytes, or else CSV, where `breaks` with line breaks in fields."""
    with open_binary(path) as file:
        is_parquet = file.read(4) == b"PAR1"
    return read_parquet(path, limits) if is_parquet else read_csv(path, limits, breaks=breaks)


def read_names(path: Path, limits: Limits = LIMITS) -> list[str]:
    """Names of the columns of a file that `read_table` reads, from its head."""
    with open_binary(path) as file:
        head = file.readline(1 << 16)
    if head.startswith(b"PAR1"):
        with open_parquet(path, limits) as table:
            return list(table.schema_arrow.names)
    return _header(head.decode("utf-8-sig", "backslashreplace"), ",", path.name)


def check_header(table: TextTable, required: tuple[str, ...]) -> None:
    """Raise if a table lacks a required column; ``"A|B"`` is satisfied by either."""
    missing = [names.replace("|", " or ") for names in required if not set(names.split("|")) & set(table.names)]
    marks = {",": "commas", ";": "semicolons", "|": "vertical bars", "\t": "tabs", "^": "carets"}
    only = table.names[0] if len(table.names) == 1 else ""
    likely = max(marks, key=only.count)
    hint = (
        f" Its header seems to be separated by {marks[likely]}; export it with those of the format, and decimal points."
    )
    require_names(table.names, missing, repr(table.source), hint if likely in only else "")
