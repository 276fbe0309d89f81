"""Sublevel and superlevel set persistence of series, and lifetime statistics of their diagrams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice
from gpudemand.segments.base.transformer import SeriesTransformer, map_rows, scale_code
from gpudemand.segments.base.usage_matrix import Matrix, as_matrix
from gpudemand.segments.topology.sweep import STATISTICS, pair, summarise_rows, turning_points

ESSENTIAL = ("inf", "max", "drop")
FILTRATIONS = ("sublevel", "superlevel")
_NAMES = tuple(f"{filtration}_{name}" for filtration in FILTRATIONS for name in STATISTICS)


def sublevel_persistence(y: object, *, essential: str = "inf") -> FloatArray:
    """Compute the persistence diagram of the sublevel sets of a series, in dimension 0.

    A component is born at each local minimum; where two merge, the one with the higher minimum dies (elder rule). This
    is the lower-star filtration of a path, as in GUDHI's ``CubicalComplex``, in linear time.

    Parameters
    ----------
    y : array-like, shape (n_timestamps,)
        The series. Missing values (NaN) are skipped: their neighbours count as adjacent.
    essential : {"inf", "max", "drop"}, default="inf"
        Death of the essential component, that of the global minimum: at infinity (as in GUDHI), at the maximum of the
        series (as in giotto-tda's ``CubicalPersistence`` with ``reduced_homology=False``), or omit it (as in giotto-tda
        by default).

    Returns
    -------
    ndarray, shape (n_pairs, 2)
        Births and deaths, sorted by birth, then death, without pairs of zero lifetime. A constant series has only the
        essential pair; one without values has none.

    Raises
    ------
    InputError
        If `y` is not one-dimensional, not numeric, or infinite somewhere.

    See Also
    --------
    superlevel_persistence : The diagram of the superlevel sets.
    PersistenceStatistics : Lifetime statistics as features.

    References
    ----------
    H. Edelsbrunner and J. Harer, *Computational Topology: An Introduction*, American Mathematical Society, 2010.

    Examples
    --------
    >>> sublevel_persistence([0, 3, 1, 5, 2])
    array([[ 0., inf],
           [ 1.,  3.],
           [ 2.,  5.]])
    >>> sublevel_persistence([0, 3, 1, 5, 2], essential="drop").tolist()
    [[1.0, 3.0], [2.0, 5.0]]
    """
    return _diagram(y, 1.0, essential)


def superlevel_persistence(y: object, *, essential: str = "inf") -> FloatArray:
    """Compute the persistence diagram of the superlevel sets of a series: components are born at local maxima.

    Parameters
    ----------
    y : array-like, shape (n_timestamps,)
        The series; missing values are skipped.
    essential : {"inf", "max", "drop"}, default="inf"
        As for `sublevel_persistence`: the component of the global maximum dies at minus infinity, at the minimum of the
        series, or is omitted.

    Returns
    -------
    ndarray, shape (n_pairs, 2)
        Births and deaths, sorted by descending birth, then death; births exceed deaths.

    Raises
    ------
    InputError
        As for `sublevel_persistence`.

    Examples
    --------
    >>> superlevel_persistence([0, 3, 1, 5, 2])
    array([[  5., -inf],
           [  3.,   1.]])
    """
    # Adding zero turns -0.0 to 0.0.
    return -_diagram(y, -1.0, essential) + 0.0


def _diagram(y: object, sign: float, essential: str) -> FloatArray:
    check_choice("essential", essential, ESSENTIAL)
    series = sign * as_series(y)
    turns, births, deaths = np.empty((3, series.size))
    turns = turns[: turning_points(series, turns)[0]]
    n_pairs = pair(turns, births, deaths)
    pairs = np.column_stack([births[:n_pairs], deaths[:n_pairs]])
    if essential != "drop" and turns.size:
        end = np.inf if essential == "inf" else turns.max()
        pairs = np.vstack([pairs, [turns.min(), end]])
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def as_series(y: object) -> FloatArray:
    """Validate one series and return it as an array; NaN is a missing value."""
    try:
        raw = y.to_numpy(dtype=float, na_value=np.nan) if isinstance(y, pd.Series) else np.asarray(y)
        series = np.ascontiguousarray(raw, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"a series must be numbers; got {type(y).__name__}: {error}.") from error
    if raw.ndim != 1:
        raise InputError(f"a series must have one dimension; got {raw.ndim}. Give one row of the matrix at a time.")
    if np.isinf(series).any():
        raise InputError("a series holds infinite values; repair them, or write NaN where nothing was recorded.")
    return series


def persistence_statistics(X: object, *, scale: str | None = None) -> pd.DataFrame:
    """Compute lifetime statistics of the sublevel and superlevel diagrams of each series.

    Parameters
    ----------
    X : DataFrame or array-like, shape (n_users, n_timestamps)
        Usage, a row a user; NaN is skipped. float32 is not copied.
    scale : {"std", "range", "mean"} or None, default=None
        Unit of each series: its own standard deviation, range or mean; None leaves it unscaled.

    Returns
    -------
    DataFrame, shape (n_users, 16)
        Index: users. For each filtration: ``count`` (pairs), ``largest`` (lifetime), ``distinct`` (lifetimes),
        ``long_lived`` (lifetimes of at least 80 % of the largest), ``mean``, ``sum``, ``std`` and ``entropy`` (bits).
        The essential pair is left out. All are zero for a series without pairs, such as a constant one.

    Raises
    ------
    InputError
        If `X` is no usage matrix, or `scale` is not known.

    References
    ----------
    R. Rivera-Castro et al., *Topology-based clusterwise regression for user segmentation and demand forecasting*,
    DSAA 2019, arXiv:2009.03661: largest, count, distinct, long-lived, mean and sum, there of Vietoris-Rips diagrams.

    Examples
    --------
    >>> table = persistence_statistics([[0, 3, 1, 5, 2], [4, 4, 4, 4, 4]])
    >>> table[["sublevel_count", "sublevel_largest", "superlevel_sum"]].values.tolist()
    [[2.0, 3.0, 2.0], [0.0, 0.0, 0.0]]
    """
    matrix = as_matrix(X, keep_float32=True)
    table = map_rows(summarise_rows, matrix.values, len(_NAMES) + 1, scale_code(scale))
    return pd.DataFrame(table[:, :-1], index=matrix.ids, columns=list(_NAMES))


class PersistenceStatistics(SeriesTransformer):
    """Lifetime statistics of the sublevel and superlevel diagrams of each series.

    Parameters
    ----------
    scale : {"std", "range", "mean"} or None, default="std"
        Unit of each series: its own standard deviation, range or mean. None leaves it unscaled: features then depend on
        the level.
    relative : bool, default=True
        Normalize for the length of the history: count and sum per recorded value, distinct and long-lived as shares of
        the count, entropy as a share of its maximum for that count.
    filtrations : tuple of {"sublevel", "superlevel"}, default=("sublevel", "superlevel")
        Which diagrams to summarise.

    Attributes
    ----------
    n_timestamps_ : int
        Length of the series at ``fit``; nothing else is learned.

    See Also
    --------
    persistence_statistics : The same statistics as a table, not normalized.

    Notes
    -----
    A constant or entirely missing series has no pairs: its features are zero.

    Examples
    --------
    The features are invariant to the scale of a series:

    >>> import numpy as np
    >>> steady = np.tile([8.0, 9, 8, 9, 8, 1, 1], 8)
    >>> block = PersistenceStatistics()
    >>> one, hundred = block.fit_transform([steady, 100 * steady])
    >>> np.allclose(one, hundred)
    True
    >>> block.get_feature_names_out()[:3].tolist()
    ['sublevel_count', 'sublevel_largest', 'sublevel_distinct']
    """

    def __init__(
        self,
        scale: str | None = "std",
        *,
        relative: bool = True,
        filtrations: Sequence[str] = FILTRATIONS,
    ) -> None:
        self.scale = scale
        self.relative = relative
        self.filtrations = filtrations

    def _learn(self, matrix: Matrix) -> None:
        scale_code(self.scale)
        for name in self.filtrations:
            check_choice("filtrations", name, FILTRATIONS)

    def _features(self, matrix: Matrix) -> FloatArray:
        table = map_rows(summarise_rows, matrix.values, len(_NAMES) + 1, scale_code(self.scale))
        features = table[:, :-1].reshape(len(table), len(FILTRATIONS), len(STATISTICS))
        if self.relative:
            _normalize(features, table[:, -1:])
        chosen = [FILTRATIONS.index(name) for name in self.filtrations]
        return features[:, chosen].reshape(len(table), -1)

    def _names(self) -> list[str]:
        return [f"{filtration}_{name}" for filtration in self.filtrations for name in STATISTICS]


def _normalize(features: FloatArray, recorded: FloatArray) -> None:
    """Normalize `features`, shape (n_users, n_filtrations, n_statistics), for series length, in place."""
    column = {name: features[:, :, place] for place, name in enumerate(STATISTICS)}
    pairs, values = np.maximum(column["count"], 1.0), np.maximum(recorded, 1.0)
    column["entropy"] /= np.log2(np.maximum(pairs, 2.0))
    column["distinct"] /= pairs
    column["long_lived"] /= pairs
    column["count"] /= values
    column["sum"] /= values
