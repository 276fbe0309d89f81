"""TemporalFactorization: planted factors are recovered, the objective is monotone, forecasts are stable."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast import TemporalFactorization, regression
from gpudemand.forecast import factorization as trmf
from gpudemand.forecast.factorization import Data, Penalties, ResidualAR
from gpudemand.forecast.regression import (
    extrapolate,
    extrapolate_from,
    fit_shrunk,
    fit_weights,
    innovations,
    innovations_adjoint,
    is_stable,
    stabilise,
)

from .canaries import frame, matrix, residual_series, with_missing


@pytest.fixture(scope="module")
def planted():
    """Thirty combinations of a daily and a weekly pattern, at levels that differ a thousandfold."""
    rng, t = np.random.default_rng(0), np.arange(24 * 7 * 5)
    latent = np.vstack([np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 168), np.ones(t.size)])
    mix = np.column_stack([rng.uniform(-1, 1, (30, 2)), rng.uniform(2, 3, 30)])
    return (mix @ latent + rng.normal(0, 0.1, (30, t.size))) * 10 ** rng.uniform(0, 3, (30, 1))


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_a_planted_pattern_is_forecast(planted, missing):
    y = planted.copy()
    y[:, :-48][np.random.default_rng(1).random((30, y.shape[1] - 48)) < missing] = np.nan
    model = TemporalFactorization(n_factors=3).fit(frame(y[:, :-48]))
    error = np.abs(matrix(model.predict(h=48)) - planted[:, -48:]).sum() / planted[:, -48:].sum()
    assert error < 0.06


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_objective_never_rises(planted, missing):
    y = planted / planted.std(axis=1, keepdims=True)
    y = np.where(np.random.default_rng(1).random(y.shape) < missing, np.nan, y)
    found = trmf.fit(y, 4, (1, 2, 24), Penalties(), n_sweeps=8, tolerance=0.0)
    values = np.array(found.objective)
    assert (np.diff(values) <= 1e-9 * values[:-1]).all()
    assert values[-1] < values[0]


def test_each_block_is_solved_exactly(planted):
    y = Data.of(planted[:8, :200] / planted[:8].std(axis=1, keepdims=True))
    now = trmf.fit(planted[:8, :200] / planted[:8].std(axis=1, keepdims=True), 3, (1, 5), Penalties(), n_sweeps=2)
    solved = trmf.update_loadings(y, now, Penalties())
    best, rng = trmf.objective(y, solved, Penalties()), np.random.default_rng(0)
    for _ in range(20):
        nearby = replace(solved, loadings=solved.loadings + rng.normal(0, 1e-3, solved.loadings.shape))
        assert trmf.objective(y, nearby, Penalties()) > best


def test_the_latent_series_minimise_the_objective(planted):
    y = planted[:10, :300] / planted[:10].std(axis=1, keepdims=True)
    start = trmf.fit(y, 1, (1, 24), Penalties(), n_sweeps=1)
    gram, right = _parts(Data.of(y), start)
    solved = trmf._solve_by_gradients(gram, right, start, Penalties())
    linear = innovations(np.eye(300), np.repeat(start.weights, 300, axis=0), start.lags)
    form = np.diag(gram[:, 0, 0] + trmf._ridge(start, Penalties())[0]) + linear @ linear.T
    np.testing.assert_allclose(solved[0], np.linalg.solve(form, right[0]), atol=1e-4 * np.abs(solved).max())


def _parts(data, now):
    right = now.loadings.T @ data.values - (now.loadings.T @ now.intercepts)[:, None]
    gram = np.broadcast_to(now.loadings.T @ now.loadings, (data.values.shape[1], 1, 1))
    return gram, right


def test_a_zero_is_data_and_missing_is_not():
    y = np.tile([0.0, 0.0, 0.0, 8.0], (5, 40))
    zeros = TemporalFactorization(n_factors=1, lags=(1, 4)).fit(frame(y)).predict(h=4)
    missing = TemporalFactorization(n_factors=1, lags=(1, 4)).fit(frame(np.where(y == 0, np.nan, y))).predict(h=4)
    assert matrix(zeros).mean() == pytest.approx(2, abs=0.4)
    assert matrix(missing).mean() > 6


def test_scaling_a_series_scales_its_forecast_alone(planted):
    model = TemporalFactorization(n_factors=3, lags=(1, 24))
    factor = np.where(np.arange(30) == 4, 1e6, 1.0)[:, None]
    plain, scaled = (matrix(model.fit(frame(y)).predict(h=12)) for y in (planted, planted * factor))
    np.testing.assert_allclose(scaled, plain * factor, rtol=1e-6)


def test_zero_and_constant_series_keep_their_level():
    y = np.vstack([np.zeros(60), np.full(60, 7.0), np.random.default_rng(0).random(60)])
    usage = frame(y, "D")
    forecast = matrix(TemporalFactorization(n_factors=2).fit(usage).predict(h=200))
    assert np.isfinite(forecast).all()
    np.testing.assert_allclose(forecast[0], 0, atol=1e-6)
    np.testing.assert_allclose(forecast[1], 7, rtol=1e-4)


def test_exponential_growth_gives_bounded_forecasts():
    y = np.exp(np.arange(80) / 10)[None] * np.arange(1, 6)[:, None]
    forecast = matrix(TemporalFactorization(n_factors=1, lags=(1, 2)).fit(frame(y, "D")).predict(h=1000))
    assert forecast.max() < 3 * y.max()


def test_intervals_nest_around_the_forecast(planted):
    model = TemporalFactorization(n_factors=3, n_sweeps=5).fit(frame(planted[:6, :300]))
    f = model.predict(h=6, level=[80, 95])
    ends = [f[f"TemporalFactorization{end}"] for end in ("-lo-95", "-lo-80", "", "-hi-80", "-hi-95")]
    assert all((low <= high).all() for low, high in pairwise(ends))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"n_factors": 0}, "n_factors"),
        ({"lags": (1, 500)}, "shorter than the history"),
        ({"lags": (0,)}, "lags"),
        ({"latent_penalty": -1}, "latent_penalty"),
    ],
)
def test_bad_parameters(planted, options, reason):
    with pytest.raises(InputError, match=reason):
        TemporalFactorization(**options).fit(frame(planted[:, :200]))


class TestAutoregression:
    def test_weights_are_recovered(self):
        rng, x = np.random.default_rng(0), np.zeros((2, 5000))
        for t in range(7, 5000):
            x[:, t] = [0.5, -0.3] * x[:, t - 1] + [0.3, 0.6] * x[:, t - 7] + rng.normal(size=2)
        found = fit_weights(x, (1, 7), penalty=1e-3)
        np.testing.assert_allclose(found, [[0.5, 0.3], [-0.3, 0.6]], atol=0.04)

    @pytest.mark.parametrize("seed", range(20))
    def test_stability_equals_that_of_the_companion_matrix(self, seed):
        rng = np.random.default_rng(seed)
        lags = tuple(sorted(rng.choice(np.arange(1, 12), 3, replace=False)))
        weights = rng.normal(0, 0.6, 3)
        full = np.zeros(max(lags))
        full[np.array(lags) - 1] = weights
        companion = np.vstack([full, np.eye(max(lags))[:-1]])
        assert is_stable(weights, lags) == (np.abs(np.linalg.eigvals(companion)).max() < 1)
        assert is_stable(stabilise(weights[None], lags)[0], lags)

    def test_stabilising_preserves_seasonal_weights(self):
        stable = stabilise(np.array([[0.3, 0.75]]), (1, 168))
        assert stable[0, 1] > 0.65

    def test_the_adjoint_is_the_transpose(self):
        rng = np.random.default_rng(0)
        x, e, w = rng.normal(size=(3, 50)), rng.normal(size=(3, 43)), rng.normal(size=(3, 2))
        assert (innovations(x, w, (2, 7)) * e).sum() == pytest.approx((x * innovations_adjoint(e, w, (2, 7))).sum())

    def test_blocks_of_rows_change_no_innovation(self, monkeypatch):
        rng = np.random.default_rng(0)
        x, w = rng.normal(size=(7, 50)), rng.normal(size=(7, 2))
        whole = innovations(x, w, (2, 7)), innovations_adjoint(x, w, (2, 7))
        for cached in (1, 150):
            monkeypatch.setattr(regression, "_CACHED", cached)
            np.testing.assert_array_equal(innovations(x, w, (2, 7)), whole[0])
            np.testing.assert_array_equal(innovations_adjoint(x, w, (2, 7)), whole[1])

    def test_extrapolation_has_no_innovations(self):
        x, w = np.random.default_rng(0).normal(size=(2, 20)), np.array([[0.5, 0.2], [0.1, -0.4]])
        path = np.concatenate([x, extrapolate(x, w, (1, 3), 5)], axis=1)
        np.testing.assert_allclose(innovations(path, w, (1, 3))[:, -5:], 0, atol=1e-12)


def test_missing_residuals_are_imputed():
    series = residual_series()
    y = with_missing((series - series.mean(axis=1, keepdims=True)) / series.std(axis=1, keepdims=True))
    data = Data.of(y)
    factors = trmf.fit(y, 2, (1, 2, 24, 25), Penalties())
    residuals = ResidualAR.fit(data, factors, 100.0)
    clean = (series - series.mean(axis=1, keepdims=True)) / series.std(axis=1, keepdims=True)
    truth = (clean - factors.intercepts[:, None] - factors.loadings @ factors.latent)[:, -25:]
    gone = ~residuals.known
    assert np.square(residuals.values - truth)[gone].mean() < 0.7 * np.square(truth)[gone].mean()


def test_weights_are_shrunk_to_the_shared_ones():
    rng, x = np.random.default_rng(0), np.zeros((4, 2000))
    for t in range(1, 2000):
        x[:, t] = [0.9, 0.5, 0.5, 0.5] * x[:, t - 1] + rng.normal(size=4)
    free, shared = fit_shrunk(x, (1,), 1e-6)
    tied, again = fit_shrunk(x, (1,), 1e9)
    np.testing.assert_allclose(free[:, 0], [0.9, 0.5, 0.5, 0.5], atol=0.05)
    np.testing.assert_allclose(tied, np.tile(again, (4, 1)), atol=1e-5)
    np.testing.assert_allclose(shared, again)


def test_many_origins_equal_single_ones():
    x, w = np.random.default_rng(0).normal(size=(2, 30)), np.array([[0.5, 0.2], [0.1, -0.4]])
    many = extrapolate_from(x, w, (1, 7), 5, np.array([4, 20, 30]))
    for place, origin in enumerate((4, 20, 30)):
        np.testing.assert_allclose(many[:, place], extrapolate(x[:, :origin], w, (1, 7), 5))
