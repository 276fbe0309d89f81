"""Choice and score of the forecaster stay apart."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.report.analysis.requirement import plan_need
from gpudemand.report.analysis.selection import Windows, candidates_for, look_ahead, rolling_windows
from gpudemand.report.analysis.settings import Settings


@pytest.fixture(scope="module")
def usage():
    ds = pd.date_range("2026-01-05", periods=140, tz="UTC")
    rng = np.random.default_rng(1)
    week = np.tile([10, 10, 10, 10, 10, 2, 2], 20)
    parts = [
        pd.DataFrame({"unique_id": name, "ds": ds, "y": factor * week + rng.normal(0, 0.3, 140)})
        for name, factor in (("mean", 3), ("peak", 5))
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def outlook(usage):
    return look_ahead(usage, 14)


def test_windows_leave_two_horizons_to_learn_from():
    assert rolling_windows(56, 14).total == 2
    assert rolling_windows(10_000, 14).total == 6
    with pytest.raises(InputError, match="needs at least 56 bins"):
        rolling_windows(55, 14)


def test_a_weekly_rhythm_is_not_left_to_the_newest_value(outlook):
    assert outlook.model != "Naive"
    assert outlook.best_naive("peak")["model"] != "Naive"
    assert outlook.score("mean")["wape"] < 0.1


def test_the_scored_windows_have_no_part_in_the_choice(usage, outlook):
    newest = usage["ds"] >= usage["ds"].max() - pd.Timedelta(days=14 * outlook.windows.score - 1)
    shuffled = usage.assign(y=usage["y"].mask(newest, usage["y"].sample(frac=1, random_state=0).to_numpy()))
    other = look_ahead(shuffled, 14)
    assert other.model == outlook.model
    pd.testing.assert_series_equal(other.models["wape_choosing"], outlook.models["wape_choosing"])
    assert not np.allclose(other.models["wape"], outlook.models["wape"])


def test_models_are_compared_on_every_series(outlook):
    assert len(outlook.models) == 10
    assert outlook.models.groupby("series")["naive"].sum().tolist() == [3, 3]
    assert outlook.models[["coverage_80", "coverage_95"]].notna().all(axis=None)


def test_a_blend_needs_history_and_is_not_run_for_minutes(usage):
    def names(n_bins, horizon, windows):
        rows = usage[usage["unique_id"] == "mean"].head(n_bins)
        return [type(model).__name__ for model in candidates_for(rows, horizon, windows)]

    assert "CombinedForecaster" in names(140, 14, Windows(4, 2))
    assert "CombinedForecaster" not in names(42, 7, Windows(2, 1))
    assert "CombinedForecaster" not in names(140, 20_000, Windows(0, 0))


def test_the_larger_plan_answers_and_the_earlier_date_counts(outlook):
    need = plan_need(outlook.forecast, 51.0, Settings(horizon=14, installed=45, lead_time="10D"))
    table = need.table.set_index("basis")
    assert need.deciding == "peak"
    assert table.loc["peak", "target_utilization"] == 1
    assert need.larger()["required"].max() == table["required"].max()
    assert need.first_crossing == need.larger().query("required > installed")["ds"].min()
    assert need.first_crossing - need.order_by == pd.Timedelta("10D")


def test_a_service_level_of_its_own_gets_its_quantile(quick, usage):
    outlook = look_ahead(usage, 14, service_level=0.97)
    assert f"{outlook.model}-hi-94" in outlook.forecast.columns
    assert plan_need(outlook.forecast, 51.0, Settings(horizon=14, service_level=0.97)).installed_from == "log"
