"""Forecast errors: values by hand, pooling, and scales from training data only."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.metrics import evaluate, levels, model_names, seasonal_scale, smape


@pytest.fixture
def backtest():
    ds = pd.date_range("2026-01-05", periods=2)
    return pd.DataFrame(
        {
            "unique_id": ["a", "a", "b", "b"],
            "ds": [*ds, *ds],
            "cutoff": pd.Timestamp("2026-01-04"),
            "y": [10.0, 20.0, 0.0, 10.0],
            "M": [12.0, 16.0, 1.0, 10.0],
            "M-lo-80": [9.0, 14.0, 0.0, 9.0],
            "M-hi-80": [15.0, 18.0, 2.0, 11.0],
        }
    )


@pytest.fixture
def history():
    ds = pd.date_range("2026-01-01", periods=4)
    return pd.DataFrame(
        {"unique_id": ["a"] * 4 + ["b"] * 4, "ds": [*ds, *ds], "y": [0.0, 2.0, 4.0, 6.0, 0.0, 1.0, 0.0, 1.0]}
    )


def test_pooled_values_by_hand(backtest, history):
    scores = evaluate(
        backtest, ["wape", "bias", "mae", "rmse", "coverage", "mase", "rmsse", "pinball"], history=history
    )
    row = scores.loc["M"]
    assert row["wape"] == pytest.approx(7 / 40)
    assert row["bias"] == pytest.approx(-1 / 40)
    assert row["mae"] == pytest.approx(7 / 4)
    assert row["rmse"] == pytest.approx(np.sqrt((4 + 16 + 1) / 4))
    assert row["coverage_80"] == pytest.approx(3 / 4)
    assert row["mase"] == pytest.approx(np.mean([2 / 2, 4 / 2, 1 / 1, 0]))
    assert row["rmsse"] == pytest.approx(np.mean([np.sqrt((4 + 16) / 2 / 4), np.sqrt(1 / 2)]))
    low = np.mean([0.1 * 1, 0.1 * 6, 0.0, 0.1 * 1])
    high = np.mean([0.1 * 5, 0.9 * 2, 0.1 * 2, 0.1 * 1])
    assert row["pinball"] == pytest.approx(np.mean([7 / 4 / 2, low, high]))


def test_scores_by_a_column(backtest):
    assert evaluate(backtest, ["wape"], by="unique_id").loc[("M", "b"), "wape"] == pytest.approx(0.1)


def test_names_and_levels(backtest):
    assert model_names(backtest) == ["M"]
    assert levels(backtest, "M") == [80.0]
    assert levels(backtest.drop(columns="M-hi-80"), "M") == []


def test_scaled_errors_need_history(backtest, history):
    with pytest.raises(InputError, match="need history="):
        evaluate(backtest, ["mase"])
    with pytest.raises(InputError, match="Did you mean 'wape'"):
        evaluate(backtest, ["wapes"])
    flat = history.assign(y=1.0)
    assert np.isnan(evaluate(backtest, ["mase"], history=flat).loc["M", "mase"])


def test_scales_use_training_data_only(backtest, history):
    leaked = pd.concat([history, backtest[["unique_id", "ds", "y"]].assign(y=1e6)])
    for metric in ("mase", "rmsse"):
        expected = evaluate(backtest, [metric], history=history).loc["M", metric]
        assert evaluate(backtest, [metric], history=leaked).loc["M", metric] == expected


def test_seasonal_scale():
    history = pd.DataFrame({"unique_id": "a", "ds": range(6), "y": [1.0, 5, 2, 7, 1, 9]})
    assert seasonal_scale(history, 2)["a"] == pytest.approx(np.mean([1, 2, 1, 2]))


def test_smape_counts_zero_against_zero_as_right():
    assert smape(np.array([0.0, 10.0]), np.array([0.0, 10.0])) == 0.0
    assert smape(np.array([0.0]), np.array([1.0])) == 200.0


def test_bins_without_a_value_count_neither_as_misses_nor_as_losses():
    frame = pd.DataFrame({"unique_id": "a", "ds": [1, 2], "cutoff": 0, "y": [8.0, np.nan], "M": [8.0, 9.0]})
    frame = frame.assign(**{"M-lo-80": [7.0, 7.0], "M-hi-80": [9.0, 9.0]})
    scores = evaluate(frame, ["coverage", "pinball"])
    assert scores.loc["M", "coverage_80"] == 1.0
    assert np.isfinite(scores.loc["M", "pinball"])
