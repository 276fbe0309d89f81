"""Consensus of several labelings: accuracy, and invariance to label names."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from gpudemand._validation import InputError
from gpudemand.segments.clustering import average_linkage, consensus, vote

TRUTH = np.repeat([0, 1, 2], 40)


def merged(labelings, merge):
    cells, cell, counts = np.unique(np.column_stack(labelings), axis=0, return_inverse=True, return_counts=True)
    return merge(cells, counts, 3)[cell.ravel()]


def noisy_copies(share, seed=0):
    """Three labelings with permuted names, each wrong for a share of the users."""
    rng = np.random.default_rng(seed)
    copies = []
    for _ in range(3):
        labels = rng.permutation(3)[TRUTH]
        wrong = rng.random(len(labels)) < share
        labels[wrong] = rng.integers(3, size=wrong.sum())
        copies.append(labels)
    return copies


@pytest.mark.parametrize("merge", [vote, average_linkage])
def test_the_consensus_beats_the_median_labeling(merge):
    copies = noisy_copies(0.25)
    single = [adjusted_rand_score(TRUTH, labels) for labels in copies]
    assert adjusted_rand_score(TRUTH, merged(copies, merge)) > np.median(single)


@pytest.mark.parametrize("merge", [vote, average_linkage])
def test_equal_labelings_are_their_consensus(merge):
    labels = TRUTH[np.random.default_rng(0).permutation(120)]
    assert adjusted_rand_score(labels, merged([labels, 2 - labels, labels], merge)) == 1.0


def test_label_names_do_not_matter_to_voting():
    first, second, third = noisy_copies(0.2)
    renamed = [first, np.array([2, 0, 1])[second], 2 - third]
    assert adjusted_rand_score(merged([first, second, third], vote), merged(renamed, vote)) == 1.0


@pytest.mark.parametrize("rule", ["voting", "pairs"])
def test_clusters_that_every_view_shows_are_found(rule):
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(120, 2)) + 8 * TRUTH[:, None] for _ in range(3)]
    assert adjusted_rand_score(TRUTH, consensus(views, rule, 3, rng)) == 1.0


def test_an_unknown_rule_is_an_error():
    with pytest.raises(InputError, match="pairs"):
        consensus([np.zeros((4, 1))], "pair", 2, np.random.default_rng(0))
