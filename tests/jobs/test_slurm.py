from __future__ import annotations

import gzip
import math
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpudemand as gd
from gpudemand import usage_series
from gpudemand._validation import InputError, RejectedRowsWarning, UnlikelyJobsWarning
from gpudemand.jobs import read_jobs, write_jobs
from gpudemand.jobs.slurm import GpuCount, count_tres, with_array_tasks
from gpudemand.jobs.table import as_jobs, as_of
from gpudemand.units import gpu_share, slice_shares
from gpudemand.usage.series import recorded_until

BERLIN = "Europe/Berlin"
HEADER = "JobID|User|State|Submit|Start|End|AllocTRES\n"
DONE = "COMPLETED|2024-05-01T08:00:00|2024-05-01T09:00:00|2024-05-01T10:00:00|gres/gpu=1\n"


@pytest.fixture
def jobs(fixtures: Path) -> pd.DataFrame:
    with pytest.warns(RejectedRowsWarning, match="1 of 7 rows left out \\(1 job step\\)"):
        return read_jobs(fixtures / "sacct.psv", "sacct", tz=BERLIN).set_index("job_id")


def test_steps_are_counted_and_are_no_bad_rows(fixtures: Path, jobs: pd.DataFrame) -> None:
    assert jobs.attrs["rejected"] == {"job step": 1}
    with pytest.warns(RejectedRowsWarning):
        assert len(read_jobs(fixtures / "sacct.psv", "sacct", tz=BERLIN, strict=True)) == 6 + 4


def test_typed_and_untyped_gpus_are_the_same_gpus(jobs: pd.DataFrame) -> None:
    assert jobs.loc["100", "gpus"] == 2
    assert jobs.loc["100", "gpu_type"] == "a100"
    assert jobs.loc["102_4", "gpus"] == 8
    assert jobs.loc["102_4", "gpu_type"] == "a100+h100"
    assert jobs.loc["103", "gpus"] == 0


def test_times_are_utc(jobs: pd.DataFrame) -> None:
    assert jobs.loc["100", "start"] == pd.Timestamp("2024-05-01 07:00", tz="UTC")


def test_a_job_cancelled_before_its_start_held_nothing(jobs: pd.DataFrame) -> None:
    job = jobs.loc["101"]
    assert job["status"] == "cancelled"
    assert job["start"] == job["end"] == pd.Timestamp("2024-05-01 06:30", tz="UTC")
    assert job["gpus"] == 4


def test_running_and_pending(jobs: pd.DataFrame) -> None:
    assert pd.isna(jobs.loc["102_4", "end"])
    assert jobs.loc["102_4", "status"] == "running"
    tasks = jobs.loc[[f"102_{task}" for task in range(5, 10)]]
    assert tasks[["start", "end"]].isna().all(axis=None)
    assert tasks["status"].eq("pending").all()
    assert jobs.loc[["103", "104"], "status"].tolist() == ["out_of_memory", "failed"]


def test_limits_and_use(jobs: pd.DataFrame) -> None:
    assert jobs.loc["100", "requested_time"] == 86_400
    assert math.isnan(jobs.loc["101", "requested_time"])
    assert jobs.loc["100", "used_gpu_seconds"] == 1.5 * 7200  # the sum over two GPUs
    assert math.isnan(jobs.loc["103", "used_gpu_seconds"])
    assert jobs.loc["100", ["group", "cluster", "partition", "qos"]].tolist() == ["vision", "alpha", "gpu", "normal"]


def test_a_missing_time_zone_is_an_error(fixtures: Path) -> None:
    with pytest.raises(InputError, match=r"no time zone; pass tz=.*local zone of the cluster"):
        read_jobs(fixtures / "sacct.psv", "sacct")


def test_epoch_seconds_need_no_zone(write) -> None:
    row = "1|ada|COMPLETED|1714550400|1714554000|1714557600|gres/gpu=1\n"
    jobs = read_jobs(write(HEADER + row), "sacct")
    assert jobs.loc[0, "start"] == pd.Timestamp("2024-05-01 09:00", tz="UTC")


