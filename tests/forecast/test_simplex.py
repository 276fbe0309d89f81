"""The quadratic programme on the simplex."""

from __future__ import annotations

import numpy as np
import pytest

from gpudemand.forecast.combination import minimise_on_simplex


def test_the_simplex_minimum_satisfies_the_kkt_conditions():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(500, 5, 5)) * 10 ** rng.uniform(-6, 6, (500, 1, 1))
    form, slope = half @ half.transpose(0, 2, 1), 0.3 * half[:, 0] * np.abs(half[:, 0, :1])
    weights = minimise_on_simplex(form, slope)
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    gradient = np.einsum("bij,bj->bi", form, weights) - slope
    # At the minimum no member has a lower slope than those in use, which share one.
    lowest, size = gradient.min(axis=1, keepdims=True), np.trace(form, axis1=1, axis2=2)[:, None]
    assert ((weights == 0) | (gradient - lowest < 1e-6 * size)).all()


def test_singular_forms_give_valid_weights():
    without_errors, equal = np.diag([0.0, 1.0, 100.0]), np.ones((3, 3))
    weights = minimise_on_simplex(np.stack([without_errors, equal, np.zeros((3, 3))]), np.zeros((3, 3)))
    assert weights[0, 0] == pytest.approx(1)
    np.testing.assert_allclose(weights[1:], 1 / 3)


def test_a_diverging_member_does_not_affect_the_others():
    weights = minimise_on_simplex(np.diag([1.0, 4.0, 1e12]), np.zeros(3))
    np.testing.assert_allclose(weights, [0.8, 0.2, 0.0], atol=1e-6)
