"""Segments of kinds of users that the discriminants were not fitted on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

from benchmarks.segments.archetypes import ALL, CLASSIC, RHYTHM_AND_TOPOLOGY, Users, baseline_kmeans, simulated
from gpudemand.segments import TopologicalSegmenter
from gpudemand.segments import features as discriminants
from scripts.fit_discriminants import Known, fit_discriminants, known_features, populations

#: Kinds held out together: each kind three times, each pair once (the lines of the Fano plane).
FOLDS = [tuple(ALL[(first + step) % len(ALL)] for step in (0, 1, 3)) for first in range(len(ALL))]
RATIOS = (1.0, 0.3)
_BLOCKS = {"default blocks": RHYTHM_AND_TOPOLOGY[:1], "rhythm and topology": RHYTHM_AND_TOPOLOGY}


def score(n_seeds: int) -> pd.DataFrame:
    """Mean adjusted Rand index of the users of three held-out kinds by signal-to-noise ratio, and segments found."""
    users = list(populations())
    known = {name: known_features(users, name) for name in discriminants.TABLES}
    rows = []
    for fold in FOLDS:
        load = _without(known, fold)
        for ratio in RATIOS:
            for seed in range(n_seeds):
                population = simulated(fold, ratio, seed, n_users=90)
                rows += [(ratio, *row) for row in _scores(population, load)]
    frame = pd.DataFrame(rows, columns=["signal to noise", "method", "ARI", "segments"])
    return frame.groupby(["method", "signal to noise"], sort=False).mean().unstack()


def _without(known: dict[str, list[Known]], fold: tuple[str, ...]) -> Callable[[str], discriminants.Discriminants]:
    """Loader of discriminants that were fitted on the other kinds."""
    tables = {}
    for name, all_users in known.items():
        others = [
            (weight, found[~np.isin(kinds, fold)], kinds[~np.isin(kinds, fold)]) for weight, found, kinds in all_users
        ]
        tables[name] = discriminants.Discriminants.from_table(fit_discriminants(others, name))
    return lambda block="rhythm": tables[block]


def _scores(population: Users, load: Callable[[str], Any]) -> list[tuple[str, float, float]]:
    """Method, adjusted Rand index and number of segments."""
    (wide, kinds), rows = population, []

    def add(name: str, labels: Any) -> None:
        rows.append((name, float(adjusted_rand_score(kinds, labels)), float(len(set(labels)))))

    for blocks, names in _BLOCKS.items():
        for n_segments, told in ((3, "told the number"), ("auto", "chooses the number")):
            segmenter = TopologicalSegmenter(n_segments, blocks=list(names), random_state=0)
            add(f"{blocks}, {told}, fitted on these kinds too", segmenter.fit(wide).labels_)
            with patch.object(discriminants, "load_discriminants", load):
                add(f"{blocks}, {told}, fitted on others", segmenter.fit(wide).labels_)
    add("persistence, spectrum, calendar", TopologicalSegmenter(3, blocks=CLASSIC, random_state=0).fit(wide).labels_)
    for name, labels in baseline_kmeans(wide, 3).items():
        add(name, labels)
    return rows


def report(n_seeds: int) -> None:
    """Print the table."""
    print(
        f"\nUsers of three kinds that the discriminants have not seen, {len(FOLDS)} folds, {n_seeds} seeds [synthetic]"
    )
    print(score(n_seeds).round(2).to_string())
