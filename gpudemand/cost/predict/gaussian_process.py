"""Gaussian-process regression on three groups of features: network, device and software stack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpudemand._typing import BoolArray, FloatArray

#: Features of jobs: an array of shape (n_jobs, n_features) for the network, the device and the stack.
Inputs = Sequence[FloatArray]
#: Length scales of network, device and stack. With a longer one of the network, the correction speaks further from what
#: it was learned on (``python -m benchmarks.cost --track novelty family device``).
_LENGTH_SCALES = (1.0, 12.0, 4.0)
#: Of the residual, as a multiple of the signal's: repeated measurements of a job differ by some percent.
_NOISE_VARIANCE = 0.01


def kernel(left: Inputs, right: Inputs) -> FloatArray:
    """Covariance of jobs, shape (n_left, n_right), 1 for jobs with the same features.

    The product of one plus an exponential kernel for each group of features: the sum of a constant, effects of
    network, device and stack, and all their interactions, with equal variances (an ANOVA kernel).
    """
    # Jobs are many, devices and stacks few: their kernels are computed once for each pair.
    kinds, which = np.unique(np.hstack(left[1:]), axis=0, return_inverse=True)
    split = left[1].shape[1]
    network, device, stack = (
        1.0 + _exponential_kernel(a, b, scale)
        for a, b, scale in zip((left[0], kinds[:, :split], kinds[:, split:]), right, _LENGTH_SCALES, strict=True)
    )
    network *= (device * stack / 8.0)[which.ravel()]
    return network


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
        ``kernel(new, inputs) @ dual_coef`` is the posterior mean.
    held_out : ndarray of shape (n_rows,)
        Posterior mean of each row given the other groups.
    distances : ndarray of shape (n_rows,)
        See `distance`, with respect to the other groups.

    References
    ----------
    Rasmussen and Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, section 5.4.2.
    """
    covariance = kernel(inputs, inputs)
    precision = np.linalg.inv(covariance + _NOISE_VARIANCE * np.eye(len(y)))
    dual_coef = precision @ y
    held_out = np.empty(len(y))
    for group in np.unique(groups):
        rows: BoolArray = groups == group
        held_out[rows] = y[rows] - np.linalg.solve(precision[np.ix_(rows, rows)], dual_coef[rows])
    others = np.where(groups[:, None] == groups[None, :], 0.0, covariance)
    return dual_coef, held_out, distance(others)


def distance(covariance: FloatArray) -> FloatArray:
    """Distance from the training rows by the covariance with them, from 0.1 (a training row) to 1.1, shape (n_new,)."""
    return 1.1 - covariance.max(axis=1, initial=0.0)
