"""RFM and calendar profiles against values by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
import gpudemand.segments as gs
from gpudemand import InputError


def wide(rows, start="2026-03-02", freq="D", tz=None, **attrs):
    rows = np.atleast_2d(np.asarray(rows, dtype=float))
    frame = pd.DataFrame(rows, columns=pd.date_range(start, periods=rows.shape[1], freq=freq, tz=tz))
    frame.index = [f"u{i}" for i in range(len(rows))]
    frame.attrs = attrs
    return frame


def test_table_by_hand():
    table = gs.rfm_table(wide([[0, 5, 0, 7], [1, 0, 0, 0], [0, 0, 0, 0], [np.nan, 2, np.nan, np.nan]]))
    assert table.to_numpy().tolist() == [[0, 2, 12], [3, 1, 1], [4, 0, 0], [2, 1, 2]]
    assert table.attrs["units"] == {"recency": "days", "frequency": "active bins", "monetary": "GPU-hours"}


def test_recency_of_hourly_bins_is_in_days():
    assert gs.rfm_table(wide([1, 0, 0, 0, 0, 0, 0], freq="h"))["recency"].item() == 0.25


@pytest.mark.parametrize("value", ["gpus", "gpus_peak", "wanted"])
def test_gpus_are_converted_to_gpu_hours(value):
    assert gs.rfm_table(wide([2, 2, 0], value=value))["monetary"].item() == 96
    assert gs.rfm_table(wide([2, 2, 0], value="gpu_hours"))["monetary"].item() == 4


def test_numbers_of_jobs_are_no_gpu_hours():
    with pytest.raises(InputError, match="numbers of jobs"):
        gs.rfm_table(wide([2, 2, 0], value="jobs"))
    with pytest.raises(InputError, match="numbers of jobs"):
        gs.segment_profiles(wide([2, 2, 0], value="jobs"), [0])


def test_recency_of_an_array_is_in_bins():
    table = gs.rfm_table([[0.0, 1, 0, 0]])
    assert table["recency"].item() == 2
    assert table.attrs["units"]["recency"] == "bins"


def test_the_kind_of_data_is_kept():
    assert gs.rfm_table(wide([1, 0], kind="synthetic")).attrs["kind"] == "synthetic"
    assert "kind" not in gs.rfm_table(wide([1, 0])).attrs


def test_jobs_as_frequency():
    usage, jobs = wide([[0, 5], [1, 0]]), wide([[0, 9], [3, 1]])
    table = gs.rfm_table(usage, jobs)
    assert table["frequency"].tolist() == [9, 4]
    assert table.attrs["units"]["frequency"] == "jobs"
    with pytest.raises(InputError, match="same order"):
        gs.rfm_table(usage, jobs.iloc[::-1])


def test_table_of_the_bundled_log():
    jobs = gd.load_jobs_sample()
    usage = gd.to_wide(gd.usage_series(jobs))
    table = gs.rfm_table(usage, gd.to_wide(gd.usage_series(jobs, value="jobs")))
    assert table["monetary"].sum() == pytest.approx(usage.to_numpy().sum())
    assert table["frequency"].sum() == len(jobs)
    assert (table["recency"] <= usage.shape[1]).all()


def test_negative_usage_is_an_error():
    with pytest.raises(InputError, match="below zero, the lowest -1"):
        gs.rfm_table(wide([1, -1]))


def test_only_monetary_depends_on_scale():
    X = wide(np.random.default_rng(0).poisson(0.5, (9, 30)))
    before, after = gs.RFM().fit_transform(X), gs.RFM().fit_transform(X * 1e6)
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    assert (after[:, 2] > before[:, 2])[X.to_numpy().any(axis=1)].all()


def test_features_are_comparable_across_lengths():
    week = np.tile([4.0, 4, 4, 4, 4, 0, 0], 10)
    block = gs.RFM().fit([week])
    np.testing.assert_allclose(block.transform([week]), block.transform([week[-21:]]))


def test_degenerate_rows_have_finite_features():
    X = wide([[0, 0, 0], [5, 5, 5], [0, 0, 9], [np.nan, np.nan, np.nan], [np.nan, 1, 0]])
    assert np.isfinite(gs.RFM().fit_transform(X)).all()
    assert np.isfinite(gs.CalendarProfile().fit_transform(X)).all()


def test_profile_by_hand():
    hours = np.zeros(48)
    hours[[9, 33]] = 6, 2  # 09:00 on a Monday and on a Tuesday
    block = gs.CalendarProfile()
    profile = dict(
        zip(
            block.fit(wide(hours, freq="h")).get_feature_names_out(),
            block.transform(wide(hours, freq="h"))[0],
            strict=True,
        )
    )
    assert profile["hour_09"] == 1
    assert (profile["weekday_0"], profile["weekday_1"], profile["weekday_2"]) == (0.75, 0.25, 0)


def test_profiles_are_shares_independent_of_the_first_weekday():
    week = np.tile([3.0, 2, 2, 2, 2, 1, 0], 4)
    whole, part = (gs.CalendarProfile().fit_transform(X) for X in (wide(week), wide(week).iloc[:, 3:]))
    np.testing.assert_allclose(whole, part)
    np.testing.assert_allclose(whole.sum(), 1)


def test_profiles_use_the_zone_of_the_columns():
    X = wide(np.eye(1, 48, 8), freq="h", tz="Asia/Tokyo")
    block = gs.CalendarProfile().fit(X)
    assert block.get_feature_names_out()[block.transform(X)[0].argmax()] == "hour_08"


def test_profiles_of_a_day_of_23_hours():
    ds = pd.date_range("2026-03-28", "2026-03-31", freq="h", tz="Europe/Berlin", inclusive="left")
    X = pd.DataFrame([np.ones(len(ds))], columns=ds)
    np.testing.assert_allclose(gs.CalendarProfile().fit_transform(X)[0, :24], 1 / 24)


@pytest.mark.parametrize("freq", ["6h", "D", "W-MON", "MS"])
def test_profiles_of_other_bins(freq):
    X = wide(np.ones((2, 30)), freq=freq)
    features = gs.CalendarProfile().fit_transform(X)
    assert features.shape[1] == (11 if freq == "6h" else 7)
    assert np.isfinite(features).all()


def test_shifting_by_whole_weeks_changes_nothing():
    rows = np.random.default_rng(0).random((5, 24 * 21))
    X, later = wide(rows, freq="h"), wide(rows, start="2026-03-02", freq="h")
    later.columns = later.columns + pd.Timedelta("35D")
    for block in (gs.CalendarProfile(), gs.LogSpectrum(), gs.RFM(), gs.PersistenceStatistics()):
        np.testing.assert_array_equal(block.fit_transform(X), block.fit_transform(later))


def test_a_profile_without_times_is_an_error():
    with pytest.raises(InputError, match="needs times as columns"):
        gs.CalendarProfile().fit(np.ones((2, 9)))
