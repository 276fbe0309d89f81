"""Names and figures of segment profiles."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand._validation import InputError
from gpudemand.segments import segment_profiles

HOURS = pd.date_range("2026-03-02", periods=24 * 56, freq="h")
PLACE = np.linspace(0, 1, len(HOURS))
OFFICE = (HOURS.day_of_week < 5) & (np.abs(HOURS.hour - 13) < 4)
SERIES = {
    "steady": np.ones(len(HOURS)),
    "weekday": OFFICE * 1.0,
    "nightly": (HOURS.hour < 6) * 1.0,
    "burst": ((PLACE > 0.5) & (PLACE < 0.6)) * 1.0,
    "fading": (1 - PLACE) ** 2,
    "ramp": PLACE**2,
    "sporadic": (((HOURS - HOURS[0]).days % 9) == 0) * 1.0,
    "idle": np.zeros(len(HOURS)),
}


@pytest.mark.parametrize("name", SERIES)
def test_each_class_gets_its_name(name):
    wide = pd.DataFrame([SERIES[name]] * 3, columns=HOURS)
    assert segment_profiles(wide, [0, 0, 0])["name"].tolist() == [name]


def test_shares_sum_to_one_and_names_differ():
    wide = pd.DataFrame([SERIES["steady"], 2 * SERIES["steady"], SERIES["weekday"]], columns=HOURS)
    table = segment_profiles(wide, [1, 0, 2])
    assert table["name"].tolist() == ["steady, larger users", "steady, smaller users", "weekday"]
    assert table["users"].tolist() == [1, 1, 1]
    assert table["gpu_hours_share"].sum() == pytest.approx(1.0)
    assert table.loc[2, "weekday_excess"] == pytest.approx(1.0)


def test_daily_usage_has_no_night_share():
    wide = pd.DataFrame([[1.0] * 28], columns=pd.date_range("2026-03-02", periods=28))
    assert np.isnan(segment_profiles(wide, [0])["night_share"].iloc[0])


def test_missing_labels_and_times_are_an_error():
    wide = pd.DataFrame([[1.0] * 28], columns=pd.date_range("2026-03-02", periods=28))
    with pytest.raises(InputError, match="one a user"):
        segment_profiles(wide, [0, 1])
    with pytest.raises(InputError, match="times"):
        segment_profiles(wide.to_numpy(), [0])


def test_labels_in_a_series_are_those_of_its_index():
    wide = pd.DataFrame([SERIES["steady"], SERIES["weekday"]], ["ada", "bob"], HOURS)
    labels = pd.Series({"bob": 1, "ada": 0})
    pd.testing.assert_frame_equal(segment_profiles(wide, labels), segment_profiles(wide, [0, 1]))
    for other in (labels.rename({"bob": "eve"}), labels.reset_index(drop=True)):
        with pytest.raises(InputError, match="index is not that of the rows"):
            segment_profiles(wide, other)
    with pytest.raises(InputError, match="1 missing values"):
        segment_profiles(wide, labels.where(labels > 0))


def test_gpus_are_converted_to_gpu_hours():
    jobs, _ = gd.make_cluster(8, 30, random_state=0)
    tables = [
        gd.to_wide(gd.usage_series(jobs, by="user", freq="D", value=value, partial=False))
        for value in ("gpus", "gpu_hours")
    ]
    held, hours = (segment_profiles(table, np.zeros(len(table), dtype=int))["gpu_hours"].iloc[0] for table in tables)
    assert held == pytest.approx(hours)


def test_segments_of_a_kind_are_told_apart_in_words():
    days = pd.date_range("2026-03-02", periods=60)
    rows = [np.where((np.arange(60) >= begin) & (np.arange(60) < begin + 9), 1.0, 0.0) for begin in (0, 1, 48, 49)]
    wide = pd.DataFrame([*rows, 90 * rows[2], 99 * rows[3]], columns=days)
    assert segment_profiles(wide[:4], [0, 0, 1, 1])["name"].tolist() == ["burst, longer ago", "burst, more recent"]
    names = segment_profiles(wide, [0, 0, 1, 1, 2, 2])["name"].tolist()
    assert names[2] == "burst, larger users"
    assert sorted(names[:2]) == ["burst, smaller users, longer ago", "burst, smaller users, more recent"]


def test_segments_that_do_not_differ_are_numbered():
    wide = pd.DataFrame([SERIES["steady"]] * 3, columns=HOURS)
    assert segment_profiles(wide, [0, 1, 2])["name"].tolist() == ["steady 1", "steady 2", "steady 3"]


@pytest.mark.parametrize("seed", range(10))
def test_no_two_segments_have_one_name(seed):
    rng = np.random.default_rng(seed)
    wide = pd.DataFrame(rng.gamma(0.3, 1.0, (40, 56)), columns=pd.date_range("2026-03-02", periods=56))
    for n in (4, 9):
        names = segment_profiles(wide, rng.permutation(np.resize(np.arange(n), 40)))["name"]
        assert names.is_unique
        assert n == 9 or not names.str.contains(r"\d").any()
