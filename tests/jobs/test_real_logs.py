"""Public logs reproduce their published numbers."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from gpudemand.jobs import read_jobs

PHILLY = "philly-jobs-pollux/philly.csv.gz"
VENUS = "helios-venus-gpu-jobs/helios_trace.csv.gz"
KTH = "swf-kth-sp2/KTH-SP2-1996-2.swf.gz"
ATLAS = "swf-llnl-atlas/LLNL-Atlas-2006-2.1-cln.swf.gz"
PAI = "alibaba-pai-v2020-sample/alibaba_trace_sub.csv.gz"
DLRM = "alibaba-dlrm-v2025/disaggregated_DLRM_trace.csv.gz"
GENAI = "alibaba-genai-v2026/lora_request_trace.csv.gz"
VENUS_START = {"origin": "2020-03-18 04:01:39", "tz": "Asia/Shanghai"}
ANY_START = {"origin": "2023-01-01 00:00+00:00"}


@pytest.fixture
def traces(shared_data: Path) -> Path:
    return shared_data / "traces"


def gpu_hours(jobs: pd.DataFrame) -> float:
    start = jobs["start"].fillna(jobs["submit"])
    return float((jobs["gpus"] * (jobs["end"] - start).dt.total_seconds()).sum() / 3600)


@pytest.mark.parametrize(
    ("log", "form", "says", "rows", "total"),
    [
        (PHILLY, "philly-pollux", {"tz": "UTC"}, 82_247, 978_078),
        (VENUS, "simulator", VENUS_START, 99_707, 1_990_760.5),
        (PAI, "simulator", ANY_START, 60_105, 687_854),
        (GENAI, "genai", {"tz": "UTC"}, 22_743, 179.2),
    ],
)
def test_published_totals(traces: Path, log: str, form: str, says: dict[str, str], rows: int, total: float) -> None:
    jobs = read_jobs(traces / log, form, **says)
    assert len(jobs) == rows
    assert gpu_hours(jobs) == pytest.approx(total, abs=1)
    assert jobs.attrs["rejected"] == {}
    assert jobs.attrs["kind"] == "public trace"


def test_philly_groups_are_virtual_clusters(traces: Path) -> None:
    jobs = read_jobs(traces / PHILLY, "philly-pollux", tz="UTC")
    assert jobs["group"].nunique() == 15
    assert jobs["submit"].min() >= pd.Timestamp("2017-09-04", tz="UTC")


def test_venus_starts_on_its_local_clock(traces: Path) -> None:
    jobs = read_jobs(traces / VENUS, "simulator", **VENUS_START)
    assert jobs["submit"].min() == pd.Timestamp("2020-03-18 04:01:39", tz="Asia/Shanghai")


def test_dirlab_venus(traces: Path) -> None:
    path = traces / "dirlab-gen-parallel/helios_data_training.csv.gz"
    jobs = read_jobs(path, "dirlab", origin="2020-05-27 23:58:26", tz="Asia/Shanghai")
    with_gpus = jobs[jobs["gpus"] > 0]
    assert (len(jobs), len(with_gpus)) == (15_000, 10_796)
    assert (jobs["user"].nunique(), with_gpus["user"].nunique()) == (106, 95)


def test_dirlab_philly_shares_its_clock_with_the_pollux_file(traces: Path) -> None:
    path = traces / "dirlab-gen-parallel/philly_data_training.csv.gz"
    jobs = read_jobs(path, "dirlab", origin=pd.Timestamp(1502100181, unit="s", tz="UTC"))
    assert (len(jobs), jobs["user"].nunique()) == (15_000, 136)
    pollux = read_jobs(traces / PHILLY, "philly-pollux", tz="UTC")
    key = ["submit", "end", "gpus"]
    assert len(jobs.merge(pollux.drop_duplicates(key), on=key)) >= 7_000


def test_kth(traces: Path) -> None:
    jobs = read_jobs(traces / KTH, "swf")
    assert (len(jobs), jobs["user"].nunique()) == (28_489, 214)
    assert jobs["submit"].min() == pd.Timestamp(843480031, unit="s", tz="UTC")
    assert jobs.attrs["max_procs"] == "100"


def test_atlas_knows_no_starts_and_one_user_without_a_name(traces: Path) -> None:
    jobs = read_jobs(traces / ATLAS, "swf")
    assert (len(jobs), jobs["user"].nunique(dropna=False)) == (43_778, 131)
    assert jobs["start"].isna().all()
    assert jobs["gpus"].notna().all()
    assert (jobs["end"] <= jobs["submit"]).sum() == 7_178
    assert set(jobs["partition"]) == {"pbatch", "pdebug", "pbroke", "moody20"}


def test_openb(traces: Path) -> None:
    plain, typed = (
        read_jobs(traces / f"alibaba-gpu-v2023/openb_pod_list_{name}.csv.gz", "openb", **ANY_START)
        for name in ("default", "gpuspec33")
    )
    assert len(plain) == len(typed) == 8_152
    assert plain["gpus"].between(0.05, 0.999).any()
    assert plain["gpus"].max() == 8
    assert plain["gpu_type"].isna().all()
    assert typed["gpu_type"].notna().any()


def test_dlrm_has_instances_older_and_younger_than_the_trace(traces: Path) -> None:
    jobs = read_jobs(traces / DLRM, "dlrm", **ANY_START)
    assert (len(jobs), int(jobs["gpus"].sum())) == (19_572, 6_176)
    assert (jobs["submit"] == pd.Timestamp("2023-01-01", tz="UTC")).sum() == 6_195
    assert (jobs["status"] == "running").sum() == jobs["end"].isna().sum() == 7_686
