"""Traits of rhythm, waves and presence against figures worked out by hand, and what must not move them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.ndimage import uniform_filter1d

import gpudemand.segments as gs
from gpudemand import InputError


def wide(rows, freq="D", start="2026-03-02"):
    rows = np.atleast_2d(rows)
    return pd.DataFrame(rows, columns=pd.date_range(start, periods=rows.shape[1], freq=freq))


def traits(block, rows, **times):
    return block.set_output(transform="pandas").fit_transform(wide(rows, **times)).T[0]


def some_usage(n_users=6, n_days=90):
    rng = np.random.default_rng(0)
    return (rng.random((n_users, n_days)) < 0.4) * rng.lognormal(0, 1, (n_users, n_days))


class TestDays:
    def test_pauses_of_one_and_three_days(self):
        found = traits(gs.UsageRhythm(), [1.0, 0, 1, 0, 0, 0, 1, 0, 0])
        assert found["pause"] == pytest.approx(np.log(5 / 3))
        assert found["uneven_pauses"] == pytest.approx(0.5 * 2 / 4)
        assert found["long_pause"] == 0.0

    @pytest.mark.parametrize(("n_days", "expected"), [(10, 1.0), (45, 0.5), (60, 0.0)])
    def test_short_lived_falls_from_30_to_60_percent(self, n_days, expected):
        row = np.zeros(100)
        row[20 : 20 + n_days] = 1.0
        assert traits(gs.UsageRhythm(), row)["short_lived"] == pytest.approx(expected)

    def test_a_pause_of_a_month_is_long(self):
        row = np.zeros(60)
        row[[0, 31]] = 1.0
        assert traits(gs.UsageRhythm(), row)["long_pause"] == 1.0

    def test_amounts(self):
        row = np.arange(1.0, 21.0)
        found = traits(gs.UsageRhythm(), row)
        assert found["spread"] == pytest.approx(np.subtract(*np.percentile(np.log(row), [90, 10])))
        assert found["peaks"] == pytest.approx(39 / 210)

    def test_growing_and_fading(self):
        row = np.arange(1.0, 61.0)
        up, down = (traits(gs.UsageRhythm(), values)["trend"] for values in (row, row[::-1]))
        assert up == pytest.approx(-down)
        assert up > 0.2

    def test_noise_jumps_and_a_slow_drift_does_not(self):
        rng = np.random.default_rng(0)
        noise = traits(gs.UsageRhythm(), rng.lognormal(0, 0.5, 365))["jumps"]
        drift = traits(gs.UsageRhythm(), 2 + np.sin(np.arange(365) / 60))["jumps"]
        assert noise == pytest.approx(1.4, abs=0.1)
        assert drift < 0.1

    def test_one_month_on_one_month_off_clumps(self):
        on_off = np.tile(np.repeat([1.0, 0.0], 28), 4)
        every_other = np.tile([1.0, 0.0], 112)
        assert traits(gs.UsageRhythm(), on_off)["clumping"] > traits(gs.UsageRhythm(), every_other)["clumping"] + 2


class TestHours:
    @pytest.mark.parametrize(
        ("hour", "midnight", "morning"), [(0, 1.0, 0.0), (6, 0.0, 1.0), (12, -1.0, 0.0), (18, 0.0, -1.0)]
    )
    def test_direction_on_the_clock(self, hour, midnight, morning):
        found = traits(gs.UsageRhythm(), (np.arange(24 * 28) % 24 == hour) * 5.0, freq="h")
        trust = 28 / 31
        assert found["midnight"] == pytest.approx(midnight * trust, abs=0.02)
        assert found["morning"] == pytest.approx(morning * trust, abs=0.02)

    def test_six_hours_every_night(self):
        found = traits(gs.UsageRhythm(), (np.arange(24 * 28) % 24 < 6) * 5.0, freq="h")
        assert found["run"] == pytest.approx(np.log(6), abs=0.05)
        assert found["daily"] > 0.85

    def test_days_are_the_sums_of_hours(self):
        hours = np.random.default_rng(0).random((3, 24 * 40)) * (np.random.default_rng(1).random((3, 24 * 40)) < 0.05)
        block = gs.UsageRhythm().fit(wide(hours, freq="h"))
        daily = gs.UsageRhythm().fit_transform(wide(hours.reshape(3, 40, 24).sum(axis=2)))
        np.testing.assert_allclose(block.transform(wide(hours, freq="h"))[:, :10], daily)


def test_waves_are_the_superlevel_pairs_of_the_weekly_level():
    row = some_usage(1)[0]
    row[:6] = row[-6:] = 0.0  # so that the mean at the ends is the same with and without zeros beyond them
    level = uniform_filter1d(np.log1p(row / np.median(row[row > 0])), 7, mode="constant")
    pairs = gs.superlevel_persistence((level / level.max()).round(9), essential="drop")
    found = traits(gs.WeeklyPersistence(), row)
    assert found["waves"] == pytest.approx((pairs[:, 0] - pairs[:, 1]).sum() / (90 / 7))
    assert found["second_wave"] == pytest.approx((pairs[:, 0] - pairs[:, 1]).max())


@pytest.mark.parametrize("block", [gs.UsageRhythm, gs.WeeklyPersistence, gs.UserPresence])
class TestEveryBlock:
    def test_is_scale_free(self, block):
        rows = some_usage()
        assert block().scale_free
        np.testing.assert_allclose(
            block().fit_transform(wide(rows)), block().fit_transform(wide(1e9 * rows)), atol=1e-6
        )

    def test_later_by_whole_weeks_is_the_same(self, block):
        rows = some_usage()
        np.testing.assert_array_equal(
            block().fit_transform(wide(rows)), block().fit_transform(wide(rows, start="2026-08-03"))
        )

    @pytest.mark.parametrize("row", [np.zeros(40), np.full(40, 3.0), np.eye(1, 40, 7)[0], np.full(2, 1.0)])
    def test_is_finite_on_degenerate_rows(self, block, row):
        assert np.isfinite(block().fit_transform(wide(row))).all()

    def test_missing_days_count_as_none(self, block):
        rows = some_usage()
        holed = np.where(rows > 0, rows, np.nan)
        full, gaps = (block().set_output(transform="pandas").fit_transform(wide(r)) for r in (rows, holed))
        assert np.isfinite(gaps).all(axis=None)
        # These three are by definition shares of what was recorded.
        of_recorded = gaps.columns.intersection(["short_lived", "waves", "active"])
        pd.testing.assert_frame_equal(gaps.drop(columns=of_recorded), full.drop(columns=of_recorded))

    def test_single_precision(self, block):
        rows = some_usage()
        np.testing.assert_allclose(
            block().fit_transform(wide(rows.astype(np.float32))), block().fit_transform(wide(rows)), atol=1e-4
        )

    def test_refuses_what_no_usage_is(self, block):
        with pytest.raises(InputError, match="below zero"):
            block().fit(wide(some_usage() - 1.0))


@pytest.mark.parametrize("block", [gs.UsageRhythm, gs.WeeklyPersistence])
def test_needs_days(block):
    with pytest.raises(InputError, match="times as columns"):
        block().fit(some_usage())
    with pytest.raises(InputError, match="a day or less"):
        block().fit(wide(some_usage(), freq="7D"))
