"""Forecast errors: values by hand, pooling, and scales from training data only."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.metrics import (
    bias,
    coverage,
    evaluate,
    levels,
    mae,
    model_names,
    pinball,
    rmse,
    seasonal_scale,
    smape,
    wape,
)
from gpudemand.planning.quantiles import QuantileTable


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


@pytest.mark.parametrize(
    "values", [["x", "x", "y", "y"], [0, 0, 1, 1], [True, True, False, False], [1.5, 1.5, None, None]]
)
def test_scores_by_a_column_of_any_kind(backtest, values):
    found = evaluate(backtest.assign(team=values), ["wape"], by="team")["wape"]
    assert found.index.get_level_values("model").tolist() == ["M", "M"]
    assert sorted(found) == pytest.approx([1 / 10, 6 / 30])


def test_only_columns_of_numbers_are_models(backtest):
    extra = backtest.assign(team="x", day=backtest["ds"], closed=False, segment=1, h=2)
    assert evaluate(extra, ["wape"]).index.tolist() == ["M"]
    assert model_names(extra.assign(other=pd.Series([1.0, None, 2.0, 3.0], dtype=object))) == ["M", "other"]
    with pytest.raises(InputError, match="backtest has no model's column, which must hold numbers"):
        evaluate(extra.drop(columns="M"), ["wape"])
    with pytest.raises(InputError, match=r"lacks the column\(s\) nope"):
        evaluate(backtest, ["wape"], by="nope")


def test_bounds_with_a_level_written_as_a_decimal(backtest):
    decimal = backtest.rename(columns={"M-lo-80": "M-lo-80.0", "M-hi-80": "M-hi-80.0"})
    pd.testing.assert_frame_equal(evaluate(decimal), evaluate(backtest))
    assert QuantileTable.from_forecast(decimal).values.tolist() == QuantileTable.from_forecast(backtest).values.tolist()


def test_one_metric_needs_no_list(backtest):
    assert evaluate(backtest, "wape").columns.tolist() == ["wape"]


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


SEASONS = 10.0 + 20 * (np.arange(29) % 7 < 2) + 0.1 * np.arange(29)


@pytest.mark.parametrize("missing", [[], [10], [10, 11, 20]])
@pytest.mark.parametrize(
    ("ds", "lag"),
    [
        (range(29), 7),
        (pd.date_range("2026-03-15", periods=29, tz="Europe/Berlin"), 7),
        (pd.date_range("2026-03-28", periods=29, freq="h", tz="Europe/Berlin"), 7),
        (pd.date_range("2026-01-01", periods=29, freq="MS"), 7),
        (pd.bdate_range("2026-01-01", periods=29), 7),
        (pd.date_range("2026-01-05", periods=29, freq="W-MON"), 7),
    ],
    ids=["numbers", "days", "hours", "months", "business days", "weeks"],
)
def test_a_season_counts_bins_without_a_row(ds, lag, missing):
    history = pd.DataFrame({"unique_id": "a", "ds": ds, "y": SEASONS}).drop(index=missing)
    assert seasonal_scale(history, lag)["a"] == pytest.approx(0.7)


def test_a_history_with_two_rows_of_one_time_has_no_scale(history):
    with pytest.raises(InputError, match="two rows of one series and time"):
        seasonal_scale(pd.concat([history, history]))
    with pytest.raises(InputError, match="datetimes, or numbers"):
        seasonal_scale(history.assign(ds=history["ds"].astype(str)))


KINDS = [partial(np.array, dtype=dtype) for dtype in ("u1", "i8", "f4")] + [
    list,
    pd.Series,
    partial(pd.Series, dtype="Int64"),
]


@pytest.mark.parametrize("kind", KINDS, ids=["uint8", "int64", "float32", "list", "Series", "Int64"])
def test_metrics_of_any_numbers(kind):
    y, forecast = kind([5, 1]), kind([3, 0])
    assert wape(y, forecast) == 0.5
    assert bias(y, forecast) == -0.5
    assert mae(y, forecast) == 1.5
    assert rmse(y, forecast) == pytest.approx(np.sqrt(2.5))
    assert smape(y, forecast) == 125.0
    assert pinball(y, forecast, 0.9) == pytest.approx(0.9 * 1.5)
    assert coverage(y, forecast, y) == 1.0


def test_metrics_round_nothing_and_refuse_what_does_not_fit():
    assert pinball(np.array([1e-13]), np.array([0.0]), 0.5) == 5e-14
    with pytest.raises(InputError, match="different shapes"):
        rmse(np.ones(3), np.ones((3, 1)))
    with pytest.raises(InputError, match="different indexes"):
        wape(pd.Series([1.0, 2.0], ["a", "b"]), pd.Series([2.0, 1.0], ["b", "a"]))
    assert np.isnan(mae([], []))


def test_smape_counts_zero_against_zero_as_right():
    assert smape(np.array([0.0, 10.0]), np.array([0.0, 10.0])) == 0.0
    assert smape(np.array([0.0]), np.array([1.0])) == 200.0


def test_bins_without_a_value_count_neither_as_misses_nor_as_losses():
    frame = pd.DataFrame({"unique_id": "a", "ds": [1, 2], "cutoff": 0, "y": [8.0, np.nan], "M": [8.0, 9.0]})
    frame = frame.assign(**{"M-lo-80": [7.0, 7.0], "M-hi-80": [9.0, 9.0]})
    scores = evaluate(frame, ["coverage", "pinball"])
    assert scores.loc["M", "coverage_80"] == 1.0
    assert np.isfinite(scores.loc["M", "pinball"])


def test_values_that_are_not_known_are_neither_missed_nor_lost():
    y, low, high = np.array([1.0, np.nan, 9.0]), np.zeros(3), np.full(3, 5.0)
    assert coverage(y, low, high) == 0.5
    assert pinball(y, high, 0.9) == pinball(y[[0, 2]], high[:2], 0.9)
    assert np.isnan(coverage(y[1:2], low[:1], high[:1]))
    assert np.isnan(pinball(y[1:2], high[:1], 0.9))