def test_elapsed_time_replaces_start_or_end(write) -> None:
    times = "2024-05-01T08:00:00|2024-05-01T09:00:00|01:00:00"
    ends = write(f"JobID|State|Submit|End|Elapsed|AllocTRES\n1|COMPLETED|{times}|gres/gpu=1\n")
    starts = write(f"JobID|State|Submit|Start|Elapsed|AllocTRES\n1|COMPLETED|{times}|gres/gpu=1\n", "other")
    assert read_jobs(ends, "sacct", tz="UTC").loc[0, "start"] == pd.Timestamp("2024-05-01 08:00", tz="UTC")
    assert read_jobs(starts, "sacct", tz="UTC").loc[0, "end"] == pd.Timestamp("2024-05-01 10:00", tz="UTC")


def test_a_job_that_runs_does_so_until_its_dump_was_made(write, tmp_path) -> None:
    ended = "1|1|c|ada|COMPLETED|2026-02-01T08:00:00|2026-03-02T08:00:00|2026-03-02T10:00:00|7200|gres/gpu=1\n"
    runs = "2|2|c|bob|RUNNING|2026-03-02T08:00:00|2026-03-02T09:00:00|Unknown|864000|gres/gpu=8\n"
    dump = write("JobID|JobIDRaw|Cluster|User|State|Submit|Start|End|ElapsedRaw|AllocTRES\n" + ended + runs)
    gd.pull_slurm(tmp_path / "store", files=[dump], tz="UTC")
    write_jobs(read_jobs(dump, "sacct", tz="UTC"), tmp_path / "saved.parquet")
    files = ((dump, "sacct"), (tmp_path / "store", "canonical"), (tmp_path / "saved.parquet", "canonical"))
    for jobs in (read_jobs(file, form, tz="UTC") for file, form in files):
        assert usage_series(jobs, by=None)["y"].sum() == 2 + 8 * 240
        assert recorded_until(jobs) == pd.Timestamp("2026-03-12 09:00", tz="UTC")
        then = as_of(jobs, pd.Timestamp("2026-03-03", tz="UTC"))
        assert usage_series(then, by=None)["y"].sum() == 2 + 8 * 15
        assert recorded_until(then) <= pd.Timestamp("2026-03-03", tz="UTC")


def test_the_elapsed_time_says_which_of_two_hours_a_clock_means(write) -> None:
    rows = [("01:00", "02:30", 9000), ("02:15", "04:00", 6300), ("01:00", "02:30", 5400), ("01:00", "02:30", 77)]
    lines = [
        f"{n}|COMPLETED|2025-10-26T{start}:00|2025-10-26T{end}:00|{seconds}|gres/gpu=1\n"
        for n, (start, end, seconds) in enumerate(rows)
    ]
    path = write("JobID|State|Start|End|ElapsedRaw|AllocTRES\n" + "".join(lines))
    jobs = read_jobs(path, "sacct", tz=BERLIN)
    assert (jobs["end"] - jobs["start"]).dt.total_seconds().tolist() == [9000, 6300, 5400, 5400]


def test_of_two_hours_a_job_starts_in_that_after_its_submission(write) -> None:
    rows = ["COMPLETED|2025-10-26T02:10:00|2025-10-26T02:40:00|1800", "RUNNING|2025-10-26T02:10:00|Unknown|1800"]
    lines = [f"{n}|2025-10-26T02:50:00|{row}|gres/gpu=1\n" for n, row in enumerate(rows)]
    path = write("JobID|Submit|State|Start|End|ElapsedRaw|AllocTRES\n" + "".join(lines))
    jobs = read_jobs(path, "sacct", tz=BERLIN)
    assert jobs["start"].eq(pd.Timestamp("2025-10-26 01:10", tz="UTC")).all()
    assert jobs["end"].iloc[0] == pd.Timestamp("2025-10-26 01:40", tz="UTC")


def test_gpus_of_old_sites_count_a_node(write) -> None:
    log = "JobID|Submit|Start|End|AllocTRES|ReqGRES|NNodes\n1|0|1714550400|1714554000|cpu=4|gpu:v100:4|3\n"
    jobs = read_jobs(write(log.replace("|0|", "|1714550400|")), "sacct")
    assert jobs.loc[0, ["gpus", "gpu_type"]].tolist() == [12, "v100"]


