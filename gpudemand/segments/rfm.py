"""Recency, frequency and monetary value, read as use of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.segments.series_features import WEEK, by_day, moving_means
from gpudemand.segments.usage_matrix import DAY, HOUR, Matrix, SeriesTransformer, as_matrix, map_rows, sampling_step

PARTS = ("recency", "frequency", "monetary")
#: Values of `usage_series` that are numbers of GPUs, not GPU-hours.
_IN_GPUS = ("gpus", "gpus_peak", "wanted")
#: Location and scale of each feature of `UserPresence`.
PRESENCE_FEATURES: Mapping[str, tuple[float, float]] = {
    "recency": (0.3, 0.33),
    "recent_share": (0.33, 0.33),
    "frequency": (0.5, 0.33),
}


class _Activity(NamedTuple):
    """Quantities that RFM is computed from, one entry a user."""

    idle_days: FloatArray
    active: FloatArray
    recorded: FloatArray
    gpu_hours: FloatArray
    step_days: float


def rfm_table(X: object, jobs: object = None) -> pd.DataFrame:
    """Compute recency, frequency and monetary value of each user.

    Parameters
    ----------
    X : DataFrame or array-like, shape (n_users, n_timestamps)
        Usage, a row a user, as `gpudemand.to_wide` returns it; NaN counts as no use. Values are GPU-hours; if
        ``X.attrs["value"]`` is ``"gpus"``, ``"gpus_peak"`` or ``"wanted"``, they are multiplied by the bin length.
    jobs : DataFrame or array-like, shape (n_users, n_timestamps), optional
        Jobs submitted by the same users in the same order (a wide matrix of ``value="jobs"``), used as frequency.

    Returns
    -------
    DataFrame, shape (n_users, 3)
        Index: users. ``recency``: time from the end of the last use to the end of the table, in days (in bins, if the
        columns are not times); the whole span for users without use. ``frequency``: active bins, or jobs.
        ``monetary``: GPU-hours. ``attrs["units"]`` holds the units, ``attrs["kind"]`` the kind of data if `X` has it.

    Raises
    ------
    InputError
        If a matrix is invalid or has negative values, `X` holds numbers of jobs, or the users of `jobs` differ from
        those of `X`.

    Examples
    --------
    >>> import pandas as pd
    >>> days = pd.date_range("2026-03-01", periods=4, freq="D")
    >>> usage = pd.DataFrame([[0.0, 8, 8, 0], [0, 0, 0, 0]], index=["ada", "bob"], columns=days)
    >>> rfm_table(usage)
         recency  frequency  monetary
    ada      1.0        2.0      16.0
    bob      4.0        0.0       0.0
    """
    matrix = as_matrix(X, non_negative=True)
    activity = _activity(matrix, _value(X))
    frequency = activity.active if jobs is None else _job_counts(jobs, matrix)
    table = pd.DataFrame(
        {"recency": activity.idle_days, "frequency": frequency, "monetary": activity.gpu_hours}, index=matrix.ids
    )
    table.attrs["units"] = {
        "recency": "bins" if matrix.ds is None else "days",
        "frequency": "active bins" if jobs is None else "jobs",
        "monetary": "GPU-hours",
    }
    if isinstance(X, pd.DataFrame) and "kind" in X.attrs:
        table.attrs["kind"] = X.attrs["kind"]
    return table


def _value(X: object) -> str:
    """What a matrix of usage holds."""
    value = str(X.attrs.get("value", "gpu_hours")) if isinstance(X, pd.DataFrame) else "gpu_hours"
    if value == "jobs":
        raise InputError(
            'usage holds numbers of jobs, of which no GPU-hours are known; make it with value="gpu_hours", and give '
            "these to rfm_table as jobs=."
        )
    return value


def _activity(matrix: Matrix, value: str) -> _Activity:
    step = sampling_step(matrix.ds)
    n_timestamps = matrix.values.shape[1]
    used = matrix.values > 0
    idle = np.where(used.any(axis=1), np.argmax(used[:, ::-1], axis=1), n_timestamps)
    hours = step / HOUR if value in _IN_GPUS and step is not None else 1.0
    days = 1.0 if step is None else step / DAY
    return _Activity(
        idle_days=idle * days,
        active=used.sum(axis=1).astype(float),
        recorded=np.maximum((~np.isnan(matrix.values)).sum(axis=1), 1).astype(float),
        gpu_hours=np.nansum(matrix.values, axis=1) * hours,
        step_days=days,
    )


def _job_counts(jobs: object, matrix: Matrix) -> FloatArray:
    counts = as_matrix(jobs, non_negative=True)
    if len(counts.ids) != len(matrix.ids) or (isinstance(jobs, pd.DataFrame) and not counts.ids.equals(matrix.ids)):
        raise InputError(
            f"jobs must have a row for each of the {len(matrix.ids)} users of usage, in the same order; "
            f"got {len(counts.ids)} rows. Use jobs.reindex(usage.index, fill_value=0)."
        )
    return np.nansum(counts.values, axis=1)


class RFM(SeriesTransformer):
    """Recency, frequency and monetary value as features comparable across histories of different lengths.

    See Also
    --------
    rfm_table : The same in days, bins and GPU-hours.

    Notes
    -----
    ``recency`` is log(1 + days since the last use), ``frequency`` the share of recorded bins in use, ``monetary``
    log(1 + usage per day). A user without use has the whole span, 0 and 0.

    Examples
    --------
    >>> RFM().fit_transform([[0.0, 8, 8, 0], [0, 0, 0, 0]]).round(2).tolist()
    [[0.69, 0.5, 1.61], [1.61, 0.0, 0.0]]
    """

    _non_negative, _feature_names = True, PARTS

    def _features(self, matrix: Matrix) -> FloatArray:
        activity = _activity(matrix, "gpu_hours")
        return np.column_stack(
            [
                np.log1p(activity.idle_days),
                activity.active / activity.recorded,
                np.log1p(activity.gpu_hours / (activity.recorded * activity.step_days)),
            ]
        )


class UserPresence(SeriesTransformer):
    """Recency and frequency as shares of the history, invariant to the scale of usage.

    See Also
    --------
    RFM : Recency in days, and with the level of usage.

    Notes
    -----
    ``recency`` is the square root of the share of the table since the last use, ``recent_share`` the share of usage in
    the last third of the table, ``frequency`` the square root of the share of active bins among the recorded ones. A
    user without use has 1, 0 and 0.

    Examples
    --------
    >>> UserPresence().fit_transform([[0.0, 8, 8, 0, 0, 0], [4, 4, 4, 4, 4, 4]]).round(2).tolist()
    [[0.71, 0.0, 0.58], [0.0, 0.33, 1.0]]
    """

    _non_negative, _feature_names = True, tuple(PRESENCE_FEATURES)

    def _features(self, matrix: Matrix) -> FloatArray:
        activity = _activity(matrix, "gpu_hours")
        n_timestamps = matrix.values.shape[1]
        late = np.nansum(matrix.values[:, n_timestamps - n_timestamps // 3 :], axis=1)
        total = activity.gpu_hours
        return np.column_stack(
            [
                np.sqrt(activity.idle_days / activity.step_days / n_timestamps),
                np.divide(late, total, out=np.zeros_like(late), where=total > 0),
                np.sqrt(activity.active / activity.recorded),
            ]
        )


class CalendarProfile(SeriesTransformer):
    """Share of each hour of the day and day of the week in a user's usage, in the time zone of the columns.

    Attributes
    ----------
    hours_ : ndarray of int
        Hours at which the bins of ``fit`` begin; empty for bins of a day or more.

    Notes
    -----
    Shares are of the *mean* usage by hour or weekday, independent of where the table begins and ends; each group sums
    to 1. A user without use has equal shares. Weekdays that do not occur in a table have a share of 0.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> days = pd.date_range("2026-03-02", periods=14, freq="D")
    >>> block = CalendarProfile().fit_transform(pd.DataFrame([np.tile([3.0, 3, 3, 3, 3, 0, 0], 2)], columns=days))
    >>> block.round(1).tolist()
    [[0.2, 0.2, 0.2, 0.2, 0.2, 0.0, 0.0]]
    """

    _non_negative = True

    def _learn(self, matrix: Matrix) -> None:
        ds, step = _times(matrix), sampling_step(matrix.ds)
        self.hours_ = np.unique(ds.hour) if step is not None and step < DAY else np.empty(0, dtype=int)

    def _features(self, matrix: Matrix) -> FloatArray:
        ds = _times(matrix)
        days = _shares(matrix.values, np.asarray(ds.day_of_week), np.arange(WEEK))
        if not self.hours_.size:
            return days
        return np.hstack([_shares(matrix.values, np.asarray(ds.hour), self.hours_), days])

    def _names(self) -> list[str]:
        return [*(f"hour_{hour:02d}" for hour in self.hours_), *(f"weekday_{day}" for day in range(WEEK))]


def _times(matrix: Matrix) -> pd.DatetimeIndex:
    if matrix.ds is None:
        raise InputError("a calendar profile needs times as columns; make the matrix with gpudemand.to_wide.")
    return matrix.ds


def _shares(values: FloatArray, slots: IntArray, categories: IntArray) -> FloatArray:
    member = (slots[:, None] == categories).astype(float)
    recorded = ~np.isnan(values)
    total = np.where(recorded, values, 0.0) @ member
    means = total / np.maximum(recorded.astype(float) @ member, 1.0)
    level = means.sum(axis=1, keepdims=True)
    equal = (member.any(axis=0) / max(member.any(axis=0).sum(), 1))[None, :]
    return np.where(level > 0, means / np.where(level > 0, level, 1.0), equal)


def rfm_series(matrix: Matrix) -> dict[str, FloatArray]:
    """Compute three series of each user, shape (n_users, n_days), by day where the bins are shorter.

    ``recency``: days since the last use; ``frequency``: share of active days in the seven around a day; ``monetary``:
    the usage itself.

    >>> from gpudemand.segments.usage_matrix import as_matrix
    >>> series = rfm_series(as_matrix([[0.0, 8, 0, 0, 8, 0, 0, 8]]))
    >>> series["recency"].tolist()
    [[1.0, 0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0]]
    """
    step = sampling_step(matrix.ds)
    values = matrix.values if step is None or step >= DAY else by_day(matrix)[0]
    active = values > 0
    frequency = map_rows(_weekly_shares, values, values.shape[1])
    return {"recency": time_since_use(active), "frequency": frequency, "monetary": values}


def _weekly_shares(values: FloatArray, out: FloatArray) -> None:
    out[:] = moving_means(values > 0, WEEK)


def by_view(block: SeriesTransformer, series: Mapping[str, FloatArray], ids: pd.Index) -> pd.DataFrame:
    """Return the features of a block for each of several series, columns ``view__feature``."""
    parts = []
    for view, values in series.items():
        # A series that was never recorded is one without use.
        features = block.fit_transform(np.where(np.isnan(values).all(axis=1, keepdims=True), 0.0, values))
        columns = [f"{view}__{name}" for name in block.get_feature_names_out()]
        parts.append(pd.DataFrame(features, index=ids, columns=columns))
    return pd.concat(parts, axis=1)


def time_since_use(active: BoolArray) -> FloatArray:
    """Return bins since the last use at each point in time; before the first use, since the beginning.

    >>> time_since_use(np.array([[False, True, False, False]])).tolist()
    [[1.0, 0.0, 1.0, 2.0]]
    """
    places = np.arange(active.shape[1])
    last = np.maximum.accumulate(np.where(active, places, -1), axis=1)
    return np.asarray(places - last, dtype=float)
