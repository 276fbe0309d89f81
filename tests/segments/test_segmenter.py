"""Segments of users: recovery of known classes, one segment for one class, invariances, invalid input."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

import gpudemand as gd
from gpudemand._validation import InputError
from gpudemand.segments import TopologicalSegmenter
from tests.tiers import slow_beside

N_DAYS = 112
#: The published methods need giotto-ph.
METHODS = [
    "joint",
    *(
        pytest.param(name, marks=pytest.mark.skipif(find_spec("gph") is None, reason="needs giotto-ph (extra tda)"))
        for name in ("voting", "pairs")
    ),
]


def population(n_users=45, seed=0):
    """Noisy series of three classes of equal size: weekdays, every day, one burst."""
    rng = np.random.default_rng(seed)
    days = pd.date_range("2026-01-05", periods=N_DAYS, freq="D")
    kinds = np.arange(n_users) % 3
    signal = np.zeros((n_users, N_DAYS))
    signal[kinds == 0] = (days.day_of_week < 5) * 8.0
    signal[kinds == 1] = 8.0
    for row in np.flatnonzero(kinds == 2):
        begin = 7 * rng.integers(1, 12)
        signal[row, begin : begin + 14] = 8.0
    values = signal * rng.lognormal(0, 0.3, signal.shape) * rng.lognormal(0, 1, (n_users, 1))
    return pd.DataFrame(values, index=[f"user-{row}" for row in range(n_users)], columns=days), kinds


@pytest.fixture(scope="module")
def users():
    return population()


@pytest.fixture(scope="module")
def fitted(users):
    return TopologicalSegmenter(random_state=0).fit(users[0])


def test_three_classes_are_found(users, fitted):
    assert fitted.n_segments_ == 3
    assert adjusted_rand_score(users[1], fitted.labels_) > 0.95
    assert fitted.selection_.loc[3, "stability"] > 0.9


def test_segments_are_numbered_by_gpu_hours(users, fitted):
    hours = users[0].sum(axis=1).groupby(fitted.labels_).sum()
    assert hours.is_monotonic_decreasing
    assert fitted.shares_.sum() == pytest.approx(1.0)


def test_labels_are_the_most_probable_segments_and_predict_repeats_them(users, fitted):
    assert fitted.probabilities_.shape == (45, 3)
    np.testing.assert_allclose(fitted.probabilities_.sum(axis=1), 1.0)
    np.testing.assert_array_equal(fitted.predict(users[0]), fitted.labels_)
    pd.testing.assert_frame_equal(fitted.transform(users[0]), fitted.features_)


def test_unseen_users_get_the_segment_of_their_class(users, fitted):
    wide, kinds = population(30, seed=7)
    known = pd.crosstab(users[1], fitted.labels_).to_numpy().argmax(axis=1)
    assert (fitted.predict(wide) == known[kinds]).mean() > 0.95


@pytest.mark.parametrize("kind", range(3))
def test_one_class_is_one_segment(kind):
    wide, kinds = population(120, seed=3)
    assert TopologicalSegmenter(random_state=0).fit(wide[kinds == kind]).n_segments_ == 1


def test_order_of_users_does_not_change_the_number_of_segments(users, fitted):
    order = np.random.default_rng(2).permutation(45)
    again = TopologicalSegmenter(random_state=0).fit(users[0].iloc[order])
    np.testing.assert_array_equal(fitted.labels_[order], again.labels_)
    pd.testing.assert_frame_equal(fitted.selection_, again.selection_)


@pytest.mark.parametrize("method", METHODS)
def test_order_of_users_changes_the_order_of_labels_only(users, method):
    wide, _ = users
    order = np.random.default_rng(1).permutation(len(wide))
    first = TopologicalSegmenter(3, method=method, random_state=0).fit(wide)
    second = TopologicalSegmenter(3, method=method, random_state=0).fit(wide.iloc[order])
    np.testing.assert_array_equal(first.labels_[order], second.labels_)


def test_scale_changes_level_features_only(users, fitted):
    wide = users[0].copy()
    wide.iloc[4] *= 1e9
    again = TopologicalSegmenter(random_state=0).fit(wide)
    assert adjusted_rand_score(fitted.labels_, again.labels_) == 1.0
    changed = ~np.isclose(fitted.features_, again.features_, atol=1e-6).all(axis=0)
    assert fitted.features_.columns[changed].tolist() == ["rfm__monetary"]


def test_shifts_by_whole_weeks_change_nothing(users, fitted):
    wide = users[0].set_axis(users[0].columns + pd.Timedelta("21D"), axis=1)
    np.testing.assert_array_equal(TopologicalSegmenter(random_state=0).fit(wide).labels_, fitted.labels_)


def test_a_clone_with_the_same_seed_gives_the_same_segments(users, fitted):
    again = clone(fitted).fit(users[0])
    np.testing.assert_array_equal(again.probabilities_, fitted.probabilities_)


def test_hourly_usage_is_segmented():
    rng = np.random.default_rng(0)
    hours = pd.date_range("2026-03-02", periods=24 * 28, freq="h")
    night, office = (hours.hour < 6), (abs(hours.hour - 13) < 4) & (hours.day_of_week < 5)
    signal = np.repeat(np.array([night, office, np.ones(len(hours), dtype=bool)]), 12, axis=0)
    wide = pd.DataFrame(signal * rng.exponential(1.0, signal.shape), columns=hours)
    segmenter = TopologicalSegmenter(random_state=0).fit(wide)
    assert adjusted_rand_score(np.repeat([0, 1, 2], 12), segmenter.labels_) == 1.0


class TestShortHistory:
    def test_users_without_use_get_the_shares(self, fitted, users):
        idle = users[0].iloc[:1] * 0.0
        np.testing.assert_allclose(fitted.predict_proba(idle)[0], fitted.shares_)

    def test_one_active_day_has_half_the_weight(self, fitted, users):
        one = pd.DataFrame(0.0, index=["new"], columns=users[0].columns)
        one.iloc[0, -1] = 8.0
        probability = fitted.predict_proba(one)[0]
        assert probability.max() <= 0.5 + 0.5 * fitted.shares_.max() + 1e-9
        assert probability.min() >= 0.5 * fitted.shares_.min() - 1e-9

    def test_a_history_that_began_last_week_has_finite_probabilities(self, fitted, users):
        new = users[0].iloc[:3].copy()
        new.iloc[:, :-7] = np.nan
        assert np.isfinite(fitted.predict_proba(new)).all()

    def test_a_shorter_table_is_accepted(self, fitted, users):
        assert fitted.predict(users[0].iloc[:, -10:]).shape == (45,)


class TestDegenerateInput:
    @pytest.mark.parametrize("value", [0.0, 5.0])
    def test_all_zero_or_constant_is_one_segment(self, users, value):
        wide = users[0] * 0.0 + value
        segmenter = TopologicalSegmenter(random_state=0).fit(wide)
        assert segmenter.n_segments_ == 1
        assert np.isfinite(segmenter.features_).all(axis=None)

    def test_scales_over_nine_orders_of_magnitude(self, users, fitted):
        wide = users[0].mul(10.0 ** np.linspace(-4.5, 4.5, 45), axis=0)
        segmenter = TopologicalSegmenter(random_state=0).fit(wide)
        assert adjusted_rand_score(fitted.labels_, segmenter.labels_) == 1.0

    def test_series_shorter_than_the_window_of_rips(self, users):
        pytest.importorskip("gph")
        segmenter = TopologicalSegmenter(2, blocks=["rips"], random_state=0).fit(users[0].iloc[:, :10])
        assert segmenter.labels_.tolist() == [0] * 45

    def test_a_spike_and_missing_values_have_finite_features(self, users):
        wide = users[0].copy()
        wide.iloc[0] = 0.0
        wide.iloc[0, 50] = 1e9
        wide.iloc[1, 20:60] = np.nan
        wide.iloc[2] = np.nan
        segmenter = TopologicalSegmenter(random_state=0).fit(wide)
        assert np.isfinite(segmenter.features_).all(axis=None)
        assert np.isfinite(segmenter.probabilities_).all()

    @pytest.mark.parametrize("method", METHODS)
    def test_one_user_is_one_segment(self, users, method):
        segmenter = TopologicalSegmenter(method=method, random_state=0).fit(users[0].iloc[:1])
        assert segmenter.labels_.tolist() == [0]

    def test_fewer_users_than_segments_are_an_error(self, users):
        with pytest.raises(InputError, match="more than the 4 users"):
            TopologicalSegmenter(5).fit(users[0].iloc[:4])

    @pytest.mark.parametrize("value", [-1.0, np.inf])
    def test_negative_and_infinite_values_are_an_error(self, users, value):
        wide = users[0].copy()
        wide.iloc[3, 3] = value
        with pytest.raises(InputError, match=r"below zero|infinite"):
            TopologicalSegmenter().fit(wide)

    def test_all_missing_is_an_error(self, users):
        with pytest.raises(InputError, match="missing values only"):
            TopologicalSegmenter().fit(users[0] * np.nan)

    def test_duplicate_users_are_an_error(self, users):
        with pytest.raises(InputError, match="duplicate user"):
            TopologicalSegmenter().fit(pd.concat([users[0], users[0].iloc[:1]]))

    def test_rows_of_unequal_lengths_are_an_error(self):
        with pytest.raises(InputError, match="matrix of numbers"):
            TopologicalSegmenter().fit([[1.0, 2.0], [1.0]])

    @pytest.mark.parametrize("n_days", [1, 2, 3, 6])
    def test_series_shorter_than_a_week_are_segmented(self, users, n_days):
        wide = users[0].iloc[:, :n_days]
        assert TopologicalSegmenter(2, random_state=0).fit(wide).labels_.shape == (45,)

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"n_segments": 0}, "n_segments"),
            ({"n_segments": "many"}, "'auto'"),
            ({"method": "votes"}, "voting"),
            ({"blocks": ["spectrun"]}, "spectrum"),
            ({"blocks": []}, "blocks"),
            ({"max_segments": 1.5}, "max_segments"),
        ],
    )
    def test_parameters_out_of_range_are_an_error(self, users, parameters, message):
        with pytest.raises(InputError, match=message):
            TopologicalSegmenter(**parameters).fit(users[0])


def test_an_array_is_segmented_by_blocks_that_need_no_times(users):
    segmenter = TopologicalSegmenter(random_state=0).fit(users[0].to_numpy() - 3.0)
    assert {name.split("__")[0] for name in segmenter.features_} == {"persistence_curves"}
    with pytest.raises(InputError, match="calendar"):
        TopologicalSegmenter(blocks=["calendar"]).fit(users[0].to_numpy())


@pytest.mark.parametrize("n_segments", ["auto", 2, 5])
def test_identical_users_share_a_segment(users, n_segments):
    """Two distinct series, fewer than the clusters that are tried: no warning, and no third segment."""
    wide = pd.concat([users[0].iloc[[0]]] * 30 + [users[0].iloc[[1]]] * 30).set_axis(pd.RangeIndex(60))
    segmenter = TopologicalSegmenter(n_segments, random_state=0).fit(wide)
    assert segmenter.n_segments_ == 2
    assert adjusted_rand_score(np.repeat([0, 1], 30), segmenter.labels_) == 1.0


@pytest.mark.slow
def test_four_simulated_archetypes_are_found():
    """Four archetypes at a signal-to-noise ratio of one."""
    kinds = ["steady", "nightly", "weekday", "burst"]
    jobs, truth = gd.make_cluster(120, 180, archetypes=kinds, signal_to_noise=1.0, random_state=5)
    wide = gd.to_wide(gd.usage_series(jobs, by="user", freq="D"))
    segmenter = TopologicalSegmenter(random_state=0).fit(wide)
    assert segmenter.n_segments_ == 4
    assert adjusted_rand_score(truth.set_index("user")["archetype"].loc[wide.index], segmenter.labels_) > 0.8


@pytest.mark.parametrize("kind", slow_beside(["sporadic"], ["weekday", "burst", "sporadic"]))
def test_a_simulated_cluster_of_one_archetype_is_one_segment(kind):
    jobs, _ = gd.make_cluster(80, 120, archetypes=[kind], signal_to_noise=1.0, random_state=3)
    wide = gd.to_wide(gd.usage_series(jobs, by="user", freq="D"))
    assert TopologicalSegmenter(random_state=0).fit(wide).n_segments_ == 1


def test_usage_of_another_step_gets_no_segments():
    days = pd.date_range("2026-03-02", periods=60)
    wide = pd.DataFrame(np.random.default_rng(0).gamma(1, size=(12, 60)), columns=days)
    segmenter = TopologicalSegmenter(2, random_state=0).fit(wide)
    segmenter.predict(wide.iloc[:, :50])
    with pytest.raises(InputError, match="bins of 0 days 01:00:00, and the segments were fitted to bins of 1 days"):
        segmenter.predict(wide.set_axis(pd.date_range("2026-03-02", periods=60, freq="h"), axis=1))


@pytest.mark.parametrize("seed", ["0", -1, 0.5, 2**40], ids=str)
def test_a_seed_that_is_none_is_refused(users, seed):
    with pytest.raises(InputError, match="random_state must be a whole number"):
        TopologicalSegmenter(random_state=seed).fit(users[0])
