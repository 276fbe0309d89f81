"""Vietoris-Rips persistence of sliding windows, through giotto-ph, which is loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gpudemand import _parallel
from gpudemand._typing import FloatArray
from gpudemand._validation import check_number
from gpudemand.segments.base.transformer import SeriesTransformer, scale_code
from gpudemand.segments.base.usage_matrix import Matrix, as_matrix
from gpudemand.segments.topology.sweep import STATISTICS, centre_and_width, summarise
from gpudemand.segments.topology.windows import maxmin_landmarks, takens_embedding, window_length

#: The paper's five numbers of a diagram, and the sixth of its later version.
SUMMARIES = ("count", "largest", "distinct", "long_lived", "mean", "sum")
_COLUMNS = [STATISTICS.index(name) for name in SUMMARIES]
_DIMENSIONS = (0, 1)
# giotto-ph works in single precision: lifetimes closer than this, relative to the largest, are the same.
_SAME = 1e-5
_BLOCK = 128


def rips_persistence(points: object, *, max_dimension: int = 1, n_landmarks: int | None = None) -> FloatArray:
    """Return the Vietoris-Rips diagram of a cloud of points.

    Parameters
    ----------
    points : array-like, shape (n_points, n_dimensions)
        The cloud; copies of a point change nothing and cost nothing.
    max_dimension : int, default=1
        Highest dimension of homology.
    n_landmarks : int or None, default=None
        Use only so many points, chosen by `maxmin_landmarks`; the diagram is then off by at most twice their
        ``radius`` in bottleneck distance. None uses all distinct points.

    Returns
    -------
    ndarray, shape (n_pairs, 3)
        Birth, death and dimension, as in giotto-tda; filtration values are diameters, in single precision. Of
        components, the one that never dies is left out.

    Raises
    ------
    InputError
        If the points are not finite.
    ImportError
        If giotto-ph is not installed.

    References
    ----------
    J. Burella Perez et al., *giotto-ph: a Python library for high-performance computation of persistent homology of
    Vietoris-Rips filtrations*, arXiv:2107.05412.

    Examples
    --------
    >>> square = [[0, 0], [0, 1], [1, 1], [1, 0]]
    >>> rips_persistence(square).round(3).tolist()  # doctest: +SKIP
    [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.414, 1.0]]
    """
    check_number("max_dimension", max_dimension, 0, integer=True)
    distances = maxmin_landmarks(points, n_landmarks).distances
    diagrams = _ripser()(distances, metric="precomputed", maxdim=int(max_dimension), n_threads=1)["dgms"]
    tagged = [np.column_stack([pairs, np.full(len(pairs), dimension)]) for dimension, pairs in enumerate(diagrams)]
    diagram = np.vstack(tagged).astype(float)
    return diagram[np.isfinite(diagram[:, 1])]


def _ripser() -> Callable[..., dict[str, Any]]:
    try:
        from gph import ripser_parallel
    except ImportError as error:
        raise ImportError(
            "Vietoris-Rips persistence needs giotto-ph: pip install 'gpudemand[tda]' "
            "(or giotto-ph alone, which works with any scikit-learn)."
        ) from error
    return ripser_parallel


class _Cloud(NamedTuple):
    """How a series becomes points."""

    dimension: int
    time_delay: int
    stride: int
    n_landmarks: int | None
    scale: int


class RipsStatistics(SeriesTransformer):
    """Lifetime statistics of components (H0) and loops (H1) among the sliding windows of each series.

    The features of Rivera-Castro et al.: windows of 50 days, Vietoris-Rips persistence up to loops, and per dimension
    the number of pairs, the largest lifetime, the number of distinct lifetimes, of those of at least 80 % of the
    largest, their mean and their sum. Windows that occur twice are used once, and of the others at most `n_landmarks`.

    Parameters
    ----------
    dimension : int, default=50
        Values in a window.
    time_delay : int, default=1
        Steps between the values of a window.
    stride : int, default=1
        Steps between windows.
    n_landmarks : int or None, default=64
        Windows that stand for all of a series (see `maxmin_landmarks`); None takes all distinct ones, as the paper
        does, at a price that grows with the cube of their number.
    scale : {"std", "range", "mean"} or None, default="std"
        What each series is measured in.
    n_jobs : int or None, default=None
        Processes; a Dask client takes precedence.

    Attributes
    ----------
    n_timestamps_ : int
        Length of the series at ``fit``; nothing else is learned.

    Notes
    -----
    Windows with a missing value are left out. A constant series, one with fewer than two distinct windows, and one
    shorter than a window have no pairs: their features are zero.

    References
    ----------
    R. Rivera-Castro et al., *Topology-based clusterwise regression for user segmentation and demand forecasting*,
    DSAA 2019, arXiv:2009.03661.

    Examples
    --------
    >>> block = RipsStatistics(dimension=7).fit([[0.0, 1, 2, 3, 2, 1, 0, 1]])
    >>> block.get_feature_names_out()[:4].tolist()
    ['h0_count', 'h0_largest', 'h0_distinct', 'h0_long_lived']
    """

    def __init__(
        self,
        dimension: int = 50,
        time_delay: int = 1,
        stride: int = 1,
        *,
        n_landmarks: int | None = 64,
        scale: str | None = "std",
        n_jobs: int | None = None,
    ) -> None:
        self.dimension = dimension
        self.time_delay = time_delay
        self.stride = stride
        self.n_landmarks = n_landmarks
        self.scale = scale
        self.n_jobs = n_jobs

    @property
    def scale_free(self) -> bool:
        """Whether multiplying a series by a positive constant leaves its features as they are."""
        return self.scale is not None

    def error_bounds(self, X: object) -> FloatArray:
        """Return how far the diagram of each series can be from that of all its windows, in bottleneck distance.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_users, n_timestamps)

        Returns
        -------
        ndarray, shape (n_users,)
            Twice the covering radius of the landmarks, in the unit of `scale`; 0 where the diagram is exact. No birth,
            death or lifetime of a matched pair is off by more than (a lifetime: twice) this.
        """
        return self._by_row(_error_bound, as_matrix(X).values)[:, 0]

    def _learn(self, matrix: Matrix) -> None:
        self._cloud()
        _ripser()

    def _features(self, matrix: Matrix) -> FloatArray:
        return self._by_row(_summaries, matrix.values)

    def _by_row(self, function: Callable[[FloatArray, _Cloud], FloatArray], values: FloatArray) -> FloatArray:
        blocks = [values[start : start + _BLOCK] for start in range(0, len(values), _BLOCK)]
        work = partial(_stack, function=function, cloud=self._cloud())
        return np.vstack(_parallel.run(work, blocks, n_jobs=self.n_jobs))

    def _cloud(self) -> _Cloud:
        window_length(self.dimension, self.time_delay, self.stride)
        if self.n_landmarks is not None:
            check_number("n_landmarks", self.n_landmarks, 1, integer=True)
        return _Cloud(self.dimension, self.time_delay, self.stride, self.n_landmarks, scale_code(self.scale))

    def _names(self) -> list[str]:
        return [f"h{dimension}_{name}" for dimension in _DIMENSIONS for name in SUMMARIES]


def _stack(rows: FloatArray, function: Callable[[FloatArray, _Cloud], FloatArray], cloud: _Cloud) -> FloatArray:
    return np.vstack([function(row.astype(float), cloud) for row in rows])


def _summaries(series: FloatArray, cloud: _Cloud) -> FloatArray:
    out = np.zeros((len(_DIMENSIONS), len(STATISTICS)))
    points = _points(series, cloud)
    if len(points) > 1:
        diagram = rips_persistence(points, max_dimension=max(_DIMENSIONS), n_landmarks=cloud.n_landmarks)
        for dimension in _DIMENSIONS:
            pairs = diagram[diagram[:, 2] == dimension]
            summarise(pairs[:, 1] - pairs[:, 0], _SAME, out[dimension])
    return out[:, _COLUMNS].ravel()


def _error_bound(series: FloatArray, cloud: _Cloud) -> FloatArray:
    points = _points(series, cloud)
    return np.array([2.0 * maxmin_landmarks(points, cloud.n_landmarks).radius if len(points) else 0.0])


def _points(series: FloatArray, cloud: _Cloud) -> FloatArray:
    """Return the windows of a series on its scale; none if it is constant or too short."""
    centre, width = centre_and_width(series, cloud.scale)
    if width == 0.0 or series.size < window_length(cloud.dimension, cloud.time_delay):
        return np.empty((0, cloud.dimension))
    points = takens_embedding(
        (series - centre) / width, dimension=cloud.dimension, time_delay=cloud.time_delay, stride=cloud.stride
    )
    return points[~np.isnan(points).any(axis=1)]
