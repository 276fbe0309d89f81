"""Log-amplitude spectrum on a calendar-aligned frequency grid: the baseline of the topological features."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import check_number
from gpudemand.segments.base.transformer import SeriesTransformer
from gpudemand.segments.base.usage_matrix import Matrix, sampling_step

# Lower bound of the amplitudes (white noise has 1), which keeps their logarithms from being outliers.
_FLOOR = 0.05
_WEEK = 7.0
# Harmonics of the day, down to a period of two hours.
_HARMONICS = 12
_ROWS_PER_TASK = 4096


class LogSpectrum(SeriesTransformer):
    """Log-amplitudes of the standardised series at fixed frequencies.

    Parameters
    ----------
    n_frequencies : int, default=80
        Maximum number of frequencies: first the week, the day and their harmonics, then the lowest Fourier frequencies
        of the span seen at ``fit``.

    Attributes
    ----------
    frequencies_ : ndarray of float
        Cycles per day, ascending; cycles per bin if the columns are not times.
    n_timestamps_ : int
        Length of the series at ``fit``.

    Notes
    -----
    The span is cut to whole weeks, so that day and week lie on the grid. The transform is evaluated on this grid over
    the recorded values, so that other lengths, other steps and missing values are comparable. Amplitudes are divided by
    the root of the number of values: white noise has mean square 1 at any length. They are invariant to circular shifts
    if the table covers whole weeks. A constant series has the lower bound, 0.05, everywhere.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> days = pd.date_range("2026-03-02", periods=56, freq="D")
    >>> weekly = pd.DataFrame([np.tile([3.0, 3, 3, 3, 3, 0, 0], 8)], columns=days)
    >>> block = LogSpectrum().fit(weekly)
    >>> round(1 / float(block.frequencies_[block.transform(weekly)[0].argmax()]), 6)  # days
    7.0
    """

    def __init__(self, n_frequencies: int = 80) -> None:
        self.n_frequencies = n_frequencies

    def _learn(self, matrix: Matrix) -> None:
        wanted = int(check_number("n_frequencies", self.n_frequencies, 1, integer=True))
        step = sampling_step(matrix.ds)
        days = 1.0 if step is None else step / pd.Timedelta("1D")
        self.frequencies_ = _grid(self.n_timestamps_, days, wanted, calendar=step is not None)

    def _features(self, matrix: Matrix) -> FloatArray:
        t = _days(matrix)
        angles = 2 * np.pi * np.outer(t, self.frequencies_)
        waves = np.hstack([np.cos(angles), np.sin(angles)])
        blocks = [
            _amplitudes(matrix.values[i : i + _ROWS_PER_TASK], waves)
            for i in range(0, len(matrix.values), _ROWS_PER_TASK)
        ]
        return np.log(np.maximum(np.vstack(blocks), _FLOOR))

    def _names(self) -> list[str]:
        return [f"amplitude_{frequency:.5g}" for frequency in self.frequencies_]


def _days(matrix: Matrix) -> FloatArray:
    if matrix.ds is None:
        return np.arange(matrix.values.shape[1], dtype=float)
    return np.asarray((matrix.ds - matrix.ds[0]) / pd.Timedelta("1D"), dtype=float)


def _grid(n_timestamps: int, days: float, wanted: int, *, calendar: bool) -> FloatArray:
    """Return at most `wanted` frequencies up to Nyquist, ascending; harmonics of week and day are chosen first."""
    span = n_timestamps * days
    span = span // _WEEK * _WEEK if calendar and span >= _WEEK else span
    highest = 0.5 / days
    # In whole cycles per span, so that frequencies are distinct.
    cycles = np.arange(1, max(int(highest * span + 1e-9), 1) + 1)
    first = np.zeros(cycles.size, dtype=bool)
    if calendar and span >= _WEEK:
        weeks = round(span / _WEEK)
        first = (cycles % weeks == 0) & (cycles < _WEEK * weeks)
        first |= (cycles % (_WEEK * weeks) == 0) & (cycles <= _HARMONICS * _WEEK * weeks)
    chosen = np.argsort(~first, kind="stable")[:wanted]
    return np.sort(cycles[chosen]) / span


def _amplitudes(values: FloatArray, waves: FloatArray) -> FloatArray:
    recorded = ~np.isnan(values)
    n = np.maximum(recorded.sum(axis=1, keepdims=True), 1).astype(float)
    filled = np.where(recorded, values, 0.0).astype(float)
    size = np.abs(filled).max(axis=1, keepdims=True)
    filled /= np.where(size > 0, size, 1.0)
    centred = np.where(recorded, filled - filled.sum(axis=1, keepdims=True) / n, 0.0)
    spread = np.sqrt((centred**2).sum(axis=1, keepdims=True) / n)
    flat = spread <= 1e-12
    parts = np.where(flat, 0.0, centred / np.where(flat, 1.0, spread)) @ waves
    cosine, sine = np.split(parts, 2, axis=1)
    return np.hypot(cosine, sine) / np.sqrt(n)
