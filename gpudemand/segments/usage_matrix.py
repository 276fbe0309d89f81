"""Usage as a matrix, a row a user, and transformers of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from joblib import cpu_count
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gpudemand._array import FloatArray, unmasked
from gpudemand._validation import InputError, as_wide, check_choice, shorten

DAY, HOUR = pd.Timedelta("1D"), pd.Timedelta("1h")


class Matrix(NamedTuple):
    """Checked usage: ``values``, shape (n_users, n_timestamps), the users' ``ids``, and the times ``ds`` if known."""

    values: FloatArray
    ids: pd.Index
    ds: pd.DatetimeIndex | None


def as_matrix(X: object, *, non_negative: bool = False, keep_float32: bool = False) -> Matrix:
    """Validate usage and return it as a matrix.

    Parameters
    ----------
    X : DataFrame or array-like, shape (n_users, n_timestamps)
        Usage as from `gpudemand.to_wide` (index: users, columns: times), or an array. NaN, or what a mask hides, is
        missing. Users may be named in a column ``unique_id``, and times be ISO text, as in a table from a file.
    non_negative : bool, default=False
        Whether negative values are an error.
    keep_float32 : bool, default=False
        Whether to keep single precision instead of copying to float64.

    Returns
    -------
    values : ndarray of float, shape (n_users, n_timestamps)
        C-contiguous; may share memory with `X`, so do not write to it.
    ids : Index
        Row labels; 0, 1, 2, ... for an array.
    ds : DatetimeIndex or None
        Column times; None for an array, or for columns that are not times.

    Raises
    ------
    InputError
        If `X` is not two-dimensional, not numeric, empty, entirely missing, infinite or (with `non_negative`) negative
        somewhere, has duplicate users or times that do not ascend, or has times as rows.

    Examples
    --------
    >>> matrix = as_matrix([[0.0, 1.0], [2.0, float("nan")]])
    >>> matrix.values.shape, list(matrix.ids), matrix.ds
    ((2, 2), [0, 1], None)
    """
    if isinstance(X, pd.DataFrame) or hasattr(X, "__arrow_c_stream__"):
        X = as_wide(X)
    values = _numbers(X, keep_float32)
    ids = X.index if isinstance(X, pd.DataFrame) else pd.RangeIndex(len(values))
    ds = X.columns if isinstance(X, pd.DataFrame) and isinstance(X.columns, pd.DatetimeIndex) else None
    _check_values(values, non_negative)
    _check_labels(ids, ds)
    return Matrix(values, ids, ds)


def _numbers(X: object, keep_float32: bool) -> FloatArray:
    if issparse(X):
        raise InputError("usage is a sparse matrix, which is not supported; give its toarray().")
    try:
        raw: NDArray[Any] = np.asarray(unmasked(X))
        single = keep_float32 and raw.dtype == np.float32
        # Only pandas converts the pd.NA of extension types to NaN.
        if isinstance(X, pd.DataFrame) and raw.dtype == object:
            raw = X.to_numpy(dtype=float, na_value=np.nan)
        if np.iscomplexobj(raw):
            raise InputError("usage holds complex numbers. Complex data not supported; give their real parts.")
        values: FloatArray = np.ascontiguousarray(raw, dtype=np.float32 if single else np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"usage must be a matrix of numbers, one row a user; got {type(X).__name__}: {error}."
        ) from error
    if raw.ndim != 2:
        raise InputError(
            f"usage must have two dimensions, users by times; got {raw.ndim}. "
            "Make it with gpudemand.to_wide. Reshape your data if it is one series: [y]."
        )
    if not values.size:
        missing = "0 sample(s)" if not len(values) else "0 feature(s)"
        raise InputError(
            f"usage holds no users or no times: {missing} (shape={values.shape}) while a minimum of 1 is required."
        )
    return values


def _check_values(values: FloatArray, non_negative: bool) -> None:
    # These reductions skip NaN without a copy.
    low, high = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
    if np.isnan(low):
        raise InputError("usage holds missing values only; there is nothing to work on.")
    if np.isinf(low) or np.isinf(high):
        raise InputError("usage holds infinite values; repair them, or write NaN where nothing was recorded.")
    if non_negative and low < 0:
        raise InputError(f"Negative values in data: usage holds values below zero, the lowest {low:g}.")


