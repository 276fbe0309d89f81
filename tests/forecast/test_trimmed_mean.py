"""Weights by inverse losses, and the weighted trimmed mean."""

from __future__ import annotations

import numpy as np
from scipy.stats import trim_mean

from gpudemand.forecast.combination import inverse_loss_weights, weighted_trimmed_mean


def test_equal_weights_give_the_trimmed_mean():
    values = np.random.default_rng(0).normal(size=(6, 5, 4))
    for m in (1, 3, 6):
        expected = trim_mean(values[:m], 1 / 3, axis=0)
        np.testing.assert_allclose(weighted_trimmed_mean(values[:m], np.ones((m, 1, 1))), expected)


def test_weights_count_repetitions_and_values_without_weight_do_not_matter():
    rng = np.random.default_rng(0)
    values, counts = rng.normal(size=(5, 300)), 3 * rng.integers(0, 4, (5, 300))
    counts[0] = np.maximum(counts[0], 3)
    expected = [trim_mean(np.repeat(values[:, i], counts[:, i]), 1 / 3) for i in range(300)]
    np.testing.assert_allclose(weighted_trimmed_mean(values, counts), expected)


def test_equal_values_are_kept_to_the_last_digit():
    weights = np.random.default_rng(0).exponential(size=(7, 50))
    np.testing.assert_array_equal(weighted_trimmed_mean(np.full((7, 50), 0.1), weights), 0.1)


def test_a_series_with_a_short_past_takes_the_weights_of_all():
    losses = np.array([[1.0, 30.0, 30.0], [100.0, 10.0, 10.0]])
    weights = inverse_loss_weights(losses, np.array([1000.0, 1000.0, 0.0]), np.ones(3))
    np.testing.assert_array_equal(weights.argmax(axis=0), [0, 1, 0])


def test_units_and_perfect_forecasts():
    losses = np.random.default_rng(0).exponential(size=(4, 7))
    horizons, units = np.full(7, 12.0), 10.0 ** np.arange(7)
    plain = inverse_loss_weights(losses, horizons, np.ones(7))
    np.testing.assert_allclose(inverse_loss_weights(units * losses, horizons, units), plain)
    losses[2] = 0.0
    np.testing.assert_array_equal(inverse_loss_weights(losses, horizons, units)[:, 0], [0, 0, 1, 0])
