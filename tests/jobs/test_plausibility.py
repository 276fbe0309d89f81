"""What cannot be right in a log is cut, capped or said; a clean log stays silent."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpudemand import idle_table, pull_slurm, usage_series, write_jobs
from gpudemand._validation import InputError, RejectedRowsWarning, UnlikelyJobsWarning
from gpudemand.bulk import open_parts, split_log
from gpudemand.datasets import load_jobs_sample
from gpudemand.jobs import read_jobs
from gpudemand.jobs.plausibility import doubts, plausible
from gpudemand.jobs.table import as_jobs
from gpudemand.study.settings import Settings
from gpudemand.study.source import source_of
from gpudemand.usage.series import end_of_record
from tests.jobs.test_real_logs import ATLAS, KTH, PHILLY, VENUS, VENUS_START

NOW = pd.Timestamp("2026-01-18 10:00", tz="UTC")
TIMES = "2026-03-01T08:00:00|2026-03-01T08:00:00|2026-03-01T10:00:00"


def by_user(jobs, **options):
    return usage_series(jobs, **options).groupby("unique_id")["y"].sum().round(3).to_dict()


def sacct(write, header, *rows):
    return read_jobs(write("\n".join([header, *rows]) + "\n"), "sacct", tz="UTC")


def listed(write, *tres):
    rows = [f"{i}|u1|COMPLETED|{TIMES}|{text}" for i, text in enumerate(tres)]
    return sacct(write, "JobID|User|State|Submit|Start|End|AllocTRES", *rows)


def full_cluster(slots=16, days=(1, 14), begin="2025-08-01", seed=0):
    """Jobs of 4 GPUs back to back in every slot, from before the log until after it."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(slots):
        time = pd.Timestamp(begin, tz="UTC") + pd.Timedelta(days=float(rng.uniform(0, days[1])))
        while time < NOW:
            end = time + pd.Timedelta(days=float(rng.uniform(*days)))
            rows.append((f"u{rng.integers(8)}", time, end))
            time = end
    jobs = pd.DataFrame(rows, columns=["user", "start", "end"]).assign(
        gpus=4.0, job_id=np.arange(len(rows)).astype(str)
    )
    jobs["status"] = jobs["end"].gt(NOW).map({True: "running", False: "completed"})
    return as_jobs(jobs.assign(end=jobs["end"].mask(jobs["end"] > NOW)), kind="measured", source="log")


def test_a_request_per_node_counts_for_each_node(write) -> None:
    row = "{}|{}|COMPLETED|2020-03-02T08:00:00|2020-03-02T09:00:00|2020-03-02T{}:00:00|{}|{}"
    rows = [
        ("101", "u1", 11, 2, "PER_NODE:gpu:4"),
        ("105", "u5", 10, 1, "PER_NODE:gpu:v100:4"),
        ("103", "u3", 10, 1, "gpu:1"),
    ]
    rows += [("106", "u6", 10, 3, "PER_JOB:gpu:2"), ("107", "u7", 10, 1, "PER_SOCKET:gpu:2")]
    with pytest.warns(RejectedRowsWarning, match="1 unreadable number of GPUs"):
        jobs = sacct(write, "JobID|User|State|Submit|Start|End|NNodes|ReqGRES", *(row.format(*each) for each in rows))
    assert by_user(jobs) == {"u1": 16, "u3": 1, "u5": 4, "u6": 2}
    assert jobs["gpu_type"].dropna().tolist() == ["v100"]


def test_accelerators_of_every_vendor_count(write) -> None:
    jobs = listed(write, "cpu=8,gres/dcu=4,mem=64G", "cpu=8,gres/npu=8,mem=64G", "gres/mlu:mlu370=2")
    assert jobs["gpus"].tolist() == [4, 8, 2]
    assert jobs["gpu_type"].tolist() == ["dcu", "npu", "mlu370"]


