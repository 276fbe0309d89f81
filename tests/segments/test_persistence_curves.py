"""Persistence curves against slow code, their invariances, and series that pairing tells apart."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.ndimage import gaussian_filter1d
from sklearn.metrics import adjusted_rand_score

import gpudemand.segments as gs
from gpudemand import InputError
from gpudemand.segments.topology import LIFETIMES

RNG = np.random.default_rng(0)
NOISE = np.cumsum(RNG.normal(size=(3, 120)), axis=1)


def curves(series, **parameters):
    return gs.PersistenceCurves(**parameters).set_output(transform="pandas").fit_transform(series)


def z_score(series):
    return (series - series.mean()) / series.std()


@pytest.mark.parametrize("width", [0, 2, 8])
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("filtration", ["sublevel", "superlevel"])
def test_counts_are_those_of_the_pairs_of_the_view(width, order, filtration):
    """The kernel of scipy with weights of its own beyond the ends, where it takes what is inside."""
    series = z_score(NOISE[0])
    if width:
        inside = gaussian_filter1d(np.ones(120), width, mode="constant")
        series = gaussian_filter1d(series, width, mode="constant") / inside
    view = z_score(np.diff(series, order))
    pairs = getattr(gs, f"{filtration}_persistence")(view, essential="drop")
    counts = (np.abs(pairs[:, 1] - pairs[:, 0])[:, None] > LIFETIMES).sum(axis=0)
    names = [f"{filtration}_s{width}_d{order}_{least:.3g}" for least in LIFETIMES]
    np.testing.assert_allclose(curves(NOISE).loc[0, names], np.log1p(counts))


def test_neither_scale_nor_level_nor_what_lies_outside_a_record_matters():
    known = curves(NOISE).to_numpy()
    np.testing.assert_allclose(curves(NOISE * [[1e-200], [1.0], [1e200]] + [[0], [1e3], [0]]), known, atol=1e-6)
    padded = np.hstack([np.full((3, 40), np.nan), NOISE, np.full((3, 7), np.nan)])
    np.testing.assert_allclose(gs.PersistenceCurves().fit(NOISE).transform(padded), known)
    np.testing.assert_allclose(gs.PersistenceCurves().fit(NOISE).transform(NOISE.astype(np.float32)), known, atol=0.7)


def test_counts_of_other_lengths_are_scaled():
    wave = np.sin(np.arange(800) / 3)
    block = gs.PersistenceCurves(smoothings=[0]).fit(wave[None])
    np.testing.assert_allclose(block.transform(wave[None, :400]), block.transform(wave[None]), atol=0.06)


def test_missing_values_lie_on_lines():
    line = np.abs(np.arange(41.0) - 20)
    holes = np.where(np.arange(41) % 4 == 0, line, np.nan)
    np.testing.assert_allclose(curves([holes]), curves([line]))


@pytest.mark.parametrize("series", [np.full(30, 7.0), np.zeros(30), [np.nan] * 29 + [5.0], [1.0]])
def test_series_without_pairs_have_zeros(series):
    others = np.resize([1.0, 2.0], len(series))
    assert (curves([series, others]).iloc[0] == 0).all()


def test_ripples_are_told_apart_without_times():
    """Smooth series with one bump or two after it, which a spectrum hardly shows."""
    time, kinds = np.linspace(0, 1, 150), np.repeat([0, 1], 30)
    rows = [
        np.exp(-(((time - RNG.uniform(0.4, 0.6)) / 0.12) ** 2))
        + kind * 0.08 * np.exp(-(((time - RNG.uniform(0.8, 0.9)) / 0.03) ** 2))
        + RNG.normal(0, 0.002, 150)
        for kind in kinds
    ]
    found = gs.TopologicalSegmenter(2, blocks=["persistence_curves"], random_state=0).fit(rows)
    assert adjusted_rand_score(kinds, found.labels_) > 0.8
    np.testing.assert_array_equal(found.predict(rows), found.labels_)
    dated = pd.DataFrame(rows, columns=pd.date_range("2026-01-01", periods=150))
    np.testing.assert_array_equal(found.predict(dated), found.labels_)


@pytest.mark.parametrize("smoothings", [[-1.0], ["wide"], [np.nan]])
def test_smoothings_out_of_range_are_refused(smoothings):
    with pytest.raises(InputError, match="smoothings"):
        gs.PersistenceCurves(smoothings).fit(NOISE)


@pytest.mark.parametrize("width", [1e9, 1e300])
def test_a_smoothing_wider_than_memory_leaves_the_mean(width):
    assert (curves(NOISE, smoothings=[width]) == 0).all(axis=None)
