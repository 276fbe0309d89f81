"""Rolling forecasts of one fitted factorization, its residual autoregression, and leakage."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast import TemporalFactorization
from gpudemand.forecast import factorization as trmf
from gpudemand.forecast.factorization import Data, Penalties, ResidualAR
from gpudemand.forecast.regression import extrapolate, extrapolate_from, fit_shrunk
from gpudemand.metrics import evaluate

from .canaries import frame, matrix

MODEL = TemporalFactorization(n_factors=3, lags=(1, 2, 24, 25))


@pytest.fixture(scope="module")
def series():
    """Twenty series with a shared season and autocorrelated residuals."""
    rng, t = np.random.default_rng(0), np.arange(24 * 20)
    own = rng.normal(0, 0.3, (20, t.size))
    for time in range(1, t.size):
        own[:, time] += 0.9 * own[:, time - 1]
    return 10 + rng.uniform(1, 3, (20, 1)) * np.sin(2 * np.pi * t / 24) + own


def with_missing(y, share=0.3):
    return np.where(np.random.default_rng(1).random(y.shape) < share, np.nan, y)


@pytest.mark.parametrize("missing", [False, True])
def test_the_first_origin_equals_predict(series, missing):
    y = with_missing(series) if missing else series
    model = MODEL.fit(frame(y[:, :400]))
    rolled = model.predict_rolling(frame(y), h=6)
    first = rolled[rolled["cutoff"] == rolled["cutoff"].min()]
    np.testing.assert_allclose(matrix(first), matrix(model.predict(h=6)), rtol=1e-9)


@pytest.mark.parametrize("missing", [False, True])
def test_later_data_do_not_change_forecasts(series, missing):
    y = with_missing(series) if missing else series
    changed = y.copy()
    changed[:, 430:] = 1e5
    model = MODEL.fit(frame(y[:, :400]))
    early, late = (model.predict_rolling(frame(values), h=6) for values in (y, changed))
    known = early["cutoff"] < early["ds"].min() + pd.Timedelta("29h")
    np.testing.assert_array_equal(early.loc[known, "TemporalFactorization"], late.loc[known, "TemporalFactorization"])
    assert known.any()


def test_filtering_improves_forecasts(series):
    model = MODEL.fit(frame(series[:, :400]))
    rolled = model.predict_rolling(frame(series), h=1)
    once = model.predict(h=80).merge(frame(series), on=["unique_id", "ds"])
    apart = (once["TemporalFactorization"] - once["y"]).abs().mean()
    assert (rolled["TemporalFactorization"] - rolled["y"]).abs().mean() < 0.6 * apart


def test_the_residual_autoregression_improves_forecasts(series):
    scores = {}
    for own in (300.0, None):
        model = TemporalFactorization(n_factors=2, lags=(1, 2, 24, 25), residual_penalty=own).fit(
            frame(series[:, :400])
        )
        scores[own] = evaluate(model.predict_rolling(frame(series), h=2), ["rmse"]).loc["TemporalFactorization", "rmse"]
    assert scores[300.0] < 0.7 * scores[None]


def test_rows_are_those_of_a_backtest(series):
    rolled = MODEL.fit(frame(series[:, :400])).predict_rolling(frame(series), h=6, step_size=10)
    assert list(rolled.columns) == ["unique_id", "ds", "cutoff", "y", "TemporalFactorization"]
    assert rolled["cutoff"].nunique() == 8
    truth = rolled.merge(frame(series), on=["unique_id", "ds"])
    np.testing.assert_array_equal(truth["y_x"], truth["y_y"])
    assert ((rolled["ds"] - rolled["cutoff"]).dt.total_seconds() / 3600).between(1, 6).all()


def test_too_few_bins_after_training_are_refused(series):
    with pytest.raises(InputError, match="3 bins after the training period"):
        MODEL.fit(frame(series[:, :400])).predict_rolling(frame(series[:, :403]), h=6)


def test_missing_residuals_are_imputed(series):
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