def test_daily_dumps_glued_together(write) -> None:
    first = HEADER + "1|ada|RUNNING|2024-05-01T08:00:00|2024-05-01T09:00:00|Unknown|gres/gpu=1\n"
    second = HEADER + "1|ada|" + DONE
    with pytest.warns(RejectedRowsWarning):
        jobs = read_jobs(write(first + second), "sacct", tz="UTC", strict=True)
    assert jobs["status"].tolist() == ["completed"]
    assert jobs.attrs["rejected"] == {"repeated header": 1, "replaced by a later record": 1}


def test_dumps_with_other_columns_are_not_read_as_if_they_had_the_first(write) -> None:
    header = "JobID|State|User|Submit|Start|End|AllocTRES\n"
    log = HEADER + "1|ada|" + DONE + header + "2|COMPLETED|bob|" + DONE.partition("|")[2]
    with pytest.raises(InputError, match=r"line 3 .* is a header with other columns"):
        read_jobs(write(log), "sacct", tz="UTC")
    log = "job_id,user,group,start,end,gpus\n1,ada,ml,2024-05-01,2024-05-02,1\njob_id,group,user,start,end,gpus\n"
    with pytest.raises(InputError, match=r"line 3 .* is a header with other columns"):
        read_jobs(write(log), tz="UTC")


def test_a_trailing_separator_is_harmless(write) -> None:
    log = HEADER.replace("\n", "|\n") + ("1|ada|" + DONE).replace("\n", "|\n")
    assert read_jobs(write(log), "sacct", tz="UTC").loc[0, "gpus"] == 1


def test_aligned_dumps_are_named(write) -> None:
    log = "JobID             User      State\n------------ --------- ----------\n1  ada  COMPLETED\n"
    with pytest.raises(InputError, match=r"aligned with spaces.*-P"):
        read_jobs(write(log), "sacct")


@pytest.mark.parametrize("tres", ["gres/gpu=two", "gres/gpu=", "gres/gpu:a100=-1", "gres/gpu=1.5.2"])
def test_an_unreadable_count_refuses_the_row(write, tres: str) -> None:
    log = HEADER + "1|ada|" + DONE + "2|ada|" + DONE.replace("gres/gpu=1", tres)
    with pytest.warns(RejectedRowsWarning, match="unreadable number of GPUs"):
        jobs = read_jobs(write(log), "sacct", tz="UTC")
    assert jobs["job_id"].tolist() == ["1"]


names = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789_.-", min_size=1).filter(
    lambda name: not name.isdecimal()
)
noise = st.lists(st.sampled_from(["cpu=8", "mem=64G", "billing=3", "gres/gpumem=80G", "gres/gpuutil=3", "node=2"]))


@given(st.dictionaries(names, st.integers(1, 10_000), max_size=4), noise, st.randoms(use_true_random=False))
def test_tres_counts_every_gpu_once(types: dict[str, int], others: list[str], random) -> None:
    typed = [f"gres/gpu:{name}={count}" for name, count in types.items()]
    both = [*typed, *others, f"gres/gpu={sum(types.values())}"]
    random.shuffle(both)
    total = float(sum(types.values()))
    expected = GpuCount(total, "+".join(sorted(types)) or None, devices=total)
    assert count_tres(",".join(both)) == expected
    assert count_tres(",".join(typed + others)) == expected


@given(st.text())
def test_tres_never_raises_and_never_goes_below_zero(text: str) -> None:
    gpus = count_tres(text).gpus
    assert math.isnan(gpus) or gpus >= 0


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("gpu:2", (2, None)),
        ("gpu:a100:2(IDX:0,1)", (2, "a100")),
        ("gpu", (1, None)),
        ("gpu:tesla", (1, "tesla")),
        ("gres/gpu:v100=1,gres/gpu:a100=2", (3, "a100+v100")),
        ("cpu=4", (0, None)),
    ],
)
def test_gres(gres: str, expected: tuple[float, str | None]) -> None:
    assert count_tres(gres) == GpuCount(*expected, devices=expected[0])


def test_a_number_that_cannot_be_read_is_not_taken_for_another() -> None:
    assert math.isnan(count_tres("gres/gpu=two").gpus)


@pytest.fixture
def lab(fixtures: Path) -> pd.DataFrame:
    """What sacct printed of a real cluster, free text included."""
    return read_jobs(fixtures / "sacct_names.psv", "sacct", tz="UTC", shards_per_gpu=4)


