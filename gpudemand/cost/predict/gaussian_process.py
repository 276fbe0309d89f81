"""Gaussian-process regression over three kinds of features at once: the network, the device and the software stack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpudemand._typing import BoolArray, FloatArray

Blocks = Sequence[FloatArray]
#: How far features of each block may be apart and still tell about each other.
_LENGTHS = (4.0, 6.0, 2.0)
#: Variance explained by device, by stack, and by both at once: alone, and together with the network.
_ALONE, _BESIDE = (0.0, 0.2, 0.2, 0.1), (0.4, 0.1, 0.3, 0.2)
_WHOLE = sum(_ALONE) + sum(_BESIDE)
#: Variance of what nothing explains, on the same scale.
_NOISE = 0.03


def kernel(left: Blocks, right: Blocks) -> FloatArray:
    """How much rows tell about one another, shape (n_left, n_right); 1 for rows that agree in everything."""
    # Jobs are many, devices and stacks are few: what does not ask for the network is worked out once for each of them.
    kinds, which = np.unique(np.hstack(left[1:]), axis=0, return_inverse=True)
    split = left[1].shape[1]
    device = _nearness(kinds[:, :split], right[1], _LENGTHS[1])
    stack = _nearness(kinds[:, split:], right[2], _LENGTHS[2])
    terms = (np.ones_like(device), device, stack, device * stack)
    alone, beside = (np.tensordot(shares, terms, axes=1) for shares in (_ALONE, _BESIDE))
    found = _nearness(left[0], right[0], _LENGTHS[0])
    found *= (beside / _WHOLE)[which.ravel()]
    found += (alone / _WHOLE)[which.ravel()]
    return found


def _nearness(a: FloatArray, b: FloatArray, length: float) -> FloatArray:
    """Exponential of minus the distance of each pair of rows, in units of a length."""
    squared = a @ b.T
    squared *= -2.0
    squared += (a**2).sum(axis=1)[:, None]
    squared += (b**2).sum(axis=1)[None, :]
    apart = np.sqrt(np.maximum(squared, 0.0, out=squared), out=squared)
    return np.asarray(np.exp(np.divide(apart, -length, out=apart), out=apart))


def solve(blocks: Blocks, y: FloatArray, groups: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit, and predict each group of rows from all the others.

    Returns
    -------
    weights : ndarray of shape (n_rows,)
        ``kernel(new, rows) @ weights`` is the prediction.
    held_out : ndarray of shape (n_rows,)
        What the other groups say of each row, in closed form.
    away : ndarray of shape (n_rows,)
        See `distance`, with respect to the other groups.

    References
    ----------
    Rasmussen and Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, section 5.4.2.
    """
    similarity = kernel(blocks, blocks)
    inverse = np.linalg.inv(similarity + _NOISE * np.eye(len(y)))
    weights = inverse @ y
    held_out = np.empty(len(y))
    for group in np.unique(groups):
        rows: BoolArray = groups == group
        held_out[rows] = y[rows] - np.linalg.solve(inverse[np.ix_(rows, rows)], weights[rows])
    others = np.where(groups[:, None] == groups[None, :], 0.0, similarity)
    return weights, held_out, distance(others)


def distance(similarity: FloatArray) -> FloatArray:
    """How far rows are from what is known, from 0.1 (the same job) to 1.1, shape (n_new,).

    Parameters
    ----------
    similarity : ndarray of shape (n_new, n_known)
        `kernel` of new rows with known ones.
    """
    return 1.1 - similarity.max(axis=1, initial=0.0)
