"""Reconciled forecasts are coherent, weighted by past errors and not negative."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast import Naive, SeasonalNaive, cross_validation
from gpudemand.forecast.reconcile import METHODS, reconcile, shrunk_covariance
from gpudemand.usage.series import aggregate_usage


@pytest.fixture(scope="module")
def tree():
    rng, days = np.random.default_rng(0), pd.date_range("2026-03-01", periods=84)
    names = [f"g{group}/u{user}" for group in range(3) for user in range(4)]
    y = rng.poisson(3, (12, 84)) + 2 * np.sin(2 * np.pi * np.arange(84) / 7) + 2
    usage = pd.DataFrame({"unique_id": np.repeat(names, 84), "ds": np.tile(days, 12), "y": np.maximum(y, 0).ravel()})
    return aggregate_usage(usage, "group/user")


@pytest.fixture(scope="module")
def forecasts(tree):
    nodes = tree[0]
    model = SeasonalNaive()
    return model.fit(nodes).predict(h=7, level=[80]), cross_validation(SeasonalNaive(), nodes, h=7, n_windows=6)


def by_node(frame, column="SeasonalNaive"):
    return frame.pivot(index="unique_id", columns="ds", values=column)


@pytest.mark.parametrize("method", METHODS)
def test_forecasts_are_coherent(tree, forecasts, method):
    _, summing, _ = tree
    rng = np.random.default_rng(1)
    base = forecasts[0].assign(SeasonalNaive=forecasts[0]["SeasonalNaive"] * rng.uniform(0.5, 1.5, len(forecasts[0])))
    found = by_node(reconcile(base, summing, forecasts[1], method=method)).loc[summing["unique_id"]]
    matrix = summing.set_index("unique_id")
    np.testing.assert_allclose(found, matrix.to_numpy() @ found.loc[matrix.columns].to_numpy(), rtol=1e-9, atol=1e-9)
    assert (found >= 0).all(axis=None)


def test_coherent_forecasts_are_unchanged(tree):
    nodes, summing, _ = tree
    forecast = Naive().fit(nodes).predict(h=3)
    again = reconcile(forecast, summing, cross_validation(Naive(), nodes, h=3, n_windows=9))
    np.testing.assert_allclose(again["Naive"], forecast["Naive"], rtol=1e-6)


@pytest.mark.parametrize("error", [0.0, 1e-200])
def test_a_backtest_without_errors_changes_no_coherent_forecast(error):
    ds = pd.date_range("2026-03-01", periods=40)
    usage = pd.concat(pd.DataFrame({"unique_id": name, "ds": ds, "y": y}) for name, y in (("g/a", 4.0), ("g/b", 8.0)))
    nodes, summing, _ = aggregate_usage(usage, "group/user")
    backtest = cross_validation(Naive(), nodes, h=3, n_windows=4)
    backtest["y"] = backtest["Naive"] = 0.0
    backtest.loc[0, "y"] = error
    forecast = Naive().fit(nodes).predict(h=3)
    found = reconcile(forecast, summing, backtest)["Naive"]
    np.testing.assert_allclose(found, forecast["Naive"])


def test_nodes_with_small_errors_have_more_weight(tree, forecasts):
    """A total with small past errors determines the sum, one with large errors does not."""
    base, backtest = forecasts
    raised = base.assign(SeasonalNaive=np.where(base["unique_id"] == "total", 200.0, base["SeasonalNaive"]))
    size = {}
    for name, factor in (("good", 0.01), ("bad", 100.0)):
        error = backtest["y"] - backtest["SeasonalNaive"]
        scaled = error * np.where(backtest["unique_id"] == "total", factor, 1.0)
        past = backtest.assign(SeasonalNaive=backtest["y"] - scaled)
        size[name] = by_node(reconcile(raised, tree[1], past)).loc["total"].mean()
    assert size["good"] == pytest.approx(200, rel=0.02)
    assert size["bad"] < 100


def test_mint_uses_a_total_that_is_easier_to_forecast():
    """Noise that cancels in the sum of two users."""
    rng, t = np.random.default_rng(0), np.arange(200)
    swap = rng.normal(0, 5, 200)
    level = 30 + 5 * np.sin(2 * np.pi * t / 7)
    y = {"g/a": level / 2 + swap, "g/b": level / 2 - swap}
    usage = pd.concat(
        pd.DataFrame({"unique_id": name, "ds": pd.date_range("2026-01-01", periods=200), "y": values})
        for name, values in y.items()
    )
    nodes, summing, _ = aggregate_usage(usage, "group/user")
    past = cross_validation(SeasonalNaive(), nodes[nodes["ds"] < "2026-07-06"], h=7, n_windows=10)
    future = cross_validation(SeasonalNaive(), nodes, h=7, n_windows=1)
    found = reconcile(future.drop(columns=["y", "cutoff"]), summing, past)
    total = found.loc[found["unique_id"] == "total", "SeasonalNaive"].to_numpy()
    np.testing.assert_allclose(total, future.loc[future["unique_id"] == "total", "y"], atol=1.0)


def test_bounds_contain_the_point_forecast(tree, forecasts):
    base, backtest = forecasts
    half = base.assign(**{name: base[name] * 0.5 for name in base.columns[2:]})
    found = reconcile(half.where(half["unique_id"] != "g1", base), tree[1], backtest)
    assert (found["SeasonalNaive-lo-80"] <= found["SeasonalNaive"] + 1e-9).all()
    assert (found["SeasonalNaive"] <= found["SeasonalNaive-hi-80"] + 1e-9).all()
    assert (found["SeasonalNaive-lo-80"] >= 0).all()


def test_no_user_is_negative(tree, forecasts):
    base, backtest = forecasts
    low = base.assign(SeasonalNaive=np.where(base["unique_id"] == "g0", 0.0, base["SeasonalNaive"]))
    for method in METHODS:
        found = by_node(reconcile(low, tree[1], backtest, method=method))
        assert (found >= 0).all(axis=None)


def test_covariance_is_positive_definite_with_few_errors():
    found = shrunk_covariance(np.random.default_rng(0).normal(size=(30, 4)))
    assert np.linalg.eigvalsh(found).min() > 0


def test_a_missing_node_is_named(tree, forecasts):
    base, backtest = forecasts
    with pytest.raises(InputError, match="'g1'"):
        reconcile(base[base["unique_id"] != "g1"], tree[1], backtest)


def test_mint_needs_a_backtest(tree, forecasts):
    with pytest.raises(InputError, match="backtest"):
        reconcile(forecasts[0], tree[1])


def test_no_user_is_bounded_far_above_the_total():
    """A user forecast at almost nothing, to whom the total's difference goes, keeps the distance of the bound."""
    ids = ["total", "ada", "bob"]
    summing = pd.DataFrame({"unique_id": ids, "ada": [1.0, 1, 0], "bob": [1.0, 0, 1]})
    point = np.array([12.0, 0.002, 11.0])
    base = pd.DataFrame({"unique_id": ids, "ds": pd.Timestamp("2026-03-01"), "M": point})
    base["M-lo-80"], base["M-hi-80"] = [8.0, 0.0, 8.0], [18.0, 0.5, 16.0]
    found = reconcile(base, summing, method="structural").set_index("unique_id")
    assert found.loc["ada", "M-hi-80"] < 1.5
    assert (found["M-hi-80"] <= found.loc["total", "M-hi-80"]).all()
    assert (found["M-lo-80"] <= found["M"]).all()
