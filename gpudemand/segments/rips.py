"""Vietoris-Rips persistence of sliding windows, computed by giotto-ph (imported on first use)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gpudemand import _parallel
from gpudemand._array import FloatArray
from gpudemand._validation import check_choice, check_number
from gpudemand.segments.topology import (
    PUBLISHED,
    centre_and_width,
    diagram_statistics,
    maxmin_landmarks,
    stack_diagrams,
    takens_embedding,
    window_length,
)
from gpudemand.segments.usage_matrix import Matrix, SeriesTransformer, as_matrix, scale_code

_MAX_DIMENSION = 1
_ROWS_PER_TASK = 128


def rips_diagrams(distances: Sequence[FloatArray]) -> list[FloatArray]:
    """Diagrams of point clouds from their distances: birth, death and dimension, without the essential component."""
    ripser, diagrams = _ripser(), []
    for matrix in distances:
        pairs = ripser(matrix, metric="precomputed", maxdim=_MAX_DIMENSION, n_threads=1)["dgms"]
        tagged = [np.column_stack([part, np.full(len(part), place)]) for place, part in enumerate(pairs)]
        diagram = np.vstack(tagged).astype(float)
        diagrams.append(diagram[np.isfinite(diagram[:, 1])])
    return diagrams


def _ripser() -> Callable[..., dict[str, Any]]:
    try:
        from gph import ripser_parallel
    except ImportError as error:
        raise ImportError(
            "Vietoris-Rips persistence needs giotto-ph: pip install 'gpudemand[tda]' (giotto-ph has wheels for Python "
            "3.11 and 3.12 only, and works with any scikit-learn)."
        ) from error
    return ripser_parallel


class _Embedding(NamedTuple):
    """Parameters of the point cloud of a series."""

    dimension: int
    stride: int
    n_landmarks: int | None
    scale: int

    def points(self, series: FloatArray) -> FloatArray:
        """Return the windows of the scaled series; none if it is constant or too short."""
        centre, width = centre_and_width(series, self.scale)
        if width == 0.0 or series.size < window_length(self.dimension):
            return np.empty((0, self.dimension))
        points = takens_embedding((series - centre) / width, dimension=self.dimension, stride=self.stride)
        return points[~np.isnan(points).any(axis=1)]


class RipsStatistics(SeriesTransformer):
    """Lifetime statistics of the Vietoris-Rips diagrams (H0 and H1) of the sliding windows of each series.

    The features of Rivera-Castro et al. (`diagram_statistics`): per dimension the number of pairs, the largest
    lifetime, the number of distinct lifetimes, of those of at least 80 % of the largest, their mean and their sum.

    Parameters
    ----------
    dimension : int, default=50
        Values in a window.
    stride : int, default=1
        Steps between windows.
    n_landmarks : int or None, default=64
        Landmarks of the windows (see `maxmin_landmarks`); None takes all distinct windows, as the paper does, in time
        cubic in their number.
    scale : {"std", "range", "mean"} or None, default="std"
        Unit of each series.
    summary : {"both", "lifetimes", "loops"}, default="both"
        Which of the two published summaries.
    n_jobs : int or None, default=None
        Processes; a Dask client takes precedence.

    Notes
    -----
    Windows with a missing value are left out. A constant series, one with fewer than two distinct windows, and one
    shorter than a window have no pairs: their features are zero.

    With ``n_landmarks=None`` and ``scale=None`` the features are those of giotto-tda's transformers in a pipeline::

        make_pipeline(
            TakensEmbedding(dimension=50, time_delay=1),
            VietorisRipsPersistence(homology_dimensions=(0, 1)),
            FunctionTransformer(diagram_statistics),
        )

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
        *,
        stride: int = 1,
        n_landmarks: int | None = 64,
        scale: str | None = "std",
        summary: str = "both",
        n_jobs: int | None = None,
    ) -> None:
        self.dimension = dimension
        self.stride = stride
        self.n_landmarks = n_landmarks
        self.scale = scale
        self.summary = summary
        self.n_jobs = n_jobs

    def diagrams(self, X: object) -> FloatArray:
        """Compute the Vietoris-Rips diagrams of the windows of each series, in giotto-tda's format.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_users, n_timestamps)
            Usage, a row a user.

        Returns
        -------
        ndarray, shape (n_users, n_rows, 3)
            Birth, death and dimension, padded with pairs of no lifetime; what giotto-tda's amplitudes, images and plots
            and `diagram_statistics` take.
        """
        self._check()
        return self._diagrams(as_matrix(X))

    def _learn(self, matrix: Matrix) -> None:
        self._check()

    def _features(self, matrix: Matrix) -> FloatArray:
        return diagram_statistics(self._diagrams(matrix), self.summary)

    def _check(self) -> None:
        check_choice("summary", self.summary, PUBLISHED)
        self._embedding()
        _ripser()

    def _diagrams(self, matrix: Matrix) -> FloatArray:
        tasks = [matrix.values[start : start + _ROWS_PER_TASK] for start in range(0, len(matrix.ids), _ROWS_PER_TASK)]
        work = partial(_row_diagrams, embedding=self._embedding())
        parts = _parallel.run(work, tasks, n_jobs=self.n_jobs)
        return stack_diagrams([diagram for part in parts for diagram in part])

    def _embedding(self) -> _Embedding:
        window_length(self.dimension, stride=self.stride)
        if self.n_landmarks is not None:
            check_number("n_landmarks", self.n_landmarks, 1, integer=True)
        return _Embedding(self.dimension, self.stride, self.n_landmarks, scale_code(self.scale))

    def _names(self) -> list[str]:
        return [f"h{dimension}_{name}" for dimension, name in PUBLISHED[self.summary]]


def _row_diagrams(rows: FloatArray, embedding: _Embedding) -> list[FloatArray]:
    """Return the diagram of each row; empty for one without two distinct windows."""
    diagrams, clouds = [np.empty((0, 3))] * len(rows), {}
    for row, series in enumerate(rows):
        points = embedding.points(series.astype(float))
        distances = maxmin_landmarks(points, embedding.n_landmarks).distances if len(points) > 1 else points
        if len(distances) > 1:
            clouds[row] = distances
    for row, diagram in zip(clouds, rips_diagrams(list(clouds.values())), strict=True):
        diagrams[row] = diagram
    return diagrams