def test_free_text_breaks_no_row(lab: pd.DataFrame) -> None:
    assert lab.attrs["rejected"] == {}
    assert len(lab) == 81
    broken = lab.set_index("job_id").loc[["63", "66", "70"]]
    assert broken["user"].tolist() == ["u1", "u4", "u2"]
    assert broken[["gpus", "devices"]].eq(1).all().all()


def test_gpu_seconds_are_sreports_but_for_a_resized_job(lab: pd.DataFrame) -> None:
    held = (lab["end"] - lab["start"]).dt.total_seconds() * lab["devices"]
    sreport = {"u1": 832 + 7, "u2": 148, "u3": 701, "u4": 401, "u5": 324, "u6": 639}
    assert held.groupby(lab["user"]).sum().to_dict() == sreport | {"u3": 701 - 14}


def test_a_user_who_requeues_preempts_nobody(lab: pd.DataFrame) -> None:
    assert lab.loc[lab["job_id"] == "4", "status"].tolist() == ["requeued", "completed"]
    assert lab.loc[lab["job_id"] == "8", "status"].tolist() == ["resized", "completed"]


def test_shards_without_their_size_are_left_out_and_counted(fixtures: Path) -> None:
    with pytest.warns(RejectedRowsWarning, match=r"2 shards of unknown size \(pass shards_per_gpu\)"):
        assert len(read_jobs(fixtures / "sacct_names.psv", "sacct", tz="UTC")) == 79


def test_shards_may_differ_by_node(fixtures: Path) -> None:
    jobs = read_jobs(fixtures / "sacct_names.psv", "sacct", tz="UTC", shards_per_gpu={"n4": 8.0, "n9": 2.0})
    assert jobs.set_index("job_id").loc[["37", "38"], "gpus"].tolist() == [1 / 8, 4 / 8]


@pytest.mark.parametrize(
    ("name", "fields"),
    [("a|b|c", "a|b|c"), ("two\nlines", "two\nlines"), ("|", "|"), ("\n", "\n"), ("COMPLETED|7", "COMPLETED|7")],
)
def test_any_name_can_be_read_around(write, name: str, fields: str) -> None:
    head = "JobID|JobName|User|State|Submit|Start|End|AllocTRES|Comment\n"
    rows = "".join(f"{k}|{text}|ada|{DONE[:-1]}|{text}\n" for k, text in ((1, "x"), (2, fields), (3, "y")))
    jobs = read_jobs(write(head + rows), "sacct", tz="UTC")
    assert jobs["job_id"].tolist() == ["1", "2", "3"]
    assert jobs["user"].eq("ada").all()


def test_a_row_that_was_cut_off_is_refused(write) -> None:
    head = "JobID|JobName|User|State|Submit|Start|End|AllocTRES\n"
    with pytest.warns(RejectedRowsWarning, match="1 with a wrong number of fields"):
        jobs = read_jobs(write(f"{head}1|x|ada|COMPLETED|2024\n2|x|ada|{DONE}"), "sacct", tz="UTC")
    assert jobs["job_id"].tolist() == ["2"]


def test_use_of_steps_belongs_to_their_run(write) -> None:
    head = "JobID|User|State|Submit|Start|End|ElapsedRaw|AllocTRES|NTasks|TRESUsageInAve|TRESUsageInTot\n"
    first = "2024-05-01T08:00:00|2024-05-01T08:00:00|2024-05-01T09:00:00|3600|gres/gpu=2"
    second = "2024-05-01T09:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00|3600|gres/gpu=2"
    rows = [
        f"7|ada|REQUEUED|{first}|||",
        f"7.batch||CANCELLED|{first}|1||gres/gpuutil=20",
        f"7|ada|COMPLETED|{second}|||",
        f"7.batch||COMPLETED|{second}|1||gres/gpuutil=0",
        f"7.0||COMPLETED|{second.replace('3600', '1800')}|2|gres/gpuutil=90|",
        f"8|bob|COMPLETED|{first}|||",
        f"8.batch||COMPLETED|{first}|1||gres/gpuutil=18446744073709551614",
        f"9|eve|COMPLETED|{first}|||",
        f"9.batch||COMPLETED|{first}|1||gres/gpuutil=900",
    ]
    with pytest.warns(RejectedRowsWarning, match="5 job step"):
        jobs = read_jobs(write(head + "\n".join(rows) + "\n"), "sacct", tz="UTC")
    used = jobs["used_gpu_seconds"]
    assert used[:2].tolist() == [0.2 * 3600, 0.9 * 2 * 1800]
    assert math.isnan(used[2])
    assert used[3] == 2 * 3600, "no more than was held"


