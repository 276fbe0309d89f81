"""Usage as a validated matrix: a row a user, a column a timestamp."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, as_wide, shorten


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
        Usage as from `gpudemand.to_wide` (index: users, columns: times), or an array. NaN is missing. A table of
        polars, pyarrow ... names its users in the column ``unique_id``, and its columns after times.
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
        somewhere, or has duplicate users or times that do not ascend.

    Examples
    --------
    >>> matrix = as_matrix([[0.0, 1.0], [2.0, float("nan")]])
    >>> matrix.values.shape, list(matrix.ids), matrix.ds
    ((2, 2), [0, 1], None)
    """
    if hasattr(X, "__arrow_c_stream__"):
        X = as_wide(X)
    values = _numbers(X, keep_float32)
    ids = X.index if isinstance(X, pd.DataFrame) else pd.RangeIndex(len(values))
    ds = X.columns if isinstance(X, pd.DataFrame) and isinstance(X.columns, pd.DatetimeIndex) else None
    _check_values(values, non_negative)
    _check_labels(ids, ds)
    return Matrix(values, ids, ds)


def _numbers(X: object, keep_float32: bool) -> FloatArray:
    try:
        raw: NDArray[Any] = np.asarray(X)
        single = keep_float32 and raw.dtype == np.float32
        # Only pandas converts the pd.NA of extension types to NaN.
        if isinstance(X, pd.DataFrame) and raw.dtype == object:
            raw = X.to_numpy(dtype=float, na_value=np.nan)
        values: FloatArray = np.ascontiguousarray(raw, dtype=np.float32 if single else np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"usage must be a matrix of numbers, one row a user; got {type(X).__name__}: {error}."
        ) from error
    if raw.ndim != 2:
        raise InputError(
            f"usage must have two dimensions, users by times; got {raw.ndim}. "
            "Make it with gpudemand.to_wide, or give one series as [y]."
        )
    if not values.size:
        raise InputError(f"usage of shape {values.shape} holds no users or no times; there is nothing to work on.")
    return values


def _check_values(values: FloatArray, non_negative: bool) -> None:
    # These reductions skip NaN without a copy.
    low, high = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
    if np.isnan(low):
        raise InputError("usage holds missing values only; there is nothing to work on.")
    if np.isinf(low) or np.isinf(high):
        raise InputError("usage holds infinite values; repair them, or write NaN where nothing was recorded.")
    if non_negative and low < 0:
        raise InputError(f"usage holds values below zero, the lowest {low:g}; usage cannot be negative.")


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

    Examples
    --------
    >>> import pandas as pd
    >>> sampling_step(pd.date_range("2026-03-01", periods=3, freq="h"))
    Timedelta('0 days 01:00:00')
    """
    if ds is None or len(ds) < 2:
        return None
    return pd.Timedelta(pd.Series(ds[1:] - ds[:-1]).median())
