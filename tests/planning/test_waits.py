"""Waits of jobs as they were: against plain Python, and what a log cannot tell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.jobs.read import read_jobs
from gpudemand.plotting.usage import WaitDisplay
from gpudemand.usage.waits import wait_table

BEGIN = pd.Timestamp("2026-03-01 22:30", tz="UTC")


def waiting_log(n=200):
    rng = np.random.default_rng(0)
    submit = BEGIN + pd.to_timedelta(rng.integers(0, 10 * 86400, n), unit="s")
    start = submit + pd.to_timedelta(rng.exponential(4000, n).round(), unit="s")
    frame = {"user": rng.choice(["ada", "bob"], n), "submit": submit, "start": start, "gpus": rng.integers(1, 17, n)}
    return pd.DataFrame(frame).assign(end=start + pd.to_timedelta(rng.integers(1, 9000, n), unit="s"))


@pytest.mark.parametrize("by", [None, "user", "size", "hour", "weekday"])
def test_every_statistic_is_that_of_its_jobs(by):
    log = waiting_log()
    table = wait_table(log, by, tz="Europe/Berlin")
    local = log["submit"].dt.tz_convert("Europe/Berlin")
    keys = {
        None: "all",
        "user": log["user"],
        "size": [
            f"{2 ** (p - 1) + 1}-{2**p}" if p > 1 else str(2**p) for p in (int(g - 1).bit_length() for g in log["gpus"])
        ],
        "hour": local.dt.hour,
        "weekday": local.dt.day_name().str[:3],
    }[by]
    assert table["jobs"].sum() == len(log)
    for name, jobs in log.groupby(pd.Series(keys, log.index)):
        wait = (jobs["start"] - jobs["submit"]).dt.total_seconds()
        run = (jobs["end"] - jobs["start"]).dt.total_seconds()
        row = table.loc[name]
        assert row["mean_wait_s"] == pytest.approx(wait.mean())
        assert row["median_wait_s"] == pytest.approx(wait.median())
        assert row["p95_wait_s"] == pytest.approx(np.quantile(wait, 0.95))
        assert row["share_over_1h"] == pytest.approx((wait > 3600).mean())
        assert row["waited_gpu_hours"] == pytest.approx((wait * jobs["gpus"]).sum() / 3600)
        slowdown = [max((w + r) / max(r, 10), 1) for w, r in zip(wait, run, strict=True)]
        assert row["bounded_slowdown"] == pytest.approx(np.mean(slowdown))


def test_sizes_hours_and_weekdays_come_in_order():
    log = waiting_log()
    assert wait_table(log, "size").index.tolist() == ["1", "2", "3-4", "5-8", "9-16"]
    assert wait_table(log, "hour").index.tolist() == list(range(24))
    assert wait_table(log, "weekday").index.tolist() == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    assert wait_table(log, "user")["waited_gpu_hours"].is_monotonic_decreasing


def test_what_the_scheduler_says_delayed_jobs(tmp_path):
    rows = [("1", "Resources", "02:00"), ("2", "QOSMaxGRESPerUser", "08:00"), ("3", "QOSMaxGRESPerUser", "06:00")]
    day = "2026-03-01T"
    text = "".join(
        f"{name}|ada|COMPLETED|{day}00:00:00|{day}{start}:00|{day}09:00:00|gres/gpu=2|{reason}\n"
        for name, reason, start in rows
    )
    dump = tmp_path / "sacct.psv"
    dump.write_text("JobID|User|State|Submit|Start|End|AllocTRES|Reason\n" + text)
    table = wait_table(read_jobs(dump, "sacct", tz="UTC"), "reason")
    assert table["mean_wait_s"].to_dict() == {"QOSMaxGRESPerUser": 7 * 3600, "Resources": 2 * 3600}
    assert table["waited_gpu_hours"].tolist() == [28, 4]


def test_jobs_that_wait_or_gave_up_are_counted_apart():
    log = waiting_log(4).assign(status=["completed", "cancelled", "pending", "running"])
    log.loc[1, "end"] = log.loc[1, "start"]
    log.loc[2, ["start", "end"]] = pd.NaT
    log.loc[3, "end"] = pd.NaT
    row = wait_table(log).loc["all"]
    assert row[["jobs", "gave_up", "waiting"]].tolist() == [2, 1, 1]
    assert row["mean_wait_s"] == (log["start"] - log["submit"])[[0, 3]].dt.total_seconds().mean()


def test_the_waits_of_kth_sp2(shared_data):
    jobs = read_jobs(shared_data / "traces/swf-kth-sp2/KTH-SP2-1996-2.swf.gz", format="swf")
    row = wait_table(jobs).loc["all"]
    assert row["jobs"] == 28_489
    assert row["mean_wait_s"] == pytest.approx(15_390, abs=1)


@pytest.mark.parametrize(
    ("change", "by", "message"),
    [
        ({"submit": None}, None, "no submit times"),
        ({"start": None}, None, "no start times"),
        ({"start": BEGIN - pd.Timedelta("1h")}, None, "200 start before submit"),
        ({}, "partition", "names no 'partition' for any job"),
        ({}, "hours", "by='hours' is not known. Did you mean 'hour'"),
        ({"gpus": 0}, None, "nobody waited"),
    ],
)
def test_what_a_log_cannot_tell_gets_one_sentence(change, by, message):
    with pytest.raises(InputError, match=message):
        wait_table(waiting_log().assign(**change), by)


def test_figure_of_waits():
    display = WaitDisplay.from_jobs(waiting_log(), by="user").plot()
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == display.table.index.tolist()
    np.testing.assert_allclose(display.medians_.get_offsets()[:, 0], display.table["median_wait_s"])
