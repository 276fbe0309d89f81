"""Linear algebra in many small pieces, on one thread: handing them to several takes longer than the work."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController

from gpudemand._typing import FloatArray


def one_thread() -> AbstractContextManager[object]:
    """Keep numerical libraries to one thread."""
    return _libraries().limit(limits=1)


def solve_each(a: FloatArray, b: FloatArray) -> FloatArray:
    """Solve many small systems of equations.

    OpenBLAS otherwise spreads each of them over all cores, which takes longer than to solve it.

    Parameters
    ----------
    a : ndarray of shape (..., n, n)
    b : ndarray of shape (..., n)

    Returns
    -------
    ndarray of shape (..., n)

    Examples
    --------
    >>> solve_each(np.array([[[2.0]], [[4.0]]]), np.array([[1.0], [1.0]])).tolist()
    [[0.5], [0.25]]
    """
    with one_thread():
        return np.asarray(np.linalg.solve(a, b[..., None])[..., 0])


@cache
def _libraries() -> ThreadpoolController:
    # Looking for them takes longer than a small piece of work.
    return ThreadpoolController()
