"""Laws of the base class, by models whose forecasts are known: origins, samples, their sums, floors and intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast import (
    ETS,
    EventForecaster,
    Forecaster,
    HistoricMean,
    Naive,
    Panel,
    SeasonalNaive,
    scale_samples,
    sum_samples,
)
from gpudemand.forecast.forecaster import _ranks, adapt, joint_samples
from gpudemand.forecast.intervals import PastErrors

from .canaries import frame, long

NOISE = np.random.default_rng(0).normal(0, 3, (3, 200))


class Line(Forecaster):
    """Continues every series by its newest step, so that every step of every series has a forecast of its own."""

    def _path(self, y, h):
        return y[:, [-1]] + (y[:, [-1]] - y[:, [-2]]) * np.arange(1, h + 1)


class Learned(Forecaster):
    """The mean of each series in training, whatever history follows."""

    def _fit_panel(self, panel):
        super()._fit_panel(panel)
        self.mean_ = panel.values.mean(axis=1, keepdims=True)

    def _path(self, y, h):
        return self.mean_.repeat(h, axis=1)


def columns(table):
    """Values of a forecast, by series, step and column."""
    return table.iloc[:, 2:].to_numpy().reshape(table["unique_id"].nunique(), -1, table.shape[1] - 2)


@pytest.mark.parametrize("model", [Line(), Naive(), SeasonalNaive(), SeasonalNaive(5)])
@pytest.mark.parametrize("start", ["2026-03-02", "2026-03-27", "2026-10-23"])
def test_a_forecast_from_an_origin_is_that_of_a_model_fitted_until_then(model, start):
    """Also where the clock of Berlin changes between the origins, or between one and what it forecasts."""
    y = {"up": 300 + np.cumsum(np.abs(NOISE[0])), "down": -np.cumsum(np.abs(NOISE[1])), "none": np.zeros(200)}
    usage = long(y, start=start, tz="Europe/Berlin")
    panel, origins = Panel.from_long(usage), np.array([30, 44, 47, 48, 49, 50, 51, 52, 73, 199])
    found = model.forecast_from(panel, origins, 31)
    assert found.shape == (3, origins.size, 31)
    for place, origin in enumerate(origins):
        fitted = model.fit(usage[usage["ds"] < panel.times[origin]])
        np.testing.assert_array_equal(found[:, place], columns(fitted.predict(31))[..., 0])


@pytest.mark.parametrize("start", ["2026-04-20", "2026-04-24", "2026-04-02"])
def test_days_go_on_where_the_clock_skips_a_midnight(start):
    days = pd.date_range(start, periods=27)
    zoned = days.tz_localize("Africa/Cairo", nonexistent="shift_forward")
    usage = pd.DataFrame({"unique_id": "a", "ds": zoned, "y": np.arange(27.0)})
    train, test = usage[:20], usage[20:]
    closed = pd.DataFrame({"event": "closed", "start": days[22:23], "end": days[23:24], "effect": -1.0})
    forecast = EventForecaster(Line(), closed).fit(train).predict(7)
    assert forecast["ds"].tolist() == test["ds"].tolist()
    assert forecast["Line"].tolist() == [20, 21, 0, 23, 24, 25, 26]


@pytest.mark.parametrize("start", ["2026-03-27", "2026-10-23"])
def test_series_are_forecast_on_the_local_clock_and_not_below_zero(start):
    """The clock of Berlin changes in the horizon; steps of a path, and not bins, count its hours."""

    class Steps(Forecaster):
        def _path(self, y, h):
            return np.array([[1.0], [-1.0]]) * np.arange(1, h + 1)

    y = {"a": 50 + NOISE[0, :40], "b": 50 + NOISE[1, :40]}
    usage = long(y, start=start, tz="Europe/Berlin")
    new = Steps().fit(usage).predict(24)
    up, down = columns(new)[..., 0]
    clock = new["ds"][:24].dt.tz_localize(None)
    passed = (clock - usage["ds"].max().tz_localize(None)) / pd.Timedelta("1h")
    np.testing.assert_array_equal(up, passed)
    np.testing.assert_array_equal(down, 0)


def test_a_series_that_begins_late_is_forecast_as_if_it_were_alone():
    """What lies before it is no history."""
    late = pd.DataFrame({"unique_id": "late", "ds": pd.date_range("2026-04-01", periods=60), "y": 20 + NOISE[0, :60]})
    early = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2026-01-01", periods=150), "y": 9.0})
    both = ETS().fit(pd.concat([early, late])).predict(9)
    np.testing.assert_allclose(both.loc[both["unique_id"] == "late", "ETS"], ETS().fit(late).predict(9)["ETS"])


def test_later_bins_do_not_reach_a_forecast_from_an_origin():
    y = 50 + NOISE
    one, two = (Panel.from_long(frame(part)) for part in (y, np.where(np.arange(200) < 100, y, 7.0)))
    origins = np.array([60, 100])
    for model in (SeasonalNaive(), Learned()):
        np.testing.assert_array_equal(*(model.forecast_from(panel, origins, 9) for panel in (one, two)))
    # What is learned is learned before the first origin.
    means = np.repeat(y[:, :60].mean(axis=1), 18).reshape(3, 2, 9)
    np.testing.assert_allclose(Learned().forecast_from(one, origins, 9), means, rtol=1e-12)


def test_samples_of_an_exact_forecast_repeat_it_series_by_series_and_step_by_step():
    season = np.add.outer([10.0, 300.0, 5000.0], np.arange(7.0))
    model = SeasonalNaive().fit(frame(np.tile(season, 10), "D"))
    samples, forecast = model.sample(10, 4), model.predict(10)
    assert samples.columns.tolist() == ["unique_id", "ds", "sample", "SeasonalNaive"]
    assert samples["sample"].unique().tolist() == [0, 1, 2, 3]
    for _, one in samples.groupby("sample"):
        pd.testing.assert_frame_equal(one.drop(columns="sample").reset_index(drop=True), forecast)


def test_quantiles_of_samples_are_the_bounds_of_the_forecast():
    """By series and step: errors of one are three times those of the other, and grow with the distance."""
    walks = 1000 + np.cumsum(NOISE[:2] * [[1.0], [3.0]], axis=1)
    model = Naive().fit(frame(walks, "D"))
    bounds = columns(model.predict(6, level=[50, 80]))
    drawn = columns(model.sample(6, 4000, random_state=3).drop(columns="sample").sort_values(["unique_id", "ds"]))
    found = np.quantile(drawn.reshape(2, 6, 4000), [0.25, 0.75, 0.1, 0.9], axis=2)
    width = (bounds[..., 2] - bounds[..., 1])[..., None]
    np.testing.assert_array_less(np.abs(np.moveaxis(found, 0, -1) - bounds[..., 1:]) / width, 0.1)


def test_samples_keep_the_dependence_of_past_errors():
    """One series repeats another, a third is its mirror image."""
    y = NOISE[0].cumsum()
    samples = Naive().fit(frame(np.stack([900 + y, 900 + y, 900 - y]), "D")).sample(3, 400)
    wide = samples.pivot(index=["sample", "ds"], columns="unique_id", values="Naive")
    last = wide.xs(samples["ds"].max(), level="ds").to_numpy()
    np.testing.assert_allclose(np.corrcoef(last.T), [[1, 1, -1], [1, 1, -1], [-1, -1, 1]], atol=0.1)


@pytest.mark.parametrize("levels", [80, [80, 95]])
def test_the_sum_of_one_series_has_the_quantiles_of_its_samples(levels):
    samples = Naive().fit(frame(100 + NOISE[:1], "D")).sample(3, 50)
    samples.attrs["kind"] = "synthetic"
    drawn = samples.groupby("ds")["Naive"]
    for groups, name in ((None, "total"), ({"u000": "mine"}, "mine")):
        sums = sum_samples(samples, groups, levels)
        assert sums.attrs == {"kind": "synthetic"}
        assert sums["unique_id"].unique().tolist() == [name]
        np.testing.assert_array_equal(sums["Naive"], drawn.median())
        for level in np.atleast_1d(levels):
            np.testing.assert_allclose(sums[f"Naive-lo-{level}"], drawn.quantile(0.5 - level / 200))
            np.testing.assert_allclose(sums[f"Naive-hi-{level}"], drawn.quantile(0.5 + level / 200))


def test_sums_add_the_series_of_a_group_sample_by_sample_and_every_series_needs_one():
    samples = Naive().fit(frame(100 + NOISE, "D")).sample(2, 30)
    wide = samples.pivot(index=["ds", "sample"], columns="unique_id", values="Naive")
    sums = sum_samples(samples, {"u000": "b", "u001": "a", "u002": "b"})
    for name, members in (("a", ["u001"]), ("b", ["u000", "u002"])):
        expected = wide[members].sum(axis=1).groupby("ds").quantile([0.5, 0.1, 0.9]).unstack()
        found = sums[sums["unique_id"] == name].set_index("ds")[["Naive", "Naive-lo-80", "Naive-hi-80"]]
        np.testing.assert_allclose(found, expected)
    for groups in ({"u000": "b", "u001": "a"}, {}, {"u000": "b", "u001": None, "u002": "b"}):
        with pytest.raises(InputError, match="has no group; name one"):
            sum_samples(samples, groups)


def test_parts_are_scaled_by_the_total_of_the_same_rank():
    """Sums of two parts, 30, 3 and 6, become 60, 1 and 10, whatever the order of the total."""
    ds = pd.Timestamp("2026-03-01")
    parts = pd.DataFrame({"ds": ds, "sample": [0, 0, 1, 1, 2, 2], "Naive": [20.0, 10, 1, 2, 3, 3]})
    total = pd.DataFrame({"unique_id": "total", "ds": ds, "sample": [0, 1, 2], "Naive": [10.0, 60, 1]})
    scaled = scale_samples(parts.assign(unique_id=[*"ababab"]), total)
    np.testing.assert_allclose(scaled["Naive"], [40, 20, 1 / 3, 2 / 3, 5, 5])


def test_demand_stays_above_zero_and_series_below_zero_do_not():
    """A level of 1 with errors of 3, and the same with one negative value."""
    y = np.abs(1 + NOISE)
    y[1, 150] = -1.0
    model = HistoricMean().fit(frame(y, "D"))
    low = model.predict(4, level=95).groupby("unique_id")["HistoricMean-lo-95"].min()
    drawn = model.sample(4, 200).groupby("unique_id")["HistoricMean"].min()
    assert (low.to_numpy() < 0).tolist() == (drawn.to_numpy() < 0).tolist() == [False, True, False]
    # The floor of an origin is that of what was seen there.
    falling = Panel.from_long(frame(np.stack([np.arange(9.0)[::-1], 4 - np.arange(9.0)]), "D"))
    assert Line().forecast_from(falling, np.array([4, 9]), 9).min(axis=2).tolist() == [[0, 0], [0, -13]]


def test_a_path_takes_the_ranks_of_all_series_from_one_origin():
    """From each of three origins the errors of one series were as much too high as those of the other too low."""
    errors = np.stack([np.tile([[-9.0], [0.0], [9.0]], 2), np.tile([[90.0], [0.0], [-90.0]], 2)])
    past, level, floor = PastErrors(errors, np.array([10, 11, 12])), np.zeros((2, 2)), np.full((2, 1), -np.inf)
    paths = joint_samples(level, past, floor, 1.0, 300, 0)
    assert paths.shape == (300, 2, 2)
    assert (np.sign(paths[:, 0]) * np.sign(paths[:, 1]) <= 0).mean() > 0.8
    np.testing.assert_allclose(joint_samples(level + 5, past, floor, 2.0, 300, 0), 5 + 2 * paths)
    np.testing.assert_allclose(joint_samples(level, past, floor, np.array([1, 0]), 300, 0)[..., 1], 0)
    np.testing.assert_array_equal(joint_samples(level, past, np.zeros((2, 1)), 1.0, 300, 0), np.maximum(paths, 0))


def test_origins_that_see_less_than_half_of_a_horizon_lend_no_ranks():
    errors = np.random.default_rng(0).normal(size=(2, 6, 4))
    errors[:, 4, 2:], errors[:, 5, 1:] = np.nan, np.nan
    low, width = _ranks(errors, np.random.default_rng(0))
    assert low.shape == width.shape == (2, 5, 4)
    # Beyond the end of the history, the rank is that of the step before.
    np.testing.assert_array_equal(low[:, 4, 2:], low[:, 4, [1, 1]])


def test_intervals_need_three_bins_and_are_kept_by_horizon(monkeypatch):
    with pytest.raises(InputError, match="intervals need at least 3 bins of history; this one has 2"):
        Naive().fit(frame(NOISE[:, :2], "D")).predict(1, level=80)
    model, calls, of = Naive().fit(frame(100 + NOISE, "D")), [], PastErrors.of

    def recorded(paths, y, h, origins):
        calls.append((h, int(origins[0])))
        return of(paths, y, h, origins)

    monkeypatch.setattr(PastErrors, "of", recorded)
    for h in (3, 3, 4):
        assert len(model.predict(h, level=80)) == 3 * h
    model.sample(4, 2)
    assert len(Naive().fit(frame(100 + NOISE[:, :3], "D")).predict(1, level=80)) == 3
    # The first origin has two seasons before it (26 whole ones before the end of 200 days), or half of the history.
    assert calls == [(3, 18), (4, 18), (1, 1)]


def test_a_column_is_named_after_the_class_and_others_are_wrapped():
    forecast = Line().fit(frame(NOISE, "D")).predict(2, level=[95, 80.5])
    names = ["Line", *(f"Line-{side}-{level}" for level in ("80.5", "95") for side in ("lo", "hi"))]
    assert forecast.columns.tolist() == ["unique_id", "ds", *names]
    line, other = Line(), object()
    assert adapt(line) is line
    assert adapt(other).model is other
