"""Candidates for the forecast of the total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from gpudemand.forecast import (
    ETS,
    CombinedForecaster,
    EventForecaster,
    HorizonForecaster,
    Naive,
    SeasonallyAdjustedNaive,
    SeasonalNaive,
)
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.panel import infer_freq, week_length

NAIVE = (Naive, SeasonalNaive, SeasonallyAdjustedNaive)
CANDIDATES = (*NAIVE, ETS, CombinedForecaster, HorizonForecaster)
NAIVE_NAMES = [model.__name__ for model in NAIVE]
OWN_NAMES = [model.__name__ for model in CANDIDATES]
#: Those that are taken unless another is better beyond noise.
RECOMMENDED = OWN_NAMES[-2:]
#: Weeks ahead up to which the combination forecasts, and from which on the forecaster of long horizons.
WEEKS = 4
#: Fewest bins before the first window from which combination weights are estimated.
_MIN_COMBINATION_BINS = 28
#: Rows times horizon above which backtesting the combination takes minutes.
_MAX_COMBINATION_CELLS = 1.5e6


class Candidates(NamedTuple):
    """Forecasters of the user's, besides our own, and events that all of them know.

    Attributes
    ----------
    others : sequence of Forecaster
    events : DataFrame or None
        See `EventForecaster`.
    """

    others: Sequence[Forecaster] = ()
    events: pd.DataFrame | None = None

    def for_history(self, usage: pd.DataFrame, horizon: int, n_before: int) -> list[Forecaster]:
        """Construct those for a history; no combination where it is too short or too large for it.

        Beyond four weeks the forecaster of long horizons, which contains the combination, takes its place.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y``.
        horizon : int
            Bins to forecast.
        n_before : int
            Bins before the first window of the backtest.

        Returns
        -------
        list of Forecaster
        """
        own = [candidate() for candidate in CANDIDATES[:-2]]
        if n_before >= _MIN_COMBINATION_BINS and len(usage) * horizon <= _MAX_COMBINATION_CELLS:
            own.append(HorizonForecaster() if horizon > WEEKS * bins_of_week(usage) else CombinedForecaster())
        return self._knowing_events([*self.others, *own])

    def named(self, model: str) -> Forecaster:
        """The one whose column has a name."""
        every = self._knowing_events([*self.others, *(candidate() for candidate in CANDIDATES)])
        return next(candidate for candidate in every if candidate.column_name() == model)

    def _knowing_events(self, models: list[Forecaster]) -> list[Forecaster]:
        return models if self.events is None else [EventForecaster(model, self.events) for model in models]


OURS = Candidates()


def bins_of_week(usage: pd.DataFrame) -> int:
    """Bins in a week of a usage frame; 1 where they are longer."""
    times = pd.DatetimeIndex(usage["ds"].unique()).sort_values()
    return week_length(infer_freq(times)) if len(times) > 1 else 1
