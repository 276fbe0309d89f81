"""Per-user combination weights: evidence, prior and invariance to units."""

from __future__ import annotations

import numpy as np
import pytest

from gpudemand.forecast.combination import combination_weights

PRIOR = np.array([0.0, 0.5, 0.5])


def errors(n_times, *spreads):
    return np.random.default_rng(0).normal(size=(4, n_times, len(spreads))) * spreads


def test_the_better_forecast_dominates_the_prior():
    weights = combination_weights(errors(200, 1, 5, 5), PRIOR, 0.3)
    assert (weights[:, 0] > 0.75).all()
    assert weights.sum(axis=1) == pytest.approx(1)
    assert (weights >= 0).all()


def test_equal_forecasts_share_and_a_strong_prior_dominates():
    assert combination_weights(errors(2000, 1, 1, 1), np.ones(3) / 3, 0.01) == pytest.approx(1 / 3, abs=0.05)
    assert combination_weights(errors(200, 1, 5, 5), PRIOR, 1e6)[:, 0] == pytest.approx(0, abs=1e-3)


def test_without_evidence_the_prior_stays():
    for empty in (np.zeros((4, 9, 3)), np.full((4, 9, 3), np.nan), np.zeros((4, 0, 3))):
        np.testing.assert_array_equal(combination_weights(empty, PRIOR, 0.3), np.tile(PRIOR, (4, 1)))


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_units_do_not_matter(unit):
    found = errors(50, 1, 2, 3)
    np.testing.assert_allclose(
        combination_weights(found * unit, PRIOR, 0.3), combination_weights(found, PRIOR, 0.3), atol=1e-6
    )
