"""Fit the bundled discriminants again: ``python -m scripts.fit_discriminants``, in a checkout.

Linear discriminants (R. A. Fisher, 1936) of simulated users whose archetypes are known: within-class scatter is taken
within each population, and each discriminant is scaled by the square root of its share of variance between classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.linalg import eigh

from benchmarks.segments.archetypes import ALL, Users, simulated
from benchmarks.segments.series import noisy_series
from gpudemand._typing import FloatArray
from gpudemand.datasets.registry import data_folder, refresh_checksums
from gpudemand.segments.features.daily import DAILY_FEATURES
from gpudemand.segments.features.discriminants import TABLES, standardize
from gpudemand.segments.features.feature_table import BLOCKS
from gpudemand.segments.features.multiscale_persistence import MULTISCALE_FEATURES

SEEDS, RATIOS, DAYS = range(1000, 1007), (6.0, 1.0, 0.3), (90, 180, 365)
N_DISCRIMINANTS = 8
FEATURES = {"rhythm": DAILY_FEATURES, "multiscale_persistence": MULTISCALE_FEATURES}
#: Digits of the tables; many correlated features need more.
DIGITS = {"rhythm": 2, "multiscale_persistence": 4}
#: Weight, features and archetypes of the users of a population.
Known = tuple[float, FloatArray, FloatArray]
#: Weight of a population of noisy series relative to a simulated cluster, and ridge of the within-class scatter.
NOISY_WEIGHT, RIDGE = 0.5, 0.02


def populations(seeds: Iterable[int] = SEEDS) -> Iterator[tuple[float, Users]]:
    """Yield weight, users and archetypes of each population."""
    for seed in seeds:
        for ratio in RATIOS:
            yield from ((1.0, simulated(ALL, ratio, seed, n_days=n_days)) for n_days in DAYS)
            yield NOISY_WEIGHT, noisy_series(120, 180, "D", ratio, seed)


def scatter(features: FloatArray, classes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean covariance within classes, and the covariance of the class means."""
    groups = [features[classes == label] for label in np.unique(classes)]
    within = np.mean([np.cov(group.T) for group in groups], axis=0)
    return within, np.cov(np.array([group.mean(axis=0) for group in groups]).T)


def discriminants(within: FloatArray, between: FloatArray) -> FloatArray:
    """Return the discriminants by columns in descending order, scaled by the root of their share between classes."""
    ratios, directions = eigh(between, within + RIDGE * np.eye(len(within)))
    ratios = np.maximum(ratios[::-1], 0.0)
    return np.asarray(directions[:, ::-1] * np.sqrt(ratios / (1.0 + ratios)))[:, :N_DISCRIMINANTS]


def known_features(weighted: Iterable[tuple[float, Users]], name: str = "rhythm") -> list[Known]:
    """Return weight, features of a block and archetypes of each population of `populations`."""
    block = BLOCKS[name]()
    return [(weight, block.fit_transform(wide), classes) for weight, (wide, classes) in weighted]


def fit_discriminants(known: Sequence[Known], name: str = "rhythm") -> pd.DataFrame:
    """Return location, scale and weights of each feature of a block, rounded.

    Parameters
    ----------
    known : sequence of (weight, features, archetypes)
        See `known_features`.
    name : {"rhythm", "multiscale_persistence"}, default="rhythm"

    Returns
    -------
    DataFrame, shape (n_features, 10)
    """
    digits = DIGITS[name]
    pooled = np.vstack([found for _, found, _ in known])
    location, scale = np.median(pooled, axis=0).round(digits), pooled.std(axis=0).round(digits)
    scatters = np.array([scatter(standardize(found, location, scale), classes) for _, found, classes in known])
    within, between = np.average(scatters, axis=0, weights=[weight for weight, _, _ in known])
    table = np.column_stack([location, scale, discriminants(within, between)]).round(digits) + 0.0
    columns = ["location", "scale", *(f"discriminant_{number}" for number in range(1, N_DISCRIMINANTS + 1))]
    return pd.DataFrame(table, pd.Index(FEATURES[name], name="feature"), columns)


def write_discriminants(folder: Path) -> None:
    """Write the tables of `TABLES` and their checksums in ``registry.json``.

    Parameters
    ----------
    folder : Path
        The data folder of a checkout.
    """
    users = list(populations())
    for name, path in TABLES.items():
        table = fit_discriminants(known_features(users, name), name)
        table.to_csv(folder / path, float_format=f"%.{DIGITS[name]}f", lineterminator="\n")
    refresh_checksums(folder, "segments/")


if __name__ == "__main__":
    write_discriminants(data_folder())