def _check_labels(ids: pd.Index, ds: pd.DatetimeIndex | None) -> None:
    if not ids.is_unique:
        twice = ids[ids.duplicated()]
        raise InputError(
            f"usage has {len(twice)} duplicate user(s), the first {shorten(twice[0])!r}; sum or drop their rows."
        )
    if ds is not None and not (ds.is_monotonic_increasing and ds.is_unique and not ds.hasnans):
        raise InputError(
            "the columns of usage must be times in ascending order, each once; sort them or sum duplicates."
        )


def sampling_step(ds: pd.DatetimeIndex | None) -> pd.Timedelta | None:
    """Return the median sampling interval, or None where it is unknown.

    >>> import pandas as pd
    >>> sampling_step(pd.date_range("2026-03-01", periods=3, freq="h"))
    Timedelta('0 days 01:00:00')
    """
    if ds is None or len(ds) < 2:
        return None
    return pd.Timedelta(pd.Series(ds[1:] - ds[:-1]).median())


#: Scalings of a series, in the order of the codes of `topology.centre_and_width`.
SCALES = ("none", "mean", "std", "range")
#: Values of a block of rows, of any length: two megabytes, and a few times that for what is made of them.
_VALUES_PER_TASK = 2**18


class SeriesTransformer(TransformerMixin, BaseEstimator):
    """Transform usage series into features; their length at ``transform`` may differ from that at ``fit``.

    Attributes
    ----------
    n_timestamps_ : int
        Length of the series at ``fit``; nothing else is learned unless a subclass says so.
    """

    #: Whether negative values are an error.
    _non_negative = False
    #: Names of the features, where they depend neither on parameters nor on data.
    _feature_names: Sequence[str] = ()

    def fit(self, X: object, y: object = None) -> Self:
        """Learn what `transform` needs from usage, shape (n_users, n_timestamps), in which NaN is a missing value."""
        matrix = as_matrix(X, non_negative=self._non_negative, keep_float32=True)
        self.n_timestamps_ = self.n_features_in_ = matrix.values.shape[1]
        self._learn(matrix)
        return self

    def transform(self, X: object) -> FloatArray:
        """Return the features of each row of `X`, shape (n_users, n_features), finite for any valid input."""
        check_is_fitted(self, "n_timestamps_")
        return self._features(as_matrix(X, non_negative=self._non_negative, keep_float32=True))

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Return the feature names in column order; they do not depend on the times of the columns."""
        check_is_fitted(self, "n_timestamps_")
        return np.asarray(self._names(), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.positive_only = self._non_negative
        return tags

    def _learn(self, matrix: Matrix) -> None:
        """Learn from validated input; nothing by default."""

    def _features(self, matrix: Matrix) -> FloatArray:
        raise NotImplementedError

    def _names(self) -> Sequence[str]:
        return list(self._feature_names)


def scale_code(scale: str | None) -> int:
    """Return the code of a scaling for the compiled kernels; raises `InputError` for an unknown name."""
    return 0 if scale is None else SCALES.index(check_choice("scale", scale, SCALES[1:]))


def map_rows(kernel: Callable[..., None], values: FloatArray, width: int, *args: object) -> FloatArray:
    """Call ``kernel(rows, *args, out)`` on blocks of rows, in as many threads as there are cores; (n_rows, width).

    The compiled kernels release the GIL, so that threads suffice and nothing is copied.
    """
    out = np.empty((len(values), width))
    # Numba compiles kernels anew, for seconds, for values that can be written.
    values = values.view()
    values.flags.writeable = False
    n_rows = max(_VALUES_PER_TASK // values.shape[1], 1)
    starts = range(0, len(values), n_rows)

    def work(start: int) -> None:
        """Fill the block of rows of `out` that begins at `start`."""
        rows = slice(start, start + n_rows)
        kernel(values[rows], *args, out[rows])

    if len(starts) == 1:
        work(0)
        return out
    with ThreadPoolExecutor(min(cpu_count(), len(starts))) as pool:
        list(pool.map(work, starts))
    return out
