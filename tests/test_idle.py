"""GPU-hours that are held and hardly used."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand import Study, idle_table, usage_series
from gpudemand._validation import InputError, UnlikelyJobsWarning
from gpudemand.study.settings import Settings
from gpudemand.study.source import source_of
from tests.report.conftest import make_log, quick, undrawn  # noqa: F401

START = pd.Timestamp("2026-03-01", tz="UTC")


def log(**columns) -> pd.DataFrame:
    jobs = pd.DataFrame({"user": ["ada", "ada", "bob", "eve"], "start": START, "gpus": [1.0, 2.0, 4.0, 1.0]})
    jobs["end"] = START + pd.to_timedelta([10, 10, 5, 2], unit="h")
    return jobs.assign(used_gpu_seconds=[0.049 * 36000, 0.5 * 72000, 0.1 * 72000, np.nan], **columns)


def test_hours_by_user():
    table = idle_table(log(), price=2.0).set_index("unique_id")
    assert table.index.tolist() == ["ada", "bob", "eve"]
    assert table["gpu_hours"].tolist() == [30, 20, 2]
    assert table["measured"].tolist() == [30, 20, 0]
    assert table.loc["ada", ["under_5", "under_20", "under_50"]].tolist() == [10, 10, 10]
    assert table.loc["bob", ["under_5", "under_20", "under_50"]].tolist() == [0, 20, 20]
    assert table.loc["ada", "utilization"] == pytest.approx((0.049 * 10 + 0.5 * 20) / 30)
    assert np.isnan(table.loc["eve", "utilization"])
    assert table.loc["bob", "cost_under_20"] == 40


def test_each_gpu_costs_what_its_type_does_and_an_unknown_one_the_mean():
    jobs = log(gpu_type=["A100", "H100", "H100", None])
    table = idle_table(jobs, price={"A100": 1.0, "H100": 4.0}).set_index("unique_id")
    assert table.loc["ada", ["cost_under_20", "cost_under_50"]].tolist() == [10, 10]
    assert table.loc["bob", "cost_under_20"] == 80
    mean = (10 * 1.0 + 20 * 4.0) / 30
    idle = idle_table(jobs.assign(gpu_type=["A100", "H100", None, None]), price={"A100": 1.0, "H100": 4.0})
    assert idle.set_index("unique_id").loc["bob", "cost_under_20"] == pytest.approx(20 * mean)
    same = idle_table(jobs, price={"A100": 2.0, "H100": 2.0})
    pd.testing.assert_frame_equal(same, idle_table(jobs, price=2.0))
    with pytest.raises(InputError, match="no value for any GPU type that was used; it has V100"):
        idle_table(jobs, price={"V100": 1.0})


#: Of 10 h on a GPU.
USED = {-3.0: None, 5 * 36000.0: None, 1e300: None, np.inf: None, 36001.0: 1.0, 36600.0: 1.0, 0.0: 0.0, 720.0: 0.02}


@pytest.mark.parametrize("used", USED)
def test_no_gpu_works_for_longer_than_it_is_held(tmp_path, used):
    jobs = log(job_id=list("wxyz"))
    jobs.loc[0, "used_gpu_seconds"] = used
    jobs.to_csv(tmp_path / "jobs.csv", index=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        table = idle_table(jobs, by="job_id")
        again = idle_table(gd.read_jobs(tmp_path / "jobs.csv"), by="job_id")
        assert source_of(jobs, Settings(), None).idle("job_id")["utilization"].equals(table["utilization"])
    pd.testing.assert_frame_equal(table, again)
    share = table.set_index("unique_id").loc["w", "utilization"]
    assert share == USED[used] if USED[used] is not None else np.isnan(share)
    words = ["1 of 4 jobs has used_gpu_seconds below 0 or above GPUs times run time (job w: "] * 3
    words[1] = "1 of 4 cells of used_gpu_seconds cannot be read, such as 'inf'" if used == np.inf else words[1]
    assert len(said) == (3 if USED[used] is None else 0)
    assert all(text in str(each.message) for text, each in zip(words, said, strict=False))


def test_a_job_that_held_nothing_used_nothing_and_one_that_runs_may_have_used_anything():
    jobs = log(status=["completed", "completed", "running", "completed"])
    jobs.loc[0, "end"] = START
    jobs.loc[2, "end"] = pd.NaT
    with pytest.warns(UnlikelyJobsWarning, match=r"1 of 4 jobs has .* \(a job of ada submitted .*: 1764\)"):
        table = idle_table(jobs).set_index("unique_id")
    assert table["measured"].to_dict() == {"ada": 20, "bob": 0, "eve": 0}


def test_by_partition_and_group():
    jobs = log(partition=["gpu", "debug", "gpu", None], group="ml")
    assert idle_table(jobs, by="partition")["unique_id"].tolist() == ["gpu", "debug", "unknown"]
    assert idle_table(jobs, by="group")["gpu_hours"].tolist() == [52]


def test_nothing_is_said_where_nothing_is_known():
    with pytest.raises(InputError, match="utilization of no job"):
        idle_table(log().drop(columns="used_gpu_seconds"))
    with pytest.raises(InputError, match="shard"):
        idle_table(log(), by="shard")


def test_usage_by_partition_qos_and_account(tmp_path):
    jobs = log(partition=["gpu", "debug", "gpu", None], qos="high", group="ml")
    by_partition = usage_series(jobs, by="partition").set_index("unique_id")["y"]
    assert by_partition.to_dict() == {"debug": 20, "gpu": 30, "unknown": 2}
    assert usage_series(jobs, by="account/qos")["unique_id"].unique().tolist() == ["ml/high"]
    jobs.to_parquet(tmp_path / "jobs.parquet")
    pd.testing.assert_frame_equal(
        usage_series(tmp_path / "jobs.parquet", by="partition"), usage_series(jobs, by="partition")
    )
    with pytest.raises(InputError, match="names no 'partition'"):
        usage_series(log(), by="partition")


@pytest.mark.slow
@pytest.mark.usefixtures("quick", "undrawn")
def test_it_is_on_the_page_where_it_is_known(tmp_path):
    jobs = make_log(days=40)
    attrs, hours = jobs.attrs, (jobs["end"] - jobs["start"]).dt.total_seconds() * jobs["gpus"]
    jobs = jobs.assign(used_gpu_seconds=hours * 0.1, partition=["a", "b"] * (len(jobs) // 2))
    jobs.attrs = attrs
    study = Study(jobs, horizon=4, prices=(2.0, 3.0))
    table = study.idle
    assert table["by"].unique().tolist() == ["user", "group", "partition"]
    sums = table.groupby("by")[["under_5", "under_20", "cost_under_20", "gpu_hours"]].sum()
    assert (sums["under_5"] == 0).all()
    assert sums["under_20"].tolist() == pytest.approx([sums["gpu_hours"].iloc[0]] * 3)
    assert sums["cost_under_20"].tolist() == pytest.approx([2 * sums["gpu_hours"].iloc[0]] * 3)
    page = study.report(tmp_path / "known").read_text()
    assert "0% were held at under 5%, 100% at under 20%" in page
    assert "not how well it was used" in page
    assert 'id="table-idle_partition"' in page
    unknown = Study(make_log(days=40), horizon=4)
    with pytest.raises(InputError, match="utilization of no job"):
        _ = unknown.idle
    assert "tilization is" not in unknown.report(tmp_path / "unknown").read_text()
