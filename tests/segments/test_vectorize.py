"""Vectors against giotto-tda, where it agrees, and against sums over the pairs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.pipeline import make_union

import gpudemand.segments as gs
from gpudemand import InputError

BOTH = ("sublevel", "superlevel")
BLOCKS = [
    gs.PersistenceEntropy(),
    gs.PersistenceEntropy(normalize=True),
    *(
        block(scale=scale, filtrations=BOTH)
        for block in (gs.BettiCurve, gs.PersistenceLandscape, gs.PersistenceImage)
        for scale in ("range", "std", "mean", None)
    ),
]


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).integers(0, 50, (12, 80)).astype(float)


@pytest.fixture(scope="module")
def diagrams(X):
    """What giotto-tda makes of the same series: reduced diagrams, padded."""
    homology = pytest.importorskip("gtda.homology", reason="needs the extra tda")
    return homology.CubicalPersistence(homology_dimensions=(0,)).fit_transform(X)


def test_betti_curves_are_those_of_giotto_tda(X, diagrams):
    from gtda.diagrams import BettiCurve

    theirs = BettiCurve(n_bins=37).fit(diagrams)
    ours = gs.BettiCurve(n_bins=37, scale=None).fit(X)
    np.testing.assert_allclose(ours.samplings_["sublevel"], theirs.samplings_[0])
    np.testing.assert_array_equal(ours.transform(X), theirs.transform(diagrams)[:, 0])


def test_landscapes_are_those_of_giotto_tda(X, diagrams):
    from gtda.diagrams import PersistenceLandscape

    theirs = PersistenceLandscape(n_layers=3, n_bins=37).fit_transform(diagrams)
    ours = gs.PersistenceLandscape(n_layers=3, n_bins=37, scale=None).fit_transform(X)
    np.testing.assert_allclose(ours.reshape(theirs.shape), theirs, atol=1e-9)


def test_entropy_is_that_of_giotto_tda(X, diagrams):
    from gtda.diagrams import PersistenceEntropy

    ours = gs.PersistenceEntropy(filtrations=("sublevel",)).fit_transform(X)
    np.testing.assert_allclose(ours, PersistenceEntropy().fit_transform(diagrams))


def test_normalized_entropy_of_equal_lifetimes_is_one():
    X = [np.tile([0.0, 9.0], 5), np.tile([0.0, 2.0], 5)]
    np.testing.assert_allclose(gs.PersistenceEntropy(normalize=True).fit_transform(X), 1.0)


def test_landscape_layers_descend(X):
    layers = gs.PersistenceLandscape(n_layers=4, n_bins=50).fit_transform(X).reshape(len(X), 4, 50)
    assert (np.diff(layers, axis=1) <= 0).all()
    assert layers[:, 1].any()


def test_an_image_holds_the_mass_of_a_gaussian_for_each_pair(X):
    block = gs.PersistenceImage(sigma=0.1, n_bins=7).fit(X)
    edges, heights = block.edges_["sublevel"], block.heights_["sublevel"]
    pairs = gs.sublevel_persistence((X[0] - X[0].min()) / np.ptp(X[0]), essential="drop")
    expected = np.zeros((7, 7))
    for birth, death in pairs:
        across, along = (np.diff(norm.cdf(e, c, 0.1)) for e, c in ((edges, birth), (heights, death - birth)))
        expected += (death - birth) * np.outer(across, along)
    np.testing.assert_allclose(block.transform(X)[0].reshape(7, 7), expected, atol=1e-12)


def test_a_wide_image_loses_no_mass():
    y = np.array([[0.0, 10, 4, 10, 5, 10, 0, 10]])
    block = gs.PersistenceImage(sigma=0.01, n_bins=4).fit(y)
    lifetimes = np.ptp(gs.sublevel_persistence(y[0] / 10, essential="drop"), axis=1)
    # Half of the mass of the pair on the corner of the picture lies inside along each side.
    assert block.transform(y).sum() == pytest.approx(lifetimes[lifetimes < 1].sum() + 0.25, abs=1e-6)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_names_shapes_and_clones(block, X):
    block = clone(block).fit(X)
    features = block.transform(X[:3])
    names = block.get_feature_names_out()
    assert features.shape == (3, len(names))
    assert len(set(names)) == len(names)
    assert np.isfinite(features).all()
    assert features.any()


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_scale_free_blocks_ignore_the_size_of_a_user(block, X):
    block = clone(block).fit(X)
    # A power of two moves no pair across a threshold by rounding.
    same = np.allclose(block.transform(4 * X), block.transform(X))
    assert same == block.scale_free


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_degenerate_rows_have_finite_features(block, X):
    rows = np.zeros((5, X.shape[1]))
    rows[1], rows[2, 40], rows[3, ::2], rows[4] = 3, 9, np.nan, np.nan
    block = clone(block).fit(np.vstack([X, rows]))
    features = block.transform(rows)
    assert np.isfinite(features).all()
    np.testing.assert_array_equal(features[0], features[4])
    assert np.isfinite(clone(block).fit(rows).transform(rows)).all()


def test_blocks_unite(X):
    union = make_union(gs.PersistenceStatistics(), gs.PersistenceEntropy(), gs.BettiCurve(n_bins=5))
    assert union.fit_transform(X).shape == (12, 16 + 2 + 5) == (12, union.get_feature_names_out().size)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (gs.BettiCurve(n_bins=1), "n_bins must be a whole number"),
        (gs.BettiCurve(scale="z"), "scale='z' is not known"),
        (gs.BettiCurve(filtrations=()), "filtrations is empty"),
        (gs.PersistenceLandscape(n_layers=0), "n_layers"),
        (gs.PersistenceImage(sigma=0), "sigma must be a number above 0"),
    ],
    ids=str,
)
def test_unusable_parameters(block, message, X):
    with pytest.raises(InputError, match=message):
        block.fit(X)
