"""Waits of coming windows: on a log that records them, and without a look ahead."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.jobs.read import read_jobs
from gpudemand.jobs.table import as_jobs
from gpudemand.planning.queue import simulate_queue

backtests = pytest.importorskip("benchmarks.planning.wait_backtest", reason="runs from a checkout")

BEGIN = pd.Timestamp("2026-03-01", tz="UTC")


@pytest.fixture(scope="module")
def log():
    """A cluster of 40 GPUs, a quarter of which nobody was told is out of service, with load that changes by window."""
    rng = np.random.default_rng(0)
    day = np.repeat(np.arange(56), rng.integers(90, 150, 56))
    submit = BEGIN + pd.to_timedelta(np.sort(day + rng.random(len(day))), unit="D").round("s")
    run = pd.to_timedelta(np.exp(rng.normal(8.0, 1.0, len(day))).clip(10, 86400).round(), unit="s")
    jobs = pd.DataFrame({"submit": submit, "end": submit + run, "gpus": rng.choice([1.0, 2.0, 8.0], len(day))})
    return simulate_queue(as_jobs(jobs, kind="synthetic"), 30, "fifo")


@pytest.fixture(scope="module")
def backtest(log):
    return backtests.wait_backtest(log, 40, window="7D")


@pytest.mark.slow
def test_calibrated_predictions_are_closer_than_simulated_ones(backtest):
    errors = backtest.summary[["mean_wait_s", "p95_wait_s"]].mean(axis=1)
    assert errors["factor"] < errors["simulated"]
    assert errors["effective"] < errors["simulated"]
    table = backtest.to_frame()
    assert table["effective_gpus"].between(24, 34).all()
    assert (table["recorded_over_simulated"] > 1).all()


@pytest.mark.slow
def test_recorded_and_persistent_waits_are_those_of_the_log(log, backtest):
    table = backtest.to_frame()
    mean = table[table["statistic"] == "mean_wait_s"].set_index("window")
    for begin, row in mean.iterrows():
        inside = log[(log["submit"] >= begin) & (log["submit"] < begin + pd.Timedelta("7D"))]
        assert row["recorded"] == pytest.approx((inside["start"] - inside["submit"]).dt.total_seconds().mean())
    assert mean["persistence"].iloc[1:].to_numpy() == pytest.approx(mean["recorded"].iloc[:-1].to_numpy())


@pytest.mark.slow
def test_predictions_know_nothing_of_later_waits(log, backtest):
    table = backtest.to_frame()
    last = table["window"].max()
    changed = log.copy()
    late = changed["submit"] >= last
    changed.loc[late, "start"] += pd.Timedelta("9h")
    changed.loc[late, "end"] += pd.Timedelta("9h")
    other = backtests.wait_backtest(changed, 40, window="7D").to_frame()
    told = [*backtests.PARTS, "chosen", "lo", "hi", "part", "recorded_over_simulated", "effective_gpus"]
    pd.testing.assert_frame_equal(other[told], table[told])
    assert not np.allclose(other["recorded"], table["recorded"])


@pytest.mark.slow
def test_the_waits_of_kth_sp2_are_predicted_better_than_as_last_month(shared_data):
    jobs = read_jobs(shared_data / "traces/swf-kth-sp2/KTH-SP2-1996-2.swf.gz", format="swf")
    backtest = backtests.wait_backtest(jobs, 100)
    errors = backtest.summary
    ratio = (
        errors.loc["chosen", ["mean_wait_s", "p95_wait_s"]] / errors.loc["persistence", ["mean_wait_s", "p95_wait_s"]]
    )
    assert ratio.max() < 1
    assert ratio.mean() < 0.9
    assert 0.7 <= errors.loc["chosen", "coverage"] <= 0.9
    assert [line.split()[0] for line in repr(backtest).splitlines()[2:]] == [*backtests.PARTS, "chosen"]


def test_a_log_without_windows_gets_one_sentence(log):
    with pytest.raises(InputError, match="fewer than three windows of 28D"):
        backtests.wait_backtest(log, 40)
