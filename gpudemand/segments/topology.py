"""Persistence of series: sublevel and superlevel pairs, diagrams, windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray, IntArray, compiled, unmasked
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.segments.usage_matrix import Matrix, SeriesTransformer, as_matrix, map_rows, scale_code

#: The columns that `summarise` writes.
STATISTICS = ("count", "largest", "distinct", "long_lived", "mean", "sum", "std", "entropy")
#: Long-lived: at least this share of the largest lifetime (Rivera-Castro et al., arXiv:2009.03661).
_LONG_LIVED = 0.8
# Tolerances for rounding, relative to the largest lifetime, distance or value.
_SAME = 1e-9
_FLAT = 1e-12


@compiled
def centre_and_width(series: FloatArray, scale: int) -> tuple[float, float]:
    """Return location and scale of a series; a width of zero means that it is constant.

    Code 1 scales by the mean, 2 is the z-score, 3 scales the range above the minimum to one.
    """
    low, high, total, n = np.inf, -np.inf, 0.0, 0
    for value in series:
        if not math.isnan(value):
            low, high, total, n = min(low, value), max(high, value), total + value, n + 1
    if scale == 0 or n == 0:
        return 0.0, 1.0
    mean, width = total / n, high - low
    size = max(abs(low), abs(high))
    if scale == 1:
        width = abs(mean)
    if width <= _FLAT * size:
        return low, 0.0
    if scale != 2:
        return (low if scale == 3 else 0.0), width
    squares = 0.0
    for value in series:
        if not math.isnan(value):
            squares += ((value - mean) / width) ** 2
    return mean, width * math.sqrt(squares / n)


@compiled
def pair(series: FloatArray, births: IntArray, deaths: IntArray) -> int:
    """Write the places of the finite sublevel pairs of a series, skipping NaN; return how many there are.

    At a maximum lower than the maxima on both sides two components merge, and the one with the higher minimum dies
    (elder rule). In a sweep from left to right the maxima not yet exceeded descend, so that a stack holds them and each
    is pushed and popped once: linear time without sorting. Of a plateau, the first place counts.
    """
    floors, walls = np.empty(series.size + 1, dtype=np.int64), np.empty(series.size + 1, dtype=np.int64)
    n_pairs, top, floor, last, before, rises = 0, 0, 0, 0, np.nan, False
    for i in range(series.size + 1):
        # The series is bounded by an infinite wall on the right.
        value = series[i] if i < series.size else np.inf
        if value > before and i < series.size:
            rises = True
        elif (value < before and rises) or i == series.size:
            while top > 0 and (i == series.size or series[walls[top - 1]] <= before):
                top -= 1
                dies, lives = floors[top], floor
                if series[dies] < series[lives]:
                    dies, lives = lives, dies
                births[n_pairs], deaths[n_pairs] = dies, walls[top]
                floor = lives
                n_pairs += 1
            floors[top], walls[top] = floor, last
            floor, top, rises = i, top + 1, False
        elif value < before:
            floor = i if value < series[floor] else floor
        elif math.isnan(value) or value == before:
            continue
        else:
            floor = i
        last, before = i, value
    return n_pairs


@compiled
def _pairs(series: FloatArray, essential: bool, infinite: bool) -> FloatArray:
    """Births and deaths; with the essential pair, whose death is infinite or the maximum."""
    births, deaths = np.empty(series.size, dtype=np.int64), np.empty(series.size, dtype=np.int64)
    n = pair(series, births, deaths)
    pairs, low, high = np.empty((n + 1, 2)), np.inf, -np.inf
    for i in range(n):
        pairs[i, 0], pairs[i, 1] = series[births[i]], series[deaths[i]]
    for value in series:
        low, high = value if value < low else low, value if value > high else high
    pairs[n, 0], pairs[n, 1] = low, np.inf if infinite else high
    return pairs if essential and low < np.inf else pairs[:n]


@compiled
def summarise(lifetimes: FloatArray, same: float, out: FloatArray) -> None:
    """Write the `STATISTICS` of `lifetimes` to `out`, zeros if there are none; sorts `lifetimes` in place.

    Lifetimes that differ by at most `same` times the largest one count as one.
    """
    out[:] = 0.0
    n = lifetimes.size
    if n == 0:
        return
    lifetimes.sort()
    largest = lifetimes[n - 1]
    total, squares, distinct, long_lived = 0.0, 0.0, 1, 0
    for i in range(n):
        total += lifetimes[i]
        distinct += i > 0 and lifetimes[i] - lifetimes[i - 1] > same * largest
        long_lived += lifetimes[i] >= (1.0 - same) * _LONG_LIVED * largest
    mean = total / n
    entropy = 0.0
    for lifetime in lifetimes:
        squares += (lifetime - mean) ** 2
        entropy -= lifetime / total * math.log2(lifetime / total)
    out[0], out[1], out[2], out[3] = n, largest, distinct, long_lived
    out[4], out[5], out[6], out[7] = mean, total, math.sqrt(squares / n), max(entropy, 0.0)


@compiled
def summarise_rows(values: FloatArray, scale: int, out: FloatArray) -> None:
    """Write, for each row, the `STATISTICS` of its sublevel and superlevel pairs and the number of recorded values."""
    size, n = values.shape[1], len(STATISTICS)
    series, lifetimes = np.empty(size), np.empty(size)
    births, deaths = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    for row in range(values.shape[0]):
        width = centre_and_width(values[row], scale)[1]
        series[:] = values[row]
        out[row] = 0.0
        out[row, 2 * n] = size - np.isnan(series).sum()
        if width == 0.0:
            continue
        for side in range(2):
            n_pairs = pair(series, births, deaths)
            for i in range(n_pairs):
                lifetimes[i] = (series[deaths[i]] - series[births[i]]) / width
            summarise(lifetimes[:n_pairs], _SAME, out[row, side * n : (side + 1) * n])
            series *= -1.0


@compiled
def maxmin_indices(coordinates: FloatArray, indices: IntArray, distances: FloatArray) -> tuple[int, float]:
    """Write the `indices` of landmarks by the max-min rule, and their `distances` to all points.

    `coordinates`: shape (n_dimensions, n_points). Returns the number of landmarks, at most that of distinct points, and
    the covering radius.
    """
    nearest = np.full(coordinates.shape[1], np.inf)
    farthest, radius, largest = 0, np.inf, 0.0
    for count in range(indices.size):
        if radius <= _SAME * largest:
            return count, 0.0
        row = distances[count]
        row[:] = 0.0
        for axis in coordinates:
            row += (axis - axis[farthest]) ** 2
        row[:] = np.sqrt(row)
        indices[count] = farthest
        largest = max(largest, row.max())
        farthest, radius = 0, 0.0
        for i in range(row.size):
            nearest[i] = min(nearest[i], row[i])
            # Ties go to the first point, independent of rounding.
            if nearest[i] > radius * (1.0 + _SAME):
                farthest, radius = i, nearest[i]
    return indices.size, radius if radius > _SAME * largest else 0.0


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
    pairs = np.asarray(_pairs(sign * as_series(y), essential != "drop", essential == "inf"))
    # Complex numbers are sorted by the one part, then the other.
    pairs.view(np.complex128)[:, 0].sort()
    return pairs


def as_series(y: object) -> FloatArray:
    """Validate one series and return it as an array; NaN, or what a mask hides, is a missing value."""
    try:
        raw = y.to_numpy(dtype=float, na_value=np.nan) if isinstance(y, pd.Series) else np.asarray(unmasked(y))
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

    See Also
    --------
    persistence_statistics : The same statistics as a table, not normalized.

    Notes
    -----
    Features are normalized for the length of the history: count and sum per recorded value, distinct and long-lived as
    shares of the count, entropy as a share of its maximum for that count. A constant or entirely missing series has no
    pairs: its features are zero.

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

    def __init__(self, scale: str | None = "std") -> None:
        self.scale = scale

    def _learn(self, matrix: Matrix) -> None:
        scale_code(self.scale)

    def _features(self, matrix: Matrix) -> FloatArray:
        table = map_rows(summarise_rows, matrix.values, len(_NAMES) + 1, scale_code(self.scale))
        features = table[:, :-1].reshape(len(table), len(FILTRATIONS), len(STATISTICS))
        _normalize(features, table[:, -1:])
        return features.reshape(len(table), -1)

    def _names(self) -> list[str]:
        return list(_NAMES)


def _normalize(features: FloatArray, recorded: FloatArray) -> None:
    """Normalize `features`, shape (n_users, n_filtrations, n_statistics), for series length, in place."""
    column = {name: features[:, :, place] for place, name in enumerate(STATISTICS)}
    pairs, values = np.maximum(column["count"], 1.0), np.maximum(recorded, 1.0)
    column["entropy"] /= np.log2(np.maximum(pairs, 2.0))
    column["distinct"] /= pairs
    column["long_lived"] /= pairs
    column["count"] /= values
    column["sum"] /= values


#: Lifetimes that pairs are counted beyond, in standard deviations of a view, and differences of which views are made.
LIFETIMES = np.geomspace(0.02, 4.0, 20)
_DIFFERENCES = (0, 1, 2)
#: Values of a smoothing's kernel on either side, in standard deviations, and the spread of a view that is rounding.
_REACH, _FLAT_VIEW = 4.0, 1e-9


@compiled
def smoothed(series: FloatArray, width: float) -> FloatArray:
    """Return the series smoothed by a Gaussian kernel, whose weights outside the series fall to the values inside."""
    reach = int(min(_REACH * width + 0.5, series.size - 1.0))
    if reach == 0:
        return series.copy()
    kernel = np.exp(-0.5 * (np.arange(reach + 1) / width) ** 2)
    out, total = np.zeros(series.size), np.zeros(series.size)
    for lag in range(reach + 1):
        stop = series.size - lag
        out[:stop] += kernel[lag] * series[lag:]
        total[:stop] += kernel[lag]
        if lag > 0:
            out[lag:] += kernel[lag] * series[:stop]
            total[lag:] += kernel[lag]
    return out / total


@compiled
def standardised(series: FloatArray, least: float) -> FloatArray:
    """Return the series with mean 0 and standard deviation 1; zeros if its standard deviation is at most `least`."""
    centred = series - series.mean()
    spread = math.sqrt((centred * centred).mean())
    return centred / spread if spread > least else np.zeros(series.size)


@compiled
def interpolated(row: FloatArray) -> FloatArray:
    """Return the values of a row from the first to the last that is recorded, and missing ones on lines between."""
    known = np.flatnonzero(~np.isnan(row))
    if known.size == 0:
        return np.zeros(1)
    return np.interp(np.arange(known[0], known[-1] + 1), known, row[known])


@compiled
def curve_rows(values: FloatArray, widths: FloatArray, length: float, out: FloatArray) -> None:
    """Write, for each row, view, filtration and lifetime, the log of the number of pairs that outlive it."""
    size, n = values.shape[1], LIFETIMES.size
    births, deaths = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    counts = np.empty(n)
    for row in range(len(values)):
        column, series = 0, interpolated(values[row])
        largest = np.abs(series).max()
        series = standardised(series / largest if largest > 0 else series, _FLAT)
        for width in widths:
            view = smoothed(series, width)
            for order in _DIFFERENCES:
                view = view[1:] - view[:-1] if order > 0 and view.size > 1 else view
                side = standardised(view, _FLAT_VIEW)
                for _ in range(2):
                    counts[:] = 0.0
                    for i in range(pair(side, births, deaths)):
                        counts += side[deaths[i]] - side[births[i]] > LIFETIMES
                    out[row, column : column + n] = np.log1p(counts * (length / series.size))
                    column += n
                    side = -side


class PersistenceCurves(SeriesTransformer):
    """Numbers of sublevel and superlevel pairs that outlive fixed lifetimes, of each series at several smoothings.

    Parameters
    ----------
    smoothings : sequence of float, default=(0, 2, 4, 8)
        Standard deviations of Gaussian kernels, in bins. Of the series at each smoothing, of its first and of its
        second differences, all standardised, the pairs are counted: three views a smoothing.

    Attributes
    ----------
    n_timestamps_ : int
        Length of the series at ``fit``, to which the counts of other lengths are scaled.

    Notes
    -----
    A feature is the log of one more than the number of pairs whose lifetime exceeds one of twenty between .02 and 4
    standard deviations of its view, the survival function of lifetimes. Missing values are interpolated; times are not
    used, and features depend on neither scale nor level. A constant series has zeros.

    Adjusted Rand index of segments told the number of kinds, of k-means on level crossings of the same views, which
    are these without pairing, and of the log-spectrum (``make bench-segments``): OSULeaf .70, .69 and .36, ArrowHead
    .43, .33 and .24, GunPoint .58, .00 and .00. Looked at once: Coffee 1.00, .44 and .93, Trace 1.00, 1.00 and .60,
    PickupGestureWiimoteZ .33, .28 and .09 (MiniRocket .50), PLAID (first 500 values) .53, .48 and .26, BasicMotions
    (one channel) .68, .78 and .50. On power consumption (ACSF1) level crossings (.32) and MiniRocket (.35) are ahead of
    it (.29). Of users by day it sees neither weekday nor time: on seven simulated kinds it has .30,
    ``"multiscale_persistence"`` .61 (six seeds) and the default blocks .76.

    References
    ----------
    Y.-M. Chung and A. Lawson, *Persistence curves: a canonical framework for summarizing persistence diagrams*,
    Advances in Computational Mathematics 48, 2022; A. P. Witkin, *Scale-space filtering*, IJCAI 1983.

    Examples
    --------
    Two waves, one with a ripple on it:

    >>> import numpy as np
    >>> wave = np.sin(np.arange(200) / 10)
    >>> block = PersistenceCurves().set_output(transform="pandas")
    >>> table = block.fit_transform([wave, wave + 0.1 * np.sin(np.arange(200) * 2)])
    >>> table["sublevel_s0_d0_0.02"].round(1).tolist(), table["sublevel_s8_d0_0.02"].round(1).tolist()
    ([1.4, 4.1], [1.4, 1.4])
    """

    def __init__(self, smoothings: Sequence[float] = (0.0, 2.0, 4.0, 8.0)) -> None:
        self.smoothings = smoothings

    def _learn(self, matrix: Matrix) -> None:
        self._widths()

    def _features(self, matrix: Matrix) -> FloatArray:
        return map_rows(curve_rows, matrix.values, len(self._names()), self._widths(), float(self.n_timestamps_))

    def _widths(self) -> FloatArray:
        return np.array([check_number("smoothings", width, 0) for width in self.smoothings], dtype=float)

    def _names(self) -> list[str]:
        views = [f"s{width:g}_d{order}" for width in self.smoothings for order in _DIFFERENCES]
        return [f"{side}_{view}_{least:.3g}" for view in views for side in FILTRATIONS for least in LIFETIMES]


#: Statistics of one homology dimension; the first notebooks of the paper have all but ``distinct``.
SUMMARIES = ("count", "largest", "distinct", "long_lived", "mean", "sum")
_FIRST = [name for name in SUMMARIES if name != "distinct"]
#: The two published summaries, and both: homology dimension and statistic of each feature.
PUBLISHED = {
    "both": [(dimension, name) for dimension in (0, 1) for name in SUMMARIES],
    "lifetimes": [(dimension, name) for dimension in (0, 1) for name in _FIRST],
    "loops": [(1, name) for name in ("largest", "distinct", "count")],
}
# Relative tolerance for equal lifetimes: giotto-ph computes in single precision.
_SAME_PERSISTENCE = 1e-5


def stack_diagrams(diagrams: Sequence[FloatArray]) -> FloatArray:
    """Stack diagrams of different sizes as giotto-tda does.

    Parameters
    ----------
    diagrams : sequence of ndarray, each of shape (n_pairs, 3)
        Birth, death and dimension (0 or 1).

    Returns
    -------
    ndarray, shape (n_diagrams, n_rows, 3)
        Every homology dimension has as many rows as in the largest diagram, at least one; pairs of no lifetime fill
        the others up.

    Examples
    --------
    >>> stack_diagrams([np.array([[0.0, 1, 0], [1, 3, 1]]), np.array([[0.0, 2, 0], [0, 4, 0]])])[0].tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 3.0, 1.0]]
    """
    blocks = []
    for dimension in (0, 1):
        parts = [diagram[diagram[:, 2] == dimension] for diagram in diagrams]
        block = np.zeros((len(parts), max([len(part) for part in parts] + [1]), 3))
        block[:, :, 2] = dimension
        for row, part in zip(block, parts, strict=True):
            row[:, :2] = part[:, 0].min(initial=np.inf) if len(part) else 0.0
            row[: len(part)] = part
        blocks.append(block)
    return np.concatenate(blocks, axis=1)


def diagram_statistics(diagrams: object, summary: str = "both") -> FloatArray:
    """Compute the lifetime statistics of Rivera-Castro et al. of each persistence diagram.

    Parameters
    ----------
    diagrams : array-like, shape (n_diagrams, n_rows, 3)
        Birth, death and dimension, as `RipsStatistics.diagrams` and giotto-tda's transformers return them. Pairs of no
        lifetime, which fill diagrams up, are ignored.
    summary : {"both", "lifetimes", "loops"}, default="both"
        ``"lifetimes"``, the ten features of the authors' first notebooks: in dimensions 0 and 1 the number of pairs,
        the largest lifetime, the number of those of at least 80 % of it, their mean and their sum. ``"loops"``, the
        three of their later ones: largest lifetime, number of distinct pairs and number of pairs in dimension 1.

    Returns
    -------
    ndarray, shape (n_diagrams, n_features)
        Zeros for a dimension without pairs.

    Raises
    ------
    InputError
        If the diagrams have another shape, or the summary is unknown.

    References
    ----------
    R. Rivera-Castro et al., *Topology-based clusterwise regression for user segmentation and demand forecasting*,
    DSAA 2019, arXiv:2009.03661, and its authors' public notebooks.

    Examples
    --------
    >>> diagram_statistics([[[0.0, 1.0, 0], [0.0, 4.0, 0], [2.0, 5.0, 1], [0.0, 0.0, 1]]], "loops").tolist()
    [[3.0, 1.0, 1.0]]
    """
    stacked = np.asarray(diagrams, dtype=float)
    if stacked.ndim != 3 or stacked.shape[2] != 3:
        raise InputError(f"diagrams must have shape (n_diagrams, n_rows, 3); got {stacked.shape}.")
    chosen = PUBLISHED[check_choice("summary", summary, PUBLISHED)]
    out = np.zeros((len(stacked), 2, len(STATISTICS)))
    for diagram, rows in zip(stacked, out, strict=True):
        lifetimes = diagram[:, 1] - diagram[:, 0]
        for dimension in (0, 1):
            summarise(lifetimes[(lifetimes > 0) & (diagram[:, 2] == dimension)], _SAME_PERSISTENCE, rows[dimension])
    return np.column_stack([out[:, dimension, STATISTICS.index(name)] for dimension, name in chosen])


def takens_embedding(y: object, *, dimension: int = 50, time_delay: int = 1, stride: int = 1) -> FloatArray:
    """Embed a series by its sliding windows.

    Parameters
    ----------
    y : array-like, shape (n_timestamps,)
        The series; NaN is propagated to the windows that contain it.
    dimension : int, default=50
        Values in a window, the dimension of the points; 50 days in Rivera-Castro et al.
    time_delay : int, default=1
        Steps between the values of a window.
    stride : int, default=1
        Steps between windows. The last window ends at the last value, as in giotto-tda.

    Returns
    -------
    ndarray, shape (n_points, dimension)
        A read-only view of the series.

    Raises
    ------
    InputError
        If the series is shorter than one window, or a parameter is no positive whole number.

    References
    ----------
    F. Takens, *Detecting strange attractors in turbulence*, Lecture Notes in Mathematics 898, 1981.

    Examples
    --------
    >>> takens_embedding([0, 1, 2, 3, 4, 5, 6, 7], dimension=3, stride=2).astype(int).tolist()
    [[1, 2, 3], [3, 4, 5], [5, 6, 7]]
    """
    series, size = as_series(y), window_length(dimension, time_delay, stride)
    if series.size < size:
        raise InputError(
            f"a series of {series.size} values is shorter than one window of {size}; "
            "lower dimension or time_delay, or take a finer freq."
        )
    windows = np.lib.stride_tricks.sliding_window_view(series, size)
    return windows[(series.size - size) % int(stride) :: int(stride), :: int(time_delay)]


def window_length(dimension: int, time_delay: int = 1, stride: int = 1) -> int:
    """Return the number of values that a window spans; raises `InputError` for invalid parameters.

    >>> window_length(3, 2)
    5
    """
    for name, number in (("dimension", dimension), ("time_delay", time_delay), ("stride", stride)):
        check_number(name, number, 1, integer=True)
    return (int(dimension) - 1) * int(time_delay) + 1


class Landmarks(NamedTuple):
    """A subset of a point cloud: ``indices``, pairwise ``distances`` and covering ``radius``."""

    indices: IntArray
    distances: FloatArray
    radius: float


def maxmin_landmarks(points: object, n_landmarks: int | None = 64) -> Landmarks:
    """Choose landmarks by farthest-point sampling: each next one is the farthest from those before.

    Parameters
    ----------
    points : array-like, shape (n_points, n_dimensions)
        The point cloud.
    n_landmarks : int or None, default=64
        At most so many; None takes every distinct point. Duplicates are never chosen.

    Returns
    -------
    indices : ndarray of int, shape (n_landmarks,)
        Rows of `points`, the first one first.
    distances : ndarray, shape (n_landmarks, n_landmarks)
        Euclidean distances between them.
    radius : float
        Largest distance of a point to its nearest landmark; 0 when every distinct point is one.

    Raises
    ------
    InputError
        If there are no points, or they are not finite.

    Notes
    -----
    The Hausdorff distance of cloud and landmarks is at most `radius`, so the bottleneck distance of their Vietoris-Rips
    diagrams (with the diameter as filtration value) is at most twice that, in every dimension.

    References
    ----------
    T. F. Gonzalez, *Clustering to minimize the maximum intercluster distance*, Theoretical Computer Science 38, 1985;
    F. Chazal, V. de Silva, S. Oudot, *Persistence stability for geometric complexes*, Geometriae Dedicata 173, 2014.

    Examples
    --------
    >>> landmarks = maxmin_landmarks([[0.0], [1.0], [10.0], [10.0]], n_landmarks=2)
    >>> landmarks.indices.tolist(), landmarks.radius
    ([0, 2], 1.0)
    """
    cloud = np.asarray(points, dtype=float)
    if cloud.ndim != 2 or not cloud.size or not np.isfinite(cloud).all():
        raise InputError(f"points must be finite numbers, shape (n_points, n_dimensions); got shape {cloud.shape}.")
    limit = len(cloud)
    if n_landmarks is not None:
        limit = min(limit, int(check_number("n_landmarks", n_landmarks, 1, integer=True)))
    indices, rows = np.empty(limit, dtype=np.int64), np.empty((limit, len(cloud)))
    count, radius = maxmin_indices(np.ascontiguousarray(cloud.T), indices, rows)
    indices = indices[:count]
    return Landmarks(indices, rows[:count][:, indices], radius)
