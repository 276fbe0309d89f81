"""Multiscale persistence against slow code and by hand, its invariances, and topology alone on simulated users."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

import gpudemand as gd
import gpudemand.segments as gs
from gpudemand import InputError
from gpudemand.datasets.simulate import ARCHETYPES
from gpudemand.segments.topology import pair


def wide(rows, freq="D", start="2026-03-02"):
    rows = np.atleast_2d(rows)
    return pd.DataFrame(rows, columns=pd.date_range(start, periods=rows.shape[1], freq=freq))


def features(rows, **times):
    return gs.MultiscalePersistence().set_output(transform="pandas").fit_transform(wide(rows, **times))


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_the_values_at_the_places_are_the_sublevel_pairs(values):
    series = np.array(values, dtype=float)
    births, deaths = np.empty((2, series.size), dtype=np.int64)
    n = pair(series, births, deaths)
    found = np.column_stack([series[births[:n]], series[deaths[:n]]])
    expected = gs.sublevel_persistence(series, essential="drop")
    np.testing.assert_array_equal(found[np.lexsort(found.T[::-1])], expected)


@pytest.mark.parametrize("width", [1, 3, 7])
@pytest.mark.parametrize("filtration", ["sublevel", "superlevel"])
def test_lifetimes_and_times_are_those_of_the_moving_mean(width, filtration):
    usage = np.random.default_rng(0).lognormal(size=70)
    level = np.log1p(usage / np.median(usage))
    smooth = pd.Series(level / level.max()).rolling(width, center=True, min_periods=1).mean().round(9).to_numpy()
    pairs = getattr(gs, f"{filtration}_persistence")(smooth, essential="drop")
    lifetimes = np.abs(pairs[:, 1] - pairs[:, 0])
    times = np.array([np.flatnonzero(smooth == birth)[0] for birth in pairs[:, 0]]) / 70
    share = lifetimes / lifetimes.sum()
    mean = share @ times
    expected = {
        "largest": lifetimes.max(),
        "sum": lifetimes.sum() / 10,
        "mean": lifetimes.mean(),
        "entropy": -share @ np.log(share),
        "count": np.log1p(len(share)) / np.log1p(70),
        "time_mean": mean,
        "time_std": np.sqrt(share @ np.square(times - mean)),
    }
    row = features(usage).iloc[0]
    found = {name: row[f"{filtration}_{width}d_{name}"] for name in expected}
    assert found == pytest.approx(expected)


def test_values_by_hand():
    """Two peaks of a height after a trough each, and gaps of three and one idle days."""
    row = features([0.0, 8, 0, 0, 0, 8, 0, 8]).iloc[0]
    # Idle days from the third and from the seventh on merge with the first at the full height.
    assert row["sublevel_1d_largest"] == 1.0
    assert row["sublevel_1d_sum"] == pytest.approx(2 / 8 * 7)
    assert row["sublevel_1d_entropy"] == pytest.approx(np.log(2))
    assert row["events_log_gap"] == pytest.approx(np.log1p(3.0))
    assert row["events_gap_cv"] == pytest.approx(1 / 3)
    assert row["events_log_longest_gap"] == pytest.approx(np.log1p(4.0))
    assert row["events_gaps_per_week"] == pytest.approx(2 / 8 * 7)
    assert row["events_active_share"] == pytest.approx(3 / 8)
    assert row["events_active_span"] == pytest.approx(6 / 8)


def test_births_on_weekends_and_on_one_day():
    office = features(np.tile([8.0, 8, 8, 8, 8, 0, 0], 10)).iloc[0]
    daily = features(np.tile([8.0, 0.0], 35)).iloc[0]
    assert office["sublevel_1d_weekend_share"] == pytest.approx(1.0)
    assert office["sublevel_1d_weekday_concentration"] == pytest.approx(1.0)
    assert daily["sublevel_1d_weekday_concentration"] < 0.1
    assert daily["sublevel_1d_weekend_share"] == pytest.approx(2 / 7, abs=0.05)


def test_scale_whole_weeks_and_a_longer_idle_past_change_little_or_nothing():
    usage = np.random.default_rng(0).integers(0, 4, 84).astype(float)
    plain = features(usage)
    pd.testing.assert_frame_equal(features(1e6 * usage), plain)
    pd.testing.assert_frame_equal(features(usage, start="2026-03-23"), plain)
    hourly = features(np.repeat(usage / 24, 24), freq="h")
    pd.testing.assert_frame_equal(hourly, plain)


def test_idle_and_missing_users_have_zeros_and_one_spike_is_finite():
    rows = np.zeros((4, 40))
    rows[1], rows[2, 7], rows[3, :20] = np.nan, 1e12, np.nan
    rows[3, 30] = 2.0
    found = features(rows)
    assert np.isfinite(found).all(axis=None)
    assert not found.iloc[:2].any(axis=None)
    assert found.iloc[2:].any(axis=1).all()


def test_bins_above_a_day_are_an_error():
    with pytest.raises(InputError, match="a day or less"):
        features(np.ones((2, 9)), freq="7D")


@pytest.mark.parametrize(
    ("kinds", "least"), [(("steady", "nightly", "weekday", "burst"), 0.7), (tuple(ARCHETYPES), 0.4)]
)
def test_topology_alone_separates_simulated_users(kinds, least):
    jobs, truth = gd.make_cluster(150, 180, archetypes=kinds, signal_to_noise=1.0, random_state=1)
    table = gd.to_wide(gd.usage_series(jobs, by="user", freq="D", partial=False))
    truth = truth.set_index("user")["archetype"].loc[table.index]
    found = gs.TopologicalSegmenter(truth.nunique(), blocks=["multiscale_persistence"], random_state=0).fit(table)
    assert adjusted_rand_score(truth, found.labels_) > least
