"""Coefficients of work terms: multiples of the datasheet's bound, non-negative, shrunk to those of similar work."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.operators.kernel import MATRIX_KINDS, MEMORY_KINDS, VECTOR_KINDS
from gpudemand.cost.regression.nonnegative import cauchy_weights, fit_nonnegative
from gpudemand.cost.roofline.roofline import UPDATE

#: Prior standard deviation, a half of the pooled coefficient, as errors of a twentieth over it. A third of this lets a
#: kind that is rare in training take any price, three times as much lets kinds differ too little
#: (``python -m benchmarks.cost --track novelty sealed family``).
_PENALTY = 0.1
_IRLS_STEPS = 4
#: No work is free: the least multiple of the bound that coefficients are shrunk to.
_LEAST = 0.05
#: Multiple of the bound for work on units that no row uses.
_UNKNOWN = 1.0
_UNITS = {
    kind: unit
    for unit, kinds in (("matrix", MATRIX_KINDS), ("vector", VECTOR_KINDS), ("memory", MEMORY_KINDS))
    for kind in kinds
}


def pooled_names(terms: Iterable[str]) -> list[str]:
    """Pooled term of each term: work on the same units of the hardware, whatever the kind of kernel.

    Examples
    --------
    >>> pooled_names(["work:conv_1x1:flops", "work:softmax:bytes", "work:softmax:launch", "work:update"])
    ['matrix:flops', 'memory:bytes', 'launch', 'update']
    """
    parts = [name.split(":")[1:] for name in terms]
    return ["launch" if part[-1] == "launch" else ":".join([_UNITS.get(part[0], part[0]), *part[1:]]) for part in parts]


def fit_work_coefficients(terms: pd.DataFrame, y: FloatArray) -> pd.Series:
    """Fit non-negative coefficients in relative error, under a Cauchy loss.

    Pooled coefficients are fitted first, one for the work of all kinds of kernels on the same units; they are the
    prior means of the coefficients by kind (a hierarchical model). A kind that no row has takes the pooled ones.

    Parameters
    ----------
    terms : DataFrame of shape (n_rows, n_terms)
        Of `gpudemand.cost.roofline.roofline.step_terms`.
    y : ndarray of shape (n_rows,)
        Seconds a step.

    Returns
    -------
    Series
        Coefficient of each term.

    Examples
    --------
    >>> terms = pd.DataFrame({"work:gemm:flops": [1.0, 2.0, 4.0] * 50, "work:start": 0.001})
    >>> fit_work_coefficients(terms, 2.0 * terms["work:gemm:flops"].to_numpy()).round(2).tolist()
    [2.0, 0.05]
    """
    names = np.array(pooled_names(terms.columns))
    together = terms.T.groupby(names).sum().T
    pooled = _irls(together, y).clip(lower=_LEAST).where(together.any(), _UNKNOWN)
    mean = pooled.reindex(names).set_axis(terms.columns)
    measured = terms.columns[terms.any()]
    prior = mean[measured].to_numpy()
    coefficients = _irls(terms[measured], y, (prior, prior / _PENALTY)).reindex(terms.columns).fillna(mean)
    # The states of all parameters stream through memory, which is no faster than its datasheet says.
    return coefficients.where(coefficients.index != UPDATE, coefficients.clip(lower=1.0))


def fit_training_coefficients(terms: pd.DataFrame, y: FloatArray, mode: pd.Series) -> pd.Series:
    """Fit coefficients to rows in training mode, where there are any; see `fit_work_coefficients`.

    Kernels of inference differ, above all by the version of the framework, which the learned correction knows.

    Examples
    --------
    >>> terms, mode = pd.DataFrame({"work:gemm:flops": np.ones(80)}), pd.Series(["train", "infer"] * 40)
    >>> y = np.where(mode == "train", 3.0, 2.0)
    >>> fit_training_coefficients(terms, y, mode).round(2).tolist()
    [3.0]
    """
    training = (mode == "train").to_numpy()
    rows = training if training.any() else ~training
    return fit_work_coefficients(terms[rows], y[rows])


def _irls(terms: pd.DataFrame, y: FloatArray, prior: tuple[FloatArray, FloatArray] | None = None) -> pd.Series:
    """Iteratively reweighted least squares for the Cauchy loss, from the prior mean scaled to the rows."""
    relative = terms.to_numpy(dtype=float) / y[:, None]
    coefficients = pd.Series(1.0 if prior is None else prior[0], index=terms.columns)
    coefficients /= np.median(relative @ coefficients.to_numpy())
    for _ in range(_IRLS_STEPS):
        error = np.log(np.maximum(relative @ coefficients.to_numpy(), np.finfo(float).tiny))
        weight = cauchy_weights(error, 2.0 * max(1.4826 * float(np.median(np.abs(error))), 0.01))
        # Relative to the measured time, a row that was measured too fast would outweigh all others.
        coefficients = fit_nonnegative(terms, y, weight / np.maximum(np.exp(error), 1.0), prior=prior)
    return coefficients
