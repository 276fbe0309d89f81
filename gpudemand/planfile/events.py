"""Events of a plan file that are known ahead: closures, deadlines and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from gpudemand._validation import check_number
from gpudemand.forecast.calendar import Calendar
from gpudemand.planfile.values import Value, require


def read_events(value: Value) -> pd.DataFrame:
    """Events of the blocks ``[[events]]``, as `EventForecaster` takes them.

    Raises
    ------
    InputError
        Names the block, or the key within.
    """
    rows = [row.table(_EVENT) for row in value.tables()]
    for number, row in enumerate(rows, 1):
        require(row, ("name", "start", "end"), f"{value.key}[{number}]")
    table = pd.DataFrame(rows, columns=list(_EVENT)).rename(columns={"name": "event"})
    with value.place():
        Calendar.of(table)
    return table


def _effect(value: Value) -> float:
    return check_number(f"{value.file}: {value.key}", value.raw, -1)


_EVENT: dict[str, Callable[[Value], Any]] = {
    "name": Value.text,
    **dict.fromkeys(("start", "end"), Value.time),
    "effect": _effect,
}
