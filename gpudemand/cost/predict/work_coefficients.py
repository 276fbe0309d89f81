"""Coefficients of work terms: multiples of the datasheet's bound, non-negative, with a prior."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.regression.nonnegative import cauchy_weights, fit_nonnegative

#: Prior mean of the coefficient (forward, backward), by kind of work; zero for kinds that are not listed.
_PRIOR_MEANS = {
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
#: The prior standard deviation is the prior mean, at least `_MIN_STD`, over the noise of relative residuals.
_MIN_STD, _NOISE_STD = 1.5, 3e-3**0.5
_IRLS_STEPS = 3


def prior_means(terms: Iterable[str]) -> FloatArray:
    """Prior means of coefficients, by names of terms."""
    return np.array([_PRIOR_MEANS.get(name.rsplit(":", 1)[-1], (0.0, 0.0))[":back:" in name] for name in terms])


def fit_work_coefficients(terms: pd.DataFrame, y: FloatArray) -> pd.Series:
    """Fit non-negative coefficients in relative error, with a Gaussian prior and a Cauchy loss.

    Examples
    --------
    >>> terms = pd.DataFrame({"work:gemm:flops": [1.0, 2.0, 4.0] * 50, "work:start": 0.001})
    >>> fit_work_coefficients(terms, 2.0 * terms["work:gemm:flops"].to_numpy()).round(2).tolist()
    [2.0, 1.0]
    """
    mean, weight = prior_means(terms.columns), np.ones(len(y))
    deviation = np.maximum(mean, _MIN_STD) / _NOISE_STD
    for _ in range(_IRLS_STEPS):
        coefficients = fit_nonnegative(terms, y, weight, prior=(mean, deviation))
        relative = terms.to_numpy(dtype=float) / y[:, None]
        error = np.log(np.maximum(relative @ coefficients.to_numpy(), np.finfo(float).tiny))
        mad = max(1.4826 * float(np.median(np.abs(error))), 0.01)
        weight = cauchy_weights(error, 2.0 * mad)
    return coefficients
