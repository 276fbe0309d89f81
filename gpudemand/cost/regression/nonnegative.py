"""Non-negative weights of the terms of a sum, when some of the measurements are broken."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from gpudemand._typing import FloatArray

#: Relative error beyond which a row begins to count for less.
_TOLERANCE = 0.05
_ROUNDS = 30


def robust_prices(terms: pd.DataFrame, y: FloatArray) -> pd.Series:
    """Fit non-negative weights in relative error; rows far from all others count for little.

    Parameters
    ----------
    terms : DataFrame of shape (n_rows, n_terms)
        Amounts; the first is the main one.
    y : ndarray of shape (n_rows,)
        What they shall add up to.

    Examples
    --------
    >>> terms = pd.DataFrame({"reserved": np.arange(1.0, 31.0), "start": 1.0})
    >>> y = 2.0 + 1.5 * terms["reserved"].to_numpy()
    >>> y[::10] /= 20  # some broke off
    >>> robust_prices(terms, y).round(1).tolist()
    [1.5, 2.0]
    """
    matrix = terms.to_numpy(dtype=float) / y[:, None]
    scale = np.where((size := np.abs(matrix).max(axis=0)) > 0, size, 1.0)
    # From a plain guess on: least squares would begin with the broken rows, whose relative errors are the largest.
    found = np.r_[scale[0] / np.median(matrix[:, 0]), np.zeros(len(scale) - 1)]
    for width in np.geomspace(1.0, _TOLERANCE, _ROUNDS):
        weight = 1.0 / np.sqrt(1.0 + ((matrix / scale @ found - 1.0) / width) ** 2)
        found, _ = nnls(matrix / scale * weight[:, None], weight, maxiter=100 * matrix.shape[1])
    return pd.Series(found / scale, index=terms.columns)