def test_a_resource_of_another_name_is_said_and_counts_when_told(write) -> None:
    with pytest.warns(UnlikelyJobsWarning, match="gres/accel did not count.*--gpu-share accel=1"):
        assert listed(write, "gres/gpu=1", "gres/accel=2,gres/craynetwork=1")["gpus"].tolist() == [1, 0]
    text = f"JobID|User|State|Submit|Start|End|AllocTRES\n1|u|COMPLETED|{TIMES}|gres/accel=2,gres/gpu:a100l.1=4\n"
    assert read_jobs(write(text), "sacct", tz="UTC", gpu_share={"accel": 1, "a100l.1": 1 / 8})["gpus"].tolist() == [2.5]


SLICES = f"JobID|User|State|Submit|Start|End|AllocTRES\n1|u|COMPLETED|{TIMES}|gres/gpu=2,gres/gpu:a100l.1=2\n"


@pytest.mark.parametrize(
    ("name", "hint"), [("a100l1", "Did you mean 'a100l.1'?"), ("v3-8", "It has 'a100l.1', 'gpu'.")]
)
def test_a_share_of_a_type_that_no_device_has_is_said(write, name: str, hint: str) -> None:
    with pytest.warns(UnlikelyJobsWarning, match=re.escape(f"names {name!r}, which no device of this log has. {hint}")):
        assert read_jobs(write(SLICES), "sacct", tz="UTC", gpu_share={name: 1 / 8})["gpus"].tolist() == [2]


def test_shares_that_count_are_not_said_to_be_unused(write) -> None:
    shares = {"A100L.1": Fraction(1, 8), "gpu": 1}
    jobs = read_jobs(write(SLICES), "sacct", tz="UTC", gpu_share=shares)
    assert (jobs["gpus"].tolist(), doubts(jobs.attrs)) == ([1 / 4], [])
    parts = SLICES.replace("gres/gpu=2,gres/gpu:a100l.1=2", "gres/shard=2,gres/mps=50")
    jobs = read_jobs(write(parts), "sacct", tz="UTC", gpu_share={"shard": 1 / 4, "mps": 1 / 200})
    assert (jobs["gpus"].tolist(), doubts(jobs.attrs)) == ([3 / 4], [])


@pytest.mark.parametrize("share", [["a100l.1"], 0.5, "a100l.1=1/8", {7: 1}, {"A100": 1, "a100": 0.5}])
def test_shares_by_no_name_of_a_type_are_refused(write, share: object) -> None:
    with pytest.raises(InputError, match=r"gpu_share (must map names of types to shares|has a type twice)"):
        read_jobs(write(SLICES), "sacct", tz="UTC", gpu_share=share)


@pytest.mark.parametrize("share", [-1, float("nan"), float("inf"), 1001, "1/8", None, True])
def test_a_share_that_is_none_is_refused_and_not_the_job(write, share: object) -> None:
    with pytest.raises(InputError, match=r"gpu_share\['a100l.1'\] must be a number of at least 0 and at most 1000"):
        read_jobs(write(SLICES), "sacct", tz="UTC", gpu_share={"a100l.1": share})


@pytest.mark.parametrize("shards", [0, -4, "four", {"n1": 0}])
def test_shards_of_no_size_are_refused(write, shards: object) -> None:
    with pytest.raises(InputError, match=r"shards_per_gpu.* must be a number above 0"):
        read_jobs(write(SLICES), "sacct", tz="UTC", shards_per_gpu=shards)


def test_names_of_slices_as_sites_write_them(write) -> None:
    types = ["nvidia_a100-sxm4-80gb_1g.10gb_me", "a100_mig_3g20", "1g.10gb.a100", "mig-1g-5gb", "a100_1g5gb"]
    jobs = listed(write, *(f"gres/gpu=1,gres/gpu:{name}=1" for name in types))
    assert jobs["gpus"].tolist() == pytest.approx([1 / 7, 1 / 2, 1 / 7, 1 / 7, 1 / 7])
    with pytest.warns(UnlikelyJobsWarning, match="'a100-mig' looks like a slice"):
        assert listed(write, "gres/gpu=1,gres/gpu:a100-mig=1")["gpus"].tolist() == [1]
    with pytest.warns(UnlikelyJobsWarning, match="'1g.24gb\\+new' looks like a slice"):
        assert listed(write, "gres/gpu:1g.24gb+new=1")["gpus"].tolist() == [1]
    path = write(f"JobID|User|State|Submit|Start|End|AllocTRES\n1|u|COMPLETED|{TIMES}|gres/gpu:a100-mig=1\n")
    jobs = read_jobs(path, "sacct", tz="UTC", gpu_share={"A100-MIG": 0.5})
    assert (jobs["gpus"].tolist(), doubts(jobs.attrs)) == ([0.5], [])


