"""Coefficients of physical terms by robust maximum a posteriori in log error, with an effect of each source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from gpudemand._typing import FloatArray, IntArray

#: Standard deviations of the logarithm: of a measurement around its source's mean, and of sources (projects differ in
#: software, data and what they call a step).
NOISE, SOURCE = 0.12, 0.2
Formula = Callable[[pd.DataFrame, Mapping[str, float]], FloatArray]


class Fitted(NamedTuple):
    """Coefficients by name, and the log effect of each source."""

    coefficients: dict[str, float]
    effects: dict[str, float]


def fit_coefficients(
    formula: Formula,
    terms: pd.DataFrame,
    weights: FloatArray,
    rows: IntArray,
    y: FloatArray,
    sources: FloatArray,
    priors: Mapping[str, tuple[float, float]],
) -> Fitted:
    """Maximum a posteriori coefficients of a formula: log-normal priors, pseudo-Huber loss, normal source effects.

    Parameters
    ----------
    formula : callable
        ``formula(terms, coefficients)``, a positive amount a row.
    terms : DataFrame of shape (n_candidates, n_terms)
        Of every way in which a measured row may be meant.
    weights, rows : ndarray of shape (n_candidates,)
        Probability of the way, and its measured row.
    y : ndarray of shape (n_rows,)
        Measured amounts.
    sources : array-like of shape (n_rows,)
        Project of each row; large ones weigh by the root of their size.
    priors : mapping of str to (float, float)
        Coefficient -> prior mean and standard deviation of its logarithm.

    Returns
    -------
    Fitted
    """
    names, groups = list(priors), pd.factorize(np.asarray(sources))
    mean = np.log([priors[name][0] for name in names])
    spread = np.array([priors[name][1] for name in names])
    share = 1.0 / np.sqrt(np.sqrt(np.bincount(groups[0])))[groups[0]]
    measured = np.log(y)

    def residuals(point: FloatArray) -> FloatArray:
        """Weighted errors in the logarithm, and what the priors say."""
        values = dict(zip(names, np.exp(point[: len(names)]), strict=True))
        effects = point[len(names) :]
        expected = np.bincount(rows, weights * np.log(formula(terms, values)), minlength=len(y))
        error = (measured - expected - effects[groups[0]]) / NOISE
        robust = np.sign(error) * np.sqrt(2.0 * (np.sqrt(1.0 + error**2) - 1.0))
        return np.concatenate([share * robust, (point[: len(names)] - mean) / spread, effects / SOURCE])

    start = np.concatenate([mean, np.zeros(len(groups[1]))])
    found = least_squares(residuals, start, method="trf", max_nfev=40).x
    coefficients = dict(zip(names, np.exp(found[: len(names)]).tolist(), strict=True))
    return Fitted(coefficients, dict(zip(map(str, groups[1]), found[len(names) :].tolist(), strict=True)))
