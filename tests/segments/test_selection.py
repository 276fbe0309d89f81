"""How many segments there are: those that are there, and one where distances are those of users who are alike."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.segments.clustering import selection
from gpudemand.segments.clustering.selection import select_n_segments


def crowds(distance, n_users=90, seed=0):
    """Three crowds on a line."""
    points = np.random.default_rng(seed).normal(size=(n_users, 3))
    points[:, 0] += distance * (np.arange(n_users) % 3)
    return points


def scores(rows):
    return pd.DataFrame.from_dict(rows, orient="index", columns=["stability", "gain", "closeness"])


@pytest.mark.parametrize(("distance", "expected"), [(0.0, 1), (12.0, 3)])
def test_crowds_are_counted(distance, expected):
    assert select_n_segments(crowds(distance), 6, np.random.default_rng(0)).n_segments == expected


@pytest.mark.parametrize(("floor", "expected"), [(3.0, 3), (3000.0, 1)])
def test_what_is_as_close_as_users_of_one_kind_is_one_segment(floor, expected):
    assert select_n_segments(crowds(12.0), 6, np.random.default_rng(0), floor=floor).n_segments == expected


def test_the_smallest_of_numbers_that_are_as_good_is_taken():
    table = scores(
        {1: (1.0, 0.0, 0.0), 2: (1.0, 0.5, 0.8), 3: (1.0, 0.6, 0.97), 4: (1.0, 0.6, 1.0), 5: (0.5, 0.6, 2.0)}
    )
    assert selection._choose(table, 0.9, 0.25) == 3


def test_segments_no_closer_than_everybody_are_none():
    table = scores({1: (1.0, 0.0, 0.0), 2: (1.0, 0.3, -0.1), 3: (1.0, 0.3, -0.2)})
    assert selection._choose(table, 0.9, 0.25) == 1


def test_scores_are_told_by_number():
    table = select_n_segments(crowds(12.0), 6, np.random.default_rng(0)).table
    assert table.columns.tolist() == ["stability", "gain", "closeness"]
    assert table.loc[1].tolist() == [1.0, 0.0, 0.0]
