"""The directions in which kinds of users differ, learned on simulated users whose kinds are known.

    python -m benchmarks.segments.directions

prints the table of `gpudemand.segments.features.discriminants`. Traits of the days of each population are centred on
their kind; linear discriminants (R. A. Fisher, 1936) then part the kinds as far as they can for users of a kind a unit
apart. A direction counts by the share of its variance that lies between kinds, so that luck does not count. Seeds are
1,000 to 1,006 only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from benchmarks.segments.archetypes import ALL, Users, simulated
from benchmarks.segments.series import noisy_series
from gpudemand.segments import UsageRhythm
from gpudemand.segments.features.discriminants import FARTHEST, N_DIRECTIONS

SEEDS, RATIOS, DAYS = range(1000, 1007), (6.0, 1.0, 0.3), (90, 180, 365)
#: What a population of series with noise added counts beside a simulated cluster.
NOISY = 0.5
_RIDGE = 0.02
Array = NDArray[Any]


def populations() -> Iterator[tuple[float, Users]]:
    """Weight, users and kinds of each population."""
    for seed in SEEDS:
        for ratio in RATIOS:
            yield from ((1.0, simulated(ALL, ratio, seed, n_days=n_days)) for n_days in DAYS)
            yield NOISY, noisy_series(120, 180, "D", ratio, seed)


def scatter(traits: Array, kinds: Array) -> tuple[Array, Array]:
    """Mean covariance within kinds, and the covariance of their means."""
    groups = [traits[kinds == kind] for kind in np.unique(kinds)]
    return np.mean([np.cov(group.T) for group in groups], axis=0), np.cov(np.array([g.mean(axis=0) for g in groups]).T)


def discriminants(within: Array, between: Array) -> Array:
    """Directions by columns, the best first, each as long as the root of its share of variance between kinds."""
    parted, directions = eigh(between, within + _RIDGE * np.eye(len(within)))
    parted = np.maximum(parted[::-1], 0.0)
    return np.asarray(directions[:, ::-1] * np.sqrt(parted / (1.0 + parted)))[:, :N_DIRECTIONS]


def report() -> None:
    """Print a row for each trait: its usual value, its spread, and what it adds to each direction."""
    block = UsageRhythm()
    known = [(weight, block.fit_transform(wide), kinds) for weight, (wide, kinds) in populations()]
    everybody = np.vstack([traits for _, traits, _ in known])
    usual, spread = np.median(everybody, axis=0).round(2), everybody.std(axis=0).round(2)
    scatters = np.array(
        [scatter(np.clip((traits - usual) / spread, -FARTHEST, FARTHEST), kinds) for _, traits, kinds in known]
    )
    within, between = np.average(scatters, axis=0, weights=[weight for weight, _, _ in known])
    table = np.column_stack([usual, spread, discriminants(within, between)])
    for name, row in zip(block.get_feature_names_out(), table, strict=True):
        print(f'    "{name}": ({", ".join(f"{value:.2f}" for value in row)}),')


if __name__ == "__main__":
    report()
