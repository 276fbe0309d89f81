"""Usage series of real logs reproduce independently measured totals and autocorrelations."""

from __future__ import annotations

import pandas as pd
import pytest
from statsmodels.tsa.stattools import acf

import gpudemand as gd


@pytest.fixture(scope="module")
def philly(shared_data):
    return gd.read_jobs(shared_data / "traces/philly-jobs-pollux/philly.csv.gz", format="philly-pollux", tz="UTC")


@pytest.fixture(scope="module")
def venus(shared_data):
    path = shared_data / "traces/helios-venus-gpu-jobs/helios_trace.csv.gz"
    return gd.read_jobs(path, format="simulator", origin="2020-03-18 04:01:39", tz="Asia/Shanghai")


def test_philly_total_and_rhythm(philly):
    assert len(philly) == 82_247
    hours = gd.usage_series(philly, by=None, freq="h")
    assert hours["y"].sum() == pytest.approx(978_078, abs=1)
    dense = hours.set_index("ds")["y"].loc["2017-10-01":"2017-12-14"]
    day, week = acf(dense, nlags=168)[[24, 168]]
    assert day == pytest.approx(0.71, abs=0.005)
    assert week == pytest.approx(0.39, abs=0.005)
    assert dense.mean() == pytest.approx(464, abs=1)


def test_philly_virtual_clusters(philly):
    days = gd.usage_series(philly, by="group", freq="D", start="2017-10-01", until="2017-12-15")
    assert (days["y"] == 0).mean() == pytest.approx(0.31, abs=0.02)
    assert days["y"].sum() == pytest.approx(
        gd.usage_series(philly, by=None, start="2017-10-01", until="2017-12-15")["y"].sum()
    )


def test_venus_total_and_rhythm(venus):
    assert len(venus) == 99_707
    hours = gd.usage_series(venus, by=None, freq="h", value="gpus", tz="Asia/Shanghai").set_index("ds")["y"]
    assert hours.sum() == pytest.approx(1_990_760.5, abs=1)
    window = hours.loc["2020-04-01":"2020-08-31"]
    assert window.max() <= 1_057 + 1
    assert acf(window, nlags=24)[24] == pytest.approx(0.48, abs=0.08)


def test_file_and_table_agree_on_a_real_log(philly, tmp_path):
    gd.write_jobs(philly, tmp_path / "philly.parquet")
    table = gd.usage_series(philly, by="group", freq="D", tz="America/Los_Angeles")
    file = gd.usage_series(tmp_path / "philly.parquet", by="group", freq="D", tz="America/Los_Angeles")
    pd.testing.assert_series_equal(table["y"], file["y"], rtol=1e-12)
