"""Small dense linear algebra on one BLAS thread, where handing work to several takes longer than the work."""

from __future__ import annotations

from contextlib import ContextDecorator
from functools import cache
from threading import Lock
from types import TracebackType

import numpy as np
from threadpoolctl import ThreadpoolController

from gpudemand._typing import FloatArray


class _OneThread(ContextDecorator):
    """Reentrant limit of all BLAS libraries to one thread; only the outermost entry touches the libraries."""

    def __init__(self) -> None:
        self._lock, self._depth = Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._depth:
                self._limit = _libraries().limit(limits=1)
            self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._depth -= 1
            if not self._depth:
                self._limit.restore_original_limits()


_ONE_THREAD = _OneThread()


def one_thread() -> _OneThread:
    """Limit BLAS to one thread, as a context manager or decorator; nested entries cost nothing.

    Examples
    --------
    >>> with one_thread():
    ...     float(np.linalg.det(np.eye(2)))
    1.0
    """
    return _ONE_THREAD


def solve_each(a: FloatArray, b: FloatArray) -> FloatArray:
    """Solve many small systems of equations on one thread.

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
    with _ONE_THREAD:
        return np.asarray(np.linalg.solve(a, b[..., None])[..., 0])


@cache
def _libraries() -> ThreadpoolController:
    # SciPy has a BLAS of its own, which must be loaded to be limited. Finding the libraries is slow: do it once.
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()
