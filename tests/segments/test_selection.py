"""The chosen number of clusters: that of separated clusters, and one within the variance of one class."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.segments import clustering as selection
from gpudemand.segments.clustering import select_n_segments

COLUMNS = ["stability", "gap", "log_variance_ratio"]
#: Scores of one cluster.
ONE = (1.0, 0.0, 0.0)


def clusters(distance, n_users=90, seed=0):
    """Three Gaussian clusters on a line."""
    points = np.random.default_rng(seed).normal(size=(n_users, 3))
    points[:, 0] += distance * (np.arange(n_users) % 3)
    return points


def scores(rows):
    return pd.DataFrame.from_dict(rows, orient="index", columns=COLUMNS)


@pytest.mark.parametrize(("distance", "expected"), [(0.0, 1), (12.0, 3)])
def test_clusters_are_counted(distance, expected):
    assert select_n_segments(clusters(distance), 6, np.random.default_rng(0)).n_segments == expected


@pytest.mark.parametrize(("within", "expected"), [(3.0, 3), (3000.0, 1)])
def test_clusters_within_the_variance_of_one_class_are_one(within, expected):
    assert select_n_segments(clusters(12.0), 6, np.random.default_rng(0), within_variance=within).n_segments == expected


def test_the_smallest_of_equal_numbers_is_chosen():
    table = scores({1: ONE, 2: (1.0, 0.5, 0.8), 3: (1.0, 0.6, 0.97), 4: (1.0, 0.6, 1.0), 5: (0.5, 0.6, 2.0)})
    assert selection._choose(table) == 3


def test_without_a_gap_there_is_one_cluster():
    table = scores({1: ONE, 2: (1.0, 0.08, 0.5), 3: (0.9, 0.09, 0.6)})
    assert selection._choose(table) == 1


@pytest.mark.slow
@pytest.mark.parametrize("n_dimensions", [3, 8])
def test_one_gaussian_is_one_cluster(n_dimensions):
    numbers = [
        select_n_segments(np.random.default_rng(seed).normal(size=(90, n_dimensions)), 6, np.random.default_rng(seed))
        for seed in range(8)
    ]
    assert [chosen.n_segments for chosen in numbers] == [1] * 8


def test_clusters_that_explain_no_variance_are_rejected():
    table = scores({1: ONE, 2: (1.0, 0.3, -0.1), 3: (1.0, 0.3, -0.2)})
    assert selection._choose(table) == 1


def test_scores_by_number():
    table = select_n_segments(clusters(12.0), 6, np.random.default_rng(0)).table
    assert table.columns.tolist() == COLUMNS
    assert tuple(table.loc[1]) == ONE
