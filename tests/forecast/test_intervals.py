"""Intervals cover what they promise with few origins, and follow calm and turbulent times."""

from __future__ import annotations

import numpy as np
import pytest

from gpudemand.forecast.base.intervals import PastErrors, bands


def past(errors):
    return PastErrors(errors, 24 * np.arange(1, errors.shape[1] + 1))


def coverage(errors, level):
    """How many of the newest errors lie inside what the others foretell, in percent."""
    zero = np.zeros((len(errors), errors.shape[2]))
    ends = bands(zero, past(errors[:, :-1]), [level], np.full((len(errors), 1), -np.inf))
    inside = (errors[:, -1] >= ends[f"lo-{level}"]) & (errors[:, -1] <= ends[f"hi-{level}"])
    return 100 * inside.mean()


@pytest.mark.parametrize("n_origins", [8, 24, 60])
def test_the_next_error_lies_inside_as_often_as_promised(n_origins):
    rng = np.random.default_rng(0)
    # Errors of a day belong together: an origin is one piece of evidence, however many steps it has.
    errors = rng.normal(size=(4000, n_origins + 1, 1)) + 0.1 * rng.normal(size=(4000, n_origins + 1, 6))
    for level in (80, 95):
        assert coverage(errors, level) == pytest.approx(level, abs=3)


def test_a_late_beginner_has_the_evidence_of_her_own_history_only():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(4000, 61, 1)) + 0.1 * rng.normal(size=(4000, 61, 6))
    # All but one began when the last eight origins were left.
    errors[1:, :52] = np.nan
    assert coverage(errors, 80) == pytest.approx(80, abs=3)
    assert coverage(errors, 95) == pytest.approx(95, abs=3)


def test_one_origin_makes_intervals_of_some_width():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(4000, 2, 1)) + rng.normal(size=(4000, 2, 6))
    assert coverage(errors, 80) > 70
    assert coverage(errors, 95) > 85


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
