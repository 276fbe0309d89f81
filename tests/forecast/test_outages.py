"""Detection of outages, drains and truncated ends, and their masking."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.forecast import TemporalFactorization
from gpudemand.forecast.events import find_outages, mask_outages

from .canaries import frame, matrix


@pytest.fixture
def busy():
    """Twelve users with a daily pattern and a fifth of the demand on Sundays."""
    rng, t = np.random.default_rng(0), np.arange(24 * 28)
    pattern = (1 + 0.5 * np.sin(2 * np.pi * t / 24)) * np.where(t // 24 % 7 == 6, 0.2, 1.0)
    return rng.uniform(5, 20, (12, 1)) * pattern * rng.uniform(0.8, 1.2, (12, t.size))


def kinds(table):
    return list(table["kind"])


def test_a_normal_log_has_none(busy):
    assert find_outages(frame(busy)).empty


def test_a_pause_of_one_user_is_no_outage(busy):
    busy[3, 100:200] = 0
    assert find_outages(frame(busy)).empty


@pytest.mark.parametrize(("first", "last"), [(200, 203), (300, 340), (400, 401)])
def test_a_pause_of_all_users_is_an_outage(busy, first, last):
    busy[:, first:last] = 0
    found = find_outages(frame(busy))
    assert kinds(found) == ["outage"]
    assert found["bins"].item() == last - first
    assert found["start"].item() == pd.Timestamp("2026-03-01") + pd.Timedelta(hours=first)
    assert found["share"].item() == 0


def test_a_drain_precedes_an_outage(busy):
    busy[:, 250] *= 0.4
    busy[:, 251:260] = 0
    assert kinds(find_outages(frame(busy))) == ["drain", "outage"]


def test_missing_rows_are_a_gap(busy):
    usage = frame(busy)
    start = pd.Timestamp("2026-03-05 06:00")
    usage = usage[(usage["ds"] < start) | (usage["ds"] >= start + pd.Timedelta("9h"))]
    found = find_outages(usage)
    assert (kinds(found), found["bins"].item(), found["start"].item()) == (["gap"], 9, start)


@pytest.mark.parametrize("shares", [[0.3], [0.3, 0.02], [0.0, 0.0, 0.0]])
def test_a_truncated_end_is_reported(busy, shares):
    busy[:, -len(shares) :] *= shares
    found = find_outages(frame(busy))
    assert set(kinds(found)) == {"end"}
    assert found["bins"].sum() == len(shares)


def test_an_idle_cluster_has_no_outages():
    assert find_outages(frame(np.random.default_rng(0).poisson(0.3, (1, 300)).astype(float))).empty


def test_masked_values_are_missing_and_not_fitted(busy):
    busy[:, 300:340] = 0
    usage = frame(busy)
    masked = mask_outages(usage, find_outages(usage))
    assert masked["y"].isna().sum() == 40 * 12
    pd.testing.assert_series_equal(masked["y"].dropna(), usage.loc[masked["y"].notna(), "y"])
    forecasts = [matrix(TemporalFactorization(n_factors=2).fit(u).predict(h=24)) for u in (usage, masked)]
    assert forecasts[1].sum() > forecasts[0].sum()


def test_philly_nodes(shared_data):
    log = pd.read_csv(shared_data / "traces/philly-nodes-ces/philly_node_sequence.csv.gz", parse_dates=["time"])
    nodes = log.set_index("time")["active"].resample("10min").max().rename("y").rename_axis("ds").reset_index()
    found = find_outages(nodes.assign(unique_id="nodes"))
    assert kinds(found) == ["gap", "outage", "outage", "end"]
    assert list(found["bins"]) == [59, 108, 3, 1]
