"""Saved forecasters forecast the same, and their files hold nothing that runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand._validation import InputError
from gpudemand.forecast import (
    ETS,
    CombinedForecaster,
    DecayedMeanRegression,
    ExternalForecaster,
    Naive,
    SeasonalMedian,
    TemporalFactorization,
    WeekProfile,
    load_forecaster,
    save_forecaster,
)

from .canaries import frame

MODELS = [
    CombinedForecaster(),
    CombinedForecaster([Naive(), SeasonalMedian(7, 4), WeekProfile()], max_origins=9),
    DecayedMeanRegression(),
    ETS(),
    TemporalFactorization(n_factors=1, lags=(1, 7)),
]


def usage():
    y = 50 + 20 * np.sin(np.arange(60) / 7 * 2 * np.pi) + np.random.default_rng(0).normal(size=(3, 60))
    y[1, :20] = np.nan
    return frame(y, "D")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_loaded_forecaster_forecasts_the_same(model, tmp_path):
    fitted, path = model.fit(usage()), tmp_path / "model.parquet"
    save_forecaster(fitted, path)
    loaded = load_forecaster(path)
    assert repr(loaded) == repr(fitted)
    pd.testing.assert_frame_equal(loaded.predict(5, level=[90]), fitted.predict(5, level=[90]), check_exact=True)


@pytest.mark.parametrize("start", ["2026-03-20", "2026-10-18"])
def test_clocks_and_metadata_are_kept(start, tmp_path):
    ds = pd.date_range(start, periods=24 * 12, freq="h", tz="Europe/Berlin")
    table = pd.DataFrame({"unique_id": "a", "ds": ds, "y": np.random.default_rng(0).random(ds.size)})
    table.attrs = {"kind": "measured"}
    fitted = gd.SeasonalNaive().fit(table)
    save_forecaster(fitted, tmp_path / "model.parquet")
    found = load_forecaster(tmp_path / "model.parquet").predict(48)
    pd.testing.assert_frame_equal(found, fitted.predict(48), check_exact=True)
    assert found.attrs == {"kind": "measured"}


def test_business_days_stay_business_days(tmp_path):
    ds = pd.bdate_range("2026-01-05", periods=40)
    fitted = gd.SeasonalNaive().fit(pd.DataFrame({"unique_id": "a", "ds": ds, "y": np.arange(40.0)}))
    save_forecaster(fitted, tmp_path / "model.parquet")
    assert load_forecaster(tmp_path / "model.parquet").predict(6).equals(fitted.predict(6))


def test_what_cannot_be_saved_or_loaded_is_refused(tmp_path):
    foreign = ExternalForecaster(Naive())
    foreign.panel_ = Naive().fit(usage()).panel_
    with pytest.raises(InputError, match="ExternalForecaster cannot be saved"):
        save_forecaster(foreign, tmp_path / "model.parquet")
    with pytest.raises(InputError, match=r"\.parquet"):
        save_forecaster(Naive().fit(usage()), tmp_path / "model.pkl")
    with pytest.raises(InputError, match="no file"):
        load_forecaster(tmp_path / "model.parquet")
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(InputError, match="no Parquet file"):
        load_forecaster(tmp_path / "text.parquet")
    usage().to_parquet(tmp_path / "usage.parquet")
    with pytest.raises(InputError, match="holds no forecaster"):
        load_forecaster(tmp_path / "usage.parquet")


@pytest.mark.parametrize("name", ["os.system", "InputError", "read_jobs", "__builtins__"])
def test_only_estimators_of_the_package_are_made(name, tmp_path):
    table = usage()
    table.attrs = {"forecaster": {"format": 1, "freq": "D", "model": {"class": name, "parameters": {}}}}
    table.to_parquet(tmp_path / "model.parquet")
    with pytest.raises(InputError, match="no forecaster"):
        load_forecaster(tmp_path / "model.parquet")
