"""The compiled Holt-Winters smoothing beside that of statsmodels: initial state, squared errors, fit and forecasts."""

import warnings

import numpy as np
import pandas as pd
import pytest
from statsmodels.tsa.holtwinters import ExponentialSmoothing

import gpudemand as gd
from gpudemand.forecast import smoothing
from gpudemand.forecast.smoothing import fit_parameters, initial_state, parameters, smooth

WEIGHTS = (0.4, 0.15, 0.3, 0.9)


def fitted_by_statsmodels(y: np.ndarray, season: int):
    seasonal = {"seasonal": "add", "seasonal_periods": season} if season > 1 else {}
    model = ExponentialSmoothing(y, trend="add", damped_trend=True, initialization_method="heuristic", **seasonal)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model, model.fit(use_brute=False)


def forecast(y: np.ndarray, h: int, **given: int) -> np.ndarray:
    ds = pd.date_range("2026-03-02", periods=y.size)
    return gd.ETS(**given).fit(pd.DataFrame({"unique_id": "a", "ds": ds, "y": y}))._path(y[None], h)[0]


@pytest.fixture(scope="module")
def daily() -> np.ndarray:
    """The largest users of the bundled sample and their total, by day."""
    wide = gd.to_wide(gd.usage_series(gd.load_jobs_sample(), by="user", freq="D", value="gpus")).to_numpy()
    largest = wide[np.argsort(-wide.sum(axis=1))[:8]]
    return np.vstack([largest, wide.sum(axis=0)])[:, -168:]


@pytest.mark.parametrize(("season", "n"), [(1, 10), (2, 14), (7, 24), (7, 168), (12, 60), (24, 58)])
def test_state_and_squared_errors_are_those_of_statsmodels(season: int, n: int) -> None:
    y = np.random.default_rng(0).gamma(3, 10, n)
    model, _ = fitted_by_statsmodels(y, season)
    of_season = WEIGHTS[2] if season > 1 else None
    theirs = model.fit(WEIGHTS[0], WEIGHTS[1], of_season, damping_trend=WEIGHTS[3], optimized=False, use_brute=False)
    state, seasonal = initial_state(y, season)
    np.testing.assert_allclose(state, [theirs.params["initial_level"], theirs.params["initial_trend"]])
    if season > 1:
        np.testing.assert_allclose(seasonal, theirs.params["initial_seasons"], atol=1e-9)
    level, _, _, loss = smooth(y, state, seasonal, (*WEIGHTS[:2], of_season or 0.0, WEIGHTS[3]))
    assert loss == pytest.approx(theirs.sse)
    assert level == pytest.approx(theirs.level[-1])


@pytest.mark.slow
def test_the_fit_is_at_least_as_good_and_forecasts_are_close(daily: np.ndarray) -> None:
    for y in daily:
        _, theirs = fitted_by_statsmodels(y, 7)
        state, seasonal = initial_state(y, 7)
        loss = smooth(y, state, seasonal, fit_parameters(y, state, seasonal))[-1]
        assert loss < 1.002 * theirs.sse
        if loss > 0.998 * theirs.sse:  # otherwise theirs is another minimum
            difference = np.abs(forecast(y, 28) - theirs.forecast(28)).mean()
            assert difference < 0.05 * y.mean()


def test_scale_and_level_do_not_matter() -> None:
    y = np.random.default_rng(1).gamma(3, 10, 100)
    plain = forecast(y, 14)
    np.testing.assert_allclose(forecast(1e6 * y, 14), 1e6 * plain, rtol=1e-6)
    np.testing.assert_allclose(forecast(y + 1e3, 14), plain + 1e3, rtol=1e-4)


@pytest.mark.parametrize("max_seasons", [1, 2, 3, 24])
def test_the_season_is_not_lost_where_few_seasons_are_fitted(max_seasons: int) -> None:
    y = np.tile([5.0, 5, 5, 5, 5, 1, 1], 12)
    np.testing.assert_allclose(forecast(y, 7, max_seasons=max_seasons), y[:7], atol=0.1)
    np.testing.assert_allclose(forecast(y[:24], 7, max_seasons=max_seasons), y[24:31], atol=0.1)


def test_parameters_are_admissible_everywhere() -> None:
    for place in np.random.default_rng(2).normal(0, 5, (100, 4)):
        level, trend, season, damping = parameters(place, 7)
        assert 0 <= trend <= level <= 1
        assert 0 <= season <= 1 - level + 1e-12
        assert 0.8 <= damping <= 0.995


def test_errors_behind_intervals_need_few_fits_and_nothing_later(monkeypatch) -> None:
    y, origins, fits = np.random.default_rng(3).gamma(3, 10, (1, 300)), np.r_[np.arange(188, 300, 7), 300], []
    monkeypatch.setattr(smoothing, "fit_parameters", lambda *given: fits.append(given) or fit_parameters(*given))
    usage = {"unique_id": "a", "ds": pd.date_range("2026-01-01", periods=300), "y": y[0]}
    model = gd.ETS().fit(pd.DataFrame(usage))
    paths = model._past_paths(y, origins, 14)
    assert len(fits) == 6  # of 17 origins
    np.testing.assert_array_equal(paths[:, -1], model._path(y, 14))
    later = np.where(np.arange(300) < 250, y, 10 * y)
    before = origins <= 250
    np.testing.assert_array_equal(model._past_paths(later, origins, 14)[:, before], paths[:, before])
