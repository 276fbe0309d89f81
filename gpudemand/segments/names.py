"""Names of segments: a word for each, and for segments with the same word how their users differ."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import IntArray

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

    Parameters
    ----------
    users : DataFrame of shape (n_users, n_features)
        Columns of `segment_profiles` but the first three, and ``gpu_hours``.
    codes : ndarray of shape (n_users,)
        Segment of each user.

    Returns
    -------
    list of str
        In the order of the segments.

    Examples
    --------
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
