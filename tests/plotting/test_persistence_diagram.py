"""Persistence diagrams beside their series."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand import InputError
from gpudemand.plotting.segments import PersistenceDiagramDisplay
from gpudemand.segments import sublevel_persistence, superlevel_persistence


@pytest.fixture
def wide():
    days = pd.date_range("2026-03-01", periods=6, freq="D", tz="UTC")
    frame = pd.DataFrame([[0.0, 3, 0, 3, 1, 5], [2, 2, 2, 2, 2, 2]], index=["ada $1$", "flat"], columns=days)
    frame.attrs = {"kind": "synthetic", "value": "gpu_hours", "freq": "D"}
    return frame


@pytest.mark.parametrize(
    ("filtration", "persistence"), [("sublevel", sublevel_persistence), ("superlevel", superlevel_persistence)]
)
def test_dots_are_the_finite_pairs(wide, filtration, persistence):
    display = PersistenceDiagramDisplay.from_wide(wide, "ada $1$", filtration=filtration).plot()
    expected = np.unique(persistence(wide.loc["ada $1$"], essential="drop"), axis=0)
    np.testing.assert_array_equal(display.points_.get_offsets(), expected)
    assert display.diagram_ax_.get_ylim() == display.ax_.get_ylim()


def test_figure_has_kind_unit_and_name(wide):
    display = PersistenceDiagramDisplay.from_wide(wide, "ada $1$").plot()
    texts = [text.get_text() for text in display.diagram_ax_.texts]
    assert texts == ["synthetic"]
    assert display.ax_.get_ylabel() == "GPU-hours per day"
    assert display.ax_.get_title(loc="left") == "ada $1$"


def test_equal_pairs_make_a_larger_dot():
    wide = pd.DataFrame([[0.0, 3, 0, 3, 0, 3, 1, 3, 0]], index=["ada"])
    sizes = PersistenceDiagramDisplay.from_wide(wide, "ada").plot().points_.get_sizes()
    assert sizes.max() == 3 * sizes.min()


def test_a_constant_user_can_be_drawn(wide):
    display = PersistenceDiagramDisplay.from_wide(wide, "flat").plot()
    assert not len(display.points_.get_offsets())
    display.figure_.canvas.draw()


def test_an_unknown_user_is_refused(wide):
    with pytest.raises(InputError, match=r"no user 'flatt'\. Did you mean 'flat'"):
        PersistenceDiagramDisplay.from_wide(wide, "flatt")
