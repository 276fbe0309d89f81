"""Gaussian-process regression on three groups of features: network, device and software stack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpudemand._typing import BoolArray, FloatArray

#: Features of jobs: an array of shape (n_jobs, n_features) for the network, the device and the stack.
Inputs = Sequence[FloatArray]
#: Length scales of network, device and stack. With a longer one of the network, the correction speaks further from what
#: it was learned on (``python -m benchmarks.cost --track novelty family device``).
_LENGTH_SCALES = (0.7, 12.0, 4.0)
#: Variance of the effects of device and stack that all networks share, as a multiple of the signal's.
_SHARED_VARIANCE = 0.3
#: Of the residual, as a multiple of the signal's: repeated measurements of a job differ by some percent.
_NOISE_VARIANCE = 0.01


def kernel(left: Inputs, training: Inputs) -> tuple[FloatArray, FloatArray]:
    """Similarity and covariance of jobs with training jobs, each of shape (n_left, n_training).

    The similarity, 1 for jobs with the same features, is the product of exponential kernels of network, device and
    stack. The covariance is an ANOVA kernel: effects of the network, alone and together with device and stack, with
    equal variances, and effects of device and stack on all networks, centred over the training jobs. It has no
    constant: residuals of the sum of work are skewed, and their mean would be all that is said of networks unlike all
    others, for which it is wrong.

    References
    ----------
    Durrande, Ginsbourger, Roustant, Carraro, "ANOVA kernels and RKHS of zero mean functions for model-based sensitivity
    analysis", Journal of Multivariate Analysis 115, 2013.
    """
    # Jobs are many, devices and stacks few: their kernels are computed once for each pair.
    (kinds, which), (known, of) = (
        np.unique(np.hstack(part[1:]), axis=0, return_inverse=True) for part in (left, training)
    )
    split, pairs = left[1].shape[1], np.ix_(which.ravel(), of.ravel())
    (product, shared), (_, among) = (_device_and_stack(part, known, split) for part in (kinds, known))
    weights = np.bincount(of.ravel()) / of.size
    effects = shared - (shared @ weights)[:, None] - among @ weights + weights @ among @ weights
    network = _exponential_kernel(left[0], training[0], _LENGTH_SCALES[0])
    return network * product[pairs], network * shared[pairs] + (_SHARED_VARIANCE * effects)[pairs]


def _device_and_stack(left: FloatArray, right: FloatArray, split: int) -> tuple[FloatArray, FloatArray]:
    """Products of the kernels of device and stack, the first `split` and other columns, and of one plus each."""
    device = _exponential_kernel(left[:, :split], right[:, :split], _LENGTH_SCALES[1])
    stack = _exponential_kernel(left[:, split:], right[:, split:], _LENGTH_SCALES[2])
    return device * stack, (1.0 + device) * (1.0 + stack) / 4.0


def _exponential_kernel(a: FloatArray, b: FloatArray, length_scale: float) -> FloatArray:
    """Exponential (Matern 1/2) kernel, computed in place."""
    squared = a @ b.T
    squared *= -2.0
    squared += (a**2).sum(axis=1)[:, None]
    squared += (b**2).sum(axis=1)[None, :]
    distances = np.sqrt(np.maximum(squared, 0.0, out=squared), out=squared)
    return np.asarray(np.exp(np.divide(distances, -length_scale, out=distances), out=distances))


def fit(inputs: Inputs, y: FloatArray, groups: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit, and predict each group of rows from all others in closed form.

    Returns
    -------
    dual_coef : ndarray of shape (n_rows,)
        ``kernel(new, inputs)[1] @ dual_coef`` is the posterior mean.
    held_out : ndarray of shape (n_rows,)
        Posterior mean of each row given the other groups.
    distances : ndarray of shape (n_rows,)
        See `distance`, with respect to the other groups.

    References
    ----------
    Rasmussen and Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, section 5.4.2.
    """
    similarity, covariance = kernel(inputs, inputs)
    precision = np.linalg.inv(covariance + _NOISE_VARIANCE * np.eye(len(y)))
    dual_coef = precision @ y
    held_out = np.empty(len(y))
    for group in np.unique(groups):
        rows: BoolArray = groups == group
        held_out[rows] = y[rows] - np.linalg.solve(precision[np.ix_(rows, rows)], dual_coef[rows])
    others = np.where(groups[:, None] == groups[None, :], 0.0, similarity)
    return dual_coef, held_out, distance(others)


def distance(similarity: FloatArray) -> FloatArray:
    """Distance from the nearest training job, minus the logarithm of `kernel`'s similarity, shape (n_new,)."""
    return -np.log(similarity.max(axis=1, initial=np.finfo(float).tiny))
