"""Fit the bundled discriminants again: ``python -m scripts.fit_discriminants``, in a checkout.

Linear discriminants (R. A. Fisher, 1936) of simulated users whose archetypes are known: within-class scatter is taken
within each population, and each discriminant is scaled by the square root of its share of variance between classes.
Classes that are not among them may differ in any direction: to the variance between classes along each discriminant is
added what two classes that were left out differ by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.linalg import eigh

from benchmarks.segments.archetypes import ALL, Users, simulated
from benchmarks.segments.series import noisy_series
from gpudemand._array import FloatArray
from gpudemand.datasets.registry import data_folder
from gpudemand.segments.features import BLOCKS, TABLES, WITHIN, standardize
from gpudemand.segments.rfm import PRESENCE_FEATURES
from gpudemand.segments.series_features import DAILY_FEATURES, HOURLY_FEATURES, MULTISCALE_FEATURES, WEEKLY_FEATURES
from scripts.checksums import refresh_checksums

SEEDS, RATIOS, DAYS = range(1000, 1007), (6.0, 1.0, 0.3), (90, 180, 365)
N_DISCRIMINANTS = 16
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


def discriminants(within: FloatArray, between: FloatArray, prior: float = 0.0) -> FloatArray:
    """Return the discriminants by columns in descending order, scaled by the root of their share between classes.

    `prior` is the variance between classes in any direction, relative to that within.
    """
    ratios, directions = eigh(between, within + RIDGE * np.eye(len(within)))
    ratios = np.maximum(ratios[::-1], 0.0) + prior
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
    DataFrame, shape (n_features + 1, 2 + n_discriminants)
        The last row is the variance within classes along each discriminant.
    """
    digits = DIGITS[name]
    pooled = np.vstack([found for _, found, _ in known])
    location, scale = np.median(pooled, axis=0).round(digits), pooled.std(axis=0).round(digits)
    standard = [(weight, standardize(found, location, scale), kinds) for weight, found, kinds in known]
    within, between = _mean_scatter(standard)
    weights = discriminants(within, between, prior_variance(standard)).round(digits)
    columns = ["location", "scale", *(f"discriminant_{number}" for number in range(1, weights.shape[1] + 1))]
    table = pd.DataFrame(np.column_stack([location, scale, weights]) + 0.0, FEATURES[name], columns)
    table.loc[WITHIN] = [np.nan, np.nan, *np.diag(weights.T @ within @ weights).round(digits)]
    return table.rename_axis("feature")


def prior_variance(standard: Sequence[Known]) -> float:
    """Return the variance between two classes relative to that within the others, the median of all pairs."""
    classes = sorted({str(kind) for _, _, kinds in standard for kind in kinds})
    ratios = []
    for pair in combinations(classes, 2):
        together = [(weight, z[np.isin(kinds, pair)], kinds[np.isin(kinds, pair)]) for weight, z, kinds in standard]
        together = [known for known in together if len(set(known[2])) == len(pair)]
        if together:
            others = [(weight, z[~np.isin(kinds, pair)], kinds[~np.isin(kinds, pair)]) for weight, z, kinds in standard]
            within, between = _mean_scatter(others)[0], _mean_scatter(together)[1]
            ratios.append(np.trace(np.linalg.solve(within + RIDGE * np.eye(len(within)), between)) / len(within))
    return float(np.median(ratios))


def _mean_scatter(standard: Sequence[Known]) -> FloatArray:
    """Weighted mean of the scatter within and between classes."""
    scatters = np.array([scatter(z, classes) for _, z, classes in standard])
    return np.asarray(np.average(scatters, axis=0, weights=[weight for weight, _, _ in standard]))


def variances_within(seeds: Iterable[int] = SEEDS) -> pd.Series:
    """Return the mean square distance of users of one archetype, of the features with fixed scales.

    `gpudemand.segments.features` has them rounded: hourly features of 28 and 60 days, others of `DAYS`.
    """
    spaces = {"hourly": HOURLY_FEATURES, "weekly_persistence": WEEKLY_FEATURES, "presence": PRESENCE_FEATURES}
    found: dict[str, list[float]] = {name: [] for name in spaces}
    for seed, ratio in product(seeds, RATIOS):
        for name, scales in spaces.items():
            freq, lengths, block = ("h", (28, 60), "rhythm") if name == "hourly" else ("D", DAYS, name)
            location, scale = np.transpose(list(scales.values()))
            for n_days in lengths:
                wide, kinds = simulated(ALL, ratio, seed, freq, n_days=n_days)
                features = np.asarray(BLOCKS[block]().fit_transform(wide))[:, -len(scales) :]
                found[name].append(np.trace(scatter(standardize(features, location, scale), kinds)[0]))
    return pd.Series({name: np.mean(values) for name, values in found.items()})


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
    print(variances_within().round(2).to_string())
