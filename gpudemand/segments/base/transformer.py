"""Base class of the feature transformers, and the threaded map over rows for their compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray
from gpudemand._validation import check_choice
from gpudemand.segments.base.usage_matrix import Matrix, as_matrix

#: Scalings of a series, in the order of the codes of `topology.sweep.centre_and_width`.
SCALES = ("none", "mean", "std", "range")
_ROWS_PER_TASK = 2048


class SeriesTransformer(TransformerMixin, BaseEstimator):
    """Transform usage series into features; their length at ``transform`` may differ from that at ``fit``.

    Attributes
    ----------
    n_timestamps_ : int
        Length of the series at ``fit``.
    """

    #: Whether negative values are an error.
    _non_negative = False

    def fit(self, X: object, y: object = None) -> Self:
        """Validate `X` and the parameters, and learn what `transform` needs.

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
            Finite for any valid input.
        """
        check_is_fitted(self, "n_timestamps_")
        return self._features(as_matrix(X, non_negative=self._non_negative, keep_float32=True))

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Return the feature names in column order.

        Parameters
        ----------
        input_features : None
            Ignored: the names do not depend on the times of the columns.
        """
        check_is_fitted(self, "n_timestamps_")
        return np.asarray(self._names(), dtype=object)

    def _learn(self, matrix: Matrix) -> None:
        """Learn from validated input; nothing by default."""

    def _features(self, matrix: Matrix) -> FloatArray:
        raise NotImplementedError

    def _names(self) -> Sequence[str]:
        raise NotImplementedError


def scale_code(scale: str | None) -> int:
    """Return the code of a scaling for the compiled kernels; raises `InputError` for an unknown name."""
    return 0 if scale is None else SCALES.index(check_choice("scale", scale, SCALES[1:]))


def map_rows(kernel: Callable[..., None], values: FloatArray, width: int, *args: object) -> FloatArray:
    """Call ``kernel(rows, *args, out)`` on blocks of rows, in as many threads as there are cores.

    The compiled kernels release the GIL, so that threads suffice and nothing is copied.

    Returns
    -------
    ndarray, shape (n_rows, width)
    """
    out = np.empty((len(values), width))
    # Numba compiles kernels anew, for seconds, for values that can be written.
    values = values.view()
    values.flags.writeable = False
    starts = range(0, len(values), _ROWS_PER_TASK)

    def work(start: int) -> None:
        """Fill the block of rows of `out` that begins at `start`."""
        rows = slice(start, start + _ROWS_PER_TASK)
        kernel(values[rows], *args, out[rows])

    if len(starts) == 1:
        work(0)
        return out
    with ThreadPoolExecutor(min(cpu_count(), len(starts))) as pool:
        list(pool.map(work, starts))
    return out
