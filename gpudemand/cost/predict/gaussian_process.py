"""Gaussian-process regression on three groups of features: network, device and software stack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpudemand._typing import BoolArray, FloatArray

#: Features of jobs: an array of shape (n_jobs, n_features) for the network, the device and the stack.
Inputs = Sequence[FloatArray]
#: Length scale of each group.
_LENGTH_SCALES = (4.0, 6.0, 2.0)
#: Variance of a constant, device, stack and device-by-stack kernel: without, and times, the kernel of the network.
_MAIN_VARIANCES, _INTERACTION_VARIANCES = (0.0, 0.2, 0.2, 0.1), (0.4, 0.1, 0.3, 0.2)
_TOTAL_VARIANCE = sum(_MAIN_VARIANCES) + sum(_INTERACTION_VARIANCES)
_NOISE_VARIANCE = 0.03


def kernel(left: Inputs, right: Inputs) -> FloatArray:
    """Covariance of jobs, shape (n_left, n_right), normalised to 1 for jobs with the same features."""
    # Jobs are many, devices and stacks few: kernels without the network are computed once for each pair of those.
    kinds, which = np.unique(np.hstack(left[1:]), axis=0, return_inverse=True)
    split = left[1].shape[1]
    device = _exponential_kernel(kinds[:, :split], right[1], _LENGTH_SCALES[1])
    stack = _exponential_kernel(kinds[:, split:], right[2], _LENGTH_SCALES[2])
    terms = (np.ones_like(device), device, stack, device * stack)
    main, interaction = (np.tensordot(shares, terms, axes=1) for shares in (_MAIN_VARIANCES, _INTERACTION_VARIANCES))
    covariance = _exponential_kernel(left[0], right[0], _LENGTH_SCALES[0])
    covariance *= (interaction / _TOTAL_VARIANCE)[which.ravel()]
    covariance += (main / _TOTAL_VARIANCE)[which.ravel()]
    return covariance


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
