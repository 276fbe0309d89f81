"""Projection of features on linear discriminants that were fitted on simulated users of known archetypes."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.datasets.registry import bundled_path

#: Standardised features are clipped at so many standard deviations.
CLIP = 4.0


class Discriminants(NamedTuple):
    """Location and scale of the features, shape (n_features,), and ``weights``, (n_features, n_discriminants)."""

    location: FloatArray
    scale: FloatArray
    weights: FloatArray


def standardize(features: FloatArray, location: FloatArray, scale: FloatArray) -> FloatArray:
    """Return clipped z-scores."""
    return np.clip((features - location) / scale, -CLIP, CLIP)


#: Bundled tables by block of features.
TABLES = {"rhythm": "segments/discriminants.csv", "multiscale_persistence": "segments/persistence_discriminants.csv"}


@functools.cache
def load_discriminants(block: str = "rhythm") -> Discriminants:
    """Load the bundled table of a block, one row a feature; ``scripts/fit_discriminants.py`` makes it.

    Examples
    --------
    >>> load_discriminants().weights.shape
    (11, 8)
    """
    columns = pd.read_csv(bundled_path(TABLES[block]), index_col="feature").to_numpy().T
    return Discriminants(columns[0], columns[1], columns[2:].T)


def project(features: FloatArray, block: str = "rhythm") -> FloatArray:
    """Project features on the bundled linear discriminants of their block.

    The within-class variance is about one along each discriminant. They were fitted on simulated clusters of seven
    archetypes and on noisy series of six (``scripts/fit_discriminants.py``) and may separate other classes less.

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
    [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """
    table = load_discriminants(block)
    return np.asarray(standardize(features, table.location, table.scale) @ table.weights)
