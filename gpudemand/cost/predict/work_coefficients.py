"""Coefficients of work terms: multiples of the datasheet's bound, non-negative, shrunk to those of similar work."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.operators.kernel import MATRIX_KINDS, MEMORY_KINDS, VECTOR_KINDS
from gpudemand.cost.regression.nonnegative import cauchy_weights, fit_nonnegative
from gpudemand.cost.roofline.roofline import UPDATE, WORK

#: Weight of the prior means in units of relative errors: of the datasheet's bounds for the pooled coefficients, and of
#: the pooled coefficients for those by kind. With a weaker first prior, costs that are nearly the same for all training
#: networks, as those of a step's start, take what others cannot explain; with a weaker second, a kind that is rare in
#: training takes any (``python -m benchmarks.cost --track novelty family device``).
_POOLED_PENALTY, _PENALTY = 1.0, 0.2
_IRLS_STEPS = 4
#: No work is free: the least multiple of the bound that coefficients are shrunk to.
_LEAST = 0.05
#: Term whose bound is at the share of the peak that is sustained: unless measured, it is no faster. Pooled coefficients
#: are below 1 for convolutions, which need fewer operations than counted.
_ATTENTION = f"{WORK}attention:flops"
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

    A hierarchical model: the datasheet's bounds are the prior means of pooled coefficients, one for the work of all
    kinds of kernels on the same units, and these of the coefficients by kind. What no row has takes the prior mean.

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
    >>> terms = pd.DataFrame({"work:gemm:flops": [1.0, 2.0, 4.0] * 50, "work:sort:flops": 0.0})
    >>> fit_work_coefficients(terms, 2.0 * terms["work:gemm:flops"].to_numpy()).round(1).tolist()
    [2.0, 1.0]
    """
    names = np.array(pooled_names(terms.columns))
    together = terms.T.groupby(names).sum().T
    pooled = _irls(together, y, np.ones(together.shape[1]), _POOLED_PENALTY).clip(lower=_LEAST)
    means = pooled.reindex(names).set_axis(terms.columns)
    means = means.where(means.index != _ATTENTION, means.clip(lower=1.0))
    coefficients = _irls(terms, y, means.to_numpy(), _PENALTY)
    # The states of all parameters stream through memory, which is no faster than its datasheet says.
    return coefficients.where(coefficients.index != UPDATE, coefficients.clip(lower=1.0))


def fit_training_coefficients(terms: pd.DataFrame, y: FloatArray, jobs: pd.DataFrame) -> pd.Series:
    """Fit coefficients to rows in training mode with a known framework, if there are any; see `fit_work_coefficients`.

    Kernels of inference differ, above all by the version of the framework, which the learned correction knows; where
    the version is unknown (``0.0``), so is the time of a launch.

    Examples
    --------
    >>> terms = pd.DataFrame({"work:gemm:flops": np.ones(80)})
    >>> jobs = pd.DataFrame({"mode": ["train", "infer"] * 40, "framework_version": "2.9"})
    >>> fit_training_coefficients(terms, np.where(jobs["mode"] == "train", 3.0, 2.0), jobs).round(1).tolist()
    [3.0]
    """
    training = (jobs["mode"] == "train").to_numpy()
    known = training & (jobs["framework_version"].astype(str) != "0.0").to_numpy()
    rows = known if known.any() else training if training.any() else ~training
    return fit_work_coefficients(terms[rows], y[rows])


def _irls(terms: pd.DataFrame, y: FloatArray, mean: FloatArray, penalty: float) -> pd.Series:
    """Iteratively reweighted least squares for the Cauchy loss, from the prior mean scaled to the rows."""
    relative = terms.to_numpy(dtype=float) / y[:, None]
    coefficients = pd.Series(mean / np.median(relative @ mean), index=terms.columns)
    for _ in range(_IRLS_STEPS):
        error = np.log(np.maximum(relative @ coefficients.to_numpy(), np.finfo(float).tiny))
        weight = cauchy_weights(error, 2.0 * max(1.4826 * float(np.median(np.abs(error))), 0.01))
        # Relative to the measured time, a row that was measured too fast would outweigh all others.
        coefficients = fit_nonnegative(terms, y, weight / np.maximum(np.exp(error), 1.0), prior=(mean, mean / penalty))
    return coefficients
