"""Parallel map: equal results in this process, in processes, and on a Dask cluster."""

from __future__ import annotations

import math

import pytest

from gpudemand import _parallel


def place(_):
    """Whether the call runs on a Dask worker."""
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return "here"
    return "worker"


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_results_are_in_order(n_jobs):
    assert _parallel.run(math.factorial, range(6), n_jobs=n_jobs) == [1, 1, 2, 6, 24, 120]


def test_an_active_dask_client_is_used():
    distributed = pytest.importorskip("distributed", reason="needs the extra 'scale'")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        assert _parallel._dask_is_active()
        assert _parallel.run(place, range(2)) == ["worker", "worker"]
    assert not _parallel._dask_is_active()
    assert _parallel.run(place, range(1)) == ["here"]


def test_exceptions_are_raised():
    with pytest.raises(ValueError, match="factorial"):
        _parallel.run(math.factorial, [-1])
