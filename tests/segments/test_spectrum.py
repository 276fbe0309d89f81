"""Amplitudes against the fast Fourier transform, and the grid against the calendar."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpudemand.segments as gs
from gpudemand import InputError


def wide(rows, freq="D", start="2026-03-02"):
    rows = np.atleast_2d(rows)
    return pd.DataFrame(rows, columns=pd.date_range(start, periods=rows.shape[1], freq=freq))


def test_amplitudes_are_those_of_the_fft():
    rows = np.random.default_rng(0).random((5, 70))
    z = (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)
    expected = np.abs(np.fft.rfft(z))[:, 1:] / np.sqrt(70)
    ours = gs.LogSpectrum().fit_transform(wide(rows))
    np.testing.assert_allclose(ours, np.log(np.maximum(expected, 0.05)), atol=1e-9)


def test_an_array_has_frequencies_per_bin():
    block = gs.LogSpectrum(3).fit(np.random.default_rng(0).random((2, 40)))
    np.testing.assert_allclose(block.frequencies_, [1 / 40, 2 / 40, 3 / 40])


def test_week_and_day_are_on_the_grid_of_a_long_hourly_table():
    block = gs.LogSpectrum(30).fit(wide(np.random.default_rng(0).random((1, 4421)), freq="h"))
    assert block.frequencies_.size == 30
    for frequency in [*np.arange(1, 7) / 7, *np.arange(1, 13)]:
        assert np.isclose(block.frequencies_, frequency).sum() == 1
    assert (np.diff(block.frequencies_) > 0).all()


@pytest.mark.parametrize("freq", ["D", "h", "15min", "7D", "MS"])
def test_the_grid_ends_at_nyquist(freq):
    X = wide(np.random.default_rng(0).random((2, 60)), freq=freq)
    block = gs.LogSpectrum().fit(X)
    step = np.median(np.diff(X.columns.values)) / np.timedelta64(1, "D")
    assert 0 < block.frequencies_.max() <= 0.5 / step + 1e-9
    assert block.transform(X).shape == (2, block.get_feature_names_out().size)
    assert len(set(block.get_feature_names_out())) == block.frequencies_.size


def test_circular_shifts_by_whole_weeks_change_nothing():
    rows = np.random.default_rng(0).random((4, 84))
    block = gs.LogSpectrum().fit(wide(rows))
    np.testing.assert_allclose(block.transform(wide(np.roll(rows, 21, axis=1))), block.transform(wide(rows)), atol=1e-6)


def test_other_lengths_and_missing_values_have_the_same_peak():
    rng = np.random.default_rng(0)
    week = np.tile([3.0, 3, 3, 3, 3, 0, 0], 30) + rng.normal(0, 0.1, 210)
    block = gs.LogSpectrum().fit(wide(week))
    missing = week.copy()
    missing[rng.random(210) < 0.1] = np.nan
    peak = np.isclose(block.frequencies_, 1 / 7).argmax()
    for other in (week[:140], missing):
        assert block.transform(wide(other))[0].argmax() == peak


def test_a_coarser_step_has_the_same_peak():
    t = np.arange(24 * 56)
    hourly = wide(np.sin(2 * np.pi * t / (24 * 7)) + 1, freq="h")
    block = gs.LogSpectrum().fit(hourly)
    daily = wide(hourly.to_numpy().reshape(56, 24).sum(axis=1))
    assert np.isclose(block.frequencies_[block.transform(daily)[0][block.frequencies_ < 0.5].argmax()], 1 / 7)


def test_the_spectrum_is_scale_invariant():
    X = wide(np.random.default_rng(0).random((6, 90)))
    block = gs.LogSpectrum().fit(X)
    for scale in (1e-9, 3.0, 1e9):
        np.testing.assert_allclose(block.transform(X * scale + 0.0), block.transform(X), atol=1e-6)


def test_white_noise_has_mean_square_one_at_any_length():
    for n in (60, 600):
        amplitudes = np.exp(gs.LogSpectrum().fit_transform(np.random.default_rng(0).normal(size=(300, n))))
        assert (amplitudes**2).mean() == pytest.approx(1, abs=0.05)


def test_degenerate_rows_have_finite_features():
    X = np.zeros((5, 30))
    X[1], X[2, 10], X[3, 5:20], X[4] = 5, 9, np.nan, np.nan
    features = gs.LogSpectrum().fit_transform(X)
    assert np.isfinite(features).all()
    np.testing.assert_allclose(features[[0, 1, 3, 4]], np.log(0.05))
    np.testing.assert_allclose(features[2], 0, atol=0.1)  # a spike is white


@pytest.mark.parametrize("n_timestamps", [1, 2, 3])
def test_very_short_tables_have_finite_features(n_timestamps):
    assert np.isfinite(gs.LogSpectrum().fit_transform(wide(np.arange(float(n_timestamps))))).all()


def test_invalid_parameters_are_an_error():
    with pytest.raises(InputError, match="n_frequencies"):
        gs.LogSpectrum(0).fit([[1.0, 2.0]])
