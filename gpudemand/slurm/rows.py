"""Rows of ``sacct -P`` that free text broke: a bar in a job's name adds a field, a line break cuts the row in two."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Fields in which users write what they like.
FREE_TEXT = (
    "JobName",
    "Comment",
    "AdminComment",
    "SystemComment",
    "Extra",
    "WorkDir",
    "SubmitLine",
    "Container",
    "StdIn",
    "StdOut",
    "StdErr",
)
_TIME = re.compile(r"|None|Unknown|\d+|\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
_BEGIN = re.compile(r"\d+[^|]*\|")
_NUMBER = re.compile(r"\d*")
_CHECKS = {
    **dict.fromkeys(("Submit", "Eligible", "Start", "End"), _TIME),
    **dict.fromkeys(("ElapsedRaw", "UID", "GID", "NNodes", "NCPUS", "AllocCPUS", "CPUTimeRAW"), _NUMBER),
    "State": re.compile(r"[A-Z_]+( by \d+)?\+?"),
}
#: A name of more lines than this is a damaged file.
_MAX_LINES = 20


def mend_rows(lines: Any, names: Sequence[str]) -> Any:
    """Return lines with the rows put together again that free text broke, where only one reading of them makes sense.

    Parameters
    ----------
    lines : pyarrow.Array of text
    names : sequence of str
        Columns of the table.

    Returns
    -------
    pyarrow.Array of text
        Of the same length, so that line numbers stay: the further lines of a row are blank. In the mended text, bars
        are written ``¦`` and line breaks as spaces. Rows that cannot be mended stay as they are.

    Examples
    --------
    >>> lines = pa.array(["7|a|b|COMPLETED", "8|two", "lines|FAILED", "9|c|RUNNING"])
    >>> mend_rows(lines, ["JobID", "JobName", "State"]).to_pylist()
    ['7|a¦b|COMPLETED', '8|two lines|FAILED', '', '9|c|RUNNING']
    """
    bars, width = np.asarray(pc.count_substring(lines, "|")), len(names) - 1
    free = [place for place, name in enumerate(names) if name in FREE_TEXT]
    if not free or (bars == width).all():
        return lines
    texts = lines.to_pylist()
    for first in np.flatnonzero(bars != width).tolist():
        last = first
        while bars[first : last + 1].sum() < width and last - first < _MAX_LINES:
            if last + 1 == len(texts) or bars[last + 1] == width:  # the end, or a row of its own
                break
            last += 1
        mended = _mend(" ".join(texts[first : last + 1]), names, free) if texts[first] else None
        if mended is not None:
            texts[first : last + 1] = [mended] + [""] * (last - first)
        elif free[-1] == width and not _BEGIN.match(texts[first]):  # a further line of the last field
            texts[first] = ""
    return pa.array(texts, lines.type)


def _mend(text: str, names: Sequence[str], free: Sequence[int]) -> str | None:
    fields = text.split("|")
    extra = len(fields) - len(names)
    if not 0 <= extra <= _MAX_LINES:
        return None
    rows = (_joined(fields, dict(zip(free, counts, strict=True))) for counts in _compositions(extra, len(free)))
    return next(("|".join(row) for row in rows if _is_plausible(row, names)), None)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Ways to write a number as an ordered sum."""
    for cuts in itertools.combinations_with_replacement(range(total + 1), parts - 1):
        edges = (0, *cuts, total)
        yield tuple(high - low for low, high in itertools.pairwise(edges))


def _joined(fields: Sequence[str], extra: dict[int, int]) -> list[str]:
    rest, row = list(fields), list[str]()
    while rest:
        width = 1 + extra.get(len(row), 0)
        row.append("¦".join(rest[:width]))
        del rest[:width]
    return row


def _is_plausible(row: Sequence[str], names: Sequence[str]) -> bool:
    return all(_CHECKS[name].fullmatch(cell.strip()) for name, cell in zip(names, row, strict=True) if name in _CHECKS)
