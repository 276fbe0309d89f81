"""Where a call runs; a module of its own, as workers import what holds the functions that they call."""

from __future__ import annotations


def place(_: object) -> str:
    """Whether the call runs on a Dask worker."""
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return "here"
    return "worker"
