"""Accounting of other schedulers, in small samples of what they write: read by its content, and refused by its name."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import gpudemand as gd
from gpudemand._validation import InputError, UnlikelyJobsWarning
from gpudemand.jobs.read import FORMATS

SAMPLES = Path(__file__).parent / "fixtures" / "schedulers"
DAY = "2026-03-01 "
#: File -> format, and of each job: user, group, start, end (of that day), GPUs, type, status.
CONDOR = [
    ("u1", "g1", "09:01", "11:01", 4, "", "completed"),
    ("u1", "g1", "09:01", "", 2, "", "running"),
    ("u2", "g1", "09:01", "10:01", 1, "", "cancelled"),
    ("u2", "g1", "", "", 0, "", "pending"),
]
JOBS = {
    "pbs": (
        "pbs",
        [
            ("u1", "g1", "09:01", "11:01", 4, "a100", "completed"),
            ("u2", "a b", "10:01", "11:01", 4, "", "failed"),
            ("u3", "g2", "10:01", "", 2, "", "running"),
        ],
    ),
    "sge": (
        "sge",
        [
            ("u1", "g1", "09:01", "11:01", 4, "", "completed"),
            ("u2", "g1", "09:01", "10:01", 1, "v100", "failed"),
            ("u2", "g1", "09:01", "10:01", 0, "", "completed"),
            ("u2", "g1", "09:00", "09:00", 1, "", "cancelled"),
        ],
    ),
    "lsf": (
        "lsf",
        [
            ("u1", "vision", "09:01", "11:01", 4, "NVIDIAA100", "completed"),
            ("u2", "speech", "10:01", "11:01", 4, "", "failed"),
            ("u2", "speech", "11:01", "11:01", 4, "", "failed"),
        ],
    ),
    **{f"htcondor.{suffix}": ("htcondor", CONDOR) for suffix in ("csv", "json", "long", "txt")},
    "pods.json": (
        "pods",
        [
            ("vision", "vision", "08:00", "10:00", 4, "", "completed"),
            ("speech", "speech", "08:00", "", 2 / 7, "1g.10gb", "running"),
            ("speech", "speech", "08:00", "", 1, "", "running"),
            ("npu", "npu", "08:00", "", 8, "", "running"),
            ("web", "web", "08:00", "", 0, "", "running"),
            ("web", "web", "", "", 1, "", "pending"),
        ],
    ),
    "runai.csv": (
        "runai",
        [
            ("u1", "vision", "08:01", "10:01", 0.5, "", "completed"),
            ("u2", "vision", "08:01", "", 2, "", "running"),
            ("u2", "vision", "", "", 1, "", "pending"),
        ],
    ),
}
silent = pytest.mark.filterwarnings("ignore::UserWarning")


def rows(jobs: pd.DataFrame) -> list[tuple[object, ...]]:
    times = [jobs[name].dt.strftime("%H:%M").fillna("") for name in ("start", "end")]
    return list(
        zip(jobs["user"], jobs["group"], *times, jobs["gpus"], jobs["gpu_type"].fillna(""), jobs["status"], strict=True)
    )


@silent
@pytest.mark.parametrize("name", JOBS)
def test_a_file_is_read_as_what_it_looks_like(name: str) -> None:
    form, expected = JOBS[name]
    jobs = gd.read_jobs(SAMPLES / name)
    found = rows(jobs)
    assert [row[:4] + row[5:] for row in found] == [row[:4] + row[5:] for row in expected]
    assert [row[4] for row in found] == pytest.approx([row[4] for row in expected])
    pd.testing.assert_frame_equal(jobs, gd.read_jobs(SAMPLES / name, form))
    assert jobs.attrs["kind"] == "measured"
    assert set(jobs["submit"].dt.strftime("%H:%M")) == {"09:00"} if form not in ("pods", "runai") else {"08:00"}


@silent
@pytest.mark.parametrize("name", [*JOBS, "opencost.json", "slurmdbd.csv"])
def test_a_refusal_says_what_the_file_looks_like(name: str) -> None:
    form = JOBS.get(name, [name.partition(".")[0]])[0]
    with pytest.raises(InputError, match=f"looks like format='{form}'"):
        gd.read_jobs(SAMPLES / name, "sacct", tz="UTC")


def test_requested_times() -> None:
    assert gd.read_jobs(SAMPLES / "pbs")["requested_time"].tolist()[::2] == [86400, 43200]
    with pytest.warns(UnlikelyJobsWarning, match="qconf -sc"):
        jobs = gd.read_jobs(SAMPLES / "sge")
    assert jobs["requested_time"].tolist()[:2] == [86400, 86400]
    assert jobs["job_id"].tolist() == ["101", "102.3", "103", "104"]


def test_an_allocation_of_opencost() -> None:
    jobs = gd.read_jobs(SAMPLES / "opencost.json")
    assert gd.usage_series(jobs).groupby("unique_id")["y"].sum().to_dict() == {"speech": 12, "vision": 96}


def test_the_table_of_slurms_database() -> None:
    with pytest.warns(UnlikelyJobsWarning, match="1001 counts as gres/gpu"):
        jobs = gd.read_jobs(SAMPLES / "slurmdbd.csv")
    assert jobs["gpus"].tolist() == [2, 1, 8]
    assert jobs["status"].tolist() == ["completed", "running", "pending"]
    assert jobs["submit"].dt.strftime("%H:%M").tolist() == ["08:00", "08:00", "08:01"]
    assert gd.read_jobs(SAMPLES / "slurmdbd.csv", gpu_share={"1002": 1})["gpus"].tolist() == [2, 0, 0]


def test_the_json_of_sacct_and_squeue() -> None:
    jobs = gd.read_jobs(SAMPLES / "sacct.json")
    assert jobs["job_id"].tolist() == ["12", "11_4", "14"]
    assert jobs["gpus"].tolist() == [2, 1, 8]
    assert jobs["status"].tolist() == ["completed", "running", "pending"]
    assert jobs["start"].notna().tolist() == [True, True, False]
    assert jobs.loc[0, ["user", "gpu_type", "requested_time"]].tolist() == ["u1", "a100", 3600]
    queue = gd.read_jobs(SAMPLES / "squeue.json")
    assert queue.loc[0, ["job_id", "user", "gpus", "status"]].tolist() == ["12", "u1", 2, "running"]
    assert queue["end"].isna().all()


def test_a_dump_of_sacct_without_a_header(write) -> None:
    times = "2026-03-01T08:00:00|2026-03-01T08:00:00|2026-03-01T10:00:00"
    path = write(f"12|u1|a|1|COMPLETED|{times}|cpu=8,gres/gpu=2\n13_2|x|a|2|COMPLETED|{times}|gres/gpu=2\n")
    with pytest.raises(InputError, match=r"no header: run sacct without --noheader \(-n\)"):
        gd.read_jobs(path, "sacct", tz="UTC")
    names = "jobid%20,user,account,gid,state,submit,start,end,alloctres"
    assert gd.read_jobs(path, "sacct", tz="UTC", columns=names)["gpus"].tolist() == [2, 2]
    with pytest.raises(InputError, match="columns= names those of a dump of sacct"):
        gd.read_jobs(path, "focus", columns=names)


def test_answers_of_prometheus_are_sent_to_their_reader(fixtures) -> None:
    with pytest.raises(InputError, match="format='prometheus'"):
        gd.read_jobs(fixtures / "prometheus.json")


def test_every_format_has_a_line_in_the_documentation() -> None:
    place = Path(gd.__file__).parents[1] / "docs/howto/own_log.md"
    if not place.is_file():
        pytest.skip("runs from a checkout")
    page = place.read_text()
    assert [name for name in FORMATS if f"| `{name}` |" not in page] == []
