"""Ablation with and without each block of features."""

from __future__ import annotations

import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.segments import TopologicalSegmenter, segment_ablation
from tests.segments.test_segmenter import population


@pytest.mark.slow
def test_a_row_for_each_variant():
    wide, kinds = population(30)
    segmenter = TopologicalSegmenter(3, blocks=["persistence", "calendar", "rhythm"], random_state=0)
    table = segment_ablation(segmenter, wide, kinds)
    names = ["persistence", "calendar", "rhythm"]
    assert table.index.tolist() == ["all", *(f"without {n}" for n in names), *(f"only {n}" for n in names)]
    assert table.columns.tolist() == ["n_segments", "agreement", "ari"]
    assert table.loc["all", "agreement"] == 1.0
    assert table.loc["all", "ari"] > 0.9


def test_one_block_has_one_row():
    wide, _ = population(30)
    table = segment_ablation(TopologicalSegmenter(2, blocks=["calendar"], random_state=0), wide)
    assert table.index.tolist() == ["all"]


def test_wrong_method_and_missing_labels_are_an_error():
    wide, _ = population(12)
    with pytest.raises(InputError, match="joint"):
        segment_ablation(TopologicalSegmenter(method="pairs"), wide)
    with pytest.raises(InputError, match="one a user"):
        segment_ablation(TopologicalSegmenter(2), wide, [0, 1])


def test_labels_in_a_series_are_those_of_its_index():
    wide, kinds = population(12)
    segmenter = TopologicalSegmenter(3, blocks=["calendar"], random_state=0)
    found = [segment_ablation(segmenter, wide, pd.Series(kinds, wide.index)[::step])["ari"]["all"] for step in (1, -1)]
    assert found[0] == found[1]
