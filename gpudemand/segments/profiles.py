"""`segment_profiles`: what each segment does, and a name for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import InputError, check_labels
from gpudemand.segments.features import as_frame, has_days
from gpudemand.segments.rfm import CalendarProfile, rfm_table
from gpudemand.segments.series_features import UsageRhythm, by_day
from gpudemand.segments.usage_matrix import Matrix, as_matrix

#: Thresholds that define the words.
_SPORADIC, _SHORT, _STEADY, _TREND, _WEEKDAY, _NIGHT = 0.33, 0.3, 0.75, 0.15, 0.75, 0.6
#: What users have less and more of, by feature.
_DIFFERENCES = {
    "gpu_hours": ("smaller users", "larger users"),
    "active_share": ("fewer days", "more days"),
    "span_share": ("for shorter", "for longer"),
    "weekday_excess": ("more at weekends", "less at weekends"),
    "night_share": ("less at night", "more at night"),
    "trend": ("earlier", "later"),
    "idle_days": ("more recent", "longer ago"),
}


def segment_names(users: pd.DataFrame, codes: IntArray) -> list[str]:
    """Name segments so that no two have the same name.

    Segments of the same kind are told apart by the features in which their medians differ most, in units of the spread
    of users within segments; only segments that differ in none are numbered.

    >>> users = pd.DataFrame({"active_share": [1.0, 1.0, 0.9], "span_share": 0.1, "weekday_excess": 0.0,
    ...                       "night_share": 0.0, "trend": [-0.8, -0.8, 0.9], "gpu_hours": 4.0, "idle_days": 0.0})
    >>> segment_names(users, np.array([0, 0, 1]))
    ['burst, earlier', 'burst, later']
    """
    values = users[list(_DIFFERENCES)].assign(gpu_hours=np.log1p(users["gpu_hours"])).fillna(0.0)
    medians = values.groupby(codes).median()
    spread = (values - medians.loc[codes].to_numpy()).std(ddof=0).to_numpy() + 1e-9
    words = users.groupby(codes).median().apply(_word, axis=1)
    parts = [_told_apart(alike / spread) for _, alike in medians.groupby(words, sort=False)]
    differences = pd.concat(parts)
    return [f"{word}{differences[code]}" for code, word in words.items()]


def _told_apart(medians: pd.DataFrame) -> pd.Series:
    """What follows the word of each segment with the same one; segments by rows, features in their units by columns."""
    if len(medians) == 1:
        return pd.Series("", medians.index)
    ordered = np.sort(medians.to_numpy(), axis=0)
    gaps = np.diff(ordered, axis=0)
    if not gaps.size or gaps.max() <= 1e-6:
        return pd.Series([f" {number + 1}" for number in range(len(medians))], medians.index)
    left = np.arange(1, len(medians))
    # Even halves need the fewest words.
    place, column = np.unravel_index((gaps * (left * left[::-1])[:, None]).argmax(), gaps.shape)
    feature = medians.columns[column]
    less = medians[feature] <= ordered[place, column]
    sides = zip(_DIFFERENCES[feature], (medians[less], medians[~less]), strict=True)
    return pd.concat([f", {words}" + _told_apart(side.drop(columns=feature)) for words, side in sides])


def _word(row: pd.Series) -> str:
    rules = (
        ("idle", row["active_share"] <= 0),
        ("burst", row["span_share"] < _SHORT),
        ("sporadic", row["active_share"] < _SPORADIC),
        ("fading", row["trend"] < -_TREND),
        ("ramp", row["trend"] > _TREND),
        ("nightly", row["night_share"] > _NIGHT),
        ("weekday", row["weekday_excess"] > _WEEKDAY),
        ("steady", row["active_share"] > _STEADY),
    )
    return next((name for name, holds in rules if holds), "on and off")


_NIGHT_HOURS = (20, 21, 22, 23, 0, 1, 2, 3, 4, 5, 6, 7)


def segment_profiles(X: object, labels: Sequence[int]) -> pd.DataFrame:
    """Describe each segment by medians over its users, and name it.

    Parameters
    ----------
    X : DataFrame, shape (n_users, n_timestamps)
        Usage as `gpudemand.to_wide` returns it, in bins of a day or less; GPUs or GPU-hours, as for `rfm_table`.
    labels : sequence of int, shape (n_users,)
        Segment of each user; a Series is read by its index, in any order.

    Returns
    -------
    DataFrame, one row a segment
        ``name``; ``users``; ``gpu_hours`` and ``gpu_hours_share`` of all users; and medians over its users:
        ``active_share`` (of the days between first and last use), ``span_share`` (of the recorded days between them),
        ``weekday_excess`` (1 - mean weekend use / mean weekday use, clipped to 0 ... 1), ``night_share`` (of usage,
        20:00 to 8:00; NaN for days), ``trend`` (-1 all at the beginning, 1 all at the end), ``idle_days`` (since the
        last use).

    Raises
    ------
    InputError
        If there is not one label per user, the columns are not times at most a day apart, or `X` holds numbers of jobs.

    Notes
    -----
    The first rule that holds gives the name: *idle* (no use), *burst* (short span), *sporadic* (few days), *fading* and
    *ramp* (trend), *nightly* (mostly at night), *weekday* (empty weekends), *steady* (most days), *on and off* (the
    rest). Segments of the same name are told apart by the feature in which they differ most (``burst, later``).

    Examples
    --------
    >>> days = pd.date_range("2026-03-02", periods=56, freq="D")
    >>> office, steady = np.tile([8.0, 8, 8, 8, 8, 0, 0], 8), np.full(56, 24.0)
    >>> wide = pd.DataFrame([office, steady], index=["ada", "bob"], columns=days)
    >>> segment_profiles(wide, [1, 0])[["name", "users", "gpu_hours"]]
                name  users  gpu_hours
    segment
    0         steady      1     1344.0
    1        weekday      1      320.0
    """
    matrix = as_matrix(X, non_negative=True)
    codes = check_labels("labels", labels, matrix.ids)
    if not has_days(matrix):
        raise InputError("profiles need columns that are times, a day apart or less; make them with to_wide.")
    users = _users(matrix, rfm_table(X))
    groups = users.groupby(pd.Index(codes, name="segment"))
    table = groups.median()
    hours = groups["gpu_hours"].sum()
    table = table.drop(columns="gpu_hours")
    table.insert(0, "users", groups.size())
    table.insert(1, "gpu_hours", hours)
    table.insert(2, "gpu_hours_share", hours / max(hours.sum(), 1e-300))
    table.insert(0, "name", segment_names(users, codes))
    return table


def _users(matrix: Matrix, level: pd.DataFrame) -> pd.DataFrame:
    frame = as_frame(matrix)
    rhythm = UsageRhythm().set_output(transform="pandas").fit_transform(frame)
    calendar = CalendarProfile().set_output(transform="pandas").fit_transform(frame)
    active_share, span_share = _presence(by_day(matrix)[0])
    weekend = calendar[["weekday_5", "weekday_6"]].mean(axis=1)
    week = calendar[[f"weekday_{day}" for day in range(5)]].mean(axis=1)
    nights = [f"hour_{hour:02d}" for hour in _NIGHT_HOURS if f"hour_{hour:02d}" in calendar]
    hourly = any(name.startswith("hour_") for name in calendar)
    return pd.DataFrame(
        {
            "gpu_hours": level["monetary"].to_numpy(),
            "active_share": active_share,
            "span_share": span_share,
            "weekday_excess": (1.0 - weekend / week.where(week > 0)).clip(0.0, 1.0).fillna(0.0),
            "night_share": calendar[nights].sum(axis=1) if hourly else np.nan,
            "trend": rhythm["trend"],
            "idle_days": level["recency"].to_numpy(),
        },
        index=frame.index,
    )


def _presence(daily: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the share of active days between first and last use, and the share of recorded days between them."""
    active = daily > 0
    length = np.where(active.any(axis=1), daily.shape[1] - active.argmax(axis=1) - active[:, ::-1].argmax(axis=1), 0)
    recorded = np.maximum((~np.isnan(daily)).sum(axis=1), 1)
    return active.sum(axis=1) / np.maximum(length, 1), np.minimum(length / recorded, 1.0)