def test_a_requeued_job_that_waits_again_is_not_superseded(write) -> None:
    again = "1|ada|PENDING|2024-05-01T10:00:00|Unknown|Unknown|gres/gpu=1\n"
    jobs = read_jobs(write(HEADER + "1|ada|" + DONE.replace("COMPLETED", "REQUEUED") + again), "sacct", tz="UTC")
    assert jobs["status"].tolist() == ["requeued", "pending"]


def test_the_documented_fields_are_named(write) -> None:
    text = "JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n1|a|gpu|ml|1|COMPLETED|0:0\n"
    with pytest.raises(InputError, match=r"lacks .*Print them with sacct -a -D -P -o JobIDRaw,JobID"):
        read_jobs(write(text), "sacct", tz="UTC")


@pytest.mark.parametrize(
    ("name", "compute", "memory", "share"),
    [
        ("a100_1g.5gb", (1, 7), (1, 8), (1, 7)),
        ("3g.71gb", (3, 7), (1, 2), (1, 2)),
        ("nvidia_com_mig_1g_6gb", (1, 4), (1, 4), (1, 4)),
        ("4g.40gb", (4, 7), (1, 2), (4, 7)),
        ("7g.80gb", (1, 1), (1, 1), (1, 1)),
        ("5g.999gb", (5, 7), (5, 7), (5, 7)),
        ("rtx_pro_6000_blackwell_1g.24gb+gfx", (1, 7), (1, 4), (1, 4)),
        ("2g.48gb+gfx", (1, 2), (1, 2), (1, 2)),
        ("4g.96gb+gfx", (1, 1), (1, 1), (1, 1)),
        ("1g.24gb+me.all", (1, 7), (1, 4), (1, 4)),
    ],
)
def test_slices(name: str, compute: tuple[int, int], memory: tuple[int, int], share: tuple[int, int]) -> None:
    assert slice_shares(name) == (Fraction(*compute), Fraction(*memory))
    assert gpu_share(name) == Fraction(*share)


@pytest.mark.parametrize(
    ("tres", "gpus", "devices"), [("gres/mps=50", 0.5, 0), ("gres/gpu:1g.10gb=7,gres/gpu=7", 1, 7)]
)
def test_parts_of_gpus(tres: str, gpus: float, devices: float) -> None:
    found = count_tres(tres)
    assert (found.gpus, found.devices) == (gpus, devices)


@pytest.mark.parametrize(
    ("job_id", "tasks"),
    [
        ("7_[3-5%2]", ["7_3", "7_4", "7_5"]),
        ("7_[1,4-8:4]", ["7_1", "7_4", "7_8"]),
        ("7_[4-5:0]", ["7_4", "7_5"]),
        *((name, [name]) for name in ("7_[1,3,...]", "7_[5-4]", "7_[0-999999999]")),
    ],
)
def test_each_task_of_a_pending_array_counts(job_id: str, tasks: list[str]) -> None:
    submit = pd.to_datetime(["2026-01-01", "2026-01-02"], utc=True)
    jobs = as_jobs(
        pd.DataFrame({"job_id": ["6", job_id], "user": "ada", "submit": submit, "gpus": 2.0}), kind="measured"
    )
    found = with_array_tasks(jobs)
    assert found["job_id"].tolist() == ["6", *tasks]
    assert found["gpus"].sum() == 2 * (1 + len(tasks))
    assert found.dtypes.equals(jobs.dtypes)


def test_tasks_of_an_array_wait_no_more_once_they_start(write) -> None:
    waits = "|ada|PENDING|2024-05-01T08:00:00|Unknown|Unknown|gres/gpu=4\n"
    dumps = f"{HEADER}7_[1-4]{waits}{HEADER}7_1|ada|{DONE}7_[2-3]{waits}7_4|ada|{DONE}7_2|ada|{DONE}7_3|ada|{DONE}"
    with pytest.warns(RejectedRowsWarning):
        jobs = read_jobs(write(dumps), "sacct", tz="UTC")
    assert sorted(jobs["job_id"]) == ["7_1", "7_2", "7_3", "7_4"]
    assert set(jobs["status"]) == {"completed"}
    assert jobs.attrs["rejected"] == {"repeated header": 1, "replaced by a later record": 2}
    jobs = read_jobs(write(f"{HEADER}7_[1-4]{waits}7_[2-3]{waits}7_1|ada|{DONE}"), "sacct", tz="UTC")
    assert jobs["job_id"].value_counts().to_dict() == {"7_1": 1, "7_2": 1, "7_3": 1, "7_4": 1}


