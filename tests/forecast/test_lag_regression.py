"""LagRegression: one or two seasons of any length, on histories of any length."""

from __future__ import annotations

import numpy as np
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast import LagRegression, RidgeAutoregression, SeasonalNaive
from gpudemand.forecast.regression import LagRegressors
from gpudemand.metrics import rmse

from .canaries import frame, matrix


def two_seasons(n=6, n_times=60 * 9, seed=0, noise=1.0):
    """Seasons of ten bins, the last of six with no demand, at different levels."""
    rng, t = np.random.default_rng(seed), np.arange(n_times)
    shape = 30 * np.sin((t % 10) * np.pi / 10) * (t // 10 % 6 < 5)
    return rng.uniform(1, 3, (n, 1)) * (10 + shape) + rng.normal(0, noise, (n, n_times))


def error(model, y, h=10):
    found = matrix(model.fit(frame(y[:, :-h], "h")).predict(h=h), type(model).__name__)
    return rmse(y[:, -h:], found)


def test_given_seasons_are_used():
    y = two_seasons()
    best = error(LagRegression((10, 60)), y)
    assert best < 0.97 * error(SeasonalNaive(60), y)
    assert best < 0.2 * error(RidgeAutoregression(season_length=10), y)


def test_a_wandering_level_is_tracked():
    y = two_seasons(n_times=60 * 18) + np.cumsum(np.random.default_rng(1).normal(size=(6, 60 * 18)), axis=1)
    assert error(LagRegression((10, 60)), y) < 0.6 * error(SeasonalNaive(60), y)


def test_two_seasons_are_better_than_one():
    y = two_seasons(n_times=60 * 9 - 10)
    assert error(LagRegression((10, 60)), y) < 0.5 * error(LagRegression(10), y)


def test_the_calendar_is_the_default():
    y = two_seasons(n_times=24 * 40)
    names = (LagRegression(), LagRegression((24, 168)))
    default, given = (matrix(m.fit(frame(y, "h")).predict(h=5), "LagRegression") for m in names)
    np.testing.assert_array_equal(default, given)


@pytest.mark.parametrize("step", [1, 7, 10, 11, 75, 200])
def test_every_regressor_is_known_at_the_origin(step):
    for seasons in ((1, 1), (10, 10), (10, 60)):
        lags = LagRegressors(np.zeros((1, 9)), *seasons)._lags(step)
        assert min(lags) == 0
        assert len(set(lags)) == len(lags)


def test_lags_in_phase_with_the_target_are_regressors():
    lags = LagRegressors(np.zeros((1, 9)), 10, 60)._lags(3)
    assert {10 - 3, 10 - 4, 10 - 2, 60 - 3, 20 - 3, 70 - 3} <= set(lags)


def test_many_origins_equal_single_ones():
    y = two_seasons()
    model = LagRegression((10, 60)).fit(frame(y, "h"))
    origins = np.array([25, 130, 131, 400])
    many = model._paths(y, origins, 7)
    for place, origin in enumerate(origins):
        alone = model._paths(y[:, :origin], np.array([origin]), 7)[:, 0]
        np.testing.assert_allclose(many[:, place], alone, rtol=1e-7)


def test_missing_values_late_series_and_long_horizons():
    y = two_seasons()
    y[0, 100:130] = np.nan
    y[1, :400] = np.nan
    y[2] = 0
    y[3] = 7
    found = matrix(LagRegression((10, 60)).fit(frame(y, "h")).predict(h=150), "LagRegression")
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[2], 0, atol=1e-9)
    np.testing.assert_allclose(found[3], 7)
    last = np.tile(y[0, -60:], 3)[:150]
    assert rmse(last, found[0]) < 3


@pytest.mark.parametrize("invalid", [(60, 10), (1, 2, 3), (), 0, "day", (10, 60.5)])
def test_invalid_seasons_are_refused(invalid):
    with pytest.raises(InputError, match="season_length"):
        LagRegression(invalid).fit(frame(two_seasons(), "h"))
