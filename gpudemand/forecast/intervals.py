"""Intervals from past errors: what the same method got wrong, at the same distance, at earlier origins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_number

#: (history of shape (n, t), horizon) -> forecast of shape (n, h)
PathFunction = Callable[[FloatArray, int], FloatArray]


def check_levels(level: Sequence[float] | float | None) -> list[float]:
    """Return interval levels in percent, ascending, each inside (0, 100)."""
    if level is None:
        return []
    wanted: list[float] = list(np.atleast_1d(np.asarray(level, dtype=object)))
    for value in wanted:
        check_number("level", value, 0, 99.9, open_low=True)
    if wanted and max(wanted) <= 1:
        raise InputError(f"level={level!r} looks like a share; levels are percents, such as 80 and 95.")
    return sorted(float(value) for value in wanted)


def rolling_errors(path: PathFunction, y: FloatArray, h: int, *, min_train: int, max_origins: int) -> FloatArray:
    """Errors (actual minus forecast) at the last origins inside a history.

    Parameters
    ----------
    path : callable
        The forecaster as a pure function of the history.
    y : ndarray of shape (n_series, n_times)
        History.
    h : int
        Horizon.
    min_train : int
        Fewest bins before an origin.
    max_origins : int
        Most origins to use, evenly spread over what there is; the newest is ``n_times - 1``, whose later errors are
        not known yet and stay NaN.

    Returns
    -------
    ndarray of shape (n_series, n_origins, h)
        NaN beyond the end of the history and before a series begins.
    """
    n_times = y.shape[1]
    last = n_times - 1
    first = min(max(min_train, 1), last)
    origins = np.unique(np.linspace(first, last, min(max_origins, last - first + 1)).round().astype(int))
    errors = np.full((y.shape[0], origins.size, h), np.nan)
    for place, origin in enumerate(origins):
        actual = y[:, origin : origin + h]
        errors[:, place, : actual.shape[1]] = actual - path(y[:, :origin], h)[:, : actual.shape[1]]
    return errors


def error_quantiles(errors: FloatArray, quantiles: Sequence[float], *, min_sample: int = 40) -> FloatArray:
    """Quantiles of past errors by horizon, with the finite-sample rank of conformal prediction.

    A horizon borrows from its neighbours until it has `min_sample` errors, and where even all of them are fewer than a
    quantile asks for, the extreme error is stretched in proportion: few origins must widen an interval, not shrink it.

    Parameters
    ----------
    errors : ndarray of shape (n_series, n_origins, h)
        NaN where unknown.
    quantiles : sequence of float in (0, 1)
    min_sample : int, default=40

    Returns
    -------
    ndarray of shape (len(quantiles), n_series, h)
    """
    n, _, h = errors.shape
    known = (~np.isnan(errors)).any(axis=0).sum(axis=0)
    found = np.zeros((len(quantiles), n, h))
    for step in range(h):
        reach = _reach(known, step, min_sample)
        sample = np.sort(errors[:, :, max(step - reach, 0) : step + reach + 1].reshape(n, -1), axis=1)
        size = (~np.isnan(sample)).sum(axis=1)
        for place, quantile in enumerate(quantiles):
            found[place, :, step] = _ranked(sample, size, quantile)
    return found


def _reach(known: FloatArray, step: int, min_sample: int) -> int:
    for reach in range(known.size):
        if known[max(step - reach, 0) : step + reach + 1].sum() >= min_sample:
            return reach
    return int(known.size)


def _ranked(sample: FloatArray, size: FloatArray, quantile: float) -> FloatArray:
    # Conformal rank: the ceil((m + 1) q)-th smallest of m errors (mirrored below the median).
    upper = quantile >= 0.5
    tail = quantile if upper else 1 - quantile
    rank = np.ceil((size + 1) * tail).astype(int)
    place = np.clip(rank, 1, np.maximum(size, 1)) - 1
    place = place if upper else np.maximum(size, 1) - 1 - place
    value = np.take_along_axis(sample, place[:, None], axis=1)[:, 0]
    missing = np.maximum(rank / np.maximum(size, 1), 1.0)
    return np.nan_to_num(value) * missing


def bands(point: FloatArray, errors: FloatArray, level: Sequence[float], floor: FloatArray) -> dict[str, FloatArray]:
    """Lower and upper ends by level, nested around the point forecast and never below a floor.

    Parameters
    ----------
    point : ndarray of shape (n_series, h)
    errors : ndarray of shape (n_series, n_origins, h)
    level : sequence of float
        Percents, ascending.
    floor : ndarray of shape (n_series, 1)
        Lowest value that makes sense, 0 for demand.

    Returns
    -------
    dict of str to ndarray of shape (n_series, h)
        ``"lo-80"``, ``"hi-80"``, ...
    """
    ends: dict[str, FloatArray] = {}
    low = high = point
    for value in level:
        tail = 0.5 - value / 200
        below, above = error_quantiles(errors, [tail, 1 - tail])
        low, high = np.minimum(low, point + below), np.maximum(high, point + above)
        ends[f"lo-{value:g}"], ends[f"hi-{value:g}"] = np.maximum(low, floor), np.maximum(high, floor)
    return ends
