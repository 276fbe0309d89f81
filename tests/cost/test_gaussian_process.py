"""Conditioning of a fitted Gaussian process on more rows, against one fitted to all rows."""

from __future__ import annotations

import numpy as np
import pytest

from gpudemand.cost import gaussian_process
from gpudemand.cost.gaussian_process import condition, fit, kernel

NOISE, LEAST = gaussian_process._NOISE_VARIANCE, gaussian_process._COMMON_VARIANCES[0]


def inputs(rng, n, device):
    return [rng.uniform(0, 3, (n, 4)), np.full((n, 2), device), np.tile([1.0, 0.0], (n, 1))]


@pytest.fixture
def world():
    """Training rows on two devices, rows on a third to condition on, and new ones there."""
    rng = np.random.default_rng(0)
    training = [np.vstack(parts) for parts in zip(inputs(rng, 30, 0.0), inputs(rng, 20, 3.0), strict=True)]
    effect = np.sin(training[0].sum(axis=1))
    return training, 0.3 * effect, inputs(rng, 6, 5.0), inputs(rng, 9, 5.0)


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_conditioning_equals_the_posterior_given_all_rows(world, shift):
    training, y, rows, new = world
    dual, _, _ = fit(training, y, np.arange(len(y)))
    measured = shift + 0.3 * np.sin(rows[0].sum(axis=1))
    found = condition(training, dual, rows, measured)
    covariance = kernel(new, training)[1]
    mean = covariance @ dual + found.change(new, covariance, training)
    blocks = [[kernel(a, b, training)[1] for b in (training, rows)] for a in (training, rows, new)]
    blocks[1][1] += found.common_variance
    blocks[2][1] += found.common_variance
    direct = np.block(blocks[2]) @ np.linalg.solve(np.block(blocks[:2]) + NOISE * np.eye(56), np.append(y, measured))
    np.testing.assert_allclose(mean, direct, atol=1e-8)


def test_an_effect_in_common_is_large_only_where_it_is_more_likely(world):
    training, y, rows, _ = world
    dual, _, _ = fit(training, y, np.arange(len(y)))
    plain = kernel(rows, training)[1] @ dual
    assert condition(training, dual, rows, plain).common_variance == LEAST
    assert condition(training, dual, rows, plain + 0.05).common_variance == LEAST
    assert condition(training, dual, rows, plain + 2.0).common_variance > 10 * LEAST
    alternating = plain + 0.1 * np.array([1, -1] * 3)
    assert condition(training, dual, rows, alternating).common_variance == LEAST


def test_the_covariance_of_jobs_does_not_depend_on_their_side(world):
    training, _, rows, new = world
    np.testing.assert_allclose(kernel(rows, new, training)[1], kernel(new, rows, training)[1].T)
    np.testing.assert_allclose(kernel(training, training, training)[1], kernel(training, training)[1])
