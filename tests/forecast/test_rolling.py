"""Rolling forecasts of one fitted factorization, as the benchmark of Hangzhou makes them, and leakage."""

from __future__ import annotations

import numpy as np
import pytest

from gpudemand.forecast import TemporalFactorization
from gpudemand.metrics import rmse

from .canaries import frame, matrix, residual_series, with_missing

hangzhou = pytest.importorskip("benchmarks.forecast.hangzhou", reason="runs from a checkout")

MODEL = TemporalFactorization(n_factors=3, lags=(1, 2, 24, 25))
SERIES = residual_series()


@pytest.mark.parametrize("missing", [False, True])
def test_the_first_origin_equals_predict_and_later_data_do_not_change_forecasts(missing):
    y = with_missing(SERIES) if missing else SERIES
    model = MODEL.fit(frame(y[:, :400]))
    early = hangzhou.rolling_paths(model, y[:, 400:], 6)
    np.testing.assert_allclose(early[:, 0], matrix(model.predict(h=6)), rtol=1e-9)
    changed = np.where(np.arange(y.shape[1]) >= 430, 1e5, y)
    late = hangzhou.rolling_paths(model, changed[:, 400:], 6)
    np.testing.assert_array_equal(early[:, :31], late[:, :31])
    assert (early[:, 31:] != late[:, 31:]).any()


def test_filtering_improves_forecasts():
    model, truth = MODEL.fit(frame(SERIES[:, :400])), SERIES[:, 400:]
    rolled = hangzhou.rolling_paths(model, truth, 1)[:, :-1, 0]
    assert np.abs(rolled - truth).mean() < 0.6 * np.abs(matrix(model.predict(h=80)) - truth).mean()


def test_the_residual_autoregression_improves_forecasts():
    scores = {}
    for own in (300.0, None):
        model = TemporalFactorization(n_factors=2, lags=(1, 2, 24, 25), residual_penalty=own)
        rolled = hangzhou.rolling_paths(model.fit(frame(SERIES[:, :400])), SERIES[:, 400:], 2)
        scores[own] = rmse(SERIES[:, 401:], rolled[:, :-2, 1])
    assert scores[300.0] < 0.7 * scores[None]
