"""Conformal intervals cover their level, and equal weights give the textbook rank."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpudemand._validation import InputError
from gpudemand.cost.regression import ConformityScores


@pytest.mark.parametrize("n", [9, 19, 40])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_equal_weights_give_the_rank_of_split_conformal_prediction(n, coverage):
    errors = np.random.default_rng(n).normal(size=n)
    rank = min(math.ceil(round((n + 1) * coverage, 9)), n)
    expected = np.sort(np.abs(errors))[rank - 1]
    assert ConformityScores.from_errors(errors, np.arange(n)).quantile(coverage) == expected


def test_intervals_cover_new_rows():
    rng = np.random.default_rng(0)
    scores = ConformityScores.from_errors(rng.normal(size=2000), np.arange(2000))
    y = np.exp(0.3 * rng.normal(size=2000))
    _, low, high = scores.intervals(np.ones(2000), np.full(2000, 0.3), [80]).T
    assert np.mean((low <= y) & (y <= high)) == pytest.approx(0.8, abs=0.03)


def test_large_groups_do_not_dominate():
    groups = np.repeat([0, 1], [100, 4])
    scores = ConformityScores.from_errors(np.repeat([0.1, 1.0], [100, 4]), groups)
    assert scores.weights.sum() == pytest.approx(1.0)
    assert scores.weights[-4:].sum() == pytest.approx(2 / 12)


def test_the_distribution_function_increases_to_one():
    scores = ConformityScores.from_errors(np.linspace(-1, 1, 21), np.arange(21))
    values = scores.cdf(np.array([-2.0, 0.0, 2.0]))
    assert values[0] == 0.0
    assert values[1] == pytest.approx(11 / 21)
    assert values[2] == 1.0


def test_levels_out_of_range_are_rejected():
    scores = ConformityScores.from_errors(np.ones(3), np.arange(3))
    with pytest.raises(InputError, match="level"):
        scores.intervals(np.ones(1), np.ones(1), [100])
