"""Sample paths of many series together, and the distribution of their sums."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast import (
    CombinedForecaster,
    EventForecaster,
    HistoricMean,
    Naive,
    SeasonalNaive,
    ShortHistoryWarning,
    scale_samples,
    sum_samples,
)

H, LEVEL = 14, [80, 95]


def frame(rows, start="2026-01-01", freq="D", tz=None):
    ds = pd.date_range(start, periods=rows.shape[1], freq=freq, tz=tz)
    return pd.concat(
        [pd.DataFrame({"unique_id": f"s{number}", "ds": ds, "y": y}) for number, y in enumerate(rows)],
        ignore_index=True,
    )


def noise(n_series, n_times=200, seed=0):
    return np.random.default_rng(seed).normal(0, 10, (n_series, n_times))


def width(forecast, level=80):
    name = forecast.columns[2]
    return forecast[f"{name}-hi-{level}"] - forecast[f"{name}-lo-{level}"]


@pytest.fixture(scope="module")
def alone():
    """Eight independent series."""
    return CombinedForecaster().fit(frame(100 + noise(8)))


@pytest.fixture(scope="module")
def alike():
    """Eight series with the same noise."""
    return CombinedForecaster().fit(frame(100 + np.repeat(noise(1), 8, axis=0)))


def test_each_series_has_the_distribution_of_its_intervals(alone):
    samples, forecast = alone.sample(H, 2000), alone.predict(H, level=LEVEL)
    found = samples.groupby(["unique_id", "ds"])["CombinedForecaster"]
    for level, side, share in ((80, "lo", 0.1), (80, "hi", 0.9), (95, "lo", 0.025), (95, "hi", 0.975)):
        bound = forecast[f"CombinedForecaster-{side}-{level}"].to_numpy()
        assert np.abs(found.quantile(share).to_numpy() - bound).mean() < 1.0


def test_sums_of_independent_series_vary_less_than_sums_of_bounds(alone, alike):
    for model, least, most in ((alone, 0.30, 0.45), (alike, 0.95, 1.05)):
        forecast = model.predict(H, level=LEVEL)
        sums = width(forecast).groupby(forecast["ds"]).sum().to_numpy()
        assert least < (width(sum_samples(model.sample(H, 1000))) / sums).mean() < most


def test_series_that_replace_one_another_have_a_steady_sum():
    first = 100 + noise(1)[0]
    model = HistoricMean(28).fit(frame(np.stack([first, 200 - first])))
    assert width(sum_samples(model.sample(H))).max() < 0.3 * width(model.predict(H, level=80)).min()


@pytest.mark.slow
def test_the_interval_of_a_sum_covers_what_comes():
    """Of three groups of independent and common demand, in 60 worlds."""
    inside = []
    for seed in range(60):
        rows = 100 + noise(6, 150, seed) + 2 * noise(1, 150, seed + 1000)
        model = HistoricMean(28).fit(frame(rows[:, :-H]))
        bounds = sum_samples(model.sample(H, 500), level=80)
        truth = rows[:, -H:].sum(axis=0)
        inside.append(bounds["HistoricMean-lo-80"].le(truth) & bounds["HistoricMean-hi-80"].ge(truth))
    assert 0.75 < np.concatenate(inside).mean() < 0.86


def test_paths_follow_past_errors_from_step_to_step():
    walk = 1000 + np.cumsum(noise(1, 300), axis=1)
    paths = Naive().fit(frame(walk)).sample(H, 500).pivot(index="sample", columns="ds", values="Naive")
    assert np.corrcoef(paths.iloc[:, -1], paths.iloc[:, -2])[0, 1] > 0.8
    drawn = HistoricMean(28).fit(frame(100 + noise(1))).sample(H, 500)
    paths = drawn.pivot(index="sample", columns="ds", values="HistoricMean")
    assert abs(np.corrcoef(paths.iloc[:, -1], paths.iloc[:, -2])[0, 1]) < 0.4


def test_the_same_seed_gives_the_same_paths(alone):
    pd.testing.assert_frame_equal(alone.sample(3, 5, random_state=1), alone.sample(3, 5, random_state=1))
    assert not alone.sample(3, 5, random_state=1).equals(alone.sample(3, 5, random_state=2))


@pytest.mark.parametrize("seed", [-1, 0.5, "no seed at all"])
def test_what_is_no_seed_is_refused(alone, seed):
    uses = (
        lambda: alone.sample(3, 5, random_state=seed),
        lambda: CombinedForecaster(random_state=seed).fit(frame(noise(1, 30))),
    )
    for use in uses:
        with pytest.raises(InputError, match="random_state must be a whole number"):
            use()


def test_demand_is_not_negative_and_late_series_are_drawn_too():
    usage = frame(np.maximum(noise(3), 0))
    late = usage[(usage["unique_id"] != "s2") | (usage["ds"] >= usage["ds"].iloc[195])]
    samples = SeasonalNaive().fit(late).sample(H, 50)
    assert samples["SeasonalNaive"].min() >= 0
    assert samples.groupby("unique_id")["SeasonalNaive"].count().tolist() == [50 * H] * 3


def test_horizons_that_history_hardly_shows():
    with pytest.warns(ShortHistoryWarning, match="shows errors 3 bins ahead"):
        samples = Naive().fit(frame(100 + noise(2, 12))).sample(30, 20)
    assert np.isfinite(samples["Naive"]).all()
    assert len(samples) == 20 * 2 * 30


def test_hours_over_a_change_of_the_clock():
    hours = frame(100 + noise(2, 24 * 20), "2026-10-08", "h", "Europe/Berlin")
    samples = SeasonalNaive().fit(hours).sample(48, 3)
    assert samples.groupby("sample")["ds"].nunique().tolist() == [48] * 3


def test_events_scale_paths():
    closed = pd.DataFrame({"event": ["x"], "start": ["2026-07-20"], "end": ["2026-07-21"], "effect": [-1.0]})
    samples = EventForecaster(Naive(), closed).fit(frame(100 + noise(2))).sample(2, 20)
    zero = samples.groupby("ds")["Naive"].max() == 0
    assert zero.to_dict() == {pd.Timestamp("2026-07-20"): True, pd.Timestamp("2026-07-21"): False}


def test_groups_are_summed_apart_and_must_be_complete(alone):
    samples = alone.sample(2, 20)
    groups = {f"s{number}": "even" if number % 2 == 0 else "odd" for number in range(8)}
    sums = sum_samples(samples, groups)
    assert sums["unique_id"].unique().tolist() == ["even", "odd"]
    assert sums.columns[2:].tolist() == [
        "CombinedForecaster",
        *(f"CombinedForecaster-{side}-{level}" for level in LEVEL for side in ("lo", "hi")),
    ]
    with pytest.raises(InputError, match="series 's7' has no group"):
        sum_samples(samples, {name: group for name, group in groups.items() if name != "s7"})
    with pytest.raises(InputError, match="n_samples"):
        alone.sample(2, 0)


def test_parts_are_scaled_to_the_distribution_of_the_total(alone):
    samples = alone.sample(H, 300)
    total = HistoricMean(28).fit(frame(2000 + noise(1))).sample(H, 300, random_state=1)
    scaled = scale_samples(samples, total)
    pd.testing.assert_frame_equal(scaled[["unique_id", "ds", "sample"]], samples[["unique_id", "ds", "sample"]])
    both = (sum_samples(scaled), sum_samples(total))
    for mine, its in zip(*(one.drop(columns=["unique_id", "ds"]).to_numpy().T for one in both), strict=True):
        np.testing.assert_allclose(mine, its)
    before, after = (one.groupby(["sample", "ds"])["CombinedForecaster"].sum() for one in (samples, scaled))
    for time in samples["ds"].unique():
        order = before.xs(time, level="ds").argsort()
        assert after.xs(time, level="ds").iloc[order].is_monotonic_increasing


def test_samples_that_do_not_belong_together_are_refused(alone):
    samples = alone.sample(2, 20)
    one = samples[samples["unique_id"] == "s0"]
    with pytest.raises(InputError, match="samples of one series"):
        scale_samples(samples, samples)
    with pytest.raises(InputError, match="same times and the same number"):
        scale_samples(samples, one[one["sample"] < 19])
    with pytest.raises(InputError, match="must have one column of values; these have other, CombinedForecaster"):
        sum_samples(samples.assign(other=1.0)[["unique_id", "ds", "sample", "other", "CombinedForecaster"]])
    with pytest.raises(InputError, match="unique_id"):
        scale_samples(samples.drop(columns="unique_id"), one)


def test_parts_that_are_all_zero_stay_so():
    none = frame(np.zeros((2, 60)))
    total = HistoricMean(28).fit(frame(20 + noise(1, 60))).sample(3, 10)
    assert (scale_samples(Naive().fit(none).sample(3, 10), total)["Naive"] == 0).all()
