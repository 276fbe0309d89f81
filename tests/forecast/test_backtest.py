"""The backtest sees nothing after a cutoff, and says what fits when a history is short."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast import ETS, LastValueProfile, Naive, SeasonalNaive, cross_validation

from .test_baselines import daily_wave, long


@pytest.mark.parametrize(
    "model", [Naive(), SeasonalNaive(), LastValueProfile(), ETS(max_seasons=4)], ids=lambda m: type(m).__name__
)
def test_forecasts_do_not_depend_on_the_targets(model):
    usage = long({"a": daily_wave(24 * 10, noise=3), "b": daily_wave(24 * 10, noise=9, seed=1)})
    clean = cross_validation(model, usage, h=24, n_windows=1, level=[80])
    test = usage["ds"] > clean["cutoff"].iloc[0]
    shuffled = usage.assign(y=usage["y"].where(~test, usage["y"].sample(frac=1, random_state=0).to_numpy() + 100))
    pd.testing.assert_frame_equal(
        clean.drop(columns="y"), cross_validation(model, shuffled, h=24, n_windows=1, level=[80]).drop(columns="y")
    )


def test_appending_the_future_changes_no_past_forecast():
    usage = long({"a": daily_wave(24 * 10, noise=3)})
    early = usage[usage["ds"] < usage["ds"].iloc[24 * 8]]
    past = cross_validation(LastValueProfile(), early, h=24, n_windows=2)
    later = cross_validation(LastValueProfile(), usage, h=24, n_windows=4)
    pd.testing.assert_frame_equal(past, later[later["cutoff"].isin(past["cutoff"])].reset_index(drop=True))


def test_windows_steps_and_models_side_by_side():
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


def test_progress_is_told():
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
def test_too_little_history(arguments, reason):
    with pytest.raises(InputError, match=reason):
        cross_validation(Naive(), long({"a": np.arange(20.0)}), **arguments)
