"""Selection of forecast origins: the newest ones, or those of a span of time."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gpudemand._validation import InputError
from gpudemand.forecast import Panel


@dataclass(frozen=True)
class Origins:
    """A choice of origins; an origin is the first bin that is not known."""

    count: int | None = None
    first: str | None = None
    last: str | None = None

    @classmethod
    def parse(cls, text: str) -> Origins:
        """Read ``28`` (the newest 28) or ``2020-08-01..2020-08-31`` (first and last origin)."""
        if text.isdigit():
            return cls(count=int(text))
        first, _, last = text.partition("..")
        if pd.isna(pd.to_datetime([first, last], errors="coerce", format="ISO8601")).any():
            raise argparse.ArgumentTypeError(f"{text!r} is neither a number of origins nor FIRST..LAST.")
        return cls(first=first, last=last)

    def of(self, panel: Panel, h: int, step: int, phase: int | None = 0) -> list[int]:
        """Origins in a panel, every `step` bins, each followed by at least `h` bins.

        They equal `phase` modulo `step`; with None the newest origin is followed by exactly `h` bins.
        """
        n = len(panel.times)
        newest = n - h if phase is None else n - h - (n - h - phase) % step
        chosen = self._among(np.arange(newest, 0, -step)[::-1], panel.times)
        if not chosen.size:
            raise InputError(
                f"no origin of {self} is followed by {h} bins of the data, which reach from {panel.times[0]} to "
                f"{panel.times[-1]}; pass other origins or data that reach further."
            )
        return [int(place) for place in chosen]

    def __str__(self) -> str:
        return f"the newest {self.count}" if self.count is not None else f"{self.first}..{self.last}"

    def _among(self, places: np.ndarray, times: pd.DatetimeIndex) -> np.ndarray:  # type: ignore[type-arg]
        if self.count is not None:
            return places[max(places.size - self.count, 0) :]
        first, last = (pd.Timestamp(text, tz=times.tz) for text in (self.first, self.last))
        stamps = times[places]
        return places[(stamps >= first) & (stamps <= last)]
