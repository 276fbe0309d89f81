"""Bootstrap stability of real and of arbitrary segments."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.segments import TopologicalSegmenter, segment_stability
from tests.segments.test_segmenter import population


def test_real_segments_are_stable():
    wide, _ = population()
    segmenter = TopologicalSegmenter(3, random_state=0).fit(wide)
    table = segment_stability(segmenter, wide, n_resamples=4)
    assert table.columns.tolist() == ["ari", "segment_0", "segment_1", "segment_2"]
    assert table["ari"].mean() > 0.9
    assert table.drop(columns="ari").mean().min() > 0.8


def test_segments_of_noise_are_unstable():
    days = pd.date_range("2026-01-05", periods=84)
    noise = pd.DataFrame(np.random.default_rng(0).exponential(1.0, (60, 84)), columns=days)
    segmenter = TopologicalSegmenter(5, random_state=0).fit(noise)
    assert segment_stability(segmenter, noise, n_resamples=3)["ari"].mean() < 0.6


def test_the_same_seed_gives_the_same_table():
    wide, _ = population(24)
    segmenter = TopologicalSegmenter(3, random_state=0).fit(wide)
    first, second = (segment_stability(segmenter, wide, n_resamples=2, random_state=4) for _ in range(2))
    pd.testing.assert_frame_equal(first, second)


def test_zero_resamples_are_an_error():
    wide, _ = population(24)
    with pytest.raises(InputError, match="n_resamples"):
        segment_stability(TopologicalSegmenter(1).fit(wide), wide, n_resamples=0)
