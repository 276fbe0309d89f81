"""Intervals cover what they promise with few origins, and follow calm and turbulent times."""

from __future__ import annotations

import numpy as np
import pytest

from gpudemand.forecast.intervals import PastErrors, bands


def past(errors):
    return PastErrors(errors, 24 * np.arange(1, errors.shape[1] + 1))


@pytest.mark.parametrize("n_origins", [8, 24, 60])
def test_the_next_error_lies_inside_as_often_as_promised(n_origins):
    rng = np.random.default_rng(0)
    # Errors of a day belong together: an origin is one piece of evidence, however many steps it has.
    errors = rng.normal(size=(4000, n_origins + 1, 1)) + 0.1 * rng.normal(size=(4000, n_origins + 1, 6))
    point = np.zeros((4000, 6))
    ends = bands(point, past(errors[:, :-1]), [80, 95], np.full((4000, 1), -np.inf))
    for level in (80, 95):
        inside = (errors[:, -1] >= ends[f"lo-{level}"]) & (errors[:, -1] <= ends[f"hi-{level}"])
        assert 100 * inside.mean() == pytest.approx(level, abs=3)


def test_intervals_widen_in_turbulent_times_and_narrow_after():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(200, 60, 6))
    calm = past(errors).quantiles([0.9]).mean()
    loud = errors * np.where(np.arange(60) >= 50, 3.0, 1.0)[:, None]
    over = errors * np.where((np.arange(60) >= 20) & (np.arange(60) < 30), 3.0, 1.0)[:, None]
    assert past(loud).quantiles([0.9]).mean() > 1.7 * calm
    assert past(over).quantiles([0.9]).mean() < 1.2 * calm


def test_turbulence_knows_nothing_that_comes_later():
    weights = past(np.zeros((1, 20, 48)))._lately(48).reshape(20, 48, 21)
    # Origins lie 24 bins apart, so half of the errors of the one before are known.
    assert (weights[:15, :24, 15] > 0).all()
    assert (weights[14, 24:, 15] == 0).all()
    assert (weights[15:, :, 15] == 0).all()


def test_a_series_that_was_never_wrong_has_no_width():
    found = past(np.zeros((2, 30, 4))).quantiles([0.025, 0.975])
    np.testing.assert_array_equal(found, 0.0)
