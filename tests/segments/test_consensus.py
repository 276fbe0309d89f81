"""Labelings that are merged agree with what they agree on."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from gpudemand._validation import InputError
from gpudemand.segments import consensus_labels
from gpudemand.segments.clustering.consensus import Consensus

TRUTH = np.repeat([0, 1, 2], 40)


def noisy_copies(share, seed=0):
    """Three labelings with names of their own, each wrong for a share of the users."""
    rng = np.random.default_rng(seed)
    copies = []
    for _ in range(3):
        labels = rng.permutation(3)[TRUTH]
        wrong = rng.random(len(labels)) < share
        labels[wrong] = rng.integers(3, size=wrong.sum())
        copies.append(labels)
    return copies


@pytest.mark.parametrize("rule", ["voting", "pairs"])
def test_better_than_most_of_the_labelings(rule):
    copies = noisy_copies(0.25)
    merged = adjusted_rand_score(TRUTH, consensus_labels(copies, rule, 3))
    assert merged > np.median([adjusted_rand_score(TRUTH, labels) for labels in copies])


@pytest.mark.parametrize("rule", ["voting", "pairs"])
def test_equal_labelings_stay(rule):
    labels = TRUTH[np.random.default_rng(0).permutation(120)]
    assert adjusted_rand_score(labels, consensus_labels([labels, 2 - labels, labels], rule)) == 1.0


def test_names_do_not_matter():
    copies = noisy_copies(0.2)
    renamed = [copies[0], np.array(["x", "y", "z"])[copies[1]], 7 * copies[2]]
    assert adjusted_rand_score(consensus_labels(copies), consensus_labels(renamed)) == 1.0


def test_mixtures_of_views_give_probabilities():
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(120, 2)) + 8 * TRUTH[:, None] for _ in range(3)]
    model = Consensus("voting", 3).fit(views, rng)
    probabilities = model.probabilities([view[:5] for view in views])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert adjusted_rand_score(TRUTH, model.probabilities(views).argmax(axis=1)) == 1.0


def test_unequal_lengths_and_unknown_rules():
    with pytest.raises(InputError, match="equal length"):
        consensus_labels([[0, 1], [0]])
    with pytest.raises(InputError, match="pairs"):
        consensus_labels([[0, 1], [0, 1]], "pair")
