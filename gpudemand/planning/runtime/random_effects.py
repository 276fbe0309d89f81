"""Values of groups around a common mean, shrunk by their evidence: a random-effects meta-analysis."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray


class RandomEffects(NamedTuple):
    """Common mean of the true values of groups, the variance of its error, and the variance of the true values."""

    mean: float
    error: float
    between: float

    def shrunk(self, value: FloatArray, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Posterior means of the groups' true values, and the variances of their errors."""
        weight = self.between / (np.maximum(noise, 1e-9) + self.between)
        return self.mean + weight * (value - self.mean), self.between * (1 - weight) + (1 - weight) ** 2 * self.error


def random_effects(value: FloatArray, noise: FloatArray) -> RandomEffects:
    """Mean and variance of the true values of at least one group.

    The variance is that of DerSimonian and Laird, Controlled Clinical Trials 7, 1986.

    Parameters
    ----------
    value, noise : ndarray of shape (n_groups,)
        What was seen of each group, and the variance of its error.

    Examples
    --------
    >>> effects = random_effects(np.array([0.0, 1.0, 2.0]), np.full(3, 0.25))
    >>> effects.mean, effects.between
    (1.0, 0.75)
    """
    weight = 1 / np.maximum(noise, 1e-9)
    mean = float(np.average(value, weights=weight))
    scale = weight.sum() - np.square(weight).sum() / weight.sum()
    excess = (weight * np.square(value - mean)).sum() - (value.size - 1)
    between = float(max(excess / scale, 0.0)) if scale > 0 else 0.0
    weight = 1 / (np.maximum(noise, 1e-9) + between)
    return RandomEffects(float(np.average(value, weights=weight)), float(1 / weight.sum()), between)


def variance_within(groups: list[pd.api.typing.SeriesGroupBy]) -> float:
    """Pooled variance of logarithms of run times within groups; that of a doubling where no group has two values."""
    squares = sum(float((side.var(ddof=1) * (side.size() - 1)).sum()) for side in groups)
    freedom = sum(float((side.size() - 1).sum()) for side in groups)
    return squares / freedom if freedom else float(np.log(2) ** 2)
