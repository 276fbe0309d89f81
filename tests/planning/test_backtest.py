"""Backtests of plans: coverage of calibrated forecasts, on simulated and real series."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from gpudemand._validation import InputError
from gpudemand.datasets import make_cluster
from gpudemand.forecast import Naive, SeasonallyAdjustedNaive, cross_validation
from gpudemand.planning import JobDemandModel, RunTimeModel
from gpudemand.planning.backtests import demand_cross_validation
from gpudemand.usage.series import usage_series

venus = pytest.importorskip("benchmarks.planning.venus", reason="runs from a checkout")


def calibrated(n_windows=200, h=20, seed=0):
    rng = np.random.default_rng(seed)
    cutoff = np.repeat(pd.date_range("2020-01-01", periods=n_windows, freq="D"), h)
    frame = pd.DataFrame({"unique_id": "total", "cutoff": cutoff})
    frame["ds"] = frame["cutoff"] + pd.to_timedelta(np.tile(np.arange(h), n_windows) + 1, unit="h")
    frame["y"] = 100 + 10 * rng.standard_normal(len(frame))
    for name, sd in (("Right", 10), ("Sure", 4)):
        frame[name] = 100.0
        for level in (80, 95):
            reach = sd * norm.ppf(0.5 + level / 200)
            frame[f"{name}-lo-{level}"], frame[f"{name}-hi-{level}"] = 100 - reach, 100 + reach
    return frame


def test_a_calibrated_forecast_has_its_nominal_coverage():
    table = venus.plan_backtest(calibrated())
    np.testing.assert_allclose(table.loc["Right", "coverage"], [0.90, 0.95], atol=0.01)
    assert table.loc[("Sure", 0.95), "coverage"] < 0.80
    assert table.loc[("Right", 0.95), "idle"] > table.loc[("Sure", 0.95), "idle"]
    assert table.loc[("Right", 0.95), "regret"] < table.loc[("Sure", 0.95), "regret"]


@pytest.mark.slow
def test_demand_from_jobs_at_several_origins():
    jobs, _ = make_cluster(n_users=15, n_days=50, random_state=4)
    usage = usage_series(jobs, by=None, freq="h", value="gpus", until="2026-02-22")
    model = JobDemandModel(run_time=RunTimeModel(history_keys=(), max_rows=30_000))
    backtest = demand_cross_validation(model, jobs, usage, h=24, n_windows=3, level=[80])
    reference = cross_validation(Naive(), usage, h=24, n_windows=3)
    pd.testing.assert_frame_equal(backtest[["unique_id", "ds", "cutoff", "y"]], reference.drop(columns="Naive"))
    assert venus.plan_backtest(backtest, [0.9])["held"].iloc[0] > 0.5


def test_plans_on_the_spot_cluster_have_their_nominal_coverage(shared_data):
    path = shared_data / "traces/alibaba-spot-v2026-derived/hourly_concurrency_top_models.csv"
    wide = pd.read_csv(path)
    ds = pd.Timestamp("2024-01-01") + pd.to_timedelta(wide["hour"], unit="h")
    usage = pd.DataFrame({"unique_id": "A100", "ds": ds, "y": wide["A100-SXM4-80GB"].astype(float)})
    backtest = cross_validation(SeasonallyAdjustedNaive(), usage, h=24, n_windows=14, level=[80, 90, 95])
    table = venus.plan_backtest(backtest)
    np.testing.assert_allclose(table["coverage"], [0.90, 0.95], atol=0.06)
    assert (table["held"] >= table["coverage"]).all()


def test_invalid_arguments_raise_a_clear_error():
    day = pd.to_datetime(["2026-01-01"], utc=True)
    jobs = pd.DataFrame({"user": "ada", "start": day, "end": day, "gpus": 1.0})
    usage = calibrated(n_windows=1)[["unique_id", "ds", "y"]]
    with pytest.raises(InputError, match=r"9999 windows of 24 .* the history has 20: use a horizon below"):
        demand_cross_validation(JobDemandModel(), jobs, usage, h=24, n_windows=9999)


def test_perfect_foresight_has_no_regret():
    frame = calibrated(n_windows=20)
    exact = frame[["unique_id", "ds", "cutoff", "y"]].assign(M=frame["y"])
    for level in (80, 95):
        exact[f"M-lo-{level}"] = exact[f"M-hi-{level}"] = exact["y"]
    table = venus.plan_backtest(exact)
    assert table["regret"].tolist() == [0, 0]
    flat = frame.assign(Right=100.0, **{f"Right-{side}-{level}": 100.0 for side in ("lo", "hi") for level in (80, 95)})
    assert (venus.plan_backtest(flat).loc["Right", "regret"] > 0.1).all()
