"""The published pipeline: diagrams as in giotto-tda, the two summaries, and users outside the clustered sample."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import gpudemand.segments as gs
from gpudemand import InputError
from tests.segments.test_segmenter import population

pytest.importorskip("gph", reason="needs giotto-ph (extra tda)")


@pytest.fixture(scope="module")
def series():
    return np.random.default_rng(0).integers(0, 3, (6, 60)).astype(float)


def two_classes(n_users, seed=0):
    """Users of weekdays, and users of one burst."""
    wide, kinds = population(n_users, seed)
    return wide[kinds != 1], kinds[kinds != 1]


@pytest.mark.slow
def test_features_are_those_of_a_pipeline_of_giotto_tda(series):
    pytest.importorskip("gtda", reason="needs giotto-tda (extra giotto)")
    from gtda.homology import VietorisRipsPersistence
    from gtda.time_series import TakensEmbedding

    theirs = make_pipeline(
        TakensEmbedding(dimension=12, time_delay=1),
        VietorisRipsPersistence(homology_dimensions=(0, 1)),
        FunctionTransformer(gs.diagram_statistics),
    ).fit_transform(series)
    ours = gs.RipsStatistics(12, n_landmarks=None, scale=None).fit_transform(series)
    assert (ours[:, 6] > 0).all()
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_diagrams_go_into_giotto_tda(series):
    homology = pytest.importorskip("gtda.diagrams", reason="needs giotto-tda (extra giotto)")
    diagrams = gs.RipsStatistics(12).diagrams(series)
    amplitudes = homology.Amplitude(metric="bottleneck").fit_transform(diagrams)
    largest = gs.diagram_statistics(diagrams)[:, [1, 7]]
    assert amplitudes.shape == largest.shape
    # The amplitude is the largest distance to the diagonal, a fixed multiple of the largest lifetime.
    np.testing.assert_allclose(amplitudes / amplitudes[:1], largest / largest[:1], rtol=1e-5)


def test_the_published_summaries():
    diagram = np.array([[[0, 1, 0], [0, 4, 0], [0, 5, 0], [2, 5, 1], [1, 4, 1], [3, 4, 1], [0, 0, 1]]], dtype=float)
    lifetimes = gs.diagram_statistics(diagram, "lifetimes")[0]
    np.testing.assert_allclose(lifetimes, [3, 5, 2, 10 / 3, 10, 3, 3, 2, 7 / 3, 7])
    np.testing.assert_allclose(gs.diagram_statistics(diagram, "loops")[0], [3, 2, 3])
    assert gs.diagram_statistics(diagram).shape == (1, 12)


@pytest.mark.parametrize("summary", ["lifetimes", "loops"])
def test_the_transformer_names_the_summary_it_computes(series, summary):
    block = gs.RipsStatistics(12, summary=summary).fit(series)
    expected = gs.diagram_statistics(block.diagrams(series), summary)
    np.testing.assert_array_equal(block.transform(series), expected)
    assert len(block.get_feature_names_out()) == expected.shape[1]


@pytest.mark.parametrize("method", ["voting", "pairs"])
@pytest.mark.slow
def test_users_outside_the_sample_get_the_segment_of_their_class(method):
    wide, kinds = two_classes(150)
    found = gs.TopologicalSegmenter(2, method=method, sample_size=50, random_state=0).fit(wide)
    inside = wide.index.isin(found.rips_statistics_.index)
    assert inside.sum() == 50
    assert adjusted_rand_score(kinds[~inside], found.labels_[~inside]) > 0.9
    np.testing.assert_array_equal(found.predict(wide), found.labels_)
    unseen, theirs = two_classes(30, seed=9)
    assert adjusted_rand_score(theirs, found.predict(unseen)) > 0.9


def test_the_classifier_repeats_the_labels_of_the_sample():
    wide, _ = population(60)
    found = gs.TopologicalSegmenter(3, method="voting", random_state=0).fit(wide)
    assert len(found.rips_statistics_) == 60
    weight = (wide > 0).sum(axis=1) / ((wide > 0).sum(axis=1) + 1)
    # Certain of its sample but for the weight of the shares.
    expected = weight + (1 - weight) * found.shares_[found.labels_]
    np.testing.assert_allclose(found.probabilities_.max(axis=1), expected)


def test_windows_are_fifty_days_of_hourly_usage_too():
    hours = pd.date_range("2026-01-05", periods=24 * 112, freq="h")
    wide, _ = population(12)
    hourly = pd.DataFrame(np.repeat(wide.to_numpy() / 24, 24, axis=1), wide.index, hours)
    daily, found = (gs.TopologicalSegmenter(2, method="pairs", random_state=0).fit(table) for table in (wide, hourly))
    pd.testing.assert_frame_equal(daily.rips_statistics_, found.rips_statistics_, rtol=1e-4)
    # 112 days have 63 windows of 50 days, and as many components at the start.
    assert daily.rips_statistics_["monetary__h0_count"].max() == 62


def test_the_homology_can_be_chosen():
    wide, _ = population(12)
    rips = gs.RipsStatistics(20, n_landmarks=10, summary="loops")
    found = gs.TopologicalSegmenter(2, method="pairs", rips=rips, random_state=0).fit(wide)
    assert found.rips_statistics_.shape == (12, 9)


def test_invalid_input_is_an_error():
    with pytest.raises(InputError, match="summary"):
        gs.RipsStatistics(summary="first").fit(np.zeros((2, 60)))
    with pytest.raises(InputError, match="shape"):
        gs.diagram_statistics(np.zeros((4, 3)))
    with pytest.raises(InputError, match="sample_size"):
        gs.TopologicalSegmenter(sample_size=0).fit(np.ones((2, 60)))
