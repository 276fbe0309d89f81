"""Pairs against GUDHI, giotto-tda and a union-find by definition; statistics against the pairs; the usage matrix."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import gpudemand.segments as gs
from gpudemand import InputError

TIED = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=40)
REAL = st.lists(st.floats(-1e9, 1e9, allow_nan=False), min_size=1, max_size=40)
HOLED = st.lists(st.one_of(st.just(np.nan), st.integers(0, 4).map(float)), min_size=1, max_size=40)
SERIES = st.one_of(TIED, REAL)


def by_definition(y):
    """Union-find over ascending vertices with the elder rule."""
    parent, pairs = {}, []

    def root(i):
        while parent[i] != i:
            i = parent[i]
        return i

    for i in np.argsort(y, kind="stable"):
        parent[i] = i
        for j in (i - 1, i + 1):
            if j in parent and root(j) != root(i):
                old, young = sorted((root(i), root(j)), key=lambda k: (y[k], k))
                parent[young] = old
                if y[young] < y[i]:
                    pairs.append((y[young], y[i]))
    return np.array(sorted([*pairs, (np.min(y), np.inf)]))


@settings(max_examples=300, deadline=None)
@given(SERIES)
def test_pairs_follow_the_definition(y):
    np.testing.assert_array_equal(gs.sublevel_persistence(y), by_definition(np.array(y)))


@settings(max_examples=300, deadline=None)
@given(SERIES)
def test_pairs_equal_those_of_gudhi(y):
    gudhi = pytest.importorskip("gudhi", reason="GUDHI is no dependency")
    cells = gudhi.CubicalComplex(dimensions=[len(y)], top_dimensional_cells=np.array(y))
    cells.persistence(min_persistence=0)
    theirs = cells.persistence_intervals_in_dimension(0)
    theirs = theirs[theirs[:, 0] < theirs[:, 1]]
    theirs = theirs[np.lexsort((theirs[:, 1], theirs[:, 0]))]
    np.testing.assert_allclose(gs.sublevel_persistence(y), theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("essential", "reduced"), [("drop", True), ("max", False)])
def test_conventions_of_giotto_tda(essential, reduced):
    homology = pytest.importorskip("gtda.homology", reason="needs the extra tda")
    y = np.random.default_rng(0).integers(0, 9, 60).astype(float)
    theirs = homology.CubicalPersistence(homology_dimensions=(0,), reduced_homology=reduced).fit_transform(y[None])[0]
    theirs = theirs[theirs[:, 0] < theirs[:, 1], :2]
    theirs = theirs[np.lexsort((theirs[:, 1], theirs[:, 0]))]
    np.testing.assert_allclose(gs.sublevel_persistence(y, essential=essential), theirs)


@settings(deadline=None)
@given(HOLED)
def test_missing_values_are_skipped(y):
    recorded = [value for value in y if not np.isnan(value)]
    expected = gs.sublevel_persistence(recorded) if recorded else np.empty((0, 2))
    np.testing.assert_array_equal(gs.sublevel_persistence(y), expected)


@settings(deadline=None)
@given(SERIES)
def test_superlevel_pairs_are_the_negated_sublevel_pairs_of_the_negated_series(y):
    negated = -gs.sublevel_persistence([-value for value in y])
    np.testing.assert_array_equal(gs.superlevel_persistence(y), negated)


@settings(deadline=None)
@given(SERIES)
def test_pairs_are_invariant_to_reversal_and_repetition(y):
    expected = gs.sublevel_persistence(y)
    np.testing.assert_array_equal(gs.sublevel_persistence(y[::-1]), expected)
    np.testing.assert_array_equal(gs.sublevel_persistence(np.repeat(y, 3)), expected)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=30), st.integers(0, 2**32 - 1))
def test_diagrams_are_stable(y, seed):
    """Largest finite lifetimes change by at most twice the largest change of the series."""
    noise = np.random.default_rng(seed).uniform(-0.01, 0.01, len(y))
    before, after = (np.ptp(gs.sublevel_persistence(v, essential="drop"), axis=1) for v in (y, y + noise))
    top = [np.sort(np.append(lifetimes, np.zeros(30)))[::-1][:30] for lifetimes in (before, after)]
    assert np.abs(top[0] - top[1]).max() <= 0.02 + 1e-9


def test_births_and_deaths_have_no_negative_zero():
    assert not np.signbit(gs.superlevel_persistence([1, 0, 1], essential="drop")).any()


@pytest.mark.parametrize(("y", "rows"), [([], 0), ([np.nan] * 3, 0), ([7.0], 1), ([7.0] * 5, 1), ([1, 2, 3], 1)])
def test_series_without_interior_minima(y, rows):
    assert gs.sublevel_persistence(y).shape == (rows, 2)
    assert gs.sublevel_persistence(y, essential="drop").shape == (0, 2)


def test_a_long_monotone_series_has_the_essential_pair_only():
    assert gs.sublevel_persistence(-np.arange(1e6)).tolist() == [[-999999.0, np.inf]]


def test_a_nullable_pandas_series():
    y = pd.Series([0, None, 3, 1], dtype="Int64")
    assert gs.sublevel_persistence(y, essential="drop").tolist() == [[1.0, 3.0]]


@pytest.mark.parametrize(
    ("y", "message"),
    [([[1.0, 2.0]], "one dimension; got 2"), ([1.0, np.inf], "infinite"), (["a"], "must be numbers"), (3.0, "got 0")],
)
def test_invalid_series_are_an_error(y, message):
    with pytest.raises(InputError, match=message):
        gs.sublevel_persistence(y)


def test_an_unknown_essential_is_an_error():
    with pytest.raises(InputError, match="Did you mean 'drop'"):
        gs.sublevel_persistence([1.0], essential="drops")


def matrix(n_users=40, n_timestamps=90, seed=0):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n_users, n_timestamps)) < 0.3, rng.integers(1, 9, (n_users, n_timestamps)), 0).astype(
        float
    )
    X[0], X[1], X[2, 1:], X[3, 10:70], X[4] = 0, 5, 0, np.nan, np.nan
    return X


def from_pairs(pairs):
    lifetimes = np.abs(pairs[:, 1] - pairs[:, 0])
    if not lifetimes.size:
        return [0.0] * 8
    shares = lifetimes / lifetimes.sum()
    long_lived = (lifetimes >= 0.8 * lifetimes.max() * (1 - 1e-9)).sum()
    summary = [len(lifetimes), lifetimes.max(), np.unique(lifetimes).size, long_lived]
    return [*summary, lifetimes.mean(), lifetimes.sum(), lifetimes.std(), -(shares * np.log2(shares)).sum()]


def test_statistics_are_those_of_the_pairs():
    X = matrix()
    table = gs.persistence_statistics(X)
    for row, series in enumerate(X):
        both = (gs.sublevel_persistence(series, essential="drop"), gs.superlevel_persistence(series, essential="drop"))
        np.testing.assert_allclose(table.loc[row], np.concatenate([from_pairs(p) for p in both]), atol=1e-12)


def test_statistics_are_indexed_by_user():
    users = pd.Index([f"u{i}" for i in range(40)])
    table = gs.persistence_statistics(pd.DataFrame(matrix(), index=users))
    assert table.index.equals(users)
    assert table.columns[0] == "sublevel_count"
    assert table.columns[-1] == "superlevel_entropy"


@pytest.mark.parametrize("scale", ["std", "range", "mean"])
def test_scaled_features_are_scale_invariant(scale):
    X = matrix()
    block = gs.PersistenceStatistics(scale).fit(X)
    sizes = np.random.default_rng(1).uniform(1e-4, 1e5, (len(X), 1))
    np.testing.assert_allclose(block.transform(X * sizes), block.transform(X), rtol=1e-7, atol=1e-9)


def test_unscaled_features_are_not_scale_invariant():
    X = matrix()
    block = gs.PersistenceStatistics(None).fit(X)
    assert not np.allclose(block.transform(2 * X), block.transform(X))


def test_relative_features_are_comparable_across_lengths():
    week = np.tile([8.0, 9, 3, 9, 8, 1, 0], 40) + np.random.default_rng(0).normal(0, 0.1, 280)
    block = gs.PersistenceStatistics().fit(week[None])
    short, long = block.transform(week[None, :140]), block.transform(week[None])
    np.testing.assert_allclose(short, long, rtol=0.15, atol=0.03)


def test_threaded_features_are_those_of_each_row_alone():
    X = np.random.default_rng(0).random((5000, 20))
    block = gs.PersistenceStatistics().fit(X)
    np.testing.assert_array_equal(block.transform(X)[::997], np.vstack([block.transform(x[None]) for x in X[::997]]))


def test_single_precision_gives_the_same_features():
    X = matrix()[:4]
    block = gs.PersistenceStatistics().fit(X)
    np.testing.assert_allclose(block.transform(X.astype(np.float32)), block.transform(X), rtol=1e-5)


def test_degenerate_rows_have_finite_features():
    X = matrix()[:5]
    features = gs.PersistenceStatistics().fit_transform(X)
    assert np.isfinite(features).all()
    assert not features[[0, 1, 4]].any()
    assert features[2].any() == (X[2, 0] > 0)


def test_rounding_noise_on_a_constant_has_no_pairs():
    X = np.array([[0.1 + 0.2, 0.3, 0.1 + 0.2, 0.3, 0.1 + 0.2]])
    assert not gs.PersistenceStatistics().fit_transform(X).any()


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_extreme_scales_neither_overflow_nor_underflow(size):
    X = np.array([[0.0, 3, 1, 5, 2]])
    block = gs.PersistenceStatistics().fit(X)
    np.testing.assert_allclose(block.transform(X * size), block.transform(X))


def test_statistics_follow_the_transformer_conventions():
    block = gs.PersistenceStatistics("range")
    assert clone(block).get_params() == block.get_params()
    X = pd.DataFrame(matrix(), index=[f"u{i}" for i in range(40)])
    frame = block.set_output(transform="pandas").fit_transform(X)
    assert frame.index.equals(X.index)
    assert list(frame.columns) == list(block.get_feature_names_out())


def test_an_unknown_scale_is_an_error():
    with pytest.raises(InputError, match="Did you mean 'std'"):
        gs.PersistenceStatistics(scale="sd").fit(matrix())


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), "two dimensions"),
        (np.zeros((0, 3)), "no users"),
        (np.full((2, 3), np.nan), "missing values only"),
        (np.array([[1.0, np.inf]]), "infinite"),
        ([["a", "b"]], "matrix of numbers"),
        (pd.DataFrame([[1.0], [2.0]], index=["ann", "ann"]), "duplicate user.*'ann'"),
        (pd.DataFrame([[1.0, 2.0]], columns=pd.to_datetime(["2026-03-02", "2026-03-01"])), "ascending"),
    ],
)
def test_invalid_matrices_are_an_error(X, message):
    with pytest.raises(InputError, match=message):
        gs.as_matrix(X)


def test_a_matrix_of_nullable_numbers():
    X = pd.DataFrame([[1, None], [2, 3]]).astype("Int64")
    np.testing.assert_array_equal(gs.as_matrix(X).values, [[1, np.nan], [2, 3]])


def test_a_float32_matrix_is_not_copied():
    X = np.ones((3, 4), dtype=np.float32)
    assert np.shares_memory(gs.as_matrix(X, keep_float32=True).values, X)
    assert gs.as_matrix(X).values.dtype == np.float64


@pytest.mark.slow
def test_compilation_works_without_a_writable_cache(tmp_path):
    """Neither the installation nor a home is writable: compile in each process."""
    code = (
        "from numba.core.caching import CacheImpl\n"
        "CacheImpl._locator_classes = []\n"
        "from gpudemand.segments import sublevel_persistence\n"
        "print(sublevel_persistence([0, 2, 1]).tolist())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert run.stdout.strip() == "[[0.0, inf], [1.0, 2.0]]"
