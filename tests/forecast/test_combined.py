"""The blend follows whoever is right, per series and horizon, and is never far behind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast import (
    CombinedForecaster,
    DoubleSeasonalSmoothing,
    HistoricMean,
    Naive,
    RidgeAutoregression,
    SeasonalNaive,
    cross_validation,
)
from gpudemand.forecast.base.windows import delayed, phase_mean, rolling_mean, without_gaps
from gpudemand.forecast.combination import combined
from gpudemand.forecast.combination.stacking import Spans, blend_weights, minimise_on_simplex

from .canaries import long


def test_each_series_gets_the_member_that_serves_it():
    rng = np.random.default_rng(0)
    hours = np.arange(24 * 30)
    walk = 500 + np.cumsum(rng.normal(0, 5, hours.size))
    rhythm = 100 + 40 * np.sin(hours * np.pi / 12) + rng.normal(0, 1, hours.size)
    usage = long({"rhythm": rhythm, "walk": walk})
    models = [CombinedForecaster([Naive(), SeasonalNaive()]), Naive(), SeasonalNaive()]
    test = cross_validation(models, usage, h=12, n_windows=12, step_size=12)
    error = test[["CombinedForecaster", "Naive", "SeasonalNaive"]].sub(test["y"], axis=0).abs()
    error = error.groupby(test["unique_id"]).mean()
    best = error[["Naive", "SeasonalNaive"]].min(axis=1)
    assert (error["CombinedForecaster"] <= 1.1 * best).all()


def test_one_member_is_that_member():
    usage = long({"a": np.arange(200.0)})
    blend = CombinedForecaster([HistoricMean(5)]).fit(usage).predict(3)["CombinedForecaster"]
    np.testing.assert_allclose(blend, 197.0)


def test_no_members():
    with pytest.raises(InputError, match="members is empty"):
        CombinedForecaster([]).fit(long({"a": np.arange(20.0)}))


def test_many_origins_in_one_pass_are_those_of_single_fits():
    rng = np.random.default_rng(0)
    y = 50 + 10 * np.sin(np.arange(24 * 30) * np.pi / 12) + rng.normal(0, 3, (3, 24 * 30))
    usage = long({"a": y[0], "b": y[1], "c": y[2]})
    origins = np.array([24 * 24, 24 * 25 + 5, 24 * 28])
    for model in (CombinedForecaster(), RidgeAutoregression(), DoubleSeasonalSmoothing()):
        model.fit(usage)
        together = model._paths(y, origins, 6)
        for place, origin in enumerate(origins):
            np.testing.assert_allclose(model._path(y[:, :origin], 6), together[:, place], rtol=1e-6)


def test_forecast_from_knows_nothing_of_what_follows():
    rng = np.random.default_rng(0)
    model = CombinedForecaster().fit(long({"a": rng.normal(50, 5, 24 * 20)}))
    panel, origins = model.panel_, np.array([24 * 15, 24 * 15 + 7])
    before = model.forecast_from(panel, origins, 6)
    later = np.where(np.arange(panel.values.shape[1]) < origins[-1], panel.values, 1e6)
    np.testing.assert_array_equal(model.forecast_from(replace(panel, values=later), origins, 6), before)


def test_a_level_shared_by_users_who_are_often_idle_knows_nothing_of_what_follows():
    rng = np.random.default_rng(0)
    rows = {f"u{user}": 10.0 * (rng.random(24 * 20) < 0.1 + 0.1 * user) for user in range(5)}
    model = CombinedForecaster().fit(long(rows))
    panel, origins = model.panel_, np.array([24 * 8, 24 * 12 + 7])
    before = model.forecast_from(panel, origins, 24)
    later = np.where(np.arange(panel.values.shape[1]) < origins[0], panel.values, 1e6)
    after = model.forecast_from(replace(panel, values=later), origins, 24)
    np.testing.assert_array_equal(after[:, 0], before[:, 0])


def test_what_falls_below_zero_later_lowers_no_earlier_forecast():
    y = np.r_[np.linspace(100.0, 1.0, 100), np.full(20, -50.0)]
    model = RidgeAutoregression(season_length=1).fit(long({"a": y}))
    alone = model.forecast_from(model.panel_, np.array([100]), 30)
    both = model.forecast_from(model.panel_, np.array([100, 120]), 30)
    np.testing.assert_array_equal(both[:, 0], alone[:, 0])
    assert alone.min() == 0 > both[:, 1].min()


@pytest.mark.parametrize("guessed", [False, True])
def test_simplex_minimum_is_one(guessed):
    rng = np.random.default_rng(0)
    half = rng.normal(size=(500, 5, 5)) * 10 ** rng.uniform(-6, 6, (500, 1, 1))
    form, slope = half @ half.transpose(0, 2, 1), 0.3 * half[:, 0] * np.abs(half[:, 0, :1])
    weights = minimise_on_simplex(form, slope, rng.random(slope.shape) < 0.5 if guessed else None)
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    gradient = np.einsum("bij,bj->bi", form, weights) - slope
    # At the minimum no member has a lower slope than those in use, which share one.
    lowest, size = gradient.min(axis=1, keepdims=True), np.trace(form, axis1=1, axis2=2)[:, None]
    assert ((weights == 0) | (gradient - lowest < 1e-6 * size)).all()


def test_forms_without_one_minimum_still_give_weights():
    never_wrong, alike = np.diag([0.0, 1.0, 100.0]), np.ones((3, 3))
    weights = minimise_on_simplex(np.stack([never_wrong, alike, np.zeros((3, 3))]), np.zeros((3, 3)))
    assert weights[0, 0] == pytest.approx(1)
    np.testing.assert_allclose(weights[1:], 1 / 3)


def test_a_member_gone_astray_does_not_blur_the_others():
    weights = minimise_on_simplex(np.diag([1.0, 4.0, 1e12]), np.zeros(3))
    np.testing.assert_allclose(weights, [0.8, 0.2, 0.0], atol=1e-6)


def test_a_sleeping_user_takes_what_serves_all():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(2, 1, 40, 30, 2)) * np.reshape([1.0, 3.0], (2, 1, 1, 1, 1))
    errors[1, :, 0], errors[0, :, 0] = 0.0, 1e-3
    events = np.r_[0.0, np.full(39, 60.0)][None]
    weights = blend_weights(errors, Spans.of(2), np.ones((1, 40)), events, np.zeros((1, 40), dtype=bool))
    assert weights[0, 0, 0, 0] > 0.8


def test_windows_look_backwards_only():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(2, 60))
    later = y.copy()
    later[:, 40:] += 100
    for look in (
        lambda x: rolling_mean(x, 7),
        lambda x: phase_mean(x, 6, 3),
        lambda x: delayed(x, 5),
    ):
        np.testing.assert_allclose(look(y)[:, :40], look(later)[:, :40], atol=1e-9)
    assert phase_mean(y, 6, 3)[0, 50] == pytest.approx(y[0, [50, 44, 38]].mean())


def test_gaps_are_filled_from_the_season_before():
    y = np.arange(48.0)[None] % 24
    holes = y.copy()
    holes[0, 30:40] = np.nan
    np.testing.assert_array_equal(without_gaps(holes, 24), y)


def test_users_who_leave_together_are_seen_to_leave(monkeypatch):
    rng = np.random.default_rng(0)
    buys = rng.random((400, 60)) < 0.5 * np.exp(-np.arange(60) / 25)
    usage = long({f"u{user:03d}": 10.0 * row for user, row in enumerate(buys)}, freq="7D")
    moved = cross_validation(CombinedForecaster(), usage, h=10)
    monkeypatch.setattr(combined, "_TRUST", 0.0)
    each = cross_validation(CombinedForecaster(), usage, h=10)
    bias, of_each = (test["CombinedForecaster"].sum() / test["y"].sum() - 1 for test in (moved, each))
    assert 0 < bias < 0.8 * of_each


def test_early_origins_share_their_rehearsals():
    model = CombinedForecaster().fit(long({"a": np.arange(24.0 * 30)}))
    rehearsals = [model._rehearsals(24 * day, 1, 24) for day in range(2, 30)]
    assert all(len(rehearsal) >= 6 for rehearsal in rehearsals)
    assert len(np.unique(np.concatenate(rehearsals))) < 100
