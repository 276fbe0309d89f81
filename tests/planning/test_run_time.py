"""Run times: no information from the future, censoring, history, quantiles, and a real log."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.jobs.table import as_jobs, as_of
from gpudemand.metrics import pinball
from gpudemand.planning.run_time import DurationHazard, RunTimeModel, SurvivalCurves, submission_features

START = pd.Timestamp("2026-03-02", tz="UTC")


def make_log(n=3000, seed=0, days=40):
    """Two users, of whom one runs ten times as long as the other."""
    rng = np.random.default_rng(seed)
    submit = START + pd.to_timedelta(np.sort(rng.uniform(0, days * 86400, n)).round(), unit="s")
    user = rng.choice(["long", "short"], n)
    run = rng.exponential(np.where(user == "long", 36_000, 3600)).round() + 1
    frame = pd.DataFrame({"user": user, "submit": submit, "gpus": rng.choice([1.0, 8.0], n)})
    return as_jobs(frame.assign(end=frame["submit"] + pd.to_timedelta(run, unit="s")), kind="synthetic")


@pytest.fixture(scope="module")
def log():
    return make_log()


def test_run_times_follow_the_history_of_the_user(log):
    model = RunTimeModel().fit(log, until=START + pd.Timedelta("30D"))
    new = log[log["submit"] >= START + pd.Timedelta("30D")]
    mean = model.predict(new)["mean_run_time_s"].groupby(new["user"]).mean()
    assert mean["long"] == pytest.approx(36_000, rel=0.3)
    assert mean["short"] == pytest.approx(3600, rel=0.3)


@pytest.mark.slow
def test_quantiles_are_ordered_positive_and_calibrated(log):
    model = RunTimeModel().fit(log, until=START + pd.Timedelta("30D"))
    new = log[log["submit"] >= START + pd.Timedelta("30D")]
    table = model.predict(new, level=[50, 90])
    names = ["lo-90", "lo-50", None, "hi-50", "hi-90"]
    values = table[[f"run_time_s-{name}" if name else "run_time_s" for name in names]].to_numpy()
    assert (np.diff(values, axis=1) >= 0).all()
    assert (table.to_numpy() >= 0).all()
    run = (new["end"] - new["submit"]).dt.total_seconds().to_numpy()
    np.testing.assert_allclose((run[:, None] <= values).mean(axis=0), [0.05, 0.25, 0.5, 0.75, 0.95], atol=0.08)


@pytest.mark.slow
def test_nothing_after_the_end_of_the_log_is_used(log):
    until = START + pd.Timedelta("20D")
    late = (log["end"] > until).to_numpy()
    shuffled = log.assign(end=log["end"].mask(late, until + pd.Timedelta("400D")), status="failed")
    shuffled.loc[log["submit"] >= until, "gpus"] = 77.0
    ask = log[log["submit"] < until].tail(50)
    first, second = (RunTimeModel().fit(jobs, until=until).predict(ask) for jobs in (log, shuffled))
    pd.testing.assert_frame_equal(first, second)


def test_the_outcome_of_a_job_is_not_used_for_its_own_prediction(log):
    model = RunTimeModel().fit(log, until=START + pd.Timedelta("20D"))
    one = log[log["submit"] >= START + pd.Timedelta("20D")].head(1)
    longer = one.assign(end=one["end"] + pd.Timedelta("9D"), status="failed")
    pd.testing.assert_frame_equal(model.predict(one), model.predict(longer))


def test_censored_jobs_do_not_shorten_the_mean():
    rng = np.random.default_rng(1)
    true = rng.exponential(20 * 3600, 5000)
    observed = np.minimum(true, 10 * 3600)
    hazard = DurationHazard().fit(np.zeros((5000, 1)), observed, true < 10 * 3600, np.zeros(5000))
    survival = SurvivalCurves(hazard.ages_, hazard.cumulative(np.zeros((1, 1)), np.zeros(1))).survival(
        np.array([5 * 3600.0, 9 * 3600.0])
    )
    np.testing.assert_allclose(survival[0], np.exp([-0.25, -0.45]), atol=0.03)


def test_a_time_limit_is_fitted():
    rng = np.random.default_rng(2)
    run = np.minimum(rng.exponential(30 * 3600, 4000), 24 * 3600.0)
    hazard = DurationHazard().fit(np.zeros((4000, 1)), run, np.ones(4000, dtype=bool), np.zeros(4000))
    curves = SurvivalCurves(hazard.ages_, hazard.cumulative(np.zeros((1, 1)), np.zeros(1)))
    assert curves.survival(np.array([23.9 * 3600]))[0, 0] == pytest.approx(np.exp(-23.9 / 30), abs=0.03)
    assert curves.quantile([0.9])[0, 0] == pytest.approx(24 * 3600, abs=120)


def test_remaining_times_of_heavy_tailed_jobs_grow_with_age():
    rng = np.random.default_rng(3)
    run = rng.pareto(1.2, 8000) * 1800
    hazard = DurationHazard().fit(np.zeros((8000, 1)), run, np.ones(8000, dtype=bool), np.zeros(8000))
    curves = SurvivalCurves(hazard.ages_, hazard.cumulative(np.zeros((3, 1)), np.zeros(3)))
    remaining = curves.quantile([0.5], np.array([0.0, 3600.0, 6 * 3600.0]))[:, 0]
    assert (np.diff(remaining) > 0).all()
    # The median of a Pareto (Lomax) variable beyond an age grows linearly with it.
    np.testing.assert_allclose(remaining, (2 ** (1 / 1.2) - 1) * (1800 + np.array([0, 3600, 21600])), rtol=0.3)


def test_remaining_time_of_running_jobs(log):
    now = START + pd.Timedelta("25D")
    table = RunTimeModel().fit(log, until=now).predict_remaining(log)
    running = log[(log["submit"] < now) & (log["end"] > now)]
    assert table.index.equals(running.index)
    assert (table["elapsed_s"] > 0).all()
    true = (running["end"] - now).dt.total_seconds()
    assert table["mean_remaining_s"].mean() == pytest.approx(true.mean(), rel=0.5)


def test_mean_is_the_area_under_the_curve():
    ages = np.array([0.0, 10.0, 50.0, 200.0])
    curves = SurvivalCurves(ages, np.array([[0.0, 0.3, 0.3, 4.0]]))
    fine = np.linspace(0, 200, 200_001)
    area = np.exp(-np.interp(fine, ages, curves.cumulative[0])).mean() * 200
    assert curves.mean()[0] == pytest.approx(area, rel=1e-4)
    fine = np.linspace(30, 200, 200_001)
    area = np.exp(0.3 - np.interp(fine, ages, curves.cumulative[0])).mean() * 170
    assert curves.mean(np.array([30.0]))[0] == pytest.approx(area, rel=1e-4)


def test_history_counts_only_what_had_ended():
    times = pd.to_datetime([0, 100, 200, 300], unit="s", utc=True)
    ends = pd.to_datetime([50, 250, 290, 301], unit="s", utc=True)
    jobs = as_jobs(pd.DataFrame({"user": "a", "submit": times, "end": ends, "gpus": 1.0}), kind="synthetic")
    features = submission_features(jobs, jobs)
    np.testing.assert_allclose(features["user_unfinished"], [np.nan, 0, np.log(2), 0])
    last = np.exp(features["user_last_3"])
    np.testing.assert_allclose(last, [np.nan, 50, 50, (50 * 150 * 90) ** (1 / 3)], rtol=1e-9)


def test_a_log_as_of_a_time():
    times = pd.to_datetime(["2026-03-01", "2026-03-02", "2026-03-03"], utc=True)
    jobs = as_jobs(
        pd.DataFrame(
            {"submit": times, "start": times + pd.Timedelta("1D"), "end": times + pd.Timedelta("2D"), "gpus": 1}
        ).assign(status="completed"),
        kind="synthetic",
    )
    known = as_of(jobs, times[2])
    assert known["status"].tolist() == ["completed", "pending"]
    assert as_of(jobs, times[2] - pd.Timedelta("1s"))["status"].tolist() == ["running", "pending"]


def test_invalid_arguments_raise_a_clear_error(log):
    with pytest.raises(InputError, match="no job was submitted before"):
        RunTimeModel().fit(log, until="2020-01-01")
    with pytest.raises(InputError, match="is not a time"):
        RunTimeModel().fit(log, until="soon")
    with pytest.raises(InputError, match="no job in the log has ended"):
        RunTimeModel().fit(log.assign(end=pd.Series(pd.NaT, index=log.index, dtype="datetime64[ns, UTC]")))
    with pytest.raises(InputError, match="Did you mean 'user'"):
        RunTimeModel(history_keys=["users"]).fit(log)


@pytest.mark.slow
def test_run_times_of_venus_in_august_from_the_log_until_july(shared_data):
    from gpudemand import read_jobs

    path = shared_data / "traces/helios-venus-gpu-jobs/helios_trace.csv.gz"
    jobs = read_jobs(path, format="simulator", origin="2020-03-18 04:01:39", tz="Asia/Shanghai")
    model = RunTimeModel(tz="Asia/Shanghai").fit(jobs, until="2020-08-01")
    new = jobs[jobs["submit"] >= model.until_]
    past = model.log_[model.log_["end"].notna()]
    run = (new["end"] - new["submit"]).dt.total_seconds()
    known = (past["end"] - past["submit"]).dt.total_seconds()
    table = model.predict(new, level=80)
    assert (table >= 0).all(axis=None)
    assert (run - table["run_time_s"]).abs().mean() < (run - known.median()).abs().mean()
    for name, share in (("run_time_s-lo-80", 0.1), ("run_time_s", 0.5), ("run_time_s-hi-80", 0.9)):
        constant = np.full(len(run), known.quantile(share))
        assert pinball(run.to_numpy(), table[name].to_numpy(), share) < pinball(run.to_numpy(), constant, share)
    day = new["submit"].dt.tz_convert("Asia/Shanghai").dt.date
    true, predicted = (run * new["gpus"] / 3600).groupby(day).sum(), table["gpu_hours"].groupby(day).sum()
    assert (predicted - true).abs().sum() / true.sum() < 0.6
