"""What every block of features shares: checked input, rows worked on in threads, names of what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray
from gpudemand._validation import check_choice
from gpudemand.segments.base.usage_matrix import Matrix, as_matrix

Self = TypeVar("Self", bound="SeriesTransformer")

#: How a series may be brought to a common scale, in the order of the codes of `topology.sweep.rescale`.
SCALES = ("none", "mean", "std", "range")
_BLOCK = 2048


class SeriesTransformer(TransformerMixin, BaseEstimator):
    """A block of features of usage series: a subclass says what it learns, and what a row becomes.

    Series at ``transform`` may be longer or shorter than those at ``fit``.

    Attributes
    ----------
    n_timestamps_ : int
        Length of the series at ``fit``.
    """

    #: Whether to refuse values below zero.
    _non_negative = False

    @property
    def scale_free(self) -> bool:
        """Whether multiplying a series by a positive constant leaves its features as they are."""
        raise NotImplementedError

    def fit(self: Self, X: object, y: object = None) -> Self:
        """Check `X` and learn what `transform` needs.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_users, n_timestamps)
            Usage, a row a user; NaN is a missing value.
        y : None
            Ignored.

        Raises
        ------
        InputError
            If `X` is no usage matrix (see `as_matrix`), or a parameter is out of range.
        """
        matrix = as_matrix(X, non_negative=self._non_negative, keep_float32=True)
        self.n_timestamps_ = matrix.values.shape[1]
        self._learn(matrix)
        return self

    def transform(self, X: object) -> FloatArray:
        """Return the features of each row of `X`.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_users, n_timestamps)

        Returns
        -------
        ndarray, shape (n_users, n_features)
            Finite, whatever the rows are.
        """
        check_is_fitted(self, "n_timestamps_")
        return self._features(as_matrix(X, non_negative=self._non_negative, keep_float32=True))

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Return the names of the features, in the order of the columns.

        Parameters
        ----------
        input_features : None
            Ignored: the names do not depend on the times of the columns.
        """
        check_is_fitted(self, "n_timestamps_")
        return np.asarray(self._names(), dtype=object)

    def _learn(self, matrix: Matrix) -> None:
        """Learn from checked input; nothing by default."""

    def _features(self, matrix: Matrix) -> FloatArray:
        raise NotImplementedError

    def _names(self) -> Sequence[str]:
        raise NotImplementedError


class ScaleFreeTransformer(SeriesTransformer):
    """A block of features that never mind how many GPUs."""

    @property
    def scale_free(self) -> bool:
        """Whether multiplying a series by a positive constant leaves its features as they are: always."""
        return True


def scale_code(scale: str | None) -> int:
    """Return the code of a scale for the compiled sweeps, or complain about its name."""
    return 0 if scale is None else SCALES.index(check_choice("scale", scale, SCALES[1:]))


def over_rows(kernel: Callable[..., None], values: FloatArray, width: int, *args: object) -> FloatArray:
    """Call ``kernel(block of rows, *args, block of results)`` on all rows, in as many threads as there are cores.

    The kernel is compiled and holds no lock, so threads do: nothing is copied, and no second pool of threads gets in
    the way of joblib's or PyTorch's.

    Returns
    -------
    ndarray, shape (n_rows, width)
    """
    out = np.empty((len(values), width))
    starts = range(0, len(values), _BLOCK)

    def work(start: int) -> None:
        kernel(values[start : start + _BLOCK], *args, out[start : start + _BLOCK])

    if len(starts) == 1:
        work(0)
        return out
    with ThreadPoolExecutor(min(cpu_count(), len(starts))) as pool:
        list(pool.map(work, starts))
    return out
