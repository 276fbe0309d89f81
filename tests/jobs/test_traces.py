from __future__ import annotations

import gzip
import shutil
import tarfile
from pathlib import Path

import pandas as pd
import pytest

from gpudemand._validation import InputError, RejectedRowsWarning
from gpudemand.jobs import read_jobs

ORIGIN = {"origin": "2024-05-01 00:00+00:00"}
DAY = pd.Timestamp("2024-05-01", tz="UTC")


def hours(jobs: pd.DataFrame) -> list[float]:
    return ((jobs["end"] - jobs["start"]).dt.total_seconds() / 3600).tolist()


def test_helios(fixtures: Path) -> None:
    with pytest.warns(RejectedRowsWarning, match="1 finished without an end time"):
        jobs = read_jobs(fixtures / "Venus/cluster_log.csv", "helios", tz="Asia/Shanghai")
    assert jobs["status"].tolist() == ["completed", "cancelled", "failed"]
    assert hours(jobs)[:2] == [1, 0]
    assert set(jobs["cluster"]) == {"Venus"}
    assert jobs.loc[0, ["user", "group", "gpus"]].tolist() == ["u1", "vc1", 8]
    assert jobs.loc[0, "submit"] == pd.Timestamp("2020-04-01 00:00", tz="UTC")


def test_the_error_for_helios_names_its_time_zone(fixtures: Path) -> None:
    with pytest.raises(InputError, match="Asia/Shanghai"):
        read_jobs(fixtures / "Venus/cluster_log.csv", "helios")


def test_acme_takes_the_zone_from_each_time(fixtures: Path) -> None:
    jobs = read_jobs(fixtures / "trace_kalos.csv", "acme")
    assert jobs.loc[0, "submit"] == jobs.loc[1, "submit"]
    assert hours(jobs) == [1, 0.5]
    assert jobs.loc[1, ["cluster", "gpu_type", "job_type"]].tolist() == ["Kalos", "A100", "Evaluation"]


def test_philly_frees_its_gpus_between_attempts(fixtures: Path) -> None:
    with pytest.warns(RejectedRowsWarning, match="1 finished without an end time"):
        jobs = read_jobs(fixtures / "philly.json", "philly", tz="UTC")
    assert jobs["job_id"].tolist() == ["application_1#1", "application_1#2", "application_2"]
    assert hours(jobs) == [1, 1, 0]
    assert jobs["gpus"].tolist() == [2, 2, 0]
    assert jobs["status"].tolist() == ["failed", "completed", "cancelled"]
    assert jobs.loc[1, "submit"] == jobs.loc[0, "end"]


@pytest.mark.parametrize("text", ["{", '{"a": 1}', '[{"jobid": 1}]', "[1]", "5"])
def test_philly_refuses_other_json(write, text: str) -> None:
    with pytest.raises(InputError, match=r"not JSON|not a list of Philly jobs"):
        read_jobs(write(text, "log.json"), "philly", tz="UTC")


@pytest.fixture(params=["folder", "gz", "tar"])
def pai(request: pytest.FixtureRequest, fixtures: Path, tmp_path: Path) -> Path:
    if request.param == "folder":
        return fixtures / "pai"
    for kind in ("job", "task"):
        source = fixtures / f"pai/pai_{kind}_table.csv"
        if request.param == "gz":
            (tmp_path / f"{source.name}.gz").write_bytes(gzip.compress(source.read_bytes()))
        else:
            with tarfile.open(tmp_path / f"pai_{kind}_table.tar.gz", "w:gz") as archive:
                archive.add(source, source.name)
    return next(tmp_path.glob("pai_task_table*"))


def test_pai_joins_users_to_tasks(pai: Path) -> None:
    with pytest.warns(RejectedRowsWarning, match="1 finished without an end time"):
        jobs = read_jobs(pai, "pai", **ORIGIN)
    assert jobs["job_id"].tolist() == ["j1-worker", "j1-ps", "j2-tensorflow"]
    assert jobs["gpus"].tolist() == [2, 0, 2]
    assert jobs["user"].tolist() == ["u1", "u1", "u2"]
    assert jobs.loc[0, "submit"] == DAY + pd.Timedelta(seconds=100)
    assert jobs["status"].tolist() == ["completed", "completed", "running"]
    assert hours(jobs)[0] == 1


def test_pai_requires_the_table_of_jobs(fixtures: Path, tmp_path: Path) -> None:
    shutil.copy(fixtures / "pai/pai_task_table.csv", tmp_path)
    with pytest.raises(InputError, match="pai_job_table"):
        read_jobs(tmp_path, "pai", **ORIGIN)


def test_spot(fixtures: Path) -> None:
    jobs = read_jobs(fixtures / "spot.csv", "spot", **ORIGIN)
    assert jobs["gpus"].tolist() == [32, 1]
    assert jobs[["user", "group", "gpu_type"]].iloc[1].tolist() == ["org_2", "Spot", "H800"]
    assert hours(jobs) == [1, 2]


def test_openb_pods_share_gpus(fixtures: Path) -> None:
    jobs = read_jobs(fixtures / "openb.csv", "openb", **ORIGIN)
    assert jobs["gpus"].tolist() == [0.46, 4, 1]
    assert jobs["status"].tolist() == ["completed", "completed", "cancelled"]
    assert hours(jobs)[2] == 0


@pytest.mark.parametrize("form", ["spot", "openb"])
def test_relative_times_require_the_origin(fixtures: Path, form: str) -> None:
    with pytest.raises(InputError, match="pass origin="):
        read_jobs(fixtures / f"{form}.csv", form)


def test_dirlab_adds_up_its_intervals(write) -> None:
    log = "u_id,user,gpu_num,interval,run_time,new_status\n0,1,1,0,60,Pass\n1,2,2,30,60,Killed\n2,1,1,15,60,Failed\n"
    jobs = read_jobs(write(log), "dirlab", **ORIGIN)
    assert ((jobs["submit"] - DAY).dt.total_seconds()).tolist() == [0, 30, 45]
    with pytest.raises(InputError, match=r"line 3 .* every later job is unknown"):
        read_jobs(write(log.replace("30,60", "?,60")), "dirlab", **ORIGIN)


def test_identical_rows_without_ids_stay(write) -> None:
    row = "2017-10-09 07:00:00,60,1,60,c\n"
    jobs = read_jobs(write("timestamp,duration,num_gpus,gpu_time,cluster\n" + 2 * row), "philly-pollux", tz="UTC")
    assert jobs["job_id"].tolist() == ["2", "3"]
