"""BLAS keeps to one thread inside the limit, however deeply it is nested, and gets its threads back after it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg  # noqa: F401 - its BLAS is one of those that are limited
from threadpoolctl import threadpool_info, threadpool_limits

from gpudemand._array import one_thread, solve_each


def n_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_nested_limits_end_with_the_outermost():
    with threadpool_limits(limits=2):
        before = n_threads()
        with one_thread():
            with pytest.raises(np.linalg.LinAlgError):
                solve_each(np.zeros((3, 2, 2)), np.ones((3, 2)))
            assert n_threads() == {1}
        assert n_threads() == before
