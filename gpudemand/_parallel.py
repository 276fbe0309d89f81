"""Parallel map: joblib on one machine, or Dask when a Dask client is active."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from joblib import Parallel, delayed, parallel_config

T = TypeVar("T")


def run(function: Callable[..., T], items: Iterable[Any], n_jobs: int | None = None) -> list[T]:
    """Call a function on each of `items`, in parallel, results in order; an importable one if there are processes.

    `n_jobs`: processes on this machine; None is 1, or the setting of ``joblib.parallel_config``. An active
    ``dask.distributed.Client`` of this process is used instead.
    """
    return list(stream(function, items, n_jobs))


def stream(function: Callable[..., T], items: Iterable[Any], n_jobs: int | None = None) -> Iterator[T]:
    """As `run`, an iterator: each result as soon as those before it are there."""
    calls = (delayed(function)(item) for item in items)
    if dask_is_active():
        # Without n_jobs joblib would run one job in this process.
        with parallel_config(backend="dask", n_jobs=-1):
            yield from Parallel(return_as="generator")(calls)
    else:
        with _safe_path():
            yield from Parallel(n_jobs=n_jobs, return_as="generator")(calls)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let processes that start meanwhile import nothing from the current folder, which may hold a ``numpy.py``."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SAFE_PATH, None)
        else:
            os.environ[_SAFE_PATH] = before


_SAFE_PATH = "PYTHONSAFEPATH"


def dask_is_active() -> bool:
    """Whether this process has a Dask client, which it can only have if distributed has been imported.

    Not in a task of a worker: what it does in parallel would become tasks again, too small to be sent around.
    """
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    with suppress(ValueError):
        distributed.get_worker()
        return False
    with suppress(ValueError):
        distributed.get_client()
        return True
    return False
