"""Projection of features on linear discriminants that were fitted on simulated users of known archetypes."""

from __future__ import annotations

import functools
import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.datasets.registry import bundled_path

#: Standardised features are clipped at so many standard deviations.
CLIP = 4.0
#: Users are outside the fitted range at so many standard deviations; there is a warning if so many of them are.
_OUTSIDE, _MOST = 2.0, 0.5


class ExtrapolationWarning(UserWarning):
    """Most users are outside the data on which the distances between users were fitted."""


class Discriminants(NamedTuple):
    """Location and scale of the features, shape (n_features,), and ``weights``, (n_features, n_discriminants).

    ``within`` is the variance within classes along each discriminant.
    """

    location: FloatArray
    scale: FloatArray
    weights: FloatArray
    within: FloatArray

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

    Examples
    --------
    >>> load_discriminants().weights.shape
    (11, 11)
    """
    return Discriminants.from_table(pd.read_csv(bundled_path(TABLES[block]), index_col="feature"))


def variance_within(block: str = "rhythm") -> float:
    """Return the mean square distance of users of one class, on the discriminants of a block."""
    return float(load_discriminants(block).within.sum())


def project(features: FloatArray, block: str = "rhythm") -> FloatArray:
    """Project features on the bundled linear discriminants of their block.

    They were fitted on simulated clusters of seven archetypes and on noisy series of six
    (``scripts/fit_discriminants.py``); other classes may differ in any direction, so that none has a weight near zero.
    Of three kinds that were held out, told their number, the adjusted Rand index is .65, and .77 if the fit knew them
    (``make bench-segments ARGS="--only unseen"``).

    Parameters
    ----------
    features : ndarray, shape (n_users, n_features)
        In the order of `DAILY_FEATURES` (``"rhythm"``) or `MULTISCALE_FEATURES`.
    block : {"rhythm", "multiscale_persistence"}, default="rhythm"

    Returns
    -------
    ndarray, shape (n_users, n_discriminants)

    References
    ----------
    R. A. Fisher, *The use of multiple measurements in taxonomic problems*, Annals of Eugenics 7, 1936.

    Examples
    --------
    >>> project(load_discriminants().location[None]).round(2).tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """
    table = load_discriminants(block)
    return np.asarray(standardize(features, table.location, table.scale) @ table.weights)


def warn_outside(features: pd.DataFrame, block: str, *, stacklevel: int = 2) -> None:
    """Warn where one feature of most users is beyond two standard deviations of the data that a block was fitted on.

    Parameters
    ----------
    features : DataFrame, shape (n_users, n_features)
        Of a block of `TABLES`; further columns than the fitted ones are ignored.
    block : str
    stacklevel : int, default=2
        As in `warnings.warn`.
    """
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
            stacklevel=stacklevel,
        )
