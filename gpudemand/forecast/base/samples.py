"""Sample paths of many series together, whose sums have the distribution of the sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.stats import norm

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_columns, shorten
from gpudemand.forecast.base.intervals import PastErrors, check_levels

SAMPLE = "sample"
_SIDES = (("lo", -1), ("hi", 1))
#: Shares between whose quantiles a marginal distribution is interpolated.
_SHARES = norm.cdf(np.linspace(-3.0, 3.0, 61))


def joint_samples(
    point: FloatArray, past: PastErrors, floor: FloatArray, spread: FloatArray | float, n_samples: int, seed: int
) -> FloatArray:
    """Draw paths with the marginal distributions of the intervals, and the dependence of past errors.

    Each path takes the ranks of the errors from one earlier origin, in all series and steps (Schaake shuffle), so what
    was too high or too low together is so again.

    Parameters
    ----------
    point : ndarray of shape (n_series, h)
    past : PastErrors
    floor : ndarray of shape (n_series, 1)
        Smallest value.
    spread : ndarray of shape (h,) or float
        Factor on the errors of each step.
    n_samples, seed : int

    Returns
    -------
    ndarray of shape (n_samples, n_series, h)

    References
    ----------
    Clark, Gangopadhyay, Hay, Rajagopalan and Wilby, "The Schaake shuffle", Journal of Hydrometeorology 5 (2004);
    Schefzik, Thorarinsdottir and Gneiting, "Uncertainty quantification in complex simulation models using ensemble
    copula coupling", Statistical Science 28 (2013).
    """
    rng, quantiles = np.random.default_rng(seed), past.quantiles(list(_SHARES))
    low, width = _ranks(past.errors, rng)
    chosen = rng.integers(0, low.shape[1], n_samples)
    # Within the width of a rank, a path lies at a place of its own in each series.
    within = rng.random((len(point), n_samples, 1))
    shares = low[:, chosen] + within * width[:, chosen]
    out = np.empty((n_samples, *point.shape))
    for row, step in np.ndindex(point.shape):
        out[:, row, step] = np.interp(shares[row, :, step], _SHARES, quantiles[:, row, step])
    return np.asarray(np.maximum(point + spread * out, floor))


def scale_samples(samples: pd.DataFrame, total: pd.DataFrame) -> pd.DataFrame:
    """Scale sample paths of parts so that their sum has the distribution of the total.

    At each time the sums of the parts are replaced by the samples of the total in the same order, and the parts are
    scaled to them (top-down by forecast proportions, sample by sample).

    Parameters
    ----------
    samples : DataFrame
        ``unique_id``, ``ds``, ``sample`` and one more column, as `Forecaster.sample` returns them.
    total : DataFrame
        The same for one series, the total, with as many samples and times.

    Returns
    -------
    DataFrame
        Like `samples`; where all parts are zero, they stay so.

    Raises
    ------
    InputError
        If `total` is more than one series, or has other times or another number of samples.
    """
    name, of_total = _value(samples), _value(total)
    sums = samples.pivot_table(index="ds", columns=SAMPLE, values=name, aggfunc="sum")
    if len(total["unique_id"].unique()) != 1:
        raise InputError("total must be samples of one series.")
    drawn = total.pivot(index="ds", columns=SAMPLE, values=of_total)
    if not (drawn.index.equals(sums.index) and drawn.shape == sums.shape):
        raise InputError("samples and total must have the same times and the same number of samples.")
    order = sums.to_numpy().argsort(axis=1, kind="stable").argsort(axis=1)
    wanted = np.take_along_axis(np.sort(drawn.to_numpy(), axis=1), order, axis=1)
    ratio = (wanted / sums.where(sums > 0)).fillna(0.0).stack().rename("ratio")
    factor = samples[["ds", SAMPLE]].join(ratio, on=["ds", SAMPLE])["ratio"].to_numpy()
    out = samples.assign(**{name: samples[name] * factor})
    out.attrs = dict(samples.attrs)
    return out


def sum_samples(
    samples: pd.DataFrame, groups: Mapping[str, str] | None = None, level: Sequence[float] | float = (80, 95)
) -> pd.DataFrame:
    """Median and intervals of sums of series, from sample paths.

    Parameters
    ----------
    samples : DataFrame
        ``unique_id``, ``ds``, ``sample`` and one more column, as `Forecaster.sample` returns them.
    groups : mapping of str to str, optional
        Group of each series; by default all are one, ``total``.
    level : sequence of float, default=(80, 95)
        Of the intervals, in percent.

    Returns
    -------
    DataFrame
        ``unique_id`` (the group), ``ds``, the column of the model and its bounds ``-lo-80``, ``-hi-80``, ...

    Raises
    ------
    InputError
        If a series has no group.
    """
    name = _value(samples)
    group = pd.Series("total", samples.index) if groups is None else samples["unique_id"].map(groups)
    if group.isna().any():
        raise InputError(f"series {shorten(str(samples['unique_id'][group.isna()].iloc[0]))!r} has no group; name one.")
    sums = samples.groupby([group.rename("unique_id"), "ds", SAMPLE])[name].sum().groupby(level=[0, 1])
    table = {name: sums.median()}
    for value in check_levels(level):
        table |= {f"{name}-{side}-{value:g}": sums.quantile(0.5 + sign * value / 200) for side, sign in _SIDES}
    frame = pd.DataFrame(table).reset_index()
    frame.attrs = dict(samples.attrs)
    return frame


def _value(samples: pd.DataFrame) -> str:
    """Name of the column of values."""
    keys = ("unique_id", "ds", SAMPLE)
    names = [str(column) for column in check_columns(samples, keys, "samples").columns if column not in keys]
    if len(names) != 1:
        raise InputError(f"samples must have one column of values; these have {', '.join(names) or 'none'}.")
    return names[0]


def _ranks(errors: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Shares of the errors of a series and step that are smaller, and that are equal in rank: (n_series, n_origins, h).

    A step that the history does not reach from an origin has the rank of the one before it. The ranks of a series that
    had not begun are those of random origins.
    """
    # Origins from which less than half of the horizon is known say little about its course.
    n_known = (~np.isnan(errors)).any(axis=0).sum(axis=1)
    errors = errors[:, 2 * n_known >= max(n_known.max(), 1)]
    known = ~np.isnan(errors)
    order = np.lexsort((rng.random(errors.shape), errors), axis=1)
    ranks = np.argsort(order, axis=1)
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    low, width = np.where(known, ranks / count, np.nan), np.where(known, 1 / count, np.nan)
    for row, origin in np.argwhere(~known[..., 0]):
        others = np.flatnonzero(known[row, :, 0])
        other = rng.choice(others) if others.size else None
        low[row, origin] = 0.0 if other is None else low[row, other]
        width[row, origin] = 1.0 if other is None else width[row, other]
    newest = np.maximum.accumulate(np.where(np.isnan(low), 0, np.arange(errors.shape[2])), axis=2)
    return np.take_along_axis(low, newest, axis=2), np.take_along_axis(width, newest, axis=2)
