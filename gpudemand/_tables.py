"""Tables as files that spreadsheets read safely, and as text."""

from __future__ import annotations

import csv
import os
import re
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._files import replace_file
from gpudemand.units import wall_clock

#: Control characters other than tab and newline. A carriage return would begin a row in a spreadsheet.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: Where a spreadsheet begins a formula: at the start of a cell, or after a semicolon, which separates cells in many
#: countries. Full-width signs count in some.
_SIGNS = r"(?=[=+@\t\n\uff1d\uff0b\uff0d\uff20-])"
_FORMULA, _NO_FORMULA = re.compile(f"(^|;){_SIGNS}"), re.compile(f"(^|;)'{_SIGNS}")


def write_table(table: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a table without its index as Parquet, or as CSV that is `spreadsheet_safe`."""
    with replace_file(path) as new:
        if new.suffix == ".parquet":
            table.to_parquet(new, index=False)
            return
        out = spreadsheet_safe(table)
        for name, column in out.items():
            if pd.api.types.is_datetime64_any_dtype(column.dtype):
                # As pandas writes them, each formatted once, which takes most of the time of long tables.
                codes, times = pd.factorize(column)
                text = [*pd.Series(times).to_csv(header=False, index=False).splitlines(), ""]
                out[name] = np.array(text, dtype=object)[codes]
        out.to_csv(new, index=False)


def spreadsheet_safe(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose text no spreadsheet takes for a formula: ``=1+1`` becomes ``'=1+1``.

    Numbers and times are untouched; control characters are made printable.

    References
    ----------
    OWASP, "CSV Injection", https://owasp.org/www-community/attacks/CSV_Injection.

    Examples
    --------
    >>> table = pd.DataFrame({"user": ["=cmd|' /C calc'!A0", "ada"], "change": [-1.5, 2.0]})
    >>> print(spreadsheet_safe(table).to_csv(index=False))
    user,change
    '=cmd|' /C calc'!A0,-1.5
    ada,2.0
    """
    return _with_text(table, _cell).set_axis([_cell(name) for name in table.columns], axis=1)


def not_for_spreadsheets(text: pd.Series) -> pd.Series:
    """Return text as it was before `spreadsheet_safe`, but for control characters.

    >>> not_for_spreadsheets(pd.Series(["'=1+1", "ada", "'tis"])).tolist()
    ['=1+1', 'ada', "'tis"]
    """
    found = pd.Series(text.unique(), dtype=text.dtype)
    found = found[found.str.contains("'", regex=False, na=False)]
    return text.replace({given: _NO_FORMULA.sub(r"\1", given) for given in found}) if len(found) else text


def printable(table: pd.DataFrame) -> pd.DataFrame:
    r"""Return a table, ``attrs`` included, with control characters as ``\x00``, ``\x07``, ...; names stay distinct."""
    clean = _with_text(table, _printable, _CONTROL.pattern)
    clean.attrs = _printable(dict(table.attrs))
    return clean


def _with_text(table: pd.DataFrame, change: Any, pattern: str = "") -> pd.DataFrame:
    """The table with each text that `change` changes replaced; all of these match `pattern`."""
    out = table.copy(deep=False)
    for name, column in table.items():
        is_text = isinstance(column.dtype, pd.StringDtype)
        no_text = pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_datetime64_any_dtype(column.dtype)
        # Arrow finds and searches the texts of a column of millions in a fraction of a second.
        distinct = pd.Series(column.unique(), dtype=column.dtype) if is_text else column
        if no_text or (is_text and not distinct.str.contains(pattern).any()):
            continue
        texts = {value for value in distinct if isinstance(value, str)}
        changed = {text: change(text) for text in texts if change(text) != text}
        if changed:
            values = pd.Series([changed.get(v, v) if isinstance(v, str) else v for v in column], column.index, object)
            out[name] = values.astype("category" if isinstance(column.dtype, pd.CategoricalDtype) else column.dtype)
    return out


def _cell(value: Any) -> Any:
    return _FORMULA.sub(r"\1'", _printable(value)) if isinstance(value, str) else value


def _printable(value: Any) -> Any:
    """Text, and text in dictionaries, without control characters; other values as they are."""
    if isinstance(value, dict):
        return {_printable(key): _printable(entry) for key, entry in value.items()}
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", value) if isinstance(value, str) else value


def aligned(table: pd.DataFrame) -> str:
    """Lay out a table of strings: the first two columns left-aligned, the others, numbers, right-aligned."""
    columns = []
    for position, name in enumerate(table.columns):
        cells = [name, *table[name]]
        width = max(map(len, cells))
        columns.append([cell.ljust(width) if position < 2 else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))


def shown_as_html(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table, which a notebook shows as `html_table` does; what is made of it is shown as pandas does."""
    object.__setattr__(table, "_repr_html_", lambda: html_table(table))
    return table


def html_table(table: pd.DataFrame) -> str:
    """HTML of a `readable` table.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-03-01 23:26", None], utc=True)
    >>> shown = html_table(pd.DataFrame({"order_by": times, "gpus": [736.0, 1234.5678], "price": [np.nan, np.nan]}))
    >>> "2026-03-01<" in shown, "1,234.57" in shown, "price" in shown
    (True, True, False)
    """
    index = not (isinstance(table.index, pd.RangeIndex) and table.index.name is None)
    return readable(table).to_html(index=index, border=0, justify="left", max_rows=60)


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table to read: numbers rounded, dates as dates, without columns that are empty."""
    return (table.dropna(axis=1, how="all") if len(table) else table).apply(_as_text)


def _as_text(column: pd.Series) -> pd.Series:
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        known = wall_clock(pd.DatetimeIndex(column.dropna()))
        # Orders are placed on a day, also where the log ends later on it.
        whole = column.name == "order_by" or (known == known.normalize()).all()
        return column.dt.strftime("%Y-%m-%d" if whole else "%Y-%m-%d %H:%M").astype(object).where(column.notna(), "")
    if pd.api.types.is_float_dtype(column.dtype):
        whole = (column.dropna() % 1 == 0).all()
        decimals = 0 if whole else 2 if column.abs().max() >= 1 else 3
        return column.map(lambda value: "" if pd.isna(value) else f"{value:,.{decimals}f}").astype(object)
    return column


def titled_html(title: str, table: pd.DataFrame, totals: str = "") -> str:
    """HTML of a table for a notebook, with text above and below it."""
    below = f"<pre>{escape(totals)}</pre>" if totals else ""
    return f"<div><pre>{escape(title)}</pre>{table.to_html(index=False, border=0, justify='left')}{below}</div>"


def keyed_rows(path: Path) -> dict[str, dict[str, str]]:
    """Rows of a CSV file by their first column."""
    with path.open(encoding="utf-8", newline="") as lines:
        return {next(iter(row.values())): row for row in csv.DictReader(lines)}


def format_amount(value: float, unit: str = "") -> str:
    """Write an amount with a decimal prefix; zero is an empty string unless the unit is FLOP.

    >>> format_amount(8.18e9, "FLOP"), format_amount(1536.0), format_amount(0.0)
    ('8.18 GFLOP', '1.54 k', '')
    """
    if not value:
        return f"0 {unit}" if unit == "FLOP" else ""
    for limit, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {prefix}{unit}".rstrip()
    return f"{value:.3g} {unit}".rstrip()