def test_a_list_of_tasks_that_slurm_cut_short_is_no_job_step(tmp_path) -> None:
    rows = ["7_[1,3,...%2]|ada|PENDING|2026-01-01T00:00:00|Unknown|Unknown||gres/gpu=2"]
    rows += ["6.batch|ada|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00|gres/gpu=2|"]
    (tmp_path / "jobs.psv").write_text("\n".join(["JobID|User|State|Submit|Start|End|AllocTRES|ReqTRES", *rows, ""]))
    with pytest.warns(RejectedRowsWarning, match="1 of 2 rows left out"):
        jobs = read_jobs(tmp_path / "jobs.psv", format="sacct", tz="UTC")
    assert jobs["job_id"].tolist() == ["7_[1,3,...%2]"]
    assert jobs.attrs["rejected"] == {"job step": 1}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1|u|COMPLETED|{d}09:30:00|{d}08:00:00|{d}10:00:00|gres/gpu=2", "1 job started before the submission .job 1"),
        ("1_[1-9%4]|u|PENDING|{d}09:30:00|Unknown|Unknown|gres/gpu=2", "1 array waits of which its user lets few"),
        ("1_a%b|u|PENDING|{d}09:30:00|Unknown|Unknown|gres/gpu=2", ""),
        ("1_[1-9%20]|u|PENDING|{d}09:30:00|Unknown|Unknown|gres/gpu=2", ""),
        ("1|u|COMPLETED|{d}08:00:00|{d}08:00:00|{d}10:00:00|gres/gpu:mi300x_cpx=8", "mi300x_cpx=1/8"),
        ("1|u|COMPLETED|{d}08:00:00|{d}08:00:00|{d}10:00:00|gres/gpu:rtx_apex=8", ""),
    ],
)
def test_what_a_row_leaves_open_is_said(write, row: str, said: str) -> None:
    day = "2026-03-02T"
    whole = f"0|u|COMPLETED|{day}08:00:00|{day}08:00:00|{day}10:00:00|gres/gpu=2\n"
    log = "JobID|User|State|Submit|Start|End|ReqTRES\n" + whole + row.format(d=day) + "\n"
    with pytest.warns(UnlikelyJobsWarning, match=said) if said else nullcontext():
        read_jobs(write(log), "sacct", tz="UTC")


@pytest.mark.parametrize("packed", [False, True])
def test_a_last_line_that_may_be_cut_off_is_said(tmp_path, packed: bool) -> None:
    row = "{}|u|COMPLETED|2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T10:00:00|gres/gpu=16\n"
    whole = "JobID|User|State|Submit|Start|End|AllocTRES\n" + row.format(1) + row.format(2)
    path = tmp_path / "log.psv"
    path.write_bytes(gzip.compress(whole.encode()) if packed else whole.encode())
    assert read_jobs(path, "sacct", tz="UTC")["gpus"].tolist() == [16, 16]
    cut = path.read_bytes()[:-2]
    path.write_bytes(cut)
    if packed:
        with pytest.raises(InputError, match="cut off or damaged"):
            read_jobs(path, "sacct", tz="UTC")
        return
    with pytest.warns(UnlikelyJobsWarning, match="its last field may be cut off"):
        jobs = read_jobs(path, "sacct", tz="UTC")
    assert jobs["gpus"].tolist() == [16, 1]
    assert "copy the file again" in jobs.attrs["doubts"][0]


def test_a_stopped_job_of_slurm_keeps_what_it_holds(write) -> None:
    log = "JobID|User|State|Submit|Start|End|AllocTRES\n1|u|STOPPED|{d}08:00:00|{d}08:00:00|Unknown|gres/gpu=2\n"
    assert read_jobs(write(log.format(d="2026-03-02T")), "sacct", tz="UTC")["status"].tolist() == ["running"]