def test_a_dump_whose_slurm_records_no_gpus_says_so(write) -> None:
    with pytest.warns(UnlikelyJobsWarning, match="AccountingStorageTRES=gres/gpu"):
        jobs = listed(write, "billing=8,cpu=8,mem=64G,node=1")
    assert len(doubts(jobs.attrs)) == 1


def test_time_before_gpus_were_recorded_is_no_history() -> None:
    jobs = full_cluster()
    later = pd.Timestamp("2025-12-01", tz="UTC")
    jobs["gpus"] = jobs["gpus"].where(jobs["start"] >= later, 0.0)
    checked = plausible(jobs)
    assert "GPUs were not recorded before" in doubts(checked.attrs)[0]
    assert usage_series(checked, by=None)["ds"].min() == later
    # Queues without GPUs, which get some later, are others.
    jobs["partition"] = jobs["start"].ge(later).map({True: "gpu", False: "cpu"})
    assert not doubts(plausible(jobs).attrs)


def test_usage_of_a_store_begins_when_gpus_were_recorded(tmp_path) -> None:
    jobs = full_cluster()
    begin = jobs["start"][jobs["start"] >= pd.Timestamp("2025-12-01", tz="UTC")].min().floor("s")
    store = stored(jobs.assign(gpus=jobs["gpus"].where(jobs["start"] >= begin, 0.0)), tmp_path)
    with pytest.warns(UnlikelyJobsWarning, match="GPUs were not recorded before"):
        read = read_jobs(store)
    with pytest.warns(UnlikelyJobsWarning, match="GPUs were not recorded before"):
        usage = usage_series(store, by=None)
    assert read.attrs["complete_from"] == begin.isoformat()
    pd.testing.assert_frame_equal(usage, usage_series(read, by=None))


def test_a_record_that_was_never_closed_ends_at_its_limit() -> None:
    start = pd.date_range("2025-06-01", periods=800, freq="6h", tz="UTC")
    jobs = pd.DataFrame({"group": "a", "start": start, "end": start + pd.Timedelta("6h"), "gpus": 8.0})
    jobs = pd.concat([jobs, jobs[80:81].assign(group="b", end=pd.NaT, gpus=16.0)], ignore_index=True)
    jobs["end"] = pd.to_datetime(jobs["end"], utc=True)
    jobs["status"] = jobs["end"].isna().map({True: "running", False: "completed"})
    jobs = as_jobs(jobs.assign(requested_time=2880 * 60.0), kind="measured")
    checked = plausible(jobs)
    assert by_user(checked, by="group") == {"a": 800 * 6 * 8, "b": 768}
    assert "1 of 801 jobs is running far beyond the time limit" in doubts(checked.attrs)[0]
    assert not doubts(plausible(jobs.assign(requested_time=200 * 86400.0)).attrs)
    unlimited = plausible(jobs.assign(requested_time=np.nan))
    assert "perhaps a record that was never closed" in doubts(unlimited.attrs)[0]
    assert unlimited["end"].isna().sum() == 1


def test_an_end_that_is_planned_is_none(write) -> None:
    rows = ["2026-03-02 10:00Z,1,completed", "2099-12-31 23:59Z,1,running", "2026-03-02 09:00Z,1,running"]
    log = "job_id,start,end,gpus,status\n" + "".join(f"{n},2026-03-02 08:00Z,{row}\n" for n, row in enumerate(rows))
    with pytest.warns(UnlikelyJobsWarning, match="1 of 3 jobs runs and yet has an end after all else"):
        jobs = read_jobs(write(log))
    assert jobs["end"].isna().tolist() == [False, True, False]
    assert usage_series(jobs, by=None)["y"].sum() == 2 + 2 + 1


