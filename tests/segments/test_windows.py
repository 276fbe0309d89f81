"""Windows against giotto-tda, landmarks against their covering radius."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import gpudemand.segments as gs
from gpudemand import InputError


@pytest.mark.parametrize("params", [(50, 1, 1), (3, 2, 1), (4, 1, 3), (2, 5, 7)])
def test_windows_are_those_of_giotto_tda(params):
    series = pytest.importorskip("gtda.time_series", reason="needs the extra tda")
    dimension, time_delay, stride = params
    y = np.random.default_rng(0).random(83)
    theirs = series.TakensEmbedding(dimension=dimension, time_delay=time_delay, stride=stride).fit_transform([y])[0]
    ours = gs.takens_embedding(y, dimension=dimension, time_delay=time_delay, stride=stride)
    np.testing.assert_array_equal(ours, theirs)


def test_the_last_window_ends_at_the_last_value():
    assert gs.takens_embedding(np.arange(11), dimension=3, time_delay=2, stride=4)[-1].tolist() == [6, 8, 10]


def test_windows_are_a_view():
    y = np.arange(9.0)
    assert np.shares_memory(gs.takens_embedding(y, dimension=3), y)


def test_missing_values_are_propagated_to_their_windows():
    assert np.isnan(gs.takens_embedding([1, np.nan, 2, 3, 4], dimension=2)).any(axis=1).tolist() == [1, 1, 0, 0]


def test_a_series_shorter_than_a_window_is_an_error():
    with pytest.raises(InputError, match="a series of 49 values is shorter than one window of 50"):
        gs.takens_embedding(np.zeros(49))


def test_invalid_parameters_are_an_error():
    with pytest.raises(InputError, match="stride must be a whole number"):
        gs.takens_embedding(np.zeros(9), dimension=2, stride=0)


CLOUDS = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=30)


@settings(deadline=None)
@given(CLOUDS, st.integers(1, 12))
def test_every_point_has_a_landmark_within_the_radius(points, n_landmarks):
    cloud = np.array(points, dtype=float)
    landmarks = gs.maxmin_landmarks(cloud, n_landmarks)
    chosen = cloud[landmarks.indices]
    assert cdist(cloud, chosen).min(axis=1).max() == pytest.approx(landmarks.radius)
    np.testing.assert_allclose(landmarks.distances, cdist(chosen, chosen))
    assert len(np.unique(chosen, axis=0)) == len(chosen) <= n_landmarks


@settings(deadline=None)
@given(CLOUDS)
def test_without_a_limit_all_distinct_points_are_landmarks(points):
    landmarks = gs.maxmin_landmarks(points, None)
    assert len(landmarks.indices) == len(set(points))
    assert landmarks.radius == 0


def test_landmarks_are_scale_invariant():
    week = np.tile([3.0, 3, 3, 3, 3, 0, 0.1], 9)
    before, after = (gs.maxmin_landmarks(gs.takens_embedding(y, dimension=10), 5) for y in (week, week / 3 * 7e5))
    assert before.indices.tolist() == after.indices.tolist()


@pytest.mark.parametrize("points", [np.zeros(3), np.zeros((0, 2)), [[np.nan, 1.0]]])
def test_invalid_point_clouds_are_an_error(points):
    with pytest.raises(InputError, match="points must be finite"):
        gs.maxmin_landmarks(points)
