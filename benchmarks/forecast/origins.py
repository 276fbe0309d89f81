"""Where forecasts are made: the newest so many origins, or those of a span of time."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import pandas as pd

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
        first, dots, last = text.partition("..")
        if not dots:
            raise argparse.ArgumentTypeError(f"{text!r} is neither a number of origins nor FIRST..LAST.")
        return cls(first=first, last=last)

    def of(self, panel: Panel, h: int, step: int, phase: int = 0) -> list[int]:
        """Places of the origins in a panel, every `step` bins where the place is `phase`, all with `h` bins to score.

        Counted back from the end of the panel where a number is given; `phase` is then the newest one's.
        """
        n = len(panel.times)
        newest = n - h - (n - h - phase) % step
        places = np.arange(newest, 0, -step)[::-1]
        if self.count is not None:
            return [int(place) for place in places[-self.count :]]
        zone = panel.times.tz
        first, last = (pd.Timestamp(text, tz=zone) for text in (self.first, self.last))
        stamps = panel.times[places]
        return [int(place) for place in places[(stamps >= first) & (stamps <= last)]]
