"""Demand from jobs: no information after the origin, running jobs, components, combination."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

from gpudemand._validation import InputError
from gpudemand.datasets import make_cluster
from gpudemand.datasets.simulate import EXPECTED_RUN_SHARE, true_step_time
from gpudemand.forecast import Panel, SeasonallyAdjustedNaive
from gpudemand.jobs.table import as_jobs
from gpudemand.planning.demand import (
    HeldJobs,
    JobDemandModel,
    RollingOrigins,
    forecast_submissions,
    observed_gpu_hours,
    usage_value,
)
from gpudemand.planning.run_time import RunTimeModel, SurvivalCurves
from gpudemand.planning.training_run_time import TrainingRunTime
from gpudemand.usage.series import series_codes, usage_series

#: A fast run-time model, where run times are not tested.
QUICK = RunTimeModel(history_keys=(), max_rows=30_000)
ORIGIN = pd.Timestamp("2026-03-10", tz="UTC")


@pytest.fixture(scope="module")
def jobs():
    return make_cluster(n_users=30, n_days=80, random_state=3)[0]


@pytest.fixture(scope="module")
def usage(jobs):
    return usage_series(jobs, by=None, freq="h", value="gpus", until=ORIGIN)


@pytest.fixture(scope="module")
def fitted(jobs, usage):
    return JobDemandModel(run_time=QUICK).fit(jobs, usage)


def test_a_forecast_has_the_columns_of_a_forecaster(fitted, usage):
    forecast = fitted.predict(h=30, level=[80, 95])
    names = ["JobDemandModel", *(f"JobDemandModel-{side}-{level}" for level in (80, 95) for side in ("lo", "hi"))]
    assert forecast.columns.tolist() == ["unique_id", "ds", *names]
    assert forecast["ds"].iloc[0] == usage["ds"].iloc[-1] + pd.Timedelta("1h") == ORIGIN
    ends = forecast[[names[3], names[1], names[0], names[2], names[4]]].to_numpy()
    assert (np.diff(ends, axis=1) >= 0).all()
    assert (ends >= 0).all()
    assert forecast.attrs["kind"] == "synthetic"


def test_nothing_after_the_origin_is_used(jobs, usage, fitted):
    rng = np.random.default_rng(0)
    later = jobs["submit"] >= ORIGIN
    changed = jobs[~later | (rng.random(len(jobs)) < 0.5)].copy()
    late = changed["end"] > ORIGIN
    changed.loc[late, "end"] = ORIGIN + pd.Timedelta("99D")
    changed.loc[late, "status"] = "failed"
    started = changed["start"] > ORIGIN
    changed.loc[started, "start"] = changed.loc[started, "submit"].clip(lower=ORIGIN) + pd.Timedelta("9D")
    changed.loc[changed["end"] < changed["start"], "end"] = changed["start"] + pd.Timedelta("1D")
    changed.loc[changed["submit"] >= ORIGIN, "gpus"] = 1000.0
    again = JobDemandModel(run_time=QUICK).fit(changed, usage).predict(24, level=[80])
    pd.testing.assert_frame_equal(again, fitted.predict(24, level=[80]))


@pytest.mark.slow
def test_running_jobs_reduce_the_errors_of_the_first_hours(jobs):
    errors = {True: 0.0, False: 0.0}
    for origin in pd.date_range("2026-03-03", periods=2, freq="3D", tz="UTC"):
        usage = usage_series(jobs, by=None, freq="h", value="gpus", until=origin)
        future = usage_series(jobs, by=None, freq="h", value="gpus", start=origin, until=origin + pd.Timedelta("6h"))
        for running in errors:
            model = JobDemandModel(run_time=QUICK, running=running, combine=False).fit(jobs, usage)
            errors[running] += np.abs(model.predict(6)["JobDemandModel"] - future["y"]).sum()
    assert errors[True] < 0.7 * errors[False]


@pytest.mark.slow
@pytest.mark.parametrize("combine", [True, False])
def test_a_steady_load_with_heavy_tailed_run_times_is_forecast_at_its_level_for_weeks(combine):
    rng = np.random.default_rng(1)
    per_day, days, spread = 400, 110, 1.5
    submit = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(
        np.sort(rng.uniform(0, 24 * days, per_day * days)), "h"
    )
    end = submit + pd.to_timedelta(2 * rng.lognormal(0, spread, len(submit)), "h")
    jobs = as_jobs(pd.DataFrame({"submit": submit, "end": end, "gpus": 1.0}), kind="synthetic")
    usage = usage_series(jobs, by=None, freq="D", value="gpus", start="2026-01-15", until="2026-04-20")
    forecast = JobDemandModel(run_time=QUICK, combine=combine).fit(jobs, usage).predict(42)["JobDemandModel"]
    # Arrivals an hour times the mean of the log-normal run time.
    level = per_day / 24 * 2 * np.exp(spread**2 / 2)
    np.testing.assert_allclose(forecast.to_numpy().reshape(6, 7).mean(axis=1), level, rtol=0.06)


class NoRunTimes(BaseEstimator):
    """Learns nothing, where nothing is forecast."""

    def fit(self, jobs, until):
        return self


@pytest.mark.parametrize(
    ("options", "factor"),
    [
        ({"value": "gpus"}, 1),
        ({"value": "gpu_hours"}, 24),
        ({"value": "gpu_hours", "until": "2026-03-10 15:00"}, 24),
        ({"value": "gpu_hours", "tz": "Europe/Berlin", "until": "2026-04-10"}, 24),
        ({"value": "gpu_hours", "by": "user"}, 24),
        ({"value": "gpu_hours", "freq": "6h"}, 6),
        ({"value": "gpu_hours", "freq": "h"}, 1),
    ],
)
def test_usage_that_does_not_say_its_unit_is_compared_with_the_log(jobs, options, factor):
    usage = usage_series(jobs, **{"by": None, "freq": "D", "until": ORIGIN, **options})
    usage.attrs = {}
    model = JobDemandModel(run_time=NoRunTimes()).fit(jobs, usage)
    assert model.panel_.attrs["value"] == ("gpus" if factor == 1 else "gpu_hours")


def test_a_forecast_is_in_the_unit_of_usage_that_does_not_say_it(jobs):
    usage = usage_series(jobs, by=None, freq="D", until=ORIGIN)
    model = JobDemandModel(run_time=NoRunTimes(), running=False)
    told = model.fit(jobs, usage).predict(2)
    usage.attrs = {}
    pd.testing.assert_frame_equal(model.fit(jobs, usage).predict(2), told)


@pytest.mark.parametrize("value", ["jobs", "gpus_peak"])
def test_usage_of_another_kind_is_refused(jobs, value):
    usage = usage_series(jobs, by=None, freq="D", value=value, until=ORIGIN)
    with pytest.raises(InputError, match=f"usage holds '{value}'.*value='gpus'"):
        JobDemandModel(run_time=NoRunTimes()).fit(jobs, usage)
    usage.attrs = {}
    with pytest.raises(InputError, match="times the GPUs that the jobs held"):
        JobDemandModel(run_time=NoRunTimes()).fit(jobs, usage)


def test_usage_wanted_has_its_own_level_and_none_has_no_unit():
    ds = pd.date_range("2026-03-01", periods=4, freq="D", tz="UTC")
    panel = Panel.from_long(pd.DataFrame({"unique_id": "total", "ds": ds, "y": [0.0, 30.0, 45.0, 30.0]}))
    held = np.array([[0.0, 10.0, 15.0, 10.0]])
    assert usage_value(replace(panel, attrs={"value": "wanted"}), held, 24) == "wanted"
    assert usage_value(panel.with_history(0 * held), 0 * held, 24) == "gpus"
    for gpus in (held, 0 * held):
        with pytest.raises(InputError, match=r"(3|inf) times the GPUs"):
            usage_value(panel, gpus, 24)


def test_series_by_gpu_type_and_in_days(jobs):
    usage = usage_series(jobs, by="gpu_type", freq="D", value="gpu_hours", until=ORIGIN)
    forecast = JobDemandModel(run_time=QUICK).fit(jobs, usage).predict(h=7, level=[80])
    assert forecast.groupby("unique_id").size().eq(7).all()
    past = usage[usage["ds"] >= ORIGIN - pd.Timedelta("14D")].groupby("unique_id")["y"].mean()
    ratio = forecast.groupby("unique_id")["JobDemandModel"].mean() / past
    assert ratio[past > 240].between(0.4, 2.5).all()


def test_running_jobs_by_hand():
    jobs = HeldJobs(
        np.arange(2), np.array([-1.0, 1.5]), np.array([2.25, np.inf]), np.array([4.0, 1.0]), np.zeros(2, int), 1
    )
    np.testing.assert_allclose(jobs.held(np.array([0, 2]), 3)[0], [[4, 4, 1], [2, 1, 1]])
    # Half of what runs ends within an hour.
    curves = SurvivalCurves(np.array([0.0, 3600.0]), np.log(2) * np.array([[0.0, 1.0]] * 2))
    np.testing.assert_allclose(jobs.expected(np.array([0]), 2, curves)[0, 0], [3, 1.5])


def test_naive_forecasts_and_weighted_means_of_a_periodic_series():
    y = np.tile(np.arange(24.0), 30)[None]
    origins = RollingOrigins.from_end(y, 24, 24, 0, 0)
    np.testing.assert_allclose(origins.weighted_mean(origins.actual)[0, -1], np.arange(24.0))
    np.testing.assert_allclose(origins.seasonal_naive(24)[0, -1], np.arange(24.0))
    np.testing.assert_allclose(origins.daily_profile(7)[0, -1], np.arange(24.0))
    assert np.isnan(origins.actual[0, -1]).all()


def test_series_are_found_by_their_names(jobs):
    usage = usage_series(jobs, by="group/user", freq="D")
    ids = usage["unique_id"].unique()
    codes = series_codes(jobs, ids)
    assert (ids[codes] == jobs["group"] + "/" + jobs["user"]).all()
    with pytest.raises(InputError, match="no job belongs to the series 'x'"):
        series_codes(jobs, ["x"])


def test_predicted_costs_give_the_gpu_hours_of_true_ones():
    known = pytest.importorskip("benchmarks.planning.truth", reason="runs from a checkout")
    jobs, truth = make_cluster(n_users=25, n_days=120, random_state=5)
    origin = pd.Timestamp("2026-04-05", tz="UTC")

    def biased(rows):
        slow = rows["gpu_type"].map({"V100": 2.0, "A100": 0.7, "H100": 1.3, "H200": 1.0}).to_numpy(dtype=float)
        return slow * true_step_time(rows)

    run_time = RunTimeModel(costs=TrainingRunTime(biased), history_keys=("user",))
    usage = usage_series(jobs, by=None, freq="h", value="gpus", until=origin)
    model = JobDemandModel(run_time=run_time).fit(jobs, usage)
    table = model.submissions(days=30)
    past = model.jobs_
    true_hours = EXPECTED_RUN_SHARE * known.true_run_time(past, truth) / 3600 * past["gpus"].to_numpy()
    true = forecast_submissions(past, true_hours, origin)["gpu_hours"]
    assert (table["gpu_hours"] - true).abs().sum() / true.sum() < 0.10
    assert (table["gpu_hours-lo-80"] <= table["gpu_hours-hi-80"]).all()


def test_invalid_arguments_raise_a_clear_error(jobs, usage):
    with pytest.raises(InputError, match="have no zone"):
        JobDemandModel().fit(jobs, usage.assign(ds=usage["ds"].dt.tz_localize(None)))
    for freq in ("W-MON", "W-WED"):
        with pytest.raises(InputError, match="whole hours"):
            JobDemandModel().fit(jobs, usage_series(jobs, by=None, freq=freq, until=ORIGIN))
    short = usage_series(jobs, by=None, freq="h", value="gpus", start="2026-03-08", until=ORIGIN)
    with pytest.raises(InputError, match="three days of history"):
        JobDemandModel(run_time=QUICK).fit(jobs, short).predict(2, level=[80])
    with pytest.raises(InputError, match="h must be a whole number"):
        JobDemandModel(run_time=QUICK).fit(jobs, usage).predict(0)


@pytest.mark.slow
def test_venus_beats_the_seasonally_adjusted_naive_forecast(shared_data):
    from gpudemand import read_jobs

    path = shared_data / "traces/helios-venus-gpu-jobs/helios_trace.csv.gz"
    jobs = read_jobs(path, format="simulator", origin="2020-03-18 04:01:39", tz="Asia/Shanghai")
    usage = usage_series(
        jobs, by=None, freq="h", value="gpus", start="2020-04-02", until="2020-09-01", tz="Asia/Shanghai"
    )
    total = {"y": 0.0, "JobDemandModel": 0.0, "SeasonallyAdjustedNaive": 0.0}
    for origin in pd.date_range("2020-06-03", periods=3, freq="9D", tz="Asia/Shanghai"):
        known, future = usage[usage["ds"] < origin], usage[usage["ds"] >= origin].head(24)["y"].to_numpy()
        total["y"] += future.sum()
        for model in (JobDemandModel().fit(jobs, known), SeasonallyAdjustedNaive().fit(known)):
            name = type(model).__name__
            total[name] += np.abs(model.predict(24)[name].to_numpy() - future).sum()
    assert total["JobDemandModel"] < 0.9 * total["SeasonallyAdjustedNaive"]


def test_a_running_job_is_credited_at_least_what_it_has_used():
    until = pd.Timestamp("2026-03-05", tz="UTC")
    start = pd.to_datetime(["2026-03-01 00:00", "2026-03-04 23:00", "2026-03-04 00:00"], utc=True)
    end = pd.to_datetime([None, None, "2026-03-04 12:00"], utc=True)
    jobs = as_jobs(pd.DataFrame({"submit": start, "start": start, "end": end, "gpus": 2.0}), kind="synthetic")
    ages = np.array([0.0, 3600.0, 7200.0, 90 * 86400.0])
    curves = SurvivalCurves(ages, np.tile([0.0, 1.0, 2.0, 30.0], (3, 1)))
    hours = observed_gpu_hours(jobs, curves, until)
    assert hours[0] > 2 * 96
    assert hours[1] > 2
    assert hours[2] == 24


@pytest.mark.parametrize("change", ["2026-03-29", "2026-10-25"])
def test_office_hours_follow_local_time_over_a_change_of_the_clock(change):
    days = pd.date_range(pd.Timestamp(change) - pd.Timedelta("35D"), periods=45, tz="Europe/Berlin")
    opens = [day.replace(hour=9) for day in days if day.weekday() < 5]
    submit = pd.DatetimeIndex(np.repeat(opens, 20)).tz_convert("UTC")
    frame = pd.DataFrame({"submit": submit, "end": submit + pd.Timedelta("9h"), "gpus": 1.0, "user": "ada"})
    jobs = as_jobs(frame, kind="synthetic")
    usage = usage_series(jobs, by=None, freq="h", value="gpus", start=days[0], until=days[-1], tz="Europe/Berlin")
    for ahead in ("1D", "-3D"):
        # The clock changes before the origin, or within the horizon.
        origin = pd.Timestamp(change, tz="Europe/Berlin") + pd.Timedelta(ahead)
        origin = origin.normalize() if ahead == "1D" else (origin + pd.Timedelta("1h")).normalize()
        known, future = usage[usage["ds"] < origin], usage[usage["ds"] >= origin].head(120)
        forecast = JobDemandModel(run_time=QUICK).fit(jobs, known).predict(120, level=[80])
        assert (forecast["ds"].to_numpy() == future["ds"].to_numpy()).all()
        error = np.abs(forecast["JobDemandModel"].to_numpy() - future["y"].to_numpy()).sum()
        assert error < 0.05 * future["y"].sum(), error / future["y"].sum()
