"""Vietoris-Rips diagrams against giotto-tda and known homology."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import gpudemand.segments as gs
from gpudemand import InputError
from gpudemand.segments.rips import rips_diagrams

pytest.importorskip("gph", reason="needs giotto-ph (extra tda)")


def circle(n_points=42):
    angles = np.linspace(0, 2 * np.pi, n_points, endpoint=False)
    return np.column_stack([np.cos(angles), np.sin(angles)])


def diagram_of(points, n_landmarks=None):
    return rips_diagrams([gs.maxmin_landmarks(points, n_landmarks).distances])[0]


def test_a_circle_has_one_loop():
    diagram = diagram_of(circle())
    (loop,) = diagram[diagram[:, 2] == 1]
    # The sides of the regular polygon, and of the largest triangle in it.
    np.testing.assert_allclose(loop[:2], [2 * np.sin(np.pi / 42), np.sqrt(3)], atol=0.01)
    assert (diagram[:, 2] == 0).sum() == 41


def test_diagrams_are_those_of_giotto_tda():
    homology = pytest.importorskip("gtda.homology", reason="needs the extra tda")
    points = np.random.default_rng(0).random((30, 3))
    theirs = homology.VietorisRipsPersistence(homology_dimensions=(0, 1)).fit_transform(points[None])[0]
    theirs = theirs[theirs[:, 0] < theirs[:, 1]]
    ours = diagram_of(points)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(np.sort(ours, axis=0), np.sort(theirs, axis=0), atol=1e-6)


def test_duplicate_points_do_not_change_the_diagram():
    once = diagram_of(circle(20))
    twice = diagram_of(np.vstack([circle(20), circle(20)]))
    np.testing.assert_allclose(np.sort(once, axis=0), np.sort(twice, axis=0), atol=1e-6)


@pytest.mark.parametrize("n_landmarks", [10, 20, 40])
def test_landmarks_respect_the_error_bound(n_landmarks):
    """Birth and death of the largest loop of all points and of the landmarks differ by at most the bound."""
    points = np.repeat(circle(60), 2, axis=0) + np.random.default_rng(0).normal(0, 0.02, (120, 2))
    bound = 2 * gs.maxmin_landmarks(points, n_landmarks).radius
    largest = []
    for limit in (None, n_landmarks):
        diagram = diagram_of(points, n_landmarks=limit)
        loops = diagram[diagram[:, 2] == 1]
        largest.append(loops[np.argmax(loops[:, 1] - loops[:, 0]), :2])
    assert np.abs(largest[0] - largest[1]).max() <= bound


def test_a_periodic_series_has_a_loop_and_noise_has_none():
    rng = np.random.default_rng(0)
    t = np.arange(200)
    X = np.vstack([np.sin(2 * np.pi * t / 25) + rng.normal(0, 0.1, 200), rng.normal(size=200)])
    block = gs.RipsStatistics(dimension=25).fit(X)
    periodic, noise = block.transform(X)[:, list(block.get_feature_names_out()).index("h1_largest")]
    assert periodic > 3 * noise > 0


def test_degenerate_rows_have_finite_features():
    X = np.zeros((6, 80))
    X[1], X[2, 40], X[3, 20:70], X[4], X[5, :40] = 5, 9, np.nan, np.nan, np.arange(40)
    X[3, :20] = np.random.default_rng(0).random(20)
    features = gs.RipsStatistics(dimension=10).fit_transform(X)
    assert np.isfinite(features).all()
    assert not features[[0, 1, 4]].any()
    assert features[[2, 3, 5]].any(axis=1).all()


def test_a_series_shorter_than_the_window_has_no_loops():
    assert not gs.RipsStatistics(dimension=50).fit_transform(np.random.default_rng(0).random((2, 20))).any()


def test_features_are_scale_invariant():
    X = np.random.default_rng(0).integers(0, 3, (4, 90)).astype(float)
    block = gs.RipsStatistics(dimension=14, n_landmarks=20).fit(X)
    np.testing.assert_allclose(block.transform(3e6 * X), block.transform(X), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_parallel_features_are_the_same():
    X = np.random.default_rng(0).random((200, 30))
    one, two = (gs.RipsStatistics(dimension=5, n_jobs=n).fit_transform(X) for n in (None, 2))
    np.testing.assert_array_equal(one, two)


def test_invalid_parameters_are_an_error():
    with pytest.raises(InputError, match="n_landmarks"):
        gs.RipsStatistics(n_landmarks=0).fit(np.zeros((2, 60)))


def test_without_giotto_ph_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gph", None)
    with pytest.raises(ImportError, match=r"gpudemand\[tda\]"):
        gs.RipsStatistics().fit(np.zeros((2, 60)))
