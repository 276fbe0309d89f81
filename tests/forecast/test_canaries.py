"""Leakage canaries, equivariances, short histories and invalid input, for every forecaster of the package."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from gpudemand._validation import InputError
from gpudemand.forecast import (
    ETS,
    SBA,
    TSB,
    ClusterwiseFactorization,
    ClusterwiseForecaster,
    CombinedForecaster,
    DoubleSeasonalSmoothing,
    HistoricMean,
    HorizonForecaster,
    LagRegression,
    Naive,
    RidgeAutoregression,
    SeasonallyAdjustedNaive,
    SeasonalNaive,
    TemporalFactorization,
    UnlikelyUsageWarning,
    Zero,
)
from gpudemand.forecast.clusterwise_factorization import BaselineSegmenter
from tests.tiers import slow_where

from . import canaries
from .canaries import long, users

SMALL = TemporalFactorization(n_factors=2, n_sweeps=5)
MODELS = [
    ClusterwiseFactorization(1, factorization=SMALL),
    ClusterwiseFactorization(segmenter=BaselineSegmenter(2), factorization=SMALL),
    ClusterwiseForecaster(BaselineSegmenter(2), factorization=SMALL),
    CombinedForecaster(max_origins=8),
    DoubleSeasonalSmoothing(),
    ETS(max_seasons=3),
    HistoricMean(),
    HorizonForecaster(CombinedForecaster(max_origins=8)),
    LagRegression(),
    SeasonallyAdjustedNaive(),
    Naive(),
    RidgeAutoregression("value"),
    RidgeAutoregression("level"),
    SBA(),
    SeasonalNaive(),
    TemporalFactorization(n_factors=2),
    TSB(),
    Zero(),
]
FACTORIZED = (TemporalFactorization, ClusterwiseFactorization, ClusterwiseForecaster)
#: Relative tolerances of methods with iterative estimates.
TOLERANCES = {
    "ETS": 0.05,
    "ClusterwiseForecaster": 0.05,
    "ClusterwiseFactorization": 0.05,
    "TemporalFactorization": 0.02,
}
#: Bins of six hours: five weeks show a season of 4 and a week of 28 bins at little cost.
H = 8
HISTORY = long(users(28 * 5, season=4), freq="6h")


def name_of(model):
    return f"{type(model).__name__}-{getattr(model, 'anchor', '')}".rstrip("-")


every = pytest.mark.parametrize("model", MODELS, ids=name_of)
#: Models of other models: `make test` asks them for leakage, intervals and short histories only, which their parts do
#: not answer for.
COMPOSED = (ClusterwiseForecaster, HorizonForecaster)


def slow_if_composed(models):
    return pytest.mark.parametrize(
        "model", slow_where(lambda model: isinstance(model, COMPOSED), models), ids=map(name_of, models)
    )


every_quick = slow_if_composed(MODELS)
# These histories are short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::gpudemand.forecast.ShortHistoryWarning")


@every
def test_later_data_do_not_change_forecasts(model):
    canaries.check_later_data_do_not_change_forecasts(model, HISTORY, H)


@every
def test_past_forecasts_behind_the_intervals_use_nothing_after_their_origins(model):
    later = HISTORY["ds"] >= np.sort(HISTORY["ds"].unique())[104]
    shuffled = 1000 * HISTORY["y"].sample(frac=1, random_state=0).to_numpy()
    fits = [clone(model).fit(HISTORY.assign(y=HISTORY["y"].mask(later, y))) for y in (HISTORY["y"], shuffled)]
    past = [fitted._paths(fitted.panel_.values, np.array([80, 104, 120]), H)[:, :2] for fitted in fits]
    np.testing.assert_allclose(*past, rtol=1e-6)


@pytest.fixture(scope="module")
def forecast_of():
    """Forecast of a model on the history, computed once."""
    return cache(lambda model: clone(model).fit(HISTORY).predict(H, level=canaries.LEVELS))


@every_quick
def test_scaling_a_series_scales_its_forecast(model, forecast_of):
    tolerance = TOLERANCES.get(type(model).__name__, 1e-6)
    canaries.check_scale(model, HISTORY, H, tolerance, forecast_of(model))


@every_quick
def test_order_and_names_of_series_do_not_matter(model, forecast_of):
    tolerance = TOLERANCES.get(type(model).__name__, 1e-6)
    canaries.check_order_of_series(model, HISTORY, H, tolerance, forecast_of(model))


@every
def test_intervals_are_nested_and_not_negative(model, forecast_of):
    canaries.check_intervals(forecast_of(model), type(model).__name__)


@every
@pytest.mark.parametrize("n", [3, 30])
def test_short_histories_and_long_horizons(model, n):
    forecast = clone(model).fit(long(users(n))).predict(40, level=None if type(model) in FACTORIZED and n < 5 else [80])
    assert len(forecast) == 4 * 40
    assert np.isfinite(canaries.numbers(forecast)).all()
    constant = forecast[forecast["unique_id"] == "constant"].iloc[:, 2]
    if type(model) not in (Zero, SBA, *FACTORIZED):
        np.testing.assert_allclose(constant, 8.0, rtol=1e-6)


@every_quick
def test_a_single_zero_series_is_forecast_as_zero(model):
    forecast = clone(model).fit(long({"idle": np.zeros(24 * 4)})).predict(H, level=[95])
    assert (canaries.numbers(forecast) == 0).all()


@every_quick
def test_series_that_begin_late(model):
    usage = HISTORY[(HISTORY["unique_id"] != "walk") | (HISTORY["ds"] >= HISTORY["ds"].max() - pd.Timedelta("30h"))]
    forecast = clone(model).fit(usage).predict(H, level=[80])
    assert np.isfinite(canaries.numbers(forecast)).all()
    late = forecast[forecast["unique_id"] == "walk"].iloc[:, 2].to_numpy()
    newest = usage[usage["unique_id"] == "walk"]["y"].iloc[-1]
    if type(model) is not Zero:
        assert (np.abs(late - newest) < 0.5 * newest).all()


@every_quick
@pytest.mark.parametrize("freq", ["D", "MS"])
def test_other_frequencies_in_a_zone_with_daylight_saving(model, freq):
    usage = long(users(60, season=7), freq=freq, start="2026-03-01", tz="Europe/Berlin")
    forecast = clone(model).fit(usage).predict(10)
    expected = pd.date_range(usage["ds"].iloc[0], periods=70, freq=freq)[-10:]
    assert (pd.DatetimeIndex(forecast["ds"][:10]) == expected).all()
    assert np.isfinite(canaries.numbers(forecast)).all()


@slow_if_composed([model for model in MODELS if model._allow_missing])
def test_values_of_a_late_series_do_not_change_earlier_forecasts(model):
    late = HISTORY["unique_id"].eq("walk") & (HISTORY["ds"] < HISTORY["ds"].iloc[100])
    panel = clone(model).fit(HISTORY.assign(y=HISTORY["y"].mask(late))).panel_
    origins = np.array([64, 100, 120])
    before = model.forecast_from(panel, origins, H)[:, :2]
    for later in (0.0, 1e6):
        values, row = panel.values.copy(), panel.ids.get_loc("walk")
        values[row, 100:] *= later
        after = model.forecast_from(replace(panel, values=values), origins, H)[:, :2]
        # Rounding differs with the values beside; what leaks is as large as they are.
        np.testing.assert_allclose(after, before, rtol=1e-6)


DAMAGE = {
    "duplicate stamps": lambda u: pd.concat([u, u]),
    "not multiples of freq": lambda u: u.assign(ds=u["ds"].where(u.index != 5, u["ds"] + pd.Timedelta("7min"))),
    "not finite": lambda u: u.assign(y=u["y"].where(u.index != 5, np.inf)),
    "no rows": lambda u: u.iloc[:0],
    "must hold datetimes": lambda u: u.assign(ds=u["ds"].astype(str)),
    r"lacks the column\(s\) y": lambda u: u.drop(columns="y"),
    "fewer than two timestamps": lambda u: u.iloc[:1],
    "must be a table": lambda u: "usage.csv",
}


@pytest.mark.parametrize("reason", DAMAGE)
def test_bad_usage(reason):
    with pytest.raises(InputError, match=reason):
        Naive().fit(DAMAGE[reason](HISTORY))


@every
def test_every_model_checks_its_usage(model):
    with pytest.raises(InputError, match="duplicate stamps"):
        clone(model).fit(pd.concat([HISTORY, HISTORY]))


@every_quick
def test_gaps_are_filled_or_refused(model):
    gappy = HISTORY.drop(index=[30, 31, 32, 500])
    if not model._allow_missing:
        with pytest.raises(InputError, match="gaps"):
            clone(model).fit(gappy)
        return
    with pytest.warns(UnlikelyUsageWarning, match="no row"):
        fitted = clone(model).fit(gappy)
    forecast = fitted.predict(H, level=[80])
    assert np.isfinite(canaries.numbers(forecast)).all()


@every_quick
def test_a_user_without_any_value_is_refused(model):
    usage = pd.concat([HISTORY, HISTORY[HISTORY["unique_id"] == "walk"].assign(unique_id="empty", y=np.nan)])
    for table in (usage, usage.assign(y=np.nan)):
        with pytest.raises(InputError, match="no value at all" if model._allow_missing else "missing"):
            clone(model).fit(table)
