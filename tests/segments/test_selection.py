"""How many segments there are: those that are there, and one where distances are those of users who are alike."""

from __future__ import annotations

import numpy as np
import pytest

from gpudemand.segments.selection import select_n_segments


def crowds(distance, n_users=90, seed=0):
    """Three crowds on a line."""
    points = np.random.default_rng(seed).normal(size=(n_users, 3))
    points[:, 0] += distance * (np.arange(n_users) % 3)
    return points


@pytest.mark.parametrize(("distance", "expected"), [(0.0, 1), (12.0, 3)])
def test_crowds_are_counted(distance, expected):
    assert select_n_segments(crowds(distance), 6, np.random.default_rng(0)).n_segments == expected


@pytest.mark.parametrize(("floor", "expected"), [(3.0, 3), (3000.0, 1)])
def test_what_is_as_close_as_users_of_one_kind_is_one_segment(floor, expected):
    selection = select_n_segments(crowds(12.0), 6, np.random.default_rng(0), floor=floor)
    assert selection.n_segments == expected


def test_the_smallest_of_numbers_that_are_as_good_is_taken():
    table = select_n_segments(crowds(12.0), 6, np.random.default_rng(0)).table
    merit = table["stability"] * table["closeness"]
    assert merit[3] >= 0.96 * merit.max()
    assert table.columns.tolist() == ["stability", "gain", "closeness"]
    assert table.loc[1].tolist() == [1.0, 0.0, 0.0]
