"""Blocks of features as one space in which users are compared."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.pipeline import FeatureUnion

from gpudemand import _parallel
from gpudemand._array import FloatArray
from gpudemand._validation import InputError, check_choice, stack_level
from gpudemand.datasets.registry import bundled_path
from gpudemand.segments.rfm import PRESENCE_FEATURES, RFM, CalendarProfile, UserPresence
from gpudemand.segments.rips import RipsStatistics
from gpudemand.segments.series_features import (
    DAILY_FEATURES,
    HOURLY_FEATURES,
    WEEKLY_FEATURES,
    LogSpectrum,
    MultiscalePersistence,
    UsageRhythm,
    WeeklyPersistence,
)
from gpudemand.segments.topology import FILTRATIONS, LIFETIMES, PersistenceCurves, PersistenceStatistics
from gpudemand.segments.usage_matrix import DAY, Matrix, SeriesTransformer, sampling_step

#: Users of one parallel task.
_ROWS_PER_TASK = 1024
#: Length and stride of the sliding windows of "rips", in bins.
RIPS_WINDOW, RIPS_STRIDE = 14, 2

BLOCKS: Mapping[str, Callable[[], SeriesTransformer]] = {
    "persistence": PersistenceStatistics,
    "persistence_curves": PersistenceCurves,
    "rips": lambda: RipsStatistics(RIPS_WINDOW, stride=RIPS_STRIDE),
    "spectrum": LogSpectrum,
    "calendar": CalendarProfile,
    "rhythm": UsageRhythm,
    "weekly_persistence": WeeklyPersistence,
    "multiscale_persistence": MultiscalePersistence,
    "presence": UserPresence,
    "rfm": RFM,
}
#: Default blocks with times and without, and the blocks that need no times.
TIMED = ("rhythm", "weekly_persistence")
UNTIMED = ("persistence_curves",)
TIMELESS = ("persistence", "persistence_curves", "spectrum", "rips", "presence", "rfm")
TOPOLOGY = ("persistence", "persistence_curves", "rips", "weekly_persistence", "multiscale_persistence")


def choose_blocks(names: Sequence[str] | None, matrix: Matrix) -> tuple[str, ...]:
    """Return the validated `names` of blocks, or the default ones for `matrix`."""
    timed = has_days(matrix)
    if names is None:
        return TIMED if timed else UNTIMED
    if isinstance(names, str) or not len(names):
        raise InputError(f"blocks must be a list of one or more of: {', '.join(sorted(BLOCKS))}; got {names!r}.")
    for name in names:
        check_choice("blocks", name, BLOCKS)
        if not timed and name not in TIMELESS:
            raise InputError(
                f"the block {name!r} needs columns that are times, a day apart or less; make them with to_wide."
            )
    return tuple(dict.fromkeys(names))


def has_days(matrix: Matrix) -> bool:
    """Return whether `matrix` has times at most a day apart."""
    step = sampling_step(matrix.ds)
    return step is not None and step <= DAY


class FeatureTable:
    """Features of several blocks side by side, columns named ``block__feature``."""

    def __init__(self, names: Sequence[str]) -> None:
        self._union = FeatureUnion([(name, BLOCKS[name]()) for name in names])

    def fit(self, matrix: Matrix) -> FeatureTable:
        """Fit each block."""
        self._union.fit(as_frame(matrix))
        return self

    def transform(self, matrix: Matrix) -> pd.DataFrame:
        """Return the table, shape (n_users, n_features), indexed by user."""
        frame = as_frame(matrix)
        tasks = [frame.iloc[first : first + _ROWS_PER_TASK] for first in range(0, len(frame), _ROWS_PER_TASK)]
        rows = np.vstack(_parallel.run(self._union.transform, tasks))
        return pd.DataFrame(rows, frame.index, self._union.get_feature_names_out())


def as_frame(matrix: Matrix) -> pd.DataFrame:
    """Return a matrix as a DataFrame with its users and times."""
    return pd.DataFrame(matrix.values, index=matrix.ids, columns=matrix.ds, copy=False)


def columns_of(table: pd.DataFrame, block: str) -> pd.DataFrame:
    """Return the features of one block."""
    return table.loc[:, table.columns.str.startswith(f"{block}__")]


#: Standardised features are clipped at so many standard deviations.
CLIP = 4.0
#: Users are outside the fitted range at so many standard deviations; there is a warning if so many of them are.
_OUTSIDE, _MOST = 2.0, 0.5


class ExtrapolationWarning(UserWarning):
    """Most users are outside the data on which the distances between users were fitted."""


class Discriminants(NamedTuple):
    """Location and scale of the features, and linear discriminants of them."""

    location: FloatArray  # (n_features,)
    scale: FloatArray  # (n_features,)
    weights: FloatArray  # (n_features, n_discriminants)
    within: FloatArray  # (n_discriminants,), variance within classes

    @classmethod
    def from_table(cls, table: pd.DataFrame) -> Discriminants:
        """Read a table of ``scripts/fit_discriminants.py``; its last row is the variance within classes."""
        columns = table.drop(index=WITHIN).to_numpy().T
        return cls(columns[0], columns[1], columns[2:].T, table.loc[WITHIN].to_numpy()[2:])


def standardize(features: FloatArray, location: FloatArray, scale: FloatArray) -> FloatArray:
    """Return clipped z-scores."""
    return np.clip((features - location) / scale, -CLIP, CLIP)


#: The row of a table with the variance within classes.
WITHIN = "variance_within"
#: Bundled tables by block of features.
TABLES = {"rhythm": "segments/discriminants.csv", "multiscale_persistence": "segments/persistence_discriminants.csv"}


@functools.cache
def load_discriminants(block: str = "rhythm") -> Discriminants:
    """Load the bundled table of a block, one row a feature; ``scripts/fit_discriminants.py`` makes it.

    >>> load_discriminants().weights.shape
    (11, 11)
    """
    return Discriminants.from_table(pd.read_csv(bundled_path(TABLES[block]), index_col="feature"))


def variance_within(block: str = "rhythm") -> float:
    """Return the mean square distance of users of one class, on the discriminants of a block."""
    return float(load_discriminants(block).within.sum())


def project(features: FloatArray, block: str = "rhythm") -> FloatArray:
    """Project features on the bundled linear discriminants of their block, shape (n_users, n_discriminants).

    They were fitted on simulated clusters of seven archetypes and on noisy series of six
    (``scripts/fit_discriminants.py``); other classes may differ in any direction, so that none has a weight near zero.
    Of three kinds that were held out, told their number, the adjusted Rand index is .65, and .77 if the fit knew them
    (``make bench-segments ARGS="--only unseen"``).

    >>> project(load_discriminants().location[None]).round(2).tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """
    table = load_discriminants(block)
    return np.asarray(standardize(features, table.location, table.scale) @ table.weights)


def warn_outside(features: pd.DataFrame, block: str) -> None:
    """Warn where a fitted feature of most users is beyond two standard deviations of the data it was fitted on."""
    table = load_discriminants(block)
    fitted = features.iloc[:, : len(table.location)]
    distance = (fitted.to_numpy(dtype=float) - table.location) / table.scale
    share = (np.abs(distance) > _OUTSIDE).mean(axis=0) if len(features) else np.zeros(fitted.shape[1])
    worst = int(share.argmax())
    if share[worst] > _MOST:
        warnings.warn(
            f"{fitted.columns[worst]} of {share[worst]:.0%} of the users is outside the histories of 90 to 365 days on "
            "which distances between users were fitted; segments may be meaningless. Take a longer history, or blocks "
            "that are not fitted, such as blocks=['presence'].",
            ExtrapolationWarning,
            stacklevel=stack_level(),
        )


_BLOCK_COMPONENTS, _COMPONENTS = 8, 16
#: Mean square distance of users of one archetype by hourly features (``scripts/fit_discriminants.py``).
_WITHIN_HOURLY = 2.3
#: Other blocks with fixed scales, and their mean square distance of users of one archetype (the same script).
_FIXED_SCALES: Mapping[str, tuple[Mapping[str, tuple[float, float]], float]] = {
    "weekly_persistence": (WEEKLY_FEATURES, 0.14),
    "presence": (PRESENCE_FEATURES, 0.9),
}


class _Space(NamedTuple):
    """Coordinates of users by the features of a block, and the mean square distance of users of one archetype."""

    coordinates: Callable[[FloatArray], FloatArray]
    #: 0 where it is unknown, as without reference users.
    within_variance: float = 0.0


def _space(name: str, features: FloatArray) -> _Space:
    """Space of a block, fitted to its features, shape (n_users, n_features), unless its scales are fixed."""
    if name == "rhythm":
        hourly = features.shape[1] > len(DAILY_FEATURES)
        return _Space(_rhythm, variance_within() + (_WITHIN_HOURLY if hourly else 0.0))
    if name in TABLES:
        return _Space(functools.partial(project, block=name), variance_within(name))
    if name in _FIXED_SCALES:
        scales, within = _FIXED_SCALES[name]
        return _Space(functools.partial(_at_fixed_scales, scales=scales), within)
    return _Space(_EqualViews(features) if name == "persistence_curves" else _BlockComponents(features))


def _rhythm(features: FloatArray) -> FloatArray:
    """Daily features on the discriminants, then the hourly ones, if there are any, at fixed scales."""
    daily, hourly = np.split(features, [len(DAILY_FEATURES)], axis=1)
    return np.hstack([project(daily), _at_fixed_scales(hourly, HOURLY_FEATURES)]) if hourly.size else project(daily)


def _at_fixed_scales(features: FloatArray, scales: Mapping[str, tuple[float, float]]) -> FloatArray:
    return standardize(features, *np.transpose(list(scales.values())))


class _BlockComponents:
    """Principal components of one standardised block, scaled to a total variance of one."""

    def __init__(self, features: FloatArray) -> None:
        self.mean, spread = features.mean(axis=0), features.std(axis=0)
        size = np.maximum(np.abs(features).max(axis=0), 1.0)
        # Constant features get no weight.
        self.scale = np.where(spread > 1e-9 * size, spread, np.inf)
        standard = standardize(features, self.mean, self.scale)
        self.pca = _principal_components(standard, _BLOCK_COMPONENTS)
        total = float(np.sqrt(self.pca.transform(standard).var(axis=0).sum()))
        self.unit = 1.0 / total if total > 0 else 0.0

    def __call__(self, features: FloatArray) -> FloatArray:
        """Return the scaled component scores, shape (n_users, n_components)."""
        return np.asarray(self.pca.transform(standardize(features, self.mean, self.scale)) * self.unit)


class _EqualViews:
    """Persistence curves as they are, but that the views have equal total variances, one in all."""

    def __init__(self, features: FloatArray) -> None:
        self.mean = features.mean(axis=0)
        width = len(FILTRATIONS) * LIFETIMES.size
        variance = features.var(axis=0).reshape(-1, width).sum(axis=1)
        # Constant views get no weight.
        total = np.where(variance > 1e-18, variance * variance.size, np.inf)
        self.scale = np.sqrt(total).repeat(width)

    def __call__(self, features: FloatArray) -> FloatArray:
        """Return the scaled curves, shape (n_users, n_features)."""
        return np.asarray((features - self.mean) / self.scale)


def _principal_components(points: FloatArray, n_components: int) -> PCA:
    # The share of explained variance, which nobody reads, is 0 / 0 for constant features.
    with np.errstate(invalid="ignore", divide="ignore"):
        return PCA(min(n_components, *points.shape), svd_solver="full").fit(points)


class UserSpace:
    """Coordinates of users in at most sixteen dimensions, from the blocks of a feature table.

    Daily features (``"rhythm"``) and ``"multiscale_persistence"`` are projected on linear discriminants; hourly ones,
    ``"weekly_persistence"`` and ``"presence"`` have fixed locations and scales; the views of ``"persistence_curves"``
    have equal variances. Every other block is standardised, clipped at four and reduced to eight principal components.
    The total variance of the latter two is one. Sixteen principal components of all blocks remain.

    `within_variance_`: mean square distance of users of one archetype; 0 where it is known of no block.
    """

    def __init__(self, blocks: Sequence[str]) -> None:
        self.blocks = tuple(blocks)

    def fit(self, table: pd.DataFrame) -> UserSpace:
        """Learn locations, scales and components from two users or more."""
        self.spaces_ = {name: _space(name, _values(table, name)) for name in self.blocks}
        self.within_variance_ = sum(space.within_variance for space in self.spaces_.values())
        self.pca_ = _principal_components(self._stack(table), _COMPONENTS)
        return self

    def transform(self, table: pd.DataFrame) -> FloatArray:
        """Return coordinates, shape (n_users, n_dimensions)."""
        return np.asarray(self.pca_.transform(self._stack(table)))

    def _stack(self, table: pd.DataFrame) -> FloatArray:
        return np.hstack([space.coordinates(_values(table, name)) for name, space in self.spaces_.items()])


def _values(table: pd.DataFrame, block: str) -> FloatArray:
    return columns_of(table, block).to_numpy(dtype=float)
