"""Rolling windows use earlier values only."""

from __future__ import annotations

import numpy as np
import pytest

from gpudemand.forecast.panel import fill_missing, phase_mean, rolling_mean, shifted


def test_windows_use_earlier_values_only():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(2, 60))
    later = y.copy()
    later[:, 40:] += 100
    for look in (
        lambda x: rolling_mean(x, 7),
        lambda x: phase_mean(x, 6, 3),
        lambda x: shifted(x, 5),
    ):
        np.testing.assert_allclose(look(y)[:, :40], look(later)[:, :40], atol=1e-9)
    assert phase_mean(y, 6, 3)[0, 50] == pytest.approx(y[0, [50, 44, 38]].mean())


def test_missing_values_are_filled_from_the_season_before():
    y = np.arange(48.0)[None] % 24
    gappy = y.copy()
    gappy[0, 30:40] = np.nan
    np.testing.assert_array_equal(fill_missing(gappy, 24), y)
