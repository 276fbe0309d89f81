"""The one scheduler seam: joblib on one machine, Dask as soon as a Dask client is active."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from joblib import Parallel, delayed, parallel_config

T = TypeVar("T")


def run(function: Callable[..., T], items: Iterable[Any], n_jobs: int | None = None) -> list[T]:
    """Call `function` on each of `items`, in parallel, results in order.

    Parameters
    ----------
    function : callable
        Takes one item; must be importable (no lambda) when processes or Dask are used.
    items : iterable
        What to work on.
    n_jobs : int or None, default=None
        Processes on this machine; None is 1, or whatever ``joblib.parallel_config`` says. When a
        ``dask.distributed.Client`` is active in this process, the work goes to its cluster instead.

    Examples
    --------
    >>> run(abs, [-1, 2])
    [1, 2]
    """
    calls = (delayed(function)(item) for item in items)
    if _dask_is_active():
        # Without n_jobs joblib takes one, and works here instead of there.
        with parallel_config(backend="dask", n_jobs=-1):
            return list(Parallel()(calls))
    return list(Parallel(n_jobs=n_jobs)(calls))


def _dask_is_active() -> bool:
    # A client can only be active if its user has imported distributed: no import of ours is needed to know.
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.get_client()
    except ValueError:
        return False
    return True
