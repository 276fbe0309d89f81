"""Clusterwise forecasts: planted kinds of users are found, one kind stays one, and the future stays out of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans

from gpudemand._validation import InputError
from gpudemand.forecast import TemporalFactorization
from gpudemand.forecast.clusterwise.clusterwise import ClusterwiseForecaster
from gpudemand.forecast.clusterwise.exchange import Moments, costs, exchange, gate
from gpudemand.forecast.clusterwise.initial_partition import KINDS, PlainSegmenter
from gpudemand.forecast.clusterwise.loss_comparison import best_of, bounded_losses
from gpudemand.forecast.combination.base_forecasts import level_factor
from gpudemand.metrics import evaluate, rmse
from tests.forecast.test_factorization import frame, matrix

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


def test_kinds_of_users_are_told_apart(fitted):
    first, second = set(fitted.labels_[:30]), set(fitted.labels_[30:])
    assert not first & second
    assert fitted.n_clusters_ == fitted.probabilities_.shape[1] > 1


def test_clusters_pay_where_users_differ(kinds, fitted):
    y, truth = kinds[:, :-14], kinds[:, -14:-7]
    one = fitted._opinions(fitted.panel_.values, 7)[..., 1]
    size = y.std(axis=1, keepdims=True)
    assert rmse(truth / size, path(fitted) / size) < 0.95 * rmse(truth / size, one / size)


def test_who_is_not_served_by_the_others_keeps_to_the_factorization(kinds):
    """Two series that only the factorization can follow: pulses every fourth day, which no summary knows of."""
    pulses = 30.0 * (np.arange(140) % 4 == 0) + np.random.default_rng(0).random((2, 140))
    lags = TemporalFactorization(n_factors=4, lags=(1, 4, 7), own_penalty=1)
    model = ClusterwiseForecaster(factorization=lags, n_clusters=(2,)).fit(frame(np.vstack([kinds, pulses]), "D"))
    assert model.trust_["factorization"].iloc[-2:].min() > 0.9 > 0.3 > model.trust_["factorization"].iloc[:-2].mean()
    np.testing.assert_allclose(model.trust_.sum(axis=1), 1)


def test_one_kind_stays_one():
    rng = np.random.default_rng(3)
    y = rng.gamma(2, 3, (80, 120))
    model = ClusterwiseForecaster(factorization=SMALL).fit(frame(y, "D"))
    assert model.n_clusters_ == 1
    assert (model.labels_ == 0).all()


def test_random_clusters_are_not_taken(kinds):
    model = ClusterwiseForecaster(PlainSegmenter("random", 3), factorization=SMALL).fit(frame(kinds[:30], "D"))
    assert model.n_clusters_ == 1


def test_the_future_cannot_reach_labels_or_forecasts(kinds):
    shuffled = kinds.copy()
    shuffled[:, -14:] = np.random.default_rng(0).permutation(shuffled[:, -14:])
    models = [
        ClusterwiseForecaster(factorization=SMALL, n_clusters=(2,)).fit(frame(y[:, :-14], "D"))
        for y in (kinds, shuffled)
    ]
    pd.testing.assert_series_equal(models[0].labels_, models[1].labels_)
    np.testing.assert_array_equal(path(models[0]), path(models[1]))


@pytest.mark.parametrize("k", [2, 8, 30])
def test_a_zero_forecast_does_not_improve_with_more_clusters(kinds, k):
    """Pooled errors do not mind clusters; the mean of clusters' errors, which we do not report, does."""
    truth, labels = kinds[:, -7:], np.random.default_rng(0).integers(0, k, 60)
    zero = np.zeros_like(truth)
    backtest = frame(truth, "D").assign(cutoff=0, zero=0.0)
    clusters = dict(zip(wide(truth).index, labels, strict=True))
    pooled = evaluate(backtest.assign(unique_id=backtest["unique_id"].map(clusters)), ["rmse"]).loc["zero", "rmse"]
    again = np.sqrt(sum(np.square(truth[labels == c]).sum() for c in range(k)) / truth.size)
    assert again == pytest.approx(pooled)
    share = [(labels == c).mean() * rmse(truth[labels == c], zero[labels == c]) for c in set(labels)]
    assert sum(share) <= pooled


def test_labels_can_be_given(kinds):
    labels = pd.Series(["weekly"] * 30 + ["walk"] * 30, index=wide(kinds).index)
    model = ClusterwiseForecaster(labels, factorization=SMALL).fit(frame(kinds, "D"))
    assert model.n_clusters_ == 2
    with pytest.raises(InputError, match="'u059'"):
        ClusterwiseForecaster(labels[:-1], factorization=SMALL).fit(frame(kinds, "D"))


