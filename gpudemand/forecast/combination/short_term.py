"""Average of a forecast with a short-term one, which fades out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pandas as pd


class ShortTermForecaster(Protocol):
    """What `HorizonForecaster.fit` takes as `short_term`: a fitted `JobDemandModel`, or any forecaster."""

    def predict(self, h: int, level: Sequence[float] | float | None = None) -> pd.DataFrame:
        """Forecast the next bins in long format."""


def joined(frame: pd.DataFrame, own: pd.DataFrame, near: pd.DataFrame) -> pd.DataFrame:
    """Average the first bins of a forecast with another by inverse squared widths of the 80 % intervals of both.

    Parameters
    ----------
    frame : DataFrame
        A forecast in long format, of any horizon and levels.
    own, near : DataFrame
        The first bins of it, and the other forecast of them, with the same levels, 80 among them. The second half of
        these bins passes to the first forecast; a series that the other lacks keeps it.

    Returns
    -------
    DataFrame
        Like `frame`.
    """
    index, names = ["unique_id", "ds"], own.columns[2:]
    mine = own.set_index(index)
    other = near.set_index(index).set_axis(names, axis=1).reindex(mine.index).fillna(mine)
    squares = [np.square(part[f"{names[0]}-hi-80"] - part[f"{names[0]}-lo-80"]) for part in (mine, other)]
    share = (squares[0] / (squares[0] + squares[1])).fillna(0.5)
    step = own.groupby("unique_id").cumcount().to_numpy()
    fade = np.minimum(2 * (1 - (step + 1) / (step.max() + 2)), 1.0)
    blend = mine + (other - mine).mul(share * fade, axis=0)
    result = frame.set_index(index)
    first = result.index.intersection(blend.index)
    result.loc[first] = blend.loc[first, result.columns]
    return result.reset_index()
