"""Non-negative sums: recovered coefficients, priors, and robustness."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.cost.regression import fit_nonnegative, fit_robust, solve_nonnegative


@pytest.fixture
def terms():
    rng = np.random.default_rng(0)
    return pd.DataFrame(np.exp(rng.normal(size=(200, 3))), columns=["main", "other", "idle"])


def test_columns_of_any_scale_are_solved(terms):
    truth = np.array([2e-12, 3e9, 0.0])
    matrix = terms.to_numpy() * [1e12, 1e-9, 1.0]
    np.testing.assert_allclose(solve_nonnegative(matrix, matrix @ truth), truth, rtol=1e-9, atol=1e-9)


def test_coefficients_are_recovered_and_never_negative(terms):
    y = terms.to_numpy() @ [2.0, 0.5, 0.0]
    np.testing.assert_allclose(fit_nonnegative(terms, y), [2.0, 0.5, 0.0], atol=1e-9)
    assert (fit_nonnegative(terms, y - 0.1 * terms["idle"].to_numpy().clip(max=1)) >= 0).all()


def test_a_strong_prior_determines_the_coefficients(terms):
    y = terms.to_numpy() @ [2.0, 0.5, 0.1]
    mean = np.array([1.0, 1.0, 1.0])
    np.testing.assert_allclose(fit_nonnegative(terms, y, prior=(mean, np.full(3, 1e-6))), mean, rtol=1e-6)
    np.testing.assert_allclose(fit_nonnegative(terms, y, prior=(mean, np.full(3, 1e6))), [2.0, 0.5, 0.1], rtol=1e-6)


def test_outliers_do_not_move_the_robust_fit(terms):
    y = terms.to_numpy() @ [2.0, 0.5, 0.0]
    broken = y.copy()
    broken[::8] /= 20
    np.testing.assert_allclose(fit_robust(terms, broken), [2.0, 0.5, 0.0], atol=0.02)
    assert abs(fit_nonnegative(terms, broken)["main"] - 2.0) > 0.5