def test_any_clusterer_will_do(kinds):
    model = ClusterwiseForecaster(KMeans(2, n_init=1, random_state=0), factorization=SMALL)
    found = model.fit(frame(np.log1p(np.maximum(kinds, 0)), "D"))
    assert np.isfinite(path(found)).all()


def test_scaling_a_series_scales_its_forecast(kinds):
    factor = np.where(np.arange(60) == 4, 1e3, 1.0)[:, None]
    model = ClusterwiseForecaster(PlainSegmenter("shape", 2), factorization=SMALL)
    plain, scaled = (path(model.fit(frame(y[:, :-14], "D"))) for y in (kinds, kinds * factor))
    np.testing.assert_allclose(scaled, plain * factor, rtol=1e-4)


def test_new_users_are_forecast_from_their_segment(fitted):
    later = two_kinds(seed=5)
    usage = frame(later[:, :-14], "D").assign(unique_id=lambda f: "new" + f["unique_id"])
    found = matrix(fitted.predict_new(usage, h=7), "ClusterwiseForecaster")
    mean = np.repeat(later[:, :-14].mean(axis=1, keepdims=True), 7, axis=1)
    assert rmse(later[:, -14:-7], found) < 0.5 * rmse(later[:, -14:-7], mean)


def test_short_and_odd_histories():
    rng = np.random.default_rng(0)
    odd = np.vstack([np.zeros(20), np.full(20, 7.0), np.full(20, np.nan), rng.random((9, 20))])
    for y in (odd, odd[:, :3], odd[1:2]):
        found = path(ClusterwiseForecaster(factorization=SMALL).fit(frame(y, "D")), h=30)
        assert np.isfinite(found).all()
    assert np.allclose(path(ClusterwiseForecaster(factorization=SMALL).fit(frame(odd, "D")))[0], 0, atol=1e-6)


def test_many_origins_beyond_what_was_fitted(kinds):
    model = ClusterwiseForecaster(PlainSegmenter("shape", 2), factorization=SMALL).fit(frame(kinds, "D"))
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
        """Forty users at three origins, who follow one of two regressions."""
        rng = np.random.default_rng(0)
        truth = np.repeat([0, 1], 20)
        x = rng.normal(size=(40, 3, 5, 2))
        y = np.einsum("uorc,uc->uor", x, np.array([[2.0, -1.0], [-1.0, 3.0]])[truth]) + rng.normal(0, 0.1, (40, 3, 5))
        return truth, Moments.of(x.reshape(120, 5, 2), y.reshape(120, 5))

    def test_users_move_to_where_they_belong(self, lines):
        truth, moments = lines
        start = np.where(np.arange(40) % 5 == 0, 1 - truth, truth)
        segments = np.repeat(start[:, None], 3, axis=1)
        found = exchange(moments, segments, 2, reluctance=1.0, penalty=0.1, towards=np.zeros(2))
        odds = gate(costs(moments, found.weights, segments, 1.0), start)
        np.testing.assert_array_equal(odds.argmax(axis=1), truth)
        np.testing.assert_allclose(found.weights[0], [2, -1], atol=0.1)

    def test_the_objective_never_rises(self, lines):
        segments = np.random.default_rng(1).integers(0, 3, (40, 3))
        found = exchange(lines[1], segments, 3, reluctance=0.5, penalty=0.1, towards=np.zeros(2))
        assert len(found.objective) >= 2
        assert (np.diff(found.objective) <= 1e-9).all()

    def test_the_reluctant_stay(self, lines):
        segments = np.random.default_rng(1).integers(0, 2, (40, 3))
        found = exchange(lines[1], segments, 2, reluctance=np.inf, penalty=0.1, towards=np.zeros(2))
        assert (found.settled == -1).all()


def test_one_burst_does_not_decide():
    wrong = np.ones((2, 2000))
    wrong[1] = 0.9
    wrong[1, 0] = 1e6
    assert best_of(bounded_losses(wrong, np.ones(2000))) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_plain_segments_come_back_for_new_users(kinds, kind):
    segmenter = PlainSegmenter(kind, 2).fit(wide(kinds))
    assert set(segmenter.labels_) == {0, 1}
    assert len(segmenter.predict(wide(kinds)[wide(kinds).columns[:80]])) == 60
    if kind != "random":
        np.testing.assert_array_equal(segmenter.predict(wide(kinds)), segmenter.labels_)


def test_the_level_is_moved_only_where_it_is_far_off():
    truth = np.full((4, 2, 3), 10.0)
    assert level_factor(truth, truth / 1.05) == 1.0
    assert level_factor(truth, truth / 1.5) == pytest.approx(1.5)
    assert level_factor(truth, truth / 9) == 2.0
    assert level_factor(truth - 11, truth) == 1.0
    assert level_factor(truth, np.zeros_like(truth)) == 1.0
