"""Gaussian-process regression over three kinds of features at once: the network, the device and the software stack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpudemand._typing import BoolArray, FloatArray

Blocks = Sequence[FloatArray]
#: How far features of each block may be apart and still tell about each other.
_LENGTHS = (4.0, 6.0, 2.0)
#: Variance explained by each combination of blocks, as a share of the whole.
_SHARES = {(0,): 0.4, (1,): 0.2, (2,): 0.2, (0, 1): 0.1, (0, 2): 0.3, (1, 2): 0.1, (0, 1, 2): 0.2}
#: Variance of what nothing explains, on the same scale.
_NOISE = 0.03


def kernel(left: Blocks, right: Blocks) -> FloatArray:
    """How much rows tell about one another, shape (n_left, n_right); 1 for rows that agree in everything."""
    parts = [np.exp(-_distance(a, b) / length) for a, b, length in zip(left, right, _LENGTHS, strict=True)]
    total = np.zeros((len(left[0]), len(right[0])))
    for combination, share in _SHARES.items():
        product = np.full_like(total, share)
        for block in combination:
            product *= parts[block]
        total += product
    return total / sum(_SHARES.values())


def _distance(a: FloatArray, b: FloatArray) -> FloatArray:
    squared = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2.0 * a @ b.T
    return np.sqrt(np.maximum(squared, 0.0))


def solve(blocks: Blocks, y: FloatArray, groups: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit, and predict each group of rows from all the others.

    Returns
    -------
    weights : ndarray of shape (n_rows,)
        ``kernel(new, rows) @ weights`` is the prediction.
    held_out : ndarray of shape (n_rows,)
        What the other groups say of each row, in closed form.
    doubt : ndarray of shape (n_rows,)
        See `doubt`, with respect to the other groups.

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
    return weights, held_out, doubt(others)


def doubt(similarity: FloatArray) -> FloatArray:
    """How far rows are from what is known, from 0.1 (the same job) to 1.1, shape (n_new,).

    Parameters
    ----------
    similarity : ndarray of shape (n_new, n_known)
        `kernel` of new rows with known ones.
    """
    return 1.1 - similarity.max(axis=1, initial=0.0)
