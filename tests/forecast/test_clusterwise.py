"""Clusterwise regression: planted clusters, one cluster for homogeneous users, new users and the exchange."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans

from gpudemand._validation import InputError
from gpudemand.forecast import ClusterwiseFactorization, TemporalFactorization, clusterwise
from gpudemand.forecast.clusterwise import (
    GLOBAL,
    ClusterwiseForecaster,
    NormalEquations,
    bounded_losses,
    exchange,
    level_factor,
    membership_costs,
    membership_posterior,
    select_method,
)
from gpudemand.forecast.clusterwise_factorization import BaselineSegmenter
from gpudemand.metrics import evaluate, rmse

from .canaries import frame, matrix

SMALL = TemporalFactorization(n_factors=2, n_sweeps=5)


def two_kinds(n=30, days=140, seed=0):
    """Half of the users repeat every week, the other half walk at random."""
    rng, t = np.random.default_rng(seed), np.arange(days)
    weekly = 5 + 4 * np.sin(2 * np.pi * (t + rng.integers(0, 7, (n, 1))) / 7) + rng.normal(0, 0.5, (n, days))
    return np.vstack([weekly, 50 + np.cumsum(rng.normal(0, 1, (n, days)), axis=1)])


def wide(y):
    return frame(y, "D").pivot(index="unique_id", columns="ds", values="y")


@pytest.fixture(scope="module")
def kinds():
    return two_kinds()


@pytest.fixture(scope="module")
def fitted(kinds):
    return ClusterwiseForecaster(factorization=SMALL, n_clusters=(2, 4)).fit(frame(kinds[:, :-14], "D"))


def path(model, h=7):
    return matrix(model.predict(h=h), "ClusterwiseForecaster")


def test_planted_clusters_are_found(fitted):
    first, second = set(fitted.labels_[:30]), set(fitted.labels_[30:])
    assert not first & second
    assert fitted.n_clusters_ == fitted.probabilities_.shape[1] > 1


def test_clusters_improve_forecasts_where_users_differ(kinds, fitted):
    y, truth = kinds[:, :-14], kinds[:, -14:-7]
    one, some = fitted._component_forecasts(fitted.panel_.values, 7, [GLOBAL, fitted.choice_])[1:]
    size = y.std(axis=1, keepdims=True)
    of_one, of_some, of_all = (rmse(truth / size, found / size) for found in (one, some, path(fitted)))
    assert of_some < 0.95 * of_one
    assert of_some < of_all < 0.98 * of_one


def test_users_best_forecast_by_the_factorization_keep_it(kinds):
    """Two series with pulses every fourth day, which no base forecast has."""
    pulses = 30.0 * (np.arange(140) % 4 == 0) + np.random.default_rng(0).random((2, 140))
    lags = TemporalFactorization(n_factors=4, lags=(1, 4, 7), residual_penalty=1)
    model = ClusterwiseForecaster(factorization=lags, n_clusters=(2,)).fit(frame(np.vstack([kinds, pulses]), "D"))
    weights, alone = model.weights_["factorization"], model.factorization_
    # A third of the weight is trimmed at either end, so that more than two thirds are all of it.
    assert weights.iloc[-2:].min() > 2 / 3 > 0.3 > weights.iloc[:-2].mean()
    np.testing.assert_allclose(path(model)[-2:], matrix(alone.predict(h=7), "TemporalFactorization")[-2:])
    np.testing.assert_allclose(model.weights_.sum(axis=1), 1)


def test_homogeneous_users_form_one_cluster():
    rng = np.random.default_rng(3)
    y = rng.gamma(2, 3, (80, 120))
    model = ClusterwiseForecaster(factorization=SMALL).fit(frame(y, "D"))
    assert model.n_clusters_ == 1
    assert (model.labels_ == 0).all()


def test_random_clusters_are_not_selected(kinds):
    labels = pd.Series(np.random.default_rng(0).integers(0, 3, 30), index=wide(kinds[:30]).index)
    model = ClusterwiseForecaster(labels, factorization=SMALL).fit(frame(kinds[:30], "D"))
    assert model.n_clusters_ == 1


@pytest.mark.parametrize("k", [2, 8, 30])
def test_a_zero_forecast_does_not_improve_with_more_clusters(kinds, k, monkeypatch):
    """Neither in the selection of the forecaster nor in pooled scores, unlike in the mean error of the clusters."""
    monkeypatch.setattr(clusterwise, "mixture_forecast", lambda forecasts, *_: np.zeros(forecasts.shape[:-1]))
    model = ClusterwiseForecaster(BaselineSegmenter(k), factorization=SMALL).fit(frame(kinds[:, :-7], "D"))
    assert model.selection_["n_clusters"].max() == k
    np.testing.assert_allclose(model.selection_["loss"], 1)
    assert model.n_clusters_ == 1
    labels = BaselineSegmenter(k).fit(wide(kinds[:, :-7])).labels_
    backtest = frame(kinds[:, -7:], "D").assign(cutoff=0, zero=0.0, cluster=np.repeat(labels, 7))
    pooled, by_cluster = (evaluate(backtest, ["wape", "rmse"], by=by) for by in (None, "cluster"))
    assert pooled.loc["zero", "wape"] == 1
    assert pooled.loc["zero", "rmse"] == pytest.approx(np.sqrt(np.square(kinds[:, -7:]).mean()))
    users = backtest.groupby("cluster").size().to_numpy()
    assert np.average(by_cluster.loc["zero", "rmse"], weights=users) < pooled.loc["zero", "rmse"]


def test_labels_can_be_given(kinds):
    labels = pd.Series(["weekly"] * 30 + ["walk"] * 30, index=wide(kinds).index)
    model = ClusterwiseForecaster(labels, factorization=SMALL).fit(frame(kinds, "D"))
    assert model.n_clusters_ == 2
    with pytest.raises(InputError, match="'u059'"):
        ClusterwiseForecaster(labels[:-1], factorization=SMALL).fit(frame(kinds, "D"))


def test_any_clusterer_can_be_used(kinds):
    model = ClusterwiseForecaster(KMeans(2, n_init=1, random_state=0), factorization=SMALL)
    found = model.fit(frame(np.log1p(np.maximum(kinds, 0)), "D"))
    assert np.isfinite(path(found)).all()


def test_scaling_a_series_scales_its_forecast(kinds):
    factor = np.where(np.arange(60) == 4, 1e3, 1.0)[:, None]
    model = ClusterwiseForecaster(BaselineSegmenter(2), factorization=SMALL)
    plain, scaled = (path(model.fit(frame(y[:, :-14], "D"))) for y in (kinds, kinds * factor))
    np.testing.assert_allclose(scaled, plain * factor, rtol=1e-4)


def test_short_and_constant_histories():
    rng = np.random.default_rng(0)
    odd = np.vstack([np.zeros(20), np.full(20, 7.0), rng.random((9, 20))])
    for y in (odd, odd[:, :3], odd[1:2]):
        found = path(ClusterwiseForecaster(factorization=SMALL).fit(frame(y, "D")), h=30)
        assert np.isfinite(found).all()
    assert np.allclose(path(ClusterwiseForecaster(factorization=SMALL).fit(frame(odd, "D")))[0], 0, atol=1e-6)


def test_many_origins_equal_single_ones(kinds):
    model = ClusterwiseForecaster(BaselineSegmenter(2), factorization=SMALL).fit(frame(kinds, "D"))
    many = model.forecast_from(model.panel_, np.array([120, 126, 133]), 7)
    one = model.forecast_from(model.panel_, np.array([120]), 7)
    np.testing.assert_array_equal(many[:, :1], one)
    assert np.isfinite(many).all()


def test_intervals_surround_the_forecast(fitted):
    found = fitted.predict(h=3, level=[80])
    low, middle, high = (found[f"ClusterwiseForecaster{end}"] for end in ("-lo-80", "", "-hi-80"))
    assert ((low <= middle) & (middle <= high)).all()


class TestExchange:
    @pytest.fixture
    def lines(self):
        """Forty users, each from one of two regressions."""
        rng = np.random.default_rng(0)
        truth = np.repeat([0, 1], 20)
        x = rng.normal(size=(40, 15, 2))
        y = np.einsum("urc,uc->ur", x, np.array([[2.0, -1.0], [-1.0, 3.0]])[truth]) + rng.normal(0, 0.1, (40, 15))
        return truth, NormalEquations.of(x, y)

    def test_users_are_reassigned_to_their_cluster(self, lines):
        truth, equations = lines
        start = np.where(np.arange(40) % 5 == 0, 1 - truth, truth)
        found = exchange(equations, start, switching_cost=1.0, penalty=0.1, towards=np.zeros(2))
        posterior = membership_posterior(membership_costs(equations, found.weights, start, 1.0))
        np.testing.assert_array_equal(posterior.argmax(axis=1), truth)
        np.testing.assert_array_equal(found.labels, truth)
        np.testing.assert_allclose(found.weights[0], [2, -1], atol=0.1)

    def test_the_objective_never_rises(self, lines):
        segments = np.random.default_rng(1).integers(0, 3, 40)
        found = exchange(lines[1], segments, switching_cost=0.5, penalty=0.1, towards=np.zeros(2))
        assert len(found.objective) >= 2
        assert (np.diff(found.objective) <= 1e-9).all()

    def test_an_infinite_switching_cost_reassigns_no_user(self, lines):
        segments = np.random.default_rng(1).integers(0, 2, 40)
        found = exchange(lines[1], segments, switching_cost=np.inf, penalty=0.1, towards=np.zeros(2))
        np.testing.assert_array_equal(found.labels, segments)


def test_one_burst_does_not_determine_the_selection():
    errors = np.ones((2, 2000))
    errors[1] = 0.9
    errors[1, 0] = 1e6
    blocks = [bounded_losses(errors * size, np.full(2000, size)).mean(axis=1) for size in (1.0, 1.1, 1.2)]
    assert blocks[0][1] < blocks[0][0]


class TestSelection:
    """Blocks of time are the evidence for a choice, whatever the number of users in them."""

    def test_a_gain_in_every_block_is_significant(self):
        losses = np.array([[1.0, 0.95], [2.0, 1.88], [1.5, 1.43]])
        assert select_method(losses, losses) == 1

    def test_a_gain_in_one_block_of_many_users_is_not(self):
        losses = np.array([[1.0, 0.5], [1.0, 1.01], [1.0, 1.0], [1.0, 1.02]])
        assert losses.mean(axis=0)[1] < 0.9
        assert select_method(losses, losses) == 0

    def test_one_block_is_no_evidence(self):
        assert select_method(np.array([[1.0, 0.1]]), np.array([[1.0, 0.1]])) == 0

    def test_a_larger_pooled_error_excludes_a_method(self):
        losses = np.tile([1.0, 0.8, 0.9], (4, 1)) * np.array([[1.0], [1.1], [0.9], [1.2]])
        losses += np.arange(12).reshape(4, 3) * 1e-3
        assert select_method(losses, losses) == 1
        assert select_method(losses, losses * [1.0, 1.5, 1.0]) == 2

    def test_zero_losses_select_nothing(self):
        assert select_method(np.zeros((3, 2)), np.zeros((3, 2))) == 0


def test_the_level_factor_is_one_for_small_differences():
    truth = np.full((4, 2, 3), 10.0)
    assert level_factor(truth, truth / 1.05) == 1.0
    assert level_factor(truth, truth / 1.5) == pytest.approx(1.5)
    assert level_factor(truth, truth / 9) == 2.0
    assert level_factor(truth - 11, truth) == 1.0
    assert level_factor(truth, np.zeros_like(truth)) == 1.0


def test_the_number_of_segments_is_chosen_when_the_history_has_doubled(kinds):
    """A number chosen from later bins would be known too early; one chosen at each origin takes most of the time."""
    chosen, seen = [], []

    class Choosing(BaselineSegmenter):
        def __init__(self, n_segments="auto"):
            super().__init__(2)
            self.n_segments = n_segments

        def fit(self, X, y=None):
            (chosen if self.n_segments == "auto" else seen).append(X.shape[1])
            self.n_segments_ = 3
            self.n_clusters = 3 if self.n_segments == "auto" else self.n_segments
            return super().fit(X)

    model = ClusterwiseForecaster(Choosing(), factorization=SMALL).fit(frame(kinds[:, :-5], "D"))
    assert sorted(chosen) == [64, 128]
    assert len(seen) > 2
    assert set(model.selection_["n_clusters"]) == {1, 3}


@pytest.mark.parametrize("kind", [ClusterwiseForecaster, ClusterwiseFactorization, TemporalFactorization])
def test_a_seed_may_be_left_open_and_is_checked(kind):
    usage = frame(two_kinds(n=4, days=28), "D")
    kind(random_state=None).fit(usage)
    for seed in ("0", -1):
        with pytest.raises(InputError, match="random_state must be a whole number"):
            kind(random_state=seed).fit(usage)