def test_a_log_of_ended_jobs_counts_until_others_are_missing() -> None:
    whole = full_cluster()
    ended = whole[whole["end"].notna()].reset_index(drop=True)
    ended.attrs = dict(whole.attrs)
    checked = plausible(ended)
    assert "it holds ended jobs only" in doubts(checked.attrs)[-1]
    until = end_of_record(checked)
    assert NOW - pd.Timedelta("15D") < until < NOW - pd.Timedelta("8D")
    held = usage_series(checked, by=None, freq="D", value="gpus", partial=False)["y"]
    assert held.tail(28).min() > 58  # of 64
    source = source_of(checked, Settings(), None)
    assert source.settings.until == until
    assert source.unlikely() == doubts(checked.attrs)
    assert not doubts(plausible(whole).attrs)


def test_a_log_of_what_ran_since_a_day_counts_from_then_on() -> None:
    whole = full_cluster(seed=3)
    since = pd.Timestamp("2025-10-01", tz="UTC")
    jobs = whole[whole["end"].isna() | (whole["end"] >= since)].reset_index(drop=True)
    jobs.attrs = dict(whole.attrs)
    checked = plausible(jobs)
    assert "no job of this log ended before 2025-10-01" in doubts(checked.attrs)[0]
    months = usage_series(checked, by=None, freq="MS", value="gpus")
    assert months["ds"].iloc[0] == since
    assert months["y"].iloc[0] == pytest.approx(64, abs=1)
    first = jobs["end"].min().floor("s")
    assert source_of(checked, Settings(), None).begin == first
    assert f"before {first:%Y-%m-%d %H:%M} UTC" in doubts(checked.attrs)[0]


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize("column", ["submit", "end"])
def test_a_part_of_a_log_covers_its_own_time_only(column, as_file, tmp_path) -> None:
    whole = full_cluster()
    attrs = {"complete_from": "2025-09-01T00:00:00+00:00", "complete_until": NOW.isoformat()}
    whole.attrs |= attrs
    cut = pd.Timestamp("2025-11-10", tz="UTC")
    part = whole[whole["submit"] >= cut if column == "submit" else whole["end"] < cut]
    assert part.attrs.items() >= attrs.items()
    write_jobs(part, tmp_path / "part.parquet")
    usage = usage_series(tmp_path / "part.parquet" if as_file else part, by=None, value="gpus")
    begin, end = ("2025-11-10", "2026-01-18") if column == "submit" else ("2025-09-01", "2025-11-09")
    assert usage["ds"].iloc[[0, -1]].dt.strftime("%Y-%m-%d").tolist() == [begin, end]
    source = source_of(part, Settings(), None)
    assert f"{source.begin:%Y-%m-%d}" == begin
    assert source.settings.end == (NOW if column == "submit" else part["submit"].max())


@pytest.mark.parametrize("as_file", [False, True])
def test_quiet_last_days_of_a_log_are_kept_where_a_job_runs_after_them(as_file, tmp_path) -> None:
    whole = full_cluster()
    jobs = whole[whole["end"].isna() | (whole["end"] < NOW - pd.Timedelta("20D"))]
    jobs.attrs["complete_until"] = NOW.isoformat()
    jobs = jobs.assign(gpus=jobs["gpus"].where(jobs["end"].notna(), 0.0))
    write_jobs(jobs, tmp_path / "jobs.parquet")
    usage = usage_series(tmp_path / "jobs.parquet" if as_file else jobs, by=None, value="gpus")
    assert usage.attrs["until"] == NOW.isoformat()
    assert usage["y"].tail(20).tolist() == [0.0] * 20


def part_of(whole: pd.DataFrame, part: str) -> pd.DataFrame:
    """What a log has that holds ended jobs only, or what ran since a day, with a record before it never closed."""
    since = pd.Timestamp("2025-10-01", tz="UTC")
    jobs = whole[whole["end"].notna() if part == "ended" else whole["end"].isna() | (whole["end"] >= since)]
    begin, end = since - pd.Timedelta("40D"), jobs["end"].tail(1).shift()
    never_closed = jobs.tail(1).assign(job_id="9999", submit=begin, start=begin, end=end, status="running")
    never_closed = never_closed.assign(requested_time=86400.0).astype(whole.dtypes)
    jobs = (jobs if part == "ended" else pd.concat([jobs, never_closed])).reset_index(drop=True)
    jobs.attrs = dict(whole.attrs)
    return jobs


