"""Windows of a backtest: the earlier ones select a model, the later ones evaluate it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gpudemand._validation import InputError
from gpudemand.stages.sources.candidates import WEEKS

_MAX_WINDOWS = 6


@dataclass(frozen=True)
class BacktestWindows:
    """Rolling origins: the earlier ones select the model, the later ones evaluate it.

    Parameters
    ----------
    n_selection, n_evaluation : int
    step : int, optional
        Bins between origins, if fewer than the horizon: windows overlap, so that none is left to select on.
    """

    n_selection: int
    n_evaluation: int
    step: int | None = None

    @property
    def n_total(self) -> int:
        """All windows."""
        return self.n_selection + self.n_evaluation


def split_windows(n_bins: int, horizon: int, week: int = 7) -> BacktestWindows:
    """Number of selection and evaluation windows that fit into a history, at most six.

    Windows are disjoint, after at least two horizons. A history shorter than four horizons has six that overlap, after
    at least half of what lies before the last; they all evaluate.

    Parameters
    ----------
    n_bins : int
        Length of the history.
    horizon : int
        Length of a window.
    week : int, default=7
        Bins of a week.

    Returns
    -------
    BacktestWindows
        At least one of either, a third of all evaluate; or none that selects.

    Raises
    ------
    InputError
        If the history is shorter than four horizons, and than two after four weeks.

    Examples
    --------
    >>> split_windows(270, 28)
    BacktestWindows(n_selection=4, n_evaluation=2, step=None)
    >>> split_windows(100, 48)
    Traceback (most recent call last):
        ...
    gpudemand._validation.InputError: horizon 48 needs at least 124 bins of history; the log has 100; ...
    >>> split_windows(270, 118)
    BacktestWindows(n_selection=0, n_evaluation=6, step=15)
    """
    if n_bins < max(min(4 * horizon, 2 * horizon + WEEKS * week), 8):
        raise _too_short(n_bins, horizon, week)
    if n_bins < 4 * horizon:
        return BacktestWindows(0, _MAX_WINDOWS, max((n_bins - horizon) // (2 * (_MAX_WINDOWS - 1)), 1))
    total = min(_MAX_WINDOWS, (n_bins - 2 * horizon) // horizon)
    n_evaluation = max(1, total // 3)
    return BacktestWindows(total - n_evaluation, n_evaluation)


def _too_short(n_bins: int, horizon: int, week: int) -> InputError:
    needed, most = (
        max(min(4 * horizon, 2 * horizon + WEEKS * week), 8),
        max(n_bins // 4, (n_bins - WEEKS * week) // 2),
    )
    shorter = f"use --horizon {most} or less, or a finer --freq" if n_bins >= 8 else "use a finer --freq"
    return InputError(f"horizon {horizon} needs at least {needed} bins of history; the log has {n_bins}; {shorter}.")


def evaluation_rows(backtest: pd.DataFrame, windows: BacktestWindows) -> pd.Series:
    """Whether each row of a backtest belongs to an evaluation window, as a Series of bool."""
    cutoffs = backtest["cutoff"].drop_duplicates().sort_values()
    return backtest["cutoff"].isin(cutoffs.tail(windows.n_evaluation))
