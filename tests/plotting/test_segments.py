"""Figures of segments: profiles, RFM, shares over time, transitions."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.plotting import (
    GROUPS,
    RFMDisplay,
    SegmentProfileDisplay,
    SegmentShareDisplay,
    SegmentTransitionDisplay,
)
from gpudemand.segments import rfm_table
from gpudemand.usage.series import to_wide

HOSTILE_NAMES = ["$x_{1}$", "_under"]


@pytest.fixture
def wide(by_user):
    return to_wide(by_user)


@pytest.fixture
def labels(wide):
    return np.arange(len(wide)) % 2


def test_profiles_show_typical_users_in_the_fixed_colours(wide, labels, corner, draw_without_warning):
    display = SegmentProfileDisplay.from_labels(wide, labels, names=HOSTILE_NAMES).plot()
    assert list(display.sizes.values()) == [6, 6]
    assert all(panel.max().eq(1.0).all() for panel in display.panels.values())
    assert len(display.axes_) == 2
    face = display.axes_[1].collections[0].get_facecolor()[0]
    assert mpl.colors.to_hex(face) == GROUPS[1]
    assert corner(display.ax_) == "synthetic"
    draw_without_warning(display.figure_)


def test_rfm_scatter_has_every_user_once(wide, labels, corner, draw_without_warning):
    display = RFMDisplay.from_rfm(rfm_table(wide), labels, kind="synthetic").plot()
    assert sum(len(points.get_offsets()) for points in display.points_) == len(wide)
    assert corner(display.ax_) == "synthetic"
    draw_without_warning(display.figure_)


def test_shares_sum_to_one(wide, labels, draw_without_warning):
    display = SegmentShareDisplay.from_labels(wide, labels, names=HOSTILE_NAMES).plot()
    np.testing.assert_allclose(display.shares.sum(axis=1), 1.0)
    assert display.ax_.get_ylabel() == "share of GPUs held"
    draw_without_warning(display.figure_)


def test_transitions_count_every_user(draw_without_warning):
    display = SegmentTransitionDisplay.from_labels([0, 0, 1, 2], [0, 2, 1, 2], kind="synthetic").plot()
    assert display.counts.to_numpy().sum() == 4
    assert display.counts.loc["segment 0", "segment 2"] == 1
    assert [text.get_text() for text in display.ax_.texts if text.get_text().isdigit()] == ["1"] * 4
    draw_without_warning(display.figure_)


def test_labels_and_names_in_a_series_are_those_of_its_index(wide, labels):
    by_user = pd.Series(labels, wide.index)
    names = pd.Series({label: f"kind {label}" for label in by_user.unique()}).sort_index()
    expected = SegmentShareDisplay.from_labels(wide, labels, names=names).shares
    found = SegmentShareDisplay.from_labels(wide, by_user[::-1], names=names[::-1]).shares
    pd.testing.assert_frame_equal(found, expected)
    counts = SegmentTransitionDisplay.from_labels(by_user, by_user[::-1]).counts.to_numpy()
    assert counts.sum() == counts.trace()


def test_labels_and_names_must_fit(wide, labels):
    with pytest.raises(InputError, match="labels must be"):
        SegmentProfileDisplay.from_labels(wide, labels[:3])
    with pytest.raises(InputError, match="names must be"):
        SegmentShareDisplay.from_labels(wide, labels, names=["one"])
    with pytest.raises(InputError, match="lacks"):
        RFMDisplay.from_rfm(rfm_table(wide)[["recency"]], labels)
