"""Where a call runs; a module of its own, as workers import what holds the functions that they call."""

from __future__ import annotations

from gpudemand._parallel import dask_is_active


def place(_: object) -> str:
    """Whether the call runs on a Dask worker."""
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return "here"
    return "worker"


def would_use_dask(_: object) -> bool:
    """Whether what the call did in parallel would become tasks of Dask."""
    return dask_is_active()
