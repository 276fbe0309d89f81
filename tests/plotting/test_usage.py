"""Usage over time and weekly profiles."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.plotting import GROUPS, UsageDisplay, WeeklyProfileDisplay


def test_keeps_seven_groups_sorted_and_sums_the_rest(by_user):
    display = UsageDisplay.from_usage(by_user)
    sums = by_user.groupby("unique_id")["y"].sum().sort_values(ascending=False)
    assert display.wide.columns[:7].tolist() == sums.index[:7].tolist()
    assert display.wide.columns[7] == "5 others"
    np.testing.assert_allclose(display.wide.sum(axis=1), by_user.groupby("ds")["y"].sum())


def test_draws_one_area_a_group_in_the_fixed_order(by_user, corner, draw_without_warning):
    display = UsageDisplay.from_usage(by_user).plot()
    colors = [mpl.colors.to_hex(area.get_facecolor()[0]) for area in display.areas_]
    assert colors[:7] == list(GROUPS)
    assert len(display.areas_) == 8
    assert display.ax_.get_ylabel() == "GPUs held (mean per day)"
    assert display.ax_.get_xlabel() == "time (Europe/Berlin)"
    assert corner(display.ax_) == "synthetic"
    draw_without_warning(display.figure_)


def test_names_are_short_literal_and_complete(by_user):
    display = UsageDisplay.from_usage(by_user).plot()
    texts = display.ax_.get_legend().get_texts()
    names = [text.get_text() for text in texts]
    assert {"x_$<script>", "_under", "y" * 39 + "…", "line break", "□□", "$\\frac{1}{0}$"} <= set(names)
    assert not any(text.get_parse_math() for text in texts)


def test_one_series_has_no_legend_and_an_unstated_kind_is_noted(total, corner):
    total.attrs = {}
    display = UsageDisplay.from_usage(total).plot()
    assert display.ax_.get_legend() is None
    assert corner(display.ax_) == "kind of data not stated"


def test_draws_on_given_axes_and_leaves_settings_alone(total):
    before = mpl.rcParams.copy()
    _, ax = plt.subplots()
    display = UsageDisplay.from_usage(total).plot(ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert mpl.rcParams == before


@pytest.mark.parametrize("max_groups", [0, 8, 2.5])
def test_refuses_more_groups_than_colours(total, max_groups):
    with pytest.raises(InputError, match="max_groups"):
        UsageDisplay.from_usage(total, max_groups=max_groups)


def test_weekly_profile_is_a_mean_of_totals_in_local_hours(corner, draw_without_warning):
    ds = pd.date_range("2026-03-02", periods=14 * 24, freq="h", tz="America/New_York")
    parts = [pd.DataFrame({"unique_id": name, "ds": ds, "y": ds.hour + 10.0 * (ds.day_of_week == 0)}) for name in "ab"]
    usage = pd.concat(parts, ignore_index=True)
    usage.attrs = {"kind": "public trace", "value": "gpus", "freq": "h"}
    display = WeeklyProfileDisplay.from_usage(usage).plot()
    assert display.week.loc[0, 9] == 38.0
    assert display.week.loc[3, 9] == 18.0
    assert display.mesh_.get_array().size == 7 * 24
    assert display.ax_.get_xlabel() == "hour of the day (America/New_York)"
    assert next(label.get_text() for label in display.ax_.get_yticklabels()) == "Mon"
    assert corner(display.ax_) == "public trace"
    draw_without_warning(display.figure_)


def test_weekly_profile_of_two_days_leaves_the_others_empty(draw_without_warning):
    ds = pd.date_range("2026-03-02", periods=48, freq="h", tz="UTC")
    display = WeeklyProfileDisplay.from_usage(pd.DataFrame({"unique_id": "a", "ds": ds, "y": 0.0})).plot()
    assert display.week.loc[[0, 1]].notna().all(axis=None)
    assert display.week.loc[2:].isna().all(axis=None)
    draw_without_warning(display.figure_)


def test_weekly_profile_refuses_daily_bins(total):
    with pytest.raises(InputError, match="freq='h'"):
        WeeklyProfileDisplay.from_usage(total)
