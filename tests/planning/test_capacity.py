"""Plans by hand, their monotonicity, and invalid arguments."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from gpudemand._validation import InputError
from gpudemand.planning import QuantileTable, plan_capacity
from gpudemand.planning.capacity import bin_hours


def normal_forecast(mean, sd, names=("total",), freq="D", levels=(80, 95)):
    """A forecast whose quantiles are those of normal variables."""
    frames = []
    for name in names:
        ds = pd.date_range("2026-03-01", periods=len(mean), freq=freq, tz="UTC")
        frame = pd.DataFrame({"unique_id": name, "ds": ds, "M": np.asarray(mean, dtype=float)})
        for level in levels:
            z = norm.ppf(0.5 + level / 200)
            frame[f"M-lo-{level}"], frame[f"M-hi-{level}"] = frame["M"] - z * sd, frame["M"] + z * sd
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def test_required_is_the_quantile_over_the_target():
    plan = plan_capacity(
        normal_forecast([100, 110, 120], 10), installed=140, target_utilization=0.8, service_level=0.95
    )
    z = norm.ppf(0.95)
    expected = np.ceil((np.array([100, 110, 120]) + 10 * z) / 0.8)
    np.testing.assert_array_equal(plan.to_frame()["required"], expected)
    assert plan.summary.loc["total", "shortfall"] == expected[-1] - 140
    assert plan.summary.loc["total", "first_crossing"] == pd.Timestamp("2026-03-01", tz="UTC")


def test_order_by_is_the_first_crossing_less_the_lead_time():
    plan = plan_capacity(normal_forecast([50, 60, 200], 1), installed=100, lead_time="30D")
    row = plan.summary.loc["total"]
    assert row["first_crossing"] == pd.Timestamp("2026-03-03", tz="UTC")
    assert row["order_by"] == pd.Timestamp("2026-02-01", tz="UTC")
    assert "2026-02-01" in repr(plan)


def test_a_single_bin_is_no_crossing():
    mean = np.where(np.isin(np.arange(28), [4, 15, 16, 20]), 200.0, 50.0)
    plan = plan_capacity(normal_forecast(mean, 1), installed=100)
    assert plan.summary.loc["total", "first_crossing"] == pd.Timestamp("2026-03-16", tz="UTC")
    at_once = plan_capacity(normal_forecast(mean, 1), installed=100, short_share=0).replan(growth=1.1)
    assert at_once.summary.loc["total", "first_crossing"] == pd.Timestamp("2026-03-05", tz="UTC")
    spike = plan_capacity(normal_forecast(np.where(np.arange(28) == 4, 200.0, 50.0), 1), installed=100)
    assert spike.summary["first_crossing"].isna().all()
    assert spike.summary["shortfall"].gt(0).all()
    assert "rarely" in repr(spike)


@pytest.mark.parametrize("hours", [3, 6])
def test_short_hours_of_every_day_cross_once_they_are_a_quarter_of_the_week(hours):
    mean = np.where(np.arange(24 * 21) % 24 < hours, 200.0, 50.0)
    plan = plan_capacity(normal_forecast(mean, 1, freq="h"), installed=100)
    assert plan.summary["first_crossing"].isna().all() == (hours < 6)


def test_a_month_is_long_enough():
    plan = plan_capacity(normal_forecast([50, 200, 50], 1, freq="MS"), installed=100)
    assert plan.summary.loc["total", "first_crossing"] == pd.Timestamp("2026-04-01", tz="UTC")


def test_enough_gpus_never_cross():
    plan = plan_capacity(normal_forecast([50, 60], 1), installed=1000)
    assert plan.summary["shortfall"].eq(0).all()
    assert plan.summary["first_crossing"].isna().all()
    assert "never" in repr(plan)
    assert "never" in plan._repr_html_()


def test_probability_of_demand_above_capacity():
    table = QuantileTable.from_forecast(normal_forecast([100.0] * 5, 10))
    capacity = np.array([70.0, 90.0, 100.0, 119.6, 130.0])
    np.testing.assert_allclose(table.exceedance(capacity), norm.sf((capacity - 100) / 10), atol=1e-9)


def test_a_certain_forecast_is_over_or_not():
    table = QuantileTable.from_forecast(normal_forecast([100.0, 100.0], 0))
    np.testing.assert_array_equal(table.exceedance(np.array([100.0, 99.0])), [0.0, 1.0])


@pytest.mark.parametrize("share", [0.5, 0.6, 0.9, 0.93, 0.975, 0.99])
def test_quantiles_between_and_beyond_the_known_ones(share):
    table = QuantileTable.from_forecast(normal_forecast([100.0], 10))
    assert table.quantile(share)[0] == pytest.approx(100 + 10 * norm.ppf(share))


def test_installed_by_gpu_type():
    forecast = normal_forecast([100.0], 10, names=("A100", "H100"))
    plan = plan_capacity(forecast, installed={"A100": 500, "H100": 50})
    assert plan.summary["shortfall"].gt(0).to_dict() == {"A100": False, "H100": True}
    with pytest.raises(InputError, match="Did you mean 'H10'"):
        plan_capacity(forecast, installed={"A100": 500, "H10": 50})


def test_gpu_hours_are_divided_by_the_width_of_a_bin():
    daily = plan_capacity(normal_forecast([2400.0, 2400.0], 10), installed=100, unit="gpu_hours").to_frame()
    assert daily["demand_p50"].tolist() == [100.0, 100.0]
    monthly = plan_capacity(
        normal_forecast([24.0 * 31, 24.0 * 30], 1, freq="MS").iloc[:2], installed=9, unit="gpu_hours"
    ).to_frame()
    assert monthly["demand_p50"].iloc[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("freq", "hours"), [("MS", 24 * 31), ("2MS", 24 * 61), ("QS-MAR", 24 * 92), ("YS-MAR", 24 * 365), ("W-MON", 168)]
)
def test_the_last_bin_is_as_wide_as_the_calendar_says(freq, hours):
    ds = pd.date_range(end="2026-03-02", periods=2, freq=freq, tz="UTC")
    assert bin_hours(pd.DataFrame({"ds": ds}))[-1] == hours


def test_the_last_day_is_as_long_as_its_clock_says():
    ds = pd.date_range("2026-03-28", periods=2, tz="Europe/Berlin")
    assert bin_hours(pd.DataFrame({"ds": ds})).tolist() == [24, 23]


def test_no_gpu_is_bought_for_a_rounding_error():
    plan = plan_capacity(normal_forecast([85.0], 0), installed=100, target_utilization=0.85)
    assert plan.to_frame()["required"].tolist() == [100.0]


def test_more_service_more_gpus():
    forecast = normal_forecast([100.0, 120.0], 15)
    needs = [
        plan_capacity(forecast, installed=1, service_level=s).summary["required"].iloc[0] for s in (0.6, 0.9, 0.97)
    ]
    assert needs == sorted(needs)
    assert len(set(needs)) == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"short_share": 1.5}, "short_share"),
        ({"lead_time": "-5D"}, "must not be negative"),
        ({"lead_time": "100000D"}, "at most ten years"),
        ({"lead_time": "soon"}, "is not a length of time"),
        ({"lead_time": 90}, "is not a length of time"),
        ({"installed": 0}, "above 0"),
        ({"installed": -3}, "above 0"),
        ({"installed": "many"}, "must be a number"),
        ({"target_utilization": 1.2}, "at most 1"),
        ({"target_utilization": 0}, "above 0"),
        ({"service_level": 95}, "at most 0.9999"),
        ({"service_level": 0.999}, r"predict with level=\[..., 99.8\]"),
        ({"unit": "gpu"}, "Did you mean 'gpus'"),
        ({"model": "N"}, "is not known"),
        ({"jobs": pd.DataFrame()}, "jobs is for a plan with wait="),
        ({"wait_share": 0.8}, "wait_share is for a plan with wait="),
    ],
)
def test_invalid_arguments_raise_a_clear_error(change, reason):
    with pytest.raises(InputError, match=reason):
        plan_capacity(normal_forecast([100.0], 10), **{"installed": 100, **change})


def test_invalid_forecasts_are_refused():
    forecast = normal_forecast([100.0], 10)
    with pytest.raises(InputError, match="no intervals"):
        plan_capacity(forecast[["unique_id", "ds", "M"]], installed=1)
    with pytest.raises(InputError, match="no rows"):
        plan_capacity(forecast.iloc[:0], installed=1)
    with pytest.raises(InputError, match="holds 2 models"):
        plan_capacity(forecast.assign(N=1.0), installed=1)
    with pytest.raises(InputError, match="5 missing values"):
        plan_capacity(forecast.assign(**dict.fromkeys(forecast.columns[2:], np.nan)), installed=1)
    with pytest.raises(InputError, match="must be a table"):
        plan_capacity([100], installed=1)
    with pytest.raises(InputError, match="must hold numbers"):
        plan_capacity(forecast.assign(M="many"), installed=1)
    with pytest.raises(InputError, match="1 missing times"):
        plan_capacity(forecast.assign(ds=pd.NaT), installed=1)
    swapped = {"M-lo-80": "M-hi-80", "M-hi-80": "M-lo-80"}
    for change, reason in (
        (
            lambda table: table.assign(ds=table["ds"].astype(str)),
            r"holds str: pd.to_datetime\(forecast\['ds'\]\)|object",
        ),
        (lambda table: table.assign(ds=20_260_301), r"holds numbers: pd.to_datetime\(forecast\['ds'\]"),
        (lambda table: table.assign(ds=table["ds"].dt.tz_localize(None).dt.to_period("D")), "to_timestamp"),
        (lambda table: table.assign(unique_id=None), "2 missing names"),
        (lambda table: table.assign(unique_id=["total", None]), "1 missing names"),
        (lambda table: table.assign(unique_id=[1, "1"]), "the same name as another type"),
        (lambda table: table.rename(columns=swapped), "M-lo-80 above M-hi-80 in most rows"),
        (lambda table: table.set_axis(pd.MultiIndex.from_product([table.columns, ["a"]]), axis=1), "several levels"),
    ):
        with pytest.raises(InputError, match=reason):
            plan_capacity(change(normal_forecast([100.0, 110.0], 10)), installed=1)
    crossed = normal_forecast(np.full(60, 100.0), 10)
    crossed.loc[7, ["M-lo-80", "M-hi-80"]] = [101.0, 100.7]  # as of quantiles that are fitted one by one
    assert plan_capacity(crossed, installed=1).summary["required"].notna().all()
    steps = pd.Series([100.0], pd.DatetimeIndex(["2026-03-01"], tz="UTC"))
    with pytest.raises(InputError, match="the times of the forecast have none"):
        plan_capacity(forecast.assign(ds=forecast["ds"].dt.tz_localize(None)), installed=steps)
    with pytest.raises(InputError, match=r"'total' on .* more than once"):
        plan_capacity(pd.concat([forecast, forecast]), installed=1)


def test_an_index_that_repeats_a_column_and_expected_values_beside_a_model_change_nothing():
    forecast = normal_forecast([100.0, 110.0], 10)
    expected = plan_capacity(forecast, installed=1).to_frame()
    for same in (
        forecast.set_index("unique_id", drop=False),
        forecast.set_index(["unique_id", "ds"], drop=False),
        forecast.assign(**{"M-mean": 120.0}),
    ):
        pd.testing.assert_frame_equal(plan_capacity(same, installed=1).to_frame(), expected)


def test_requirements_are_not_negative():
    table = plan_capacity(normal_forecast([1.0, -100.0], 1), installed=1).to_frame()
    assert table["required"].tolist() == [4.0, 0.0]
    assert (table.filter(like="p50") >= 0).all(axis=None)


def test_invalid_capacities_are_refused():
    plan = plan_capacity(normal_forecast([100.0], 10), installed=1)
    for wrong in (-1, float("nan"), "many"):
        with pytest.raises(InputError, match="capacity must be a number"):
            plan.exceedance([wrong])


def test_the_share_of_time_counts_how_demand_varies_within_bins():
    rng = np.random.default_rng(0)
    ds = pd.date_range("2026-01-05", periods=24 * 112, freq="h", tz="Europe/Berlin")
    level = np.repeat(rng.normal(100, 8, 113), 24)[: len(ds)]
    hourly = pd.DataFrame({"unique_id": "total", "ds": ds, "y": level * np.where(ds.hour < 8, 0.6, 1.2)})
    daily = hourly.set_index("ds")["y"].resample("D").mean().iloc[:-1]
    future = pd.date_range("2026-05-01", periods=14, tz="Europe/Berlin")
    ends = {
        f"M-{side}-{p}": daily.quantile(0.5 + sign * p / 200)
        for side, sign in (("lo", -1), ("hi", 1))
        for p in (50, 80, 95)
    }
    forecast = pd.DataFrame({"unique_id": "total", "ds": future, "M": daily.median(), **ends})
    capacity, known = [90, 110, 120, 130], hourly[hourly["ds"] < "2026-03-01"]
    plan = plan_capacity(forecast, installed=110, held=known)
    curve = plan.exceedance(capacity)["share_over"].to_numpy()
    true = [(hourly["y"] > gpus).mean() for gpus in capacity]
    np.testing.assert_allclose(curve, true, atol=0.05)
    assert plan.summary["share_over"].iloc[0] == pytest.approx(curve[1])
    assert "share of time over" in repr(plan)
    assert plan.replan(extra_gpus=10).summary["share_over"].iloc[0] == pytest.approx(curve[2])
    # Without them the means of days rarely exceed what most hours do.
    assert plan_capacity(forecast, installed=110).summary["share_over"].iloc[0] < 0.5 * true[1]


def test_hours_that_cannot_be_used_raise_a_clear_error():
    ds = pd.date_range("2026-03-01", periods=96, freq="h")
    held = pd.DataFrame({"unique_id": "other", "ds": ds, "y": 5.0})
    hours = pd.DataFrame({"unique_id": "total", "ds": ds[:3], "M": 5.0, "M-lo-90": 4.0, "M-hi-90": 6.0})
    with pytest.raises(InputError, match="not finer"):
        plan_capacity(hours, installed=5, held=held)
    days = hours.assign(ds=ds[:3].normalize() + pd.to_timedelta(range(3), unit="D"))
    both = pd.concat([held, held.assign(unique_id="third")])
    with pytest.raises(InputError, match="no series 'total'"):
        plan_capacity(days, installed=5, held=both)