def stored(jobs: pd.DataFrame, folder: Path) -> Path:
    """A store of jobs, as Slurm prints them."""
    times = jobs[["submit", "start", "end"]].apply(lambda t: t.dt.strftime("%Y-%m-%dT%H:%M:%S").fillna("Unknown"))
    limits = (jobs["requested_time"] / 60).map(lambda minutes: "" if pd.isna(minutes) else f"{minutes:.0f}")
    tres = jobs["gpus"].map("gres/gpu={:.0f}".format)
    cells = (jobs["job_id"], jobs["user"], jobs["status"].str.upper(), *(times[name] for name in times), limits, tres)
    lines = ["|".join([*row, "c"]) for row in zip(*cells, strict=True)]
    header = "JobIDRaw|User|State|Submit|Start|End|TimelimitRaw|AllocTRES|Cluster"
    (folder / "dump.psv").write_text("\n".join([header, *lines, ""]))
    pull_slurm(folder / "store", files=[folder / "dump.psv"], tz="UTC")
    return folder / "store"


@pytest.mark.filterwarnings("ignore::gpudemand.UnlikelyJobsWarning")
@pytest.mark.parametrize(("part", "place"), [("ended", "file"), ("since", "file"), ("since", "store")])
def test_usage_in_place_covers_the_time_that_reading_finds_complete(part, place, tmp_path) -> None:
    jobs = part_of(full_cluster(seed=3), part)
    if place == "store":
        source = stored(jobs, tmp_path)
    else:
        write_jobs(plausible(jobs), source := tmp_path / "jobs.parquet")
    read = read_jobs(source)
    expected = usage_series(read, by=None, value="gpus")
    assert len(expected) < len(usage_series(jobs, by=None))
    found = usage_series(source, by=None, value="gpus")
    assert found.attrs["until"] == expected.attrs["until"]
    covered = pd.Series(1.0, index=expected.index)
    if part == "since":
        covered[0] = (expected["ds"][1] - pd.Timestamp(read.attrs["complete_from"])) / pd.Timedelta("1D")
    # In a store, the record that was never closed goes on.
    excess = 4.0 * covered * (place == "store")
    assert found["y"].iloc[:-1].tolist() == pytest.approx((expected["y"] + excess).iloc[:-1].tolist())
    assert found["ds"].tolist() == expected["ds"].tolist()
    split_log(source, tmp_path / "parts", "total", "D", "gpus", until=None, tz=None, group=1)
    parts = open_parts(tmp_path / "parts").usage(np.array([0]))
    whole = usage_series(source, by=None, value="gpus", partial=False)
    assert parts.columns.tolist() == whole["ds"].tolist() == found["ds"].iloc[int(part == "since") : -1].tolist()
    assert parts.to_numpy()[0].tolist() == pytest.approx(whole["y"].tolist())


def test_usage_of_a_store_says_from_when_on_it_counts(tmp_path) -> None:
    store = stored(part_of(full_cluster(seed=3), "since"), tmp_path)
    with pytest.warns(UnlikelyJobsWarning, match="store: no job of this log ended before 2025-10-01"):
        usage_series(store)


def test_logs_of_ended_jobs_that_lack_none_are_silent() -> None:
    whole = full_cluster()
    closed = whole.assign(end=whole["end"].fillna(NOW), status="completed")
    begun = whole[whole["end"].notna() & (whole["start"] < NOW - pd.Timedelta("60D"))].reset_index(drop=True)
    for jobs in (closed, begun):
        assert not doubts(plausible(as_jobs(jobs, kind="measured")).attrs)


def test_a_log_that_one_job_spans_is_silent() -> None:
    begin = pd.date_range("2026-03-01", periods=60, freq="4s", tz="UTC")
    end = begin + pd.to_timedelta(np.where(np.arange(60), 1, 230), unit="s")
    jobs = as_jobs(pd.DataFrame({"start": begin, "end": end, "gpus": 1.0}), kind="measured")
    assert not doubts(plausible(jobs).attrs)


