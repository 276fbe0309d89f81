"""What the clusterwise forecaster chooses from a history."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray


class Choice(NamedTuple):
    """One global regression, or clusters: index of the initial segmenter, and the cost of leaving a segment."""

    kind: str
    segmenter: int = -1
    switching_cost: float = np.inf


#: One regression for all users.
GLOBAL = Choice("global")


class Selection(NamedTuple):
    """What is chosen from a history.

    Attributes
    ----------
    horizon : int
        Bins of the training errors.
    losses : DataFrame
        Of every choice on held-out time, relative to the global regression.
    choice : Choice
    weights : ndarray of shape (n_users, 3)
        Of the component forecasts.
    """

    horizon: int
    losses: pd.DataFrame
    choice: Choice
    weights: FloatArray
