"""Feature space in which users are compared: discriminants, fixed scales or principal components, by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.segments.features.daily import DAILY_FEATURES
from gpudemand.segments.features.discriminants import CLIP, project, standardize, variance_within
from gpudemand.segments.features.feature_table import columns_of
from gpudemand.segments.features.rfm import PRESENCE_FEATURES
from gpudemand.segments.features.rhythm import HOURLY_FEATURES
from gpudemand.segments.features.weekly_persistence import WEEKLY_FEATURES

_BLOCK_COMPONENTS, _COMPONENTS = 8, 16
#: Mean square distance of users of one archetype by hourly features (``scripts/fit_discriminants.py``).
_WITHIN_HOURLY = 2.3
#: Other blocks with fixed scales, and their mean square distance of users of one archetype (the same script).
_FIXED_SCALES: Mapping[str, tuple[Mapping[str, tuple[float, float]], float]] = {
    "weekly_persistence": (WEEKLY_FEATURES, 0.14),
    "presence": (PRESENCE_FEATURES, 0.9),
}


class _PCA:
    """Principal components; constant features are no error."""

    def __init__(self, n_components: int) -> None:
        self.n_components = n_components

    def fit(self, points: FloatArray) -> _PCA:
        """Learn the mean and the leading components of points, shape (n_points, n_features)."""
        self.mean_ = points.mean(axis=0)
        self.components_ = np.linalg.svd(points - self.mean_, full_matrices=False)[2][: self.n_components]
        return self

    def transform(self, points: FloatArray) -> FloatArray:
        """Return the scores of points on the components, shape (n_points, n_components) or fewer columns."""
        return np.asarray((points - self.mean_) @ self.components_.T)


class _BlockComponents:
    """Principal components of one standardised block, scaled to a total variance of one."""

    #: Unknown without reference users.
    within_variance = 0.0

    def fit(self, features: pd.DataFrame) -> _BlockComponents:
        """Learn means, standard deviations and components of the features; constant features get weight 0."""
        values = features.to_numpy(dtype=float)
        self.mean_, spread = values.mean(axis=0), values.std(axis=0)
        size = np.maximum(np.abs(values).max(axis=0), 1.0)
        self.scale_ = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-9 * size)
        standard = self._standardize(features)
        self.pca_ = _PCA(_BLOCK_COMPONENTS).fit(standard)
        total = float(np.sqrt(self.pca_.transform(standard).var(axis=0).sum()))
        self.unit_ = 1.0 / total if total > 0 else 0.0
        return self

    def transform(self, features: pd.DataFrame) -> FloatArray:
        """Return the scaled component scores, shape (n_users, n_components)."""
        return np.asarray(self.pca_.transform(self._standardize(features)) * self.unit_)

    def _standardize(self, features: pd.DataFrame) -> FloatArray:
        return np.clip((features.to_numpy(dtype=float) - self.mean_) * self.scale_, -CLIP, CLIP)


class _FixedScale:
    """Features standardised by locations and scales that do not depend on the sample."""

    def __init__(self, scales: Mapping[str, tuple[float, float]], within_variance: float) -> None:
        self.scales = scales
        self.within_variance = within_variance

    def fit(self, features: pd.DataFrame) -> _FixedScale:
        """Return the instance: nothing is learned."""
        return self

    def transform(self, features: pd.DataFrame) -> FloatArray:
        """Return the z-scores at the fixed scales, clipped, shape (n_users, n_features)."""
        location, scale = np.transpose([self.scales[str(name).partition("__")[2]] for name in features])
        return standardize(features.to_numpy(dtype=float), location, scale)


class _Rhythm:
    """Daily features on the discriminants, hourly ones at fixed scales."""

    def fit(self, features: pd.DataFrame) -> _Rhythm:
        """Learn whether the table has hourly features beside the daily ones."""
        hourly = features.shape[1] > len(DAILY_FEATURES)
        self.hours_ = [_FixedScale(HOURLY_FEATURES, _WITHIN_HOURLY)] if hourly else []
        self.within_variance = variance_within() + sum(hours.within_variance for hours in self.hours_)
        return self

    def transform(self, features: pd.DataFrame) -> FloatArray:
        """Return the discriminant scores, then the z-scores of the hourly features if fitted with any."""
        daily, hourly = features.iloc[:, : len(DAILY_FEATURES)], features.iloc[:, len(DAILY_FEATURES) :]
        return np.hstack([project(daily.to_numpy(dtype=float)), *(hours.transform(hourly) for hours in self.hours_)])


class _Multiscale:
    """Multiscale persistence on its discriminants."""

    def fit(self, features: pd.DataFrame) -> _Multiscale:
        """Look up the variance within archetypes: nothing is learned."""
        self.within_variance = variance_within("multiscale_persistence")
        return self

    def transform(self, features: pd.DataFrame) -> FloatArray:
        """Return the discriminant scores, shape (n_users, n_discriminants)."""
        return project(features.to_numpy(dtype=float), "multiscale_persistence")


class UserSpace:
    """Coordinates of users in at most sixteen dimensions, from the blocks of a feature table.

    Daily features (``"rhythm"``) and ``"multiscale_persistence"`` are projected on linear discriminants; hourly ones,
    ``"weekly_persistence"`` and ``"presence"`` have fixed locations and scales. Every other block is standardised and
    reduced to eight principal components with a total variance of one. Z-scores are clipped at four. Sixteen principal
    components of all blocks remain.

    Parameters
    ----------
    blocks : sequence of str
        Blocks to use.

    Attributes
    ----------
    within_variance_ : float
        Mean square distance of users of one archetype; 0 where it is known of no block.
    """

    def __init__(self, blocks: Sequence[str]) -> None:
        self.blocks = tuple(blocks)

    def fit(self, table: pd.DataFrame) -> UserSpace:
        """Learn locations, scales and components from two users or more."""
        self.spaces_ = {name: _space(name).fit(columns_of(table, name)) for name in self.blocks}
        self.within_variance_ = sum(space.within_variance for space in self.spaces_.values())
        stacked = self._stack(table)
        self.pca_ = _PCA(_COMPONENTS).fit(stacked)
        return self

    def transform(self, table: pd.DataFrame) -> FloatArray:
        """Return coordinates, shape (n_users, n_dimensions)."""
        return self.pca_.transform(self._stack(table))

    def _stack(self, table: pd.DataFrame) -> FloatArray:
        return np.hstack([space.transform(columns_of(table, name)) for name, space in self.spaces_.items()])


def _space(name: str) -> _BlockComponents | _Rhythm | _Multiscale | _FixedScale:
    if name == "rhythm":
        return _Rhythm()
    if name == "multiscale_persistence":
        return _Multiscale()
    return _FixedScale(*_FIXED_SCALES[name]) if name in _FIXED_SCALES else _BlockComponents()