@pytest.mark.parametrize("seed", range(6))
def test_most_logs_of_ended_jobs_are_found(seed: int) -> None:
    ended = full_cluster(seed=seed).dropna(subset="end").reset_index(drop=True)
    assert "it holds ended jobs only" in doubts(plausible(as_jobs(ended, kind="measured")).attrs)[-1]


def test_a_cluster_that_is_new_is_no_log_of_survivors() -> None:
    jobs = full_cluster(begin="2025-09-01")
    assert not doubts(plausible(jobs).attrs)


@pytest.mark.filterwarnings("ignore::gpudemand._validation.RejectedRowsWarning")
def test_utilization_that_slurm_cannot_measure_is_unknown(write) -> None:
    times, zero = "2026-03-01T08:00:00|2026-03-01T08:00:00|2026-03-01T18:00:00|36000", "gres/gpumem=0,gres/gpuutil=0"
    rows = []
    for job, (tres, used) in enumerate(
        [
            ("gres/gpu:a100_1g.10gb=7,gres/gpu=7", zero),
            ("gres/gpu:mi210=2,gres/gpu=2", zero),
            ("gres/gpu:a100=1,gres/gpu=1", "gres/gpumem=40777023488,gres/gpuutil=90"),
            ("gres/gpu:a100=1,gres/gpu=1", zero),
        ],
        start=1,
    ):
        rows += [
            f"{job}|u{job}|COMPLETED|{times}|{tres}||",
            f"{job}.batch||COMPLETED|{times}|{tres}|1|cpu=00:56:24,{used}",
        ]
    with pytest.warns(UnlikelyJobsWarning, match="2 jobs on them count as not measured"):
        jobs = sacct(write, "JobID|User|State|Submit|Start|End|ElapsedRaw|AllocTRES|NTasks|TRESUsageInTot", *rows)
    table = idle_table(jobs, by="user", price=2.0).set_index("unique_id")
    assert table["measured"].to_dict() == {"u1": 0, "u2": 0, "u3": 10, "u4": 10}
    assert table["under_5"].to_dict() == {"u1": 0, "u2": 0, "u3": 0, "u4": 10}
    assert table.loc["u3", "utilization"] == pytest.approx(0.9)


def test_time_of_suspended_jobs_is_held_and_said(write) -> None:
    times = "2026-03-01T08:00:00|2026-03-01T08:00:00|2026-03-01T18:00:00|7200"
    header = "JobID|User|State|Submit|Start|End|ElapsedRaw|AllocTRES|Suspended"
    with pytest.warns(UnlikelyJobsWarning, match="16 of 20 GPU-hours were held by jobs while they were suspended"):
        jobs = sacct(write, header, f"1|u1|COMPLETED|{times}|gres/gpu=2|08:00:00")
    assert by_user(jobs) == {"u1": 20}


def test_doubts_are_kept_in_files(write, tmp_path) -> None:
    with pytest.warns(UnlikelyJobsWarning):
        jobs = listed(write, "gres/gpu=1", "gres/accel=2")
    jobs.to_parquet(tmp_path / "jobs.parquet")
    with pytest.warns(UnlikelyJobsWarning, match="gres/accel"):
        assert doubts(read_jobs(tmp_path / "jobs.parquet").attrs) == doubts(jobs.attrs)


def test_the_sample_is_silent() -> None:
    sample = load_jobs_sample()
    sample.attrs["kind"] = "measured"
    assert doubts(plausible(sample).attrs) == []


@pytest.mark.parametrize(
    ("log", "form", "says"),
    [
        # A public trace, which begins where it was cut: for 20 days none of 92 jobs ends.
        (PHILLY, "philly-pollux", {"tz": "UTC"}),
        (VENUS, "simulator", VENUS_START | {"kind": "measured"}),
        (KTH, "swf", {"kind": "measured"}),
        (ATLAS, "swf", {"kind": "measured"}),
    ],
)
def test_real_logs_are_silent(shared_data, log, form, says) -> None:
    jobs = read_jobs(shared_data / "traces" / log, form, **says)
    assert doubts(jobs.attrs) == []
