"""Text of tables and amounts."""

from __future__ import annotations

import pandas as pd


def aligned(table: pd.DataFrame) -> str:
    """Lay out a table of strings: the first two columns left-aligned, the others, numbers, right-aligned."""
    columns = []
    for position, name in enumerate(table.columns):
        cells = [name, *table[name]]
        width = max(map(len, cells))
        columns.append([cell.ljust(width) if position < 2 else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))


def counted(number: int, noun: str) -> str:
    """Write a count with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_amount(value: float, unit: str = "") -> str:
    """Write an amount with a decimal prefix; zero is an empty string unless the unit is FLOP.

    Examples
    --------
    >>> format_amount(8.18e9, "FLOP"), format_amount(1536.0), format_amount(0.0)
    ('8.18 GFLOP', '1.54 k', '')
    """
    if not value:
        return f"0 {unit}" if unit == "FLOP" else ""
    for limit, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {prefix}{unit}".rstrip()
    return f"{value:.3g} {unit}".rstrip()
