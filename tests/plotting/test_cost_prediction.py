"""Predicted costs against measured ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.plotting import CostErrorDisplay, CostPredictionDisplay


@pytest.fixture
def costs():
    rng = np.random.default_rng(0)
    measured = pd.Series(np.exp(rng.uniform(np.log(0.002), np.log(40), 300)))
    measured.attrs = {"kind": "measured"}
    predicted = measured.to_numpy() * np.exp(rng.normal(0, 0.15, 300))
    return measured, predicted, np.column_stack([predicted / 1.3, predicted * 1.3])


@pytest.mark.parametrize("target", ["time", "memory"])
def test_every_job_is_a_point_with_its_interval(costs, target, corner, draw_without_warning):
    measured, predicted, interval = costs
    display = CostPredictionDisplay.from_predictions(measured, predicted, interval, target=target).plot()
    np.testing.assert_allclose(display.points_.get_offsets(), np.column_stack([measured, predicted]))
    ends = np.array([segment[:, 1] for segment in display.intervals_.get_segments()])
    np.testing.assert_allclose(ends, interval)
    assert corner(display.ax_) == "measured"
    draw_without_warning(display.figure_)


def test_axes_have_units(costs, draw_without_warning):
    measured, predicted, _ = costs
    time = CostPredictionDisplay.from_predictions(measured, predicted).plot()
    memory = CostPredictionDisplay.from_predictions(measured, predicted, target="memory").plot()
    draw_without_warning(time.figure_)
    draw_without_warning(memory.figure_)
    assert time.intervals_ is None
    assert "100 ms" in [label.get_text() for label in time.ax_.get_xticklabels()]
    assert {"64 MiB", "1 GiB"} <= {label.get_text() for label in memory.ax_.get_xticklabels()}


def test_errors_by_group_are_signed_and_ordered(corner, draw_without_warning):
    display = CostErrorDisplay.from_predictions(
        [1.0, 1, 1, 1], [1.3, 1.3, 0.95, 0.95], ["far", "far", "near", "near"], title="time", kind="measured"
    ).plot()
    assert display.errors["median"].round(6).to_dict() == {"near": -0.05, "far": 0.3}
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["near (2)", "far (2)"]
    assert corner(display.ax_) == "measured"
    draw_without_warning(display.figure_)


def test_of_many_groups_the_first_and_last_are_shown():
    n = 50
    display = CostErrorDisplay.from_predictions(np.ones(n), 1 + np.arange(n) / 100, [f"g{i:02d}" for i in range(n)])
    assert len(display.errors) == 30
    assert display.errors.index[0] == "g00"
    assert display.errors.index[-1] == "g49"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: CostPredictionDisplay.from_predictions([1.0], [1.0, 2.0]), "measured has 1, predicted has 2"),
        (lambda: CostPredictionDisplay.from_predictions([0.0], [1.0]), "measured holds a cost that is not positive"),
        (lambda: CostPredictionDisplay.from_predictions([1.0], [1.0], target="cost"), "target"),
        (lambda: CostErrorDisplay.from_predictions([1.0], [1.0], ["a", "b"]), "not 1, 1 and 2"),
        (lambda: CostErrorDisplay.from_predictions([1.0], [np.nan], ["a"]), "predicted holds"),
    ],
)
def test_invalid_costs_are_refused(call, reason):
    with pytest.raises(InputError, match=reason):
        call()
