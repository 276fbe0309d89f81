"""Non-negative least squares in relative error: plain, with a Gaussian prior, and robust to outliers."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from gpudemand._typing import FloatArray

#: Cauchy scales of the graduated robust fit, from a nearly quadratic loss to one that discounts errors beyond 5 %.
_CAUCHY_SCALES = np.geomspace(1.0, 0.05, 30)


def solve_nonnegative(matrix: FloatArray, target: FloatArray) -> FloatArray:
    """Solve ``min |matrix b - target|`` subject to ``b >= 0``; columns may differ in scale by orders of magnitude."""
    largest = np.abs(matrix).max(axis=0)
    scale = np.where(largest > 0, largest, 1.0)
    coefficients, _ = nnls(matrix / scale, target, maxiter=max(20_000, 100 * matrix.shape[1]))
    return np.asarray(coefficients / scale, dtype=float)


def fit_nonnegative(
    terms: pd.DataFrame,
    y: FloatArray,
    weight: FloatArray | float = 1.0,
    prior: tuple[FloatArray, FloatArray] | None = None,
) -> pd.Series:
    """Fit a non-negative sum of terms in relative error.

    Parameters
    ----------
    terms : DataFrame of shape (n_rows, n_terms)
    y : ndarray of shape (n_rows,)
        Positive costs.
    weight : ndarray of shape (n_rows,) or float, default=1.0
        Factor on the relative residual of each row.
    prior : tuple of (mean, standard deviation), each of shape (n_terms,), optional
        Gaussian prior of the coefficients, in units of the weighted residuals.

    Returns
    -------
    Series
        Coefficient of each term.

    Examples
    --------
    >>> terms = pd.DataFrame({"flops": [1.0, 2.0, 4.0], "start": 1.0})
    >>> fit_nonnegative(terms, np.array([3.0, 5.0, 9.0])).round(2).tolist()
    [2.0, 1.0]
    """
    target = np.broadcast_to(weight, y.shape)
    matrix = terms.to_numpy(dtype=float) / y[:, None] * target[:, None]
    if prior is not None:
        mean, deviation = prior
        matrix = np.vstack([matrix, np.diag(1.0 / deviation)])
        target = np.concatenate([target, mean / deviation])
    return pd.Series(solve_nonnegative(matrix, target), index=terms.columns)


def fit_robust(terms: pd.DataFrame, y: FloatArray) -> pd.Series:
    """Fit a non-negative sum of terms, the first of them the main one, under a Cauchy loss.

    Iteratively reweighted least squares with a scale that shrinks step by step (graduated non-convexity), from a start
    at the median ratio of the first term: least squares would start at the outliers, whose relative errors are largest.

    Examples
    --------
    >>> terms = pd.DataFrame({"reserved": np.arange(1.0, 31.0), "start": 1.0})
    >>> y = 2.0 + 1.5 * terms["reserved"].to_numpy()
    >>> y[::10] /= 20
    >>> fit_robust(terms, y).round(1).tolist()
    [1.5, 2.0]
    """
    matrix = terms.to_numpy(dtype=float) / y[:, None]
    coefficients = pd.Series(np.r_[1.0 / np.median(matrix[:, 0]), np.zeros(matrix.shape[1] - 1)], index=terms.columns)
    for scale in _CAUCHY_SCALES:
        coefficients = fit_nonnegative(terms, y, cauchy_weights(matrix @ coefficients.to_numpy() - 1.0, scale))
    return coefficients


def cauchy_weights(residuals: FloatArray, scale: float) -> FloatArray:
    """Square roots of the IRLS weights of a Cauchy loss."""
    return np.asarray(1.0 / np.sqrt(1.0 + (residuals / scale) ** 2))
