"""Clusterwise factorization: the reassignment of users, and forecasts by cluster."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from gpudemand._validation import InputError
from gpudemand.forecast import (
    ClusterwiseFactorization,
    ClusterwiseForecaster,
    TemporalFactorization,
)
from gpudemand.forecast.clusterwise_factorization import _loadings, reassign_users
from gpudemand.metrics import rmse

from .canaries import frame, matrix

SMALL = TemporalFactorization(n_factors=2, n_sweeps=5)
KINDS = np.repeat([0, 1, 2], 20)


def courses(seed=0, n_days=100, noise=0.2):
    """Users of three kinds; those of a kind share a random course in amounts of their own."""
    rng = np.random.default_rng(seed)
    shared = 30 + np.cumsum(rng.normal(size=(3, n_days)), axis=1)
    return shared[KINDS] * rng.uniform(1, 3, (60, 1)) + rng.normal(0, noise, (60, n_days))


def z_scores(y):
    return (y - y.mean(axis=1, keepdims=True)) / y.std(axis=1, keepdims=True)


def at_random(seed, n_clusters=3):
    return np.random.default_rng(seed).integers(0, n_clusters, 60)


def reassigned(y, starts, rank=1, max_passes=100):
    return reassign_users(y, starts, rank, 1.0, max_passes=max_passes)


class TestReassignment:
    def test_planted_clusters_are_found_from_random_starts(self):
        found = reassigned(z_scores(courses()), [at_random(seed) for seed in range(4)])
        assert adjusted_rand_score(KINDS, found.labels) == 1.0

    @pytest.mark.parametrize("rank", [1, 3])
    def test_the_objective_never_rises_and_no_user_wants_to_move_in_the_end(self, rank):
        y = z_scores(np.random.default_rng(0).normal(size=(60, 40)))
        found = reassigned(y, [at_random(1)], rank)
        assert 2 < len(found.objective) < 100
        assert (np.diff(found.objective) < 1e-9).all()
        loadings, gain = _loadings(y, found.latent, 1.0)
        np.testing.assert_array_equal(found.labels, gain.argmax(axis=0))
        own = loadings[found.labels, np.arange(60)]
        fitted = np.einsum("nr,nrt->nt", own, found.latent[found.labels])
        cost = np.square(y - fitted).sum() + np.square(own).sum() + np.square(found.latent).sum()
        assert found.objective[-1] == pytest.approx(cost)

    def test_the_best_start_is_kept(self):
        y = z_scores(courses())
        one = [reassigned(y, [at_random(seed)]).objective[-1] for seed in range(4)]
        best = reassigned(y, [at_random(seed) for seed in range(4)])
        assert best.objective[-1] == min(one)
        assert best.start == int(np.argmin(one))

    def test_without_passes_nobody_moves(self):
        found = reassigned(z_scores(courses()), [at_random(0)], max_passes=0)
        assert found.n_moved == 0
        np.testing.assert_array_equal(found.labels, at_random(0))


class TestForecaster:
    def test_clusters_do_not_depend_on_the_order_of_the_users(self):
        """Of series without clusters, where every start ends elsewhere."""
        y, order = courses(noise=30.0), np.random.default_rng(1).permutation(60)
        models = [ClusterwiseFactorization(3, factorization=SMALL).fit(frame(part, "D")) for part in (y, y[order])]
        np.testing.assert_array_equal(models[0].labels_.to_numpy()[order], models[1].labels_)

    def test_clusters_pay_where_kinds_share_courses(self):
        """Twenty noisy users a kind, whose courses one factor for all cannot follow."""
        y = courses(noise=3.0)
        train, truth = frame(y[:, :-1], "D"), y[:, -1:]
        one = TemporalFactorization(1, residual_penalty=None)
        model = ClusterwiseFactorization(3, factorization=one).fit(train)
        assert adjusted_rand_score(KINDS, model.labels_) == 1.0
        own, shared = (matrix(m.predict(1), type(m).__name__) for m in (model, one.fit(train)))
        size = y.std(axis=1, keepdims=True)
        assert rmse(truth / size, own / size) < 0.8 * rmse(truth / size, shared / size)

    @pytest.mark.slow
    def test_the_future_does_not_reach_labels_or_forecasts(self):
        y = courses()
        later = np.hstack([y[:, :-10], np.random.default_rng(5).permutation(y[:, -10:])])
        model = ClusterwiseFactorization(3, factorization=SMALL)
        one, two = (model.forecast_from(model.fit(frame(v, "D")).panel_, np.array([90]), 10) for v in (y, later))
        np.testing.assert_array_equal(one, two)

    def test_scaling_a_series_scales_its_forecast_only(self):
        y, factor = courses(), np.where(np.arange(60) == 4, 1e6, 1.0)[:, None]
        model = ClusterwiseFactorization(3, factorization=SMALL)
        plain, scaled = (matrix(model.fit(frame(v, "D")).predict(5), type(model).__name__) for v in (y, y * factor))
        np.testing.assert_allclose(scaled, plain * factor, rtol=1e-6)

    def test_segments_are_the_only_start(self):
        y = courses()
        start = pd.Series(np.roll(KINDS, 5), index=frame(y, "D")["unique_id"].unique())
        fixed = ClusterwiseFactorization(segmenter=start, max_passes=0, factorization=SMALL).fit(frame(y, "D"))
        moved = ClusterwiseFactorization(segmenter=start, factorization=SMALL).fit(frame(y, "D"))
        np.testing.assert_array_equal(fixed.labels_, start)
        assert fixed.n_moved_ == 0
        assert moved.n_moved_ == 15
        assert adjusted_rand_score(KINDS, moved.labels_) == 1.0

    def test_odd_series_are_forecast(self):
        rng = np.random.default_rng(0)
        odd = np.vstack([np.zeros(20), np.full(20, 7.0), rng.random((9, 20))])
        odd[5, :10] = np.nan
        for y, n_clusters in ((odd, 2), (np.delete(odd, 5, axis=0)[:, :3], 3), (odd[1:2], 4)):
            model = ClusterwiseFactorization(n_clusters, factorization=SMALL).fit(frame(y, "D"))
            assert np.isfinite(matrix(model.predict(30), "ClusterwiseFactorization")).all()

    @pytest.mark.slow
    def test_it_serves_the_clusterwise_forecaster(self):
        model = ClusterwiseForecaster(factorization=ClusterwiseFactorization(3, factorization=SMALL), n_clusters=())
        model.fit(frame(courses(), "D"))
        assert adjusted_rand_score(KINDS, model.factorization_.labels_) == 1.0
        assert np.isfinite(matrix(model.predict(7), "ClusterwiseForecaster")).all()

    @pytest.mark.parametrize("parameters", [{"n_clusters": 0}, {"rank": 0}, {"max_passes": -1}])
    def test_parameters_out_of_range_are_an_error(self, parameters):
        with pytest.raises(InputError, match=next(iter(parameters))):
            ClusterwiseFactorization(**parameters).fit(frame(courses(), "D"))
