"""Saved models are the same when they are loaded, and their files hold nothing that runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand._validation import InputError
from gpudemand.forecast import (
    ETS,
    TSB,
    ClusterwiseForecaster,
    CombinedForecaster,
    DecayedMeanRegression,
    ExternalForecaster,
    Naive,
    SeasonalMedian,
    TemporalFactorization,
)
from tests.forecast.canaries import frame

MODELS = [
    CombinedForecaster(),
    CombinedForecaster([Naive(), SeasonalMedian(7, 4), TSB()], max_origins=9),
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
    gd.save_model(fitted, path)
    loaded = gd.load_model(path)
    assert repr(loaded) == repr(fitted)
    pd.testing.assert_frame_equal(loaded.predict(5, level=[90]), fitted.predict(5, level=[90]), check_exact=True)


@pytest.mark.parametrize("start", ["2026-03-20", "2026-10-18"])
def test_clocks_and_metadata_are_kept(start, tmp_path):
    ds = pd.date_range(start, periods=24 * 12, freq="h", tz="Europe/Berlin")
    table = pd.DataFrame({"unique_id": "a", "ds": ds, "y": np.random.default_rng(0).random(ds.size)})
    table.attrs = {"kind": "measured"}
    fitted = gd.SeasonalNaive().fit(table)
    gd.save_model(fitted, tmp_path / "model.parquet")
    found = gd.load_model(tmp_path / "model.parquet").predict(48)
    pd.testing.assert_frame_equal(found, fitted.predict(48), check_exact=True)
    assert found.attrs == {"kind": "measured"}


def test_business_days_stay_business_days(tmp_path):
    ds = pd.bdate_range("2026-01-05", periods=40)
    fitted = gd.SeasonalNaive().fit(pd.DataFrame({"unique_id": "a", "ds": ds, "y": np.arange(40.0)}))
    gd.save_model(fitted, tmp_path / "model.parquet")
    assert gd.load_model(tmp_path / "model.parquet").predict(6).equals(fitted.predict(6))


def test_what_cannot_be_saved_or_loaded_is_refused(tmp_path):
    foreign = ExternalForecaster(Naive())
    foreign.panel_ = Naive().fit(usage()).panel_
    with pytest.raises(InputError, match="ExternalForecaster cannot be saved"):
        gd.save_model(foreign, tmp_path / "model.parquet")
    with pytest.raises(InputError, match=r"\.parquet"):
        gd.save_model(Naive().fit(usage()), tmp_path / "model.pkl")
    with pytest.raises(InputError, match="no file"):
        gd.load_model(tmp_path / "model.parquet")
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(InputError, match="no Parquet file"):
        gd.load_model(tmp_path / "text.parquet")
    usage().to_parquet(tmp_path / "usage.parquet")
    with pytest.raises(InputError, match="holds no forecaster"):
        gd.load_model(tmp_path / "usage.parquet")


@pytest.mark.parametrize("name", ["os.system", "InputError", "read_jobs", "__builtins__"])
def test_only_estimators_of_the_package_are_made(name, tmp_path):
    table = usage()
    table.attrs = {"model": {"format": 2, "freq": "D", "model": {"class": name, "parameters": {}}}}
    table.to_parquet(tmp_path / "model.parquet")
    with pytest.raises(InputError, match="no forecaster"):
        gd.load_model(tmp_path / "model.parquet")


def test_parameters_of_another_version_are_refused(tmp_path):
    table = usage()
    described = {"class": "HorizonForecaster", "parameters": {"season_length": 7, "random_state": 0}}
    table.attrs = {"model": {"format": 2, "freq": "D", "model": described}}
    table.to_parquet(tmp_path / "model.parquet")
    with pytest.raises(InputError, match="HorizonForecaster of this version has no random_state"):
        gd.load_model(tmp_path / "model.parquet")


def users(zone=None):
    """Two kinds of users in local time, over a change of the clock, with values missing."""
    days = pd.date_range("2026-02-02", periods=90, tz=zone)
    office = np.where(days.day_of_week < 5, 8.0, 0.0) * np.random.default_rng(0).uniform(0.5, 2, (12, 1))
    y = np.vstack([office, np.random.default_rng(1).poisson(0.3, (12, 90)) * 20.0])
    y[3, :20] = np.nan
    return pd.DataFrame(y, [f"u{place:02d}" for place in range(24)], days)


SEGMENTERS = [
    (gd.TopologicalSegmenter(2, random_state=0), users()),
    (gd.TopologicalSegmenter(random_state=np.int64(3), max_segments=3), users("Europe/Berlin")),
    (gd.TopologicalSegmenter(2, blocks=("persistence_curves", "rfm"), random_state=0), users()),
    (gd.TopologicalSegmenter(2, random_state=0), users().to_numpy()),
]


@pytest.mark.parametrize(("segmenter", "wide"), SEGMENTERS)
def test_a_loaded_segmenter_has_the_same_segments(segmenter, wide, tmp_path):
    fitted, path = segmenter.fit(wide), tmp_path / "segments.parquet"
    gd.save_model(fitted, path)
    loaded = gd.load_model(path)
    assert repr(loaded) == repr(fitted).replace("np.int64(3)", "3")
    np.testing.assert_array_equal(loaded.labels_, fitted.labels_)
    np.testing.assert_array_equal(loaded.predict_proba(wide[:9]), fitted.predict_proba(wide[:9]))
    pd.testing.assert_frame_equal(loaded.features_, fitted.features_, check_exact=True)


@pytest.mark.parametrize("nest", [lambda model: model, lambda model: CombinedForecaster([Naive(), model])])
def test_a_forecaster_that_would_become_another_is_not_saved(nest, tmp_path):
    fitted = nest(ClusterwiseForecaster(2, random_state=None))
    fitted.panel_ = Naive().fit(usage()).panel_
    with pytest.raises(InputError, match=r"ClusterwiseForecaster with random_state=None .* fit it with random_state=0"):
        gd.save_model(fitted, tmp_path / "model.parquet")


def test_a_segmenter_that_would_become_another_is_not_saved(tmp_path):
    path = tmp_path / "segments.parquet"
    with pytest.raises(InputError, match="fit it with random_state=0"):
        gd.save_model(gd.TopologicalSegmenter(2).fit(users()), path)
    array = np.array(users().fillna(0.0), order="C")
    fitted = gd.TopologicalSegmenter(2, random_state=0).fit(array)
    array[:] = array[::-1].copy()
    with pytest.raises(InputError, match="changed since"):
        gd.save_model(fitted, path)
    assert not path.exists()
