"""Prediction intervals: coverage with few origins, and widths that follow the volatility."""

from __future__ import annotations

import numpy as np
import pytest

from gpudemand.forecast.intervals import PastErrors, prediction_intervals


def past_errors(errors):
    return PastErrors(errors, 24 * np.arange(1, errors.shape[1] + 1))


def coverage(errors, level):
    """Coverage of the newest errors by intervals from the others, in percent."""
    zero = np.zeros((len(errors), errors.shape[2]))
    bounds = prediction_intervals(zero, past_errors(errors[:, :-1]), [level], np.full((len(errors), 1), -np.inf))
    inside = (errors[:, -1] >= bounds[f"lo-{level}"]) & (errors[:, -1] <= bounds[f"hi-{level}"])
    return 100 * inside.mean()


@pytest.mark.parametrize("n_origins", [8, 24, 60])
def test_coverage_is_nominal(n_origins):
    rng = np.random.default_rng(0)
    # Errors from one origin are dependent, however many steps it has.
    errors = rng.normal(size=(4000, n_origins + 1, 1)) + 0.1 * rng.normal(size=(4000, n_origins + 1, 6))
    for level in (80, 95):
        assert coverage(errors, level) == pytest.approx(level, abs=3)


def test_the_sample_size_is_that_of_each_series():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(4000, 61, 1)) + 0.1 * rng.normal(size=(4000, 61, 6))
    # All but one series begin at the last eight origins.
    errors[1:, :52] = np.nan
    assert coverage(errors, 80) == pytest.approx(80, abs=3)
    assert coverage(errors, 95) == pytest.approx(95, abs=3)


def test_one_origin_gives_conservative_intervals():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(4000, 2, 1)) + rng.normal(size=(4000, 2, 6))
    assert coverage(errors, 80) > 70
    assert coverage(errors, 95) > 85


def test_intervals_widen_with_recent_volatility_and_narrow_after():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(200, 60, 6))
    calm = past_errors(errors).quantiles([0.9]).mean()
    volatile = errors * np.where(np.arange(60) >= 50, 3.0, 1.0)[:, None]
    earlier = errors * np.where((np.arange(60) >= 20) & (np.arange(60) < 30), 3.0, 1.0)[:, None]
    assert past_errors(volatile).quantiles([0.9]).mean() > 1.7 * calm
    assert past_errors(earlier).quantiles([0.9]).mean() < 1.2 * calm


def test_volatility_uses_errors_known_at_the_origin():
    weights = past_errors(np.zeros((1, 20, 48)))._recency_weights(48).reshape(20, 48, 21)
    # Origins lie 24 bins apart, so half of the errors of the one before are known.
    assert (weights[:15, :24, 15] > 0).all()
    assert (weights[14, 24:, 15] == 0).all()
    assert (weights[15:, :, 15] == 0).all()


def test_a_series_without_errors_has_no_width():
    found = past_errors(np.zeros((2, 30, 4))).quantiles([0.025, 0.975])
    np.testing.assert_array_equal(found, 0.0)


@pytest.mark.parametrize("churn", [0.0, 0.02])
def test_rare_errors_of_a_full_cluster_do_not_widen_the_intervals_of_another(churn):
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(1, 40, 7))
    full = churn * rng.normal(size=errors.shape)
    full[:, [7, 31]] = -20.0
    past = past_errors(np.concatenate([full, errors]))
    bounds = prediction_intervals(np.zeros((2, 7)), past, [95], np.full((2, 1), -np.inf))
    assert (bounds["lo-95"][1] > 1.2 * errors.min()).all()
    assert (bounds["lo-95"][0] > -20.0).all()


def test_origins_before_a_series_begins_have_no_errors():
    late = np.full((2, 40), 5.0)
    late[1, :20] = np.nan
    _, found = PastErrors.of(lambda y, origins, h: np.zeros((2, origins.size, h)), late, 6, np.arange(10, 40))
    assert np.isnan(found.errors[1, found.origins <= 20]).all()
    np.testing.assert_array_equal(found.errors[1, found.origins > 20], found.errors[0, found.origins > 20])


def test_steps_that_no_past_error_reaches_are_not_certain():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(50, 20, 12)) * np.sqrt(np.arange(1, 13))
    errors[:, :, 6:] = np.nan
    low, high = past_errors(errors).quantiles([0.1, 0.9])
    assert (np.diff(high[:, 5:], axis=1) > 0).all()
    assert (np.diff(low[:, 5:], axis=1) < 0).all()


def beside_sporadic(rng, n_sporadic=10, n_origins=26, h=14):
    """Errors of a series of normal errors beside those of users who come on 8 % of days."""
    steady = rng.normal(size=(1, n_origins, h))
    rare = (rng.random((n_sporadic, n_origins, h)) < 0.08) * rng.gamma(2, 10, (n_sporadic, n_origins, h))
    return np.concatenate([steady, rare - 1.6])


def test_a_steady_series_has_not_the_errors_of_sporadic_ones():
    rng, inside, widths = np.random.default_rng(0), {80: [], 95: []}, []
    for _ in range(40):
        errors = beside_sporadic(rng)
        past = PastErrors(errors[:, :-1], 7 * np.arange(4, 29))
        bounds = prediction_intervals(np.zeros((11, 14)), past, [80, 95], np.full((11, 1), -np.inf))
        for level, found in inside.items():
            low, high = bounds[f"lo-{level}"][0], bounds[f"hi-{level}"][0]
            found.append(((low <= errors[0, -1]) & (errors[0, -1] <= high)).mean())
        widths.append((high - low).mean())
    # With one shape for all, 36 and 80 % in intervals of which the wider is twice too wide.
    assert 0.65 < np.mean(inside[80]) < 0.85
    assert 0.9 < np.mean(inside[95]) < 0.98
    assert np.mean(widths) < 1.4 * 2 * 1.96


def test_series_of_one_shape_share_their_quantiles():
    rng = np.random.default_rng(0)
    past = PastErrors(rng.normal(size=(200, 26, 14)), 7 * np.arange(4, 30))
    scaled = past.quantiles([0.9]) / past.growth / past.volatility[:, -1:]
    assert scaled.std() / scaled.mean() < 0.03
