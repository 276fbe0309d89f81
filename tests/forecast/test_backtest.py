"""Rolling-origin evaluation: windows, calendars and too short histories."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast import Naive, SeasonalNaive, cross_validation

from .canaries import long


def test_windows_steps_and_several_models():
    usage = long({"a": np.arange(20.0), "b": np.arange(20.0)}, freq="D")
    frame = cross_validation([Naive(), SeasonalNaive(season_length=2)], usage, h=3, n_windows=4, step_size=2)
    assert frame["cutoff"].nunique() == 4
    assert len(frame) == 4 * 3 * 2
    assert frame["ds"].max() == usage["ds"].max()
    lag = (frame["ds"] - frame["cutoff"]).dt.days
    np.testing.assert_allclose(frame["y"] - frame["Naive"], lag)


def test_a_user_who_appears_after_the_cutoff_is_left_out():
    usage = long({"a": np.arange(20.0)}, freq="D")
    late = pd.DataFrame({"unique_id": "new", "ds": usage["ds"].iloc[-3:], "y": 1.0})
    frame = cross_validation(Naive(), pd.concat([usage, late]), h=4, n_windows=1)
    assert frame["unique_id"].unique().tolist() == ["a"]


def test_a_month_of_31_days_keeps_its_calendar():
    usage = long({"a": np.arange(8.0)}, freq="MS")
    frame = cross_validation(Naive(), usage, h=2, n_windows=2, step_size=2)
    assert frame["ds"].dt.day.unique().tolist() == [1]


def test_an_outage_at_the_cutoff_is_bridged():
    y = np.arange(40.0)
    y[30:34] = np.nan
    frame = cross_validation(Naive(), long({"a": y, "b": y}, freq="D"), h=6, n_windows=1)
    assert frame["cutoff"].iloc[0] == frame["ds"].iloc[0] - pd.Timedelta("1D")
    np.testing.assert_array_equal(frame["Naive"], 29.0)


def test_progress_is_reported():
    seen = []
    cross_validation(
        Naive(), long({"a": np.arange(20.0)}), h=2, n_windows=3, progress=lambda done, of: seen.append((done, of))
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"h": 5, "n_windows": 9}, "n_windows of at most 3"),
        ({"h": 30}, "use a horizon below 19"),
        ({"h": 2, "n_windows": 0}, "of at least 1"),
        ({"h": 2, "step_size": -1}, "of at least 1"),
    ],
)
def test_too_short_histories_are_refused(arguments, reason):
    with pytest.raises(InputError, match=reason):
        cross_validation(Naive(), long({"a": np.arange(20.0)}), **arguments)
