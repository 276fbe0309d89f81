"""Traits of rhythm, waves and presence against figures worked out by hand, and what must not move them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.ndimage import uniform_filter1d
from scipy.stats import rankdata

import gpudemand.segments as gs
from gpudemand import InputError
from gpudemand.segments.features.days import DAY_TRAITS, ranks
from gpudemand.segments.features.discriminants import DIRECTIONS, N_DIRECTIONS, along


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
        assert found["days"] == pytest.approx(np.log(3))
        assert found["pause"] == pytest.approx(np.log(5 / 3))
        assert found["uneven_pauses"] == pytest.approx(0.5 * 2 / 5)

    def test_office_days(self):
        # Each side counts one day like the rest: 20 of 28 days in use here.
        found = traits(gs.UsageRhythm(), np.tile([1.0, 1, 1, 1, 1, 0, 0], 4)[:26])
        assert found["weekdays"] == pytest.approx((20 + 20 / 26) / 21)
        assert found["weekend_off"] == pytest.approx((20 + 20 / 26) / 21 - (20 / 26) / 7)

    def test_amounts(self):
        row = np.arange(1.0, 21.0)
        found = traits(gs.UsageRhythm(), row)
        assert found["spread"] == pytest.approx(np.subtract(*np.percentile(np.log(row), [90, 10])))
        assert found["growth"] == pytest.approx(np.corrcoef(row, np.log(row))[0, 1] * 20 / 35)

    @pytest.mark.parametrize("trait", ["growth", "trend", "rise"])
    def test_growing_and_fading(self, trait):
        row = np.arange(1.0, 61.0)
        up, down = (traits(gs.UsageRhythm(), values)[trait] for values in (row, row[::-1]))
        assert up == pytest.approx(-down)
        assert up > 0.2

    def test_one_huge_day_does_not_make_a_rise(self):
        row = np.ones(60)
        row[-1] = 1e6
        assert abs(traits(gs.UsageRhythm(), row)["rise"]) < 0.25

    def test_a_slow_drift_is_remembered_and_noise_is_not(self):
        rng = np.random.default_rng(0)
        noise = traits(gs.UsageRhythm(), rng.lognormal(0, 0.5, 365))["memory"]
        drift = traits(gs.UsageRhythm(), 2 + np.sin(np.arange(365) / 60))["memory"]
        assert abs(noise) < 0.15
        assert drift > 0.8

    def test_one_month_on_one_month_off_clumps(self):
        on_off = np.tile(np.repeat([1.0, 0.0], 28), 4)
        every_other = np.tile([1.0, 0.0], 112)
        assert traits(gs.UsageRhythm(), on_off)["clumping"] > traits(gs.UsageRhythm(), every_other)["clumping"] + 2

    def test_ranks_share_ties(self):
        series = np.array([0.0, 3.0, 0.0, 1.0, 3.0, 3.0])
        np.testing.assert_allclose(ranks(series), rankdata(series) - 1.0)


class TestDirections:
    def test_there_is_a_row_for_each_trait(self):
        assert tuple(DIRECTIONS) == DAY_TRAITS
        assert {len(row) for row in DIRECTIONS.values()} == {N_DIRECTIONS + 2}

    def test_no_trait_counts_for_more_than_four_deviations(self):
        usual, spread = np.transpose([row[:2] for row in DIRECTIONS.values()])
        far, farther = (along((usual + times * spread)[None]) for times in (4.0, 40.0))
        np.testing.assert_allclose(far, farther)

    def test_two_kinds_are_farther_apart_than_users_of_one(self):
        rng = np.random.default_rng(0)
        office = (np.arange(112) % 7 < 5) * rng.lognormal(0, 0.3, (20, 112))
        now_and_then = (rng.random((20, 112)) < 0.2) * rng.lognormal(0, 0.3, (20, 112))
        places = along(gs.UsageRhythm().fit_transform(wide(np.vstack([office, now_and_then]))))
        between = ((places[:20].mean(axis=0) - places[20:].mean(axis=0)) ** 2).sum()
        within = (places[:20].var(axis=0) + places[20:].var(axis=0)).sum() / 2
        assert between > 3 * within


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
        np.testing.assert_allclose(block.transform(wide(hours, freq="h"))[:, : len(DAY_TRAITS)], daily)


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
        # These two are by definition shares of what was recorded.
        of_recorded = gaps.columns.intersection(["waves", "active"])
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
