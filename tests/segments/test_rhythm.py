"""Daily, hourly, weekly and presence features against values by hand, and their invariances."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.ndimage import uniform_filter1d
from scipy.stats import spearmanr

import gpudemand.segments as gs
from gpudemand import InputError
from gpudemand.segments.series_features import DAILY_FEATURES


def wide(rows, freq="D", start="2026-03-02"):
    rows = np.atleast_2d(rows)
    return pd.DataFrame(rows, columns=pd.date_range(start, periods=rows.shape[1], freq=freq))


def features(block, rows, **times):
    return block.set_output(transform="pandas").fit_transform(wide(rows, **times)).T[0]


def some_usage(n_users=6, n_days=90):
    rng = np.random.default_rng(0)
    return (rng.random((n_users, n_days)) < 0.4) * rng.lognormal(0, 1, (n_users, n_days))


class TestDailyFeatures:
    def test_idle_runs_of_one_and_three_days(self):
        found = features(gs.UsageRhythm(), [1.0, 0, 1, 0, 0, 0, 1, 0, 0])
        assert found["log_active_days"] == pytest.approx(np.log(3))
        assert found["log_idle_run"] == pytest.approx(np.log(5 / 3))
        assert found["idle_run_cv"] == pytest.approx(0.5 * 2 / 5)

    def test_weekday_frequency(self):
        # One pseudo-day on each side, at the overall share of 20 in 26.
        found = features(gs.UsageRhythm(), np.tile([1.0, 1, 1, 1, 1, 0, 0], 4)[:26])
        assert found["weekday_frequency"] == pytest.approx((20 + 20 / 26) / 21)
        assert found["weekend_drop"] == pytest.approx((20 + 20 / 26) / 21 - (20 / 26) / 7)

    def test_amounts_of_active_days(self):
        row = np.arange(1.0, 21.0)
        found = features(gs.UsageRhythm(), row)
        assert found["log_p90_p10"] == pytest.approx(np.subtract(*np.percentile(np.log(row), [90, 10])))
        assert found["amount_trend"] == pytest.approx(np.corrcoef(row, np.log(row))[0, 1] * 20 / 35)

    @pytest.mark.parametrize("name", ["amount_trend", "trend", "rank_trend"])
    def test_trends_are_antisymmetric_in_time(self, name):
        row = np.arange(1.0, 61.0)
        up, down = (features(gs.UsageRhythm(), values)[name] for values in (row, row[::-1]))
        assert up == pytest.approx(-down)
        assert up > 0.2

    def test_the_rank_trend_is_robust_to_an_outlier(self):
        row = np.ones(60)
        row[-1] = 1e6
        assert abs(features(gs.UsageRhythm(), row)["rank_trend"]) < 0.25

    def test_autocorrelation_of_a_slow_drift_and_of_noise(self):
        rng = np.random.default_rng(0)
        noise = features(gs.UsageRhythm(), rng.lognormal(0, 0.5, 365))["lag1_autocorrelation"]
        drift = features(gs.UsageRhythm(), 2 + np.sin(np.arange(365) / 60))["lag1_autocorrelation"]
        assert abs(noise) < 0.15
        assert drift > 0.8

    def test_on_and_off_months_are_overdispersed(self):
        on_off = np.tile(np.repeat([1.0, 0.0], 28), 4)
        every_other = np.tile([1.0, 0.0], 112)
        months, days = (features(gs.UsageRhythm(), row)["weekly_dispersion"] for row in (on_off, every_other))
        assert months > days + 2

    def test_the_rank_trend_of_ties_is_spearmans_correlation(self):
        row = np.array([2.0, 3.0, 0.0, 1.0, 3.0, 3.0, 1.0, 2.0])
        expected = spearmanr(np.arange(8), row).statistic * 7 / (7 + 15)
        assert features(gs.UsageRhythm(), row)["rank_trend"] == pytest.approx(expected)


class TestHourlyFeatures:
    @pytest.mark.parametrize(
        ("hour", "cosine", "sine"), [(0, 1.0, 0.0), (6, 0.0, 1.0), (12, -1.0, 0.0), (18, 0.0, -1.0)]
    )
    def test_mean_direction_on_the_circle(self, hour, cosine, sine):
        found = features(gs.UsageRhythm(), (np.arange(24 * 28) % 24 == hour) * 5.0, freq="h")
        weight = 28 / 31
        assert found["hour_cos"] == pytest.approx(cosine * weight, abs=0.02)
        assert found["hour_sin"] == pytest.approx(sine * weight, abs=0.02)

    def test_six_hours_every_night(self):
        found = features(gs.UsageRhythm(), (np.arange(24 * 28) % 24 < 6) * 5.0, freq="h")
        assert found["log_active_run"] == pytest.approx(np.log(6), abs=0.05)
        assert found["daily_variance_share"] > 0.85

    def test_daily_features_of_hourly_usage(self):
        hours = np.random.default_rng(0).random((3, 24 * 40)) * (np.random.default_rng(1).random((3, 24 * 40)) < 0.05)
        block = gs.UsageRhythm().fit(wide(hours, freq="h"))
        daily = gs.UsageRhythm().fit_transform(wide(hours.reshape(3, 40, 24).sum(axis=2)))
        np.testing.assert_allclose(block.transform(wide(hours, freq="h"))[:, : len(DAILY_FEATURES)], daily)


def test_weekly_persistence_is_that_of_the_moving_mean():
    row = some_usage(1)[0]
    row[:6] = row[-6:] = 0.0  # zeros, so that the mean at the ends does not depend on padding
    level = uniform_filter1d(np.log1p(row / np.median(row[row > 0])), 7, mode="constant")
    pairs = gs.superlevel_persistence((level / level.max()).round(9), essential="drop")
    found = features(gs.WeeklyPersistence(), row)
    assert found["sum"] == pytest.approx((pairs[:, 0] - pairs[:, 1]).sum() / (90 / 7))
    assert found["largest"] == pytest.approx((pairs[:, 0] - pairs[:, 1]).max())


@pytest.mark.parametrize("block", [gs.UsageRhythm, gs.WeeklyPersistence, gs.UserPresence])
class TestInvariances:
    def test_features_are_scale_invariant(self, block):
        rows = some_usage()
        np.testing.assert_allclose(
            block().fit_transform(wide(rows)), block().fit_transform(wide(1e9 * rows)), atol=1e-6
        )

    def test_shifts_by_whole_weeks_change_nothing(self, block):
        rows = some_usage()
        np.testing.assert_array_equal(
            block().fit_transform(wide(rows)), block().fit_transform(wide(rows, start="2026-08-03"))
        )

    @pytest.mark.parametrize("row", [np.zeros(40), np.full(40, 3.0), np.eye(1, 40, 7)[0], np.full(2, 1.0)])
    def test_degenerate_rows_have_finite_features(self, block, row):
        assert np.isfinite(block().fit_transform(wide(row))).all()

    def test_missing_days_count_as_zero(self, block):
        rows = some_usage()
        holed = np.where(rows > 0, rows, np.nan)
        full, missing = (block().set_output(transform="pandas").fit_transform(wide(r)) for r in (rows, holed))
        assert np.isfinite(missing).all(axis=None)
        # Shares of the recorded values by definition.
        of_recorded = missing.columns.intersection(["sum", "frequency"])
        pd.testing.assert_frame_equal(missing.drop(columns=of_recorded), full.drop(columns=of_recorded))

    def test_single_precision_gives_the_same_features(self, block):
        rows = some_usage()
        np.testing.assert_allclose(
            block().fit_transform(wide(rows.astype(np.float32))), block().fit_transform(wide(rows)), atol=1e-4
        )

    def test_negative_usage_is_an_error(self, block):
        with pytest.raises(InputError, match="below zero"):
            block().fit(wide(some_usage() - 1.0))


@pytest.mark.parametrize("block", [gs.UsageRhythm, gs.WeeklyPersistence])
def test_bins_above_a_day_and_missing_times_are_an_error(block):
    with pytest.raises(InputError, match="times as columns"):
        block().fit(some_usage())
    with pytest.raises(InputError, match="a day or less"):
        block().fit(wide(some_usage(), freq="7D"))
