"""Prices of kinds of work: how many times longer than the datasheet says each takes, never negative."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from gpudemand._typing import FloatArray

#: Before any measurement: (forward, backward) multiples of the bound, by what is done. What is not listed is free.
_EXPECTED = {
    "bytes": (1.0, 2.0),
    "issue": (0.3, 0.6),
    "flops": (1.5, 3.0),
    "launch": (0.5, 1.0),
    "waves": (0.2, 0.4),
    "cast": (1.0, 1.0),
    "slice": (1.0, 1.0),
    "weights": (1.0, 1.5),
    "update": (1.0, 1.0),
    "start": (1.0, 1.0),
    "reduce": (1.0, 1.0),
    "network": (1.0, 1.0),
    "messages": (1.0, 1.0),
    "straggle": (0.3, 0.3),
}
#: How far a price may be from what is expected before it costs as much as being wrong by one row.
_DOUBT = 1.5
#: Weight of what is expected: the squared relative error of a fair fit.
_STRENGTH = 3e-3
_ROUNDS = 3


def expected_prices(terms: Iterable[str]) -> FloatArray:
    """Prices to assume without measurements, by names of terms."""
    return np.array([_EXPECTED.get(name.rsplit(":", 1)[-1], (0.0, 0.0))[":back:" in name] for name in terms])


def fit_prices(terms: pd.DataFrame, y: FloatArray) -> pd.Series:
    """Fit non-negative prices in relative error, drawn towards `expected_prices`, ignoring outliers.

    Parameters
    ----------
    terms : DataFrame of shape (n_rows, n_terms)
        Seconds at the peaks of the datasheet.
    y : ndarray of shape (n_rows,)
        Measured seconds.

    Examples
    --------
    >>> terms = pd.DataFrame({"work:gemm:flops": [1.0, 2.0, 4.0] * 50, "work:start": 0.001})
    >>> fit_prices(terms, 2.0 * terms["work:gemm:flops"].to_numpy()).round(2).tolist()
    [2.0, 1.0]
    """
    relative, weight = terms.to_numpy(dtype=float) / y[:, None], np.ones(len(y))
    expected = expected_prices(terms.columns)
    for _ in range(_ROUNDS):
        prices = _solve(relative * weight[:, None], weight, expected)
        error = np.log(np.maximum(relative @ prices, np.finfo(float).tiny))
        usual = max(1.4826 * float(np.median(np.abs(error))), 0.01)
        weight = 1.0 / np.sqrt(1.0 + (error / (2.0 * usual)) ** 2)
    return pd.Series(prices, index=terms.columns)


def _solve(matrix: FloatArray, target: FloatArray, expected: FloatArray) -> FloatArray:
    doubt = _STRENGTH / np.maximum(expected, _DOUBT) ** 2
    # The Cholesky factor of the normal equations has as many rows as there are prices, whatever was measured.
    factor = np.linalg.cholesky(matrix.T @ matrix + np.diag(doubt))
    prices, _ = nnls(factor.T, np.linalg.solve(factor, matrix.T @ target + doubt * expected), maxiter=20_000)
    return np.asarray(prices, dtype=float)
