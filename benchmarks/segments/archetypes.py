"""Simulated users of known archetypes: number of segments and adjusted Rand index, beside k-means baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

import gpudemand as gd
from benchmarks.segments.series import SIX, noisy_series
from gpudemand.datasets.simulate import ARCHETYPES
from gpudemand.segments import RFM, LogSpectrum, TopologicalSegmenter
from gpudemand.segments.features import FeatureTable
from gpudemand.segments.usage_matrix import as_matrix

FOUR = ("steady", "nightly", "weekday", "burst")
ALL = tuple(ARCHETYPES)
RHYTHM_AND_TOPOLOGY = ("rhythm", "multiscale_persistence")
CLASSIC = ("persistence", "spectrum", "calendar")
EVERY_BLOCK = ("rhythm", "weekly_persistence", "presence", *CLASSIC, "rfm")
#: Training populations of the supervised reference.
LABELLED_SEEDS = range(2000, 2020)
Array = NDArray[Any]
Users = tuple[pd.DataFrame, Array]


def simulated(
    kinds: tuple[str, ...] | None, ratio: float, seed: int, freq: str = "D", *, n_users: int = 150, n_days: int = 180
) -> Users:
    """Usage of a simulated cluster, and archetypes; the bundled discriminants were fitted on seeds 1,000 to 1,006."""
    jobs, truth = gd.make_cluster(n_users, n_days, archetypes=kinds, signal_to_noise=ratio, random_state=seed)
    wide = gd.to_wide(gd.usage_series(jobs, by="user", freq=freq, partial=False))
    return wide, truth.set_index("user")["archetype"].loc[wide.index].to_numpy()


#: Populations by signal-to-noise ratio and seed.
CASES: Mapping[str, Callable[[float, int], Users]] = {
    "4 archetypes": partial(simulated, FOUR),
    "4 archetypes, hours": partial(simulated, FOUR, freq="h"),
    "7 archetypes": partial(simulated, ALL),
    "7 archetypes, hours": partial(simulated, ALL, freq="h"),
    "7 archetypes, default shares": partial(simulated, None),
    "noisy hours": partial(noisy_series, 120, 28, "h"),
    "noisy days": partial(noisy_series, 120, 180, "D"),
}


def methods(n_kinds: int) -> dict[str, TopologicalSegmenter]:
    """Segmenters to compare; the first chooses the number of segments."""
    return {
        "auto": TopologicalSegmenter(random_state=0),
        "given the number": TopologicalSegmenter(n_kinds, random_state=0),
        "without topology": TopologicalSegmenter(n_kinds, blocks=["rhythm"], random_state=0),
        "only topology": TopologicalSegmenter(n_kinds, blocks=["multiscale_persistence"], random_state=0),
        "rhythm and topology": TopologicalSegmenter(
            n_kinds, blocks=["rhythm", "multiscale_persistence"], random_state=0
        ),
        "only weekly persistence": TopologicalSegmenter(n_kinds, blocks=["weekly_persistence"], random_state=0),
        "persistence, spectrum, calendar": TopologicalSegmenter(n_kinds, blocks=CLASSIC, random_state=0),
        "only persistence curves": TopologicalSegmenter(n_kinds, blocks=["persistence_curves"], random_state=0),
        "only persistence": TopologicalSegmenter(n_kinds, blocks=["persistence"], random_state=0),
        "voting": TopologicalSegmenter(n_kinds, method="voting", random_state=0),
        "pairs": TopologicalSegmenter(n_kinds, method="pairs", random_state=0),
    }


def baseline_kmeans(wide: pd.DataFrame, n_kinds: int) -> dict[str, Array]:
    """k-means on one block, given the number of archetypes."""
    blocks = {"k-means, log-spectrum": LogSpectrum(), "k-means, RFM": RFM()}
    return {
        name: KMeans(n_kinds, n_init=5, random_state=0).fit_predict(
            StandardScaler().fit_transform(b.fit_transform(wide))
        )
        for name, b in blocks.items()
    }


def supervised(case: str, ratio: float) -> ExtraTreesClassifier:
    """Fit a classifier on other, labelled populations: an upper bound for the features."""
    others = [CASES[case](ratio, seed) for seed in LABELLED_SEEDS]
    forest = ExtraTreesClassifier(300, min_samples_leaf=2, max_features=0.3, n_jobs=-1, random_state=0)
    return forest.fit(np.vstack([every_feature(wide) for wide, _ in others]), np.concatenate([k for _, k in others]))


def every_feature(wide: pd.DataFrame) -> Array:
    """Features of all daily blocks, shape (n_users, n_features)."""
    matrix = as_matrix(wide)
    return FeatureTable(EVERY_BLOCK).fit(matrix).transform(matrix).to_numpy()


def score(n_seeds: int) -> pd.DataFrame:
    """Adjusted Rand index by case, ratio and method, and the chosen number of segments."""
    rows = []
    for case, ratio in product(CASES, (1.0, 0.3)):
        forest = supervised(case, ratio)
        for seed in range(n_seeds):
            wide, kinds = CASES[case](ratio, seed)
            n_kinds = len(set(kinds))
            fits = {name: fit.fit(wide) for name, fit in methods(n_kinds).items()}
            found = {name: fit.labels_ for name, fit in fits.items()} | baseline_kmeans(wide, n_kinds)
            found["supervised trees (20 labelled populations)"] = forest.predict(every_feature(wide))
            rows += [(case, ratio, name, adjusted_rand_score(kinds, labels)) for name, labels in found.items()]
            rows.append((case, ratio, "n_segments (auto)", fits["auto"].n_segments_))
    frame = pd.DataFrame(rows, columns=["case", "signal to noise", "method", "ari"])
    return frame.pivot_table(
        index="method", columns=["case", "signal to noise"], values="ari", aggfunc="mean", sort=False
    )


def one_population(n_seeds: int) -> pd.Series:
    """Share of single-archetype populations with one segment."""
    rows = [
        (f"{source}: {kind}", TopologicalSegmenter(random_state=0).fit(wide).n_segments_ == 1)
        for source, kind, wide in (
            *(
                (f"cluster, {ratio:g} : 1", kind, simulated((kind,), ratio, s)[0])
                for ratio in (1.0, 0.3)
                for kind in ALL
                for s in range(n_seeds)
            ),
            *(("noisy", kind, noisy_series(120, 180, "D", 1.0, s, (kind,))[0]) for kind in SIX for s in range(n_seeds)),
        )
    ]
    return pd.DataFrame(rows, columns=["population", "one"]).groupby("population", sort=False)["one"].mean()


def report(n_seeds: int) -> None:
    """Print both tables."""
    print(f"Adjusted Rand index with the true archetypes, mean of {n_seeds} seeds [synthetic]")
    print(score(n_seeds).round(2).to_string())
    one = one_population(n_seeds)
    print("\nShare of single-archetype populations with one segment [synthetic]")
    print(one.round(2).to_string(), f"\nall: {np.mean(one):.2f}")
