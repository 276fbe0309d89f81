"""Projection of daily features on linear discriminants that were fitted on simulated users of known archetypes."""

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
    """Location and scale of the daily features, shape (n_features,), and ``weights``, (n_features, n_discriminants)."""

    location: FloatArray
    scale: FloatArray
    weights: FloatArray


def standardize(features: FloatArray, location: FloatArray, scale: FloatArray) -> FloatArray:
    """Return clipped z-scores."""
    return np.clip((features - location) / scale, -CLIP, CLIP)


@functools.cache
def load_discriminants() -> Discriminants:
    """Load the bundled table, one row a feature; ``scripts/fit_discriminants.py`` makes it.

    Examples
    --------
    >>> load_discriminants().weights.shape
    (11, 8)
    """
    columns = pd.read_csv(bundled_path("segments/discriminants.csv"), index_col="feature").to_numpy().T
    return Discriminants(columns[0], columns[1], columns[2:].T)


def project(features: FloatArray) -> FloatArray:
    """Project daily features on the bundled linear discriminants.

    The within-class variance is about one along each discriminant. They were fitted on simulated clusters of seven
    archetypes and on noisy series of six (``scripts/fit_discriminants.py``) and may separate other classes less.

    Parameters
    ----------
    features : ndarray, shape (n_users, 11)
        In the order of `gpudemand.segments.features.daily.DAILY_FEATURES`.

    Returns
    -------
    ndarray, shape (n_users, 8)

    References
    ----------
    R. A. Fisher, *The use of multiple measurements in taxonomic problems*, Annals of Eugenics 7, 1936.

    Examples
    --------
    >>> project(load_discriminants().location[None]).round(2).tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """
    table = load_discriminants()
    return np.asarray(standardize(features, table.location, table.scale) @ table.weights)
