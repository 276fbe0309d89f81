"""Pulls from Slurm's accounting, against the answers of a real cluster's commands."""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading

import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from gpudemand._validation import InputError
from gpudemand.cli.app import app
from gpudemand.jobs import read_jobs
from gpudemand.pull import slurm
from gpudemand.pull.slurm import known_fields
from gpudemand.usage.series import usage_series
from tests.faults import count_steps, interrupted_at, kill, needs_fork
from tests.pull.conftest import HERE, HISTORY, stored

LAST = "2026-11-22 19:20"
#: While jobs wait, run, are resized, preempted, cancelled and queued again.
TIMES = ("19:02:25", "19:02:38", "19:03:05", "19:03:45", "19:05:00", "19:09:00")


def history():
    names, *lines = (line.split("|") for line in HISTORY.read_text().splitlines())
    rows = pd.DataFrame(lines, columns=names)
    return rows[~rows["JobID"].str.contains(".", regex=False)].reset_index(drop=True)


def raw_gpu_seconds():
    """GPU-seconds by user and account, from the records themselves: what Slurm calls gres/gpu, from start to end."""
    rows = history()
    rows = rows[rows["Start"].str.isdecimal() & rows["End"].str.isdecimal()]
    gpus = rows["AllocTRES"].str.extract(r"gres/gpu=(\d+)")[0].astype(float).fillna(0)
    # A part of a resized job has the start of the whole, and was submitted when the part began.
    start = rows[["Start", "Submit"]].astype(int).max(axis=1)
    return (gpus * (rows["End"].astype(int) - start)).groupby([rows["User"], rows["Account"]]).sum()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One pull from nothing, after all has ended."""
    with pytest.MonkeyPatch.context() as patch:
        from tests.pull.conftest import Cluster

        bin_ = tmp_path_factory.mktemp("bin")
        patch.setenv("PATH", str(bin_), prepend=os.pathsep)
        store = tmp_path_factory.mktemp("store")
        Cluster(bin_, patch, as_processes=True).pull(store, LAST)
        return stored(store)


def test_gpu_seconds_are_those_of_the_records(whole):
    held = (whole["end"] - whole["start"]).dt.total_seconds() * whole["devices"]
    found = held.groupby([whole["user"], whole["group"]]).sum()
    pd.testing.assert_series_equal(found, raw_gpu_seconds().astype(float), check_names=False, check_index_type=False)
    assert found.sum() == 3000


def test_days_add_up_to_the_records(whole):
    days = usage_series(whole.assign(gpus=whole["devices"]), by="group/user", freq="D")
    days = days[days["y"] > 0].set_index("unique_id")["y"] * 3600
    for (user, account), seconds in raw_gpu_seconds().items():
        assert days[f"{account}/{user}"] == pytest.approx(seconds, abs=1e-6)


def test_parts_of_gpus_are_shares(whole):
    jobs = whole.set_index("job_id")
    assert jobs.loc["37", ["gpus", "gpu_type", "devices"]].tolist() == [0.25, "shard", 0]
    assert jobs.loc["40", "gpus"] == pytest.approx(3 / 7)
    assert jobs.loc["33", ["gpus", "gpu_type", "devices"]].tolist() == [8, "1g.10gb+a100", 14]


def test_requeued_resized_and_preempted_runs(whole):
    runs = whole.groupby("job_id")["status"].agg(list)
    assert runs["1"] == ["preempted", "completed"]
    assert runs["4"] == ["requeued", "completed"]
    assert runs["8"] == ["resized", "completed"]
    assert runs["73"] == ["failed", "completed"]
    parts = whole[whole["job_id"] == "8"]
    assert parts["end"].iloc[0] == parts["start"].iloc[1]
    assert parts["gpus"].tolist() == [2, 1]


def test_held_and_cancelled_jobs_are_there(whole):
    status = whole.set_index("job_id")["status"]
    assert status[["48_10", "48_29", "58", "59", "62"]].eq("pending").all()
    assert status[["49_6", "55", "56", "57"]].tolist() == ["cancelled", "cancelled", "cancelled", "timeout"]


@pytest.mark.slow
def test_many_pulls_equal_one(cluster, tmp_path, whole):
    store = tmp_path / "store"
    for time in TIMES:
        cluster.pull(store, f"2026-11-22 {time}")
    assert stored(store)["status"].eq("pending").any()
    done = cluster.pull(store, LAST)
    assert done.new < len(whole)
    pd.testing.assert_frame_equal(stored(store), whole)


@pytest.mark.slow
def test_preemption_between_pulls(cluster, tmp_path):
    log, store = HERE / "fixtures" / "sacct_preempted.psv", tmp_path / "store"
    seen = []
    # Both victims run; one is put into the queue again, and preempted again; all have ended.
    for time in ("17:25:49", "17:25:55", "17:28:00", "17:28:03", "17:31:14"):
        cluster.at(f"2026-11-23 {time}", log)
        cluster.pull(store)
        seen.append(stored(store).groupby("job_id")["status"].agg(list).reindex(["3", "4"]).tolist())
    assert seen == [
        [["running"], ["running"]],
        [["preempted", "pending"], ["preempted"]],
        [["preempted", "running"], ["preempted"]],
        [["preempted", "preempted", "pending"], ["preempted"]],
        [["preempted", "preempted", "completed"], ["preempted"]],
    ]
    cluster.pull(tmp_path / "one")
    jobs = stored(store)
    pd.testing.assert_frame_equal(jobs, stored(tmp_path / "one"))
    held = (jobs["end"] - jobs["start"]).dt.total_seconds() * jobs["gpus"]
    assert held.groupby(jobs["user"]).sum().to_dict() == {"u3": 304, "u4": 56, "u6": 160}


def test_a_second_pull_changes_no_file(cluster, tmp_path):
    store = tmp_path / "store"
    cluster.pull(store, LAST)
    before = list(store.glob("jobs/*"))
    assert cluster.pull(store).new == 0
    assert list(store.glob("jobs/*")) == before


@pytest.mark.slow
def test_a_job_over_months_is_read_until_it_ends(cluster, tmp_path):
    header, row = HISTORY.read_text().splitlines()[:2]
    month = 30 * 86400
    old = row.split("|")
    old[header.split("|").index("End")] = str(int(old[5]) + 3 * month)
    old[header.split("|").index("TimelimitRaw")] = str(4 * month // 60)  # beyond it, the record was never closed
    log = tmp_path / "history"
    log.write_text(f"{header}\n{'|'.join(old)}\n")
    for months in (0, 2, 4):
        cluster.at(pd.Timestamp(int(old[5]) + months * month + 60, unit="s", tz="UTC"), log)
        cluster.pull(tmp_path / "store")
        assert stored(tmp_path / "store")["status"].tolist() == ["preempted" if months == 4 else "running"]


@pytest.mark.slow
def test_a_run_that_slurm_forgot_does_not_run_for_ever(cluster, tmp_path):
    store = tmp_path / "store"
    cluster.pull(store, f"2026-11-22 {TIMES[2]}")
    jobs = stored(store)
    still_open = jobs["status"].isin(["running", "pending"])
    ended = {(key, f"{at.timestamp():.0f}") for key, at in jobs.loc[~still_open, ["job_id_raw", "submit"]].values}
    header, *rows = HISTORY.read_text().splitlines(keepends=True)
    purged = tmp_path / "purged"
    purged.write_text(header + "".join(row for row in rows if tuple(row.split("|")[:6:5]) in ended))
    cluster.at(LAST, purged)
    owners = jobs[["group", "user"]].apply(tuple, axis=1)
    shown = owners.isin(set(owners[~still_open]))
    assert 0 < (still_open & shown).sum() < still_open.sum()
    done = cluster.pull(store)
    assert done.gone == jobs.loc[still_open & shown, "job_id_raw"].nunique()  # a pending array is one row of the store
    # Of owners of whom Slurm shows nothing, it may not be allowed to.
    assert stored(store)["status"].isin(["running", "pending"]).sum() == (still_open & ~shown).sum()
    assert set(done.hidden["lab"]) == set(jobs["user"][still_open & ~shown])


def test_an_empty_answer_deletes_nothing(cluster, tmp_path):
    store = tmp_path / "store"
    cluster.pull(store, f"2026-11-22 {TIMES[2]}")
    before = stored(store)
    empty = tmp_path / "empty"
    empty.write_text("".join(HISTORY.read_text().splitlines(keepends=True)[:1]))
    cluster.at(LAST, empty)
    assert cluster.pull(store).gone == 0
    pd.testing.assert_frame_equal(stored(store), before)


def test_an_end_that_was_recorded_late_is_read(cluster, tmp_path):
    header, row = HISTORY.read_text().splitlines()[:2]
    fields = row.split("|")
    start, week = int(fields[6]), 7 * 86400
    for name, end in (("early", "Unknown"), ("late", str(start + 60))):
        (tmp_path / name).write_text(f"{header}\n{'|'.join([*fields[:7], end, *fields[8:]])}\n")
    for name, weeks in (("early", 1), ("late", 2)):
        cluster.at(pd.Timestamp(start + weeks * week, unit="s", tz="UTC"), tmp_path / name)
        assert cluster.pull(tmp_path / "store").gone == 0
    assert (stored(tmp_path / "store")["end"] - stored(tmp_path / "store")["start"]).tolist() == [pd.Timedelta("60s")]


@pytest.mark.slow
@needs_fork
def test_killed_anywhere_it_goes_on(cluster, tmp_path, whole):
    store, since = tmp_path / "at" / "store", "2026-09-01"
    store.parent.mkdir()
    cluster.pull(store, f"2026-11-22 {TIMES[2]}", since=since)
    cluster.at(LAST)
    before = stored(store)
    steps = count_steps(lambda: cluster.pull(tmp_path / "at" / "other", since=since), store.parent)
    found = set()
    for step in random.Random(0).sample(range(1, steps), 6):
        interrupted_at(lambda: cluster.pull(store, since=since), store.parent, step, kill)
        state = stored(store)
        found.add(len(state))
        assert len(before) <= len(state) <= len(whole)
    cluster.pull(store, since=since)
    pd.testing.assert_frame_equal(stored(store), whole)
    assert len(list(store.glob("jobs/*"))) == 1


@pytest.mark.slow
@needs_fork
def test_killed_again_and_again_from_nothing(cluster, tmp_path, whole):
    store = tmp_path / "at" / "store"
    store.parent.mkdir()
    cluster.at(LAST)
    steps = count_steps(lambda: cluster.pull(tmp_path / "at" / "other"), store.parent)
    for step in random.Random(1).sample(range(1, steps + 1), 6):
        interrupted_at(lambda: cluster.pull(store), store.parent, step, kill)
    cluster.pull(store)
    pd.testing.assert_frame_equal(stored(store), whole)


@pytest.mark.slow
def test_two_at_once(cluster, tmp_path, whole):
    store, failed = tmp_path / "store", []
    cluster.as_processes = True
    cluster.at(LAST)

    def work():
        try:
            cluster.pull(store)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    pd.testing.assert_frame_equal(stored(store), whole)


def test_commands_for_a_colleague(cluster, tmp_path, whole):
    cluster.at(LAST)
    store, runner = tmp_path / "store", CliRunner()
    run = runner.invoke(app, ["pull", "slurm", "--into", str(store), "--since", "2026-10-15", "--command-only"])
    *commands, again = run.stdout.splitlines()
    assert len(commands) == 3
    for command in commands:
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    os.chdir(tmp_path)
    result = runner.invoke(app, [*again.split()[1:], "--shards-per-gpu", "4", "--quiet"])
    assert result.exit_code == 0, result.stderr
    assert list(read_jobs(store).attrs["installed_by_cluster"]["lab"]) == ["1g.10gb", "a100", "h100"]
    never_eligible = whole["status"].eq("pending")
    pd.testing.assert_frame_equal(stored(store), whole[~never_eligible].reset_index(drop=True))


def test_an_older_file_does_not_open_a_run_again(cluster, tmp_path, whole):
    fields = known_fields() if cluster.at(LAST) is None else ()
    window = slurm.ended_or_open(pd.Timestamp("2026-11-01", tz="UTC"), pd.Timestamp("2026-11-23", tz="UTC"))
    for name, time in (("new", LAST), ("old", f"2026-11-22 {TIMES[3]}")):
        cluster.at(time)
        slurm.call(slurm.sacct_command(fields, window), tmp_path / name)
    slurm.pull_slurm(tmp_path / "store", files=[tmp_path / "new", tmp_path / "old"], shards_per_gpu=4)
    assert not stored(tmp_path / "store")["status"].eq("running").any()


def test_what_is_printed(cluster, tmp_path):
    bad = tmp_path / "bad"
    rows = HISTORY.read_text().splitlines()
    bad.write_text(
        "\n".join([*rows, rows[1].replace("1|1|", "900|900|", 1).replace("gres/gpu=4", "gres/gpu=x")]) + "\n"
    )
    cluster.at(LAST, bad)
    result = CliRunner().invoke(
        app, ["pull", "slurm", "--into", str(tmp_path / "store"), "--since", "2026-11-01", "--quiet"]
    )
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0] == "read 88 runs, 87 of them new; 0 open ones are no longer in Slurm"
    assert result.stdout.splitlines()[1] == "refused: 1 unreadable number of GPUs"
    assert "87 runs of 83 jobs of 6 users on lab" in result.stdout
    assert read_jobs(tmp_path / "store").attrs["rejected"] == {"unreadable number of GPUs": 1}
    cluster.pull(tmp_path / "store")
    assert read_jobs(tmp_path / "store").attrs["rejected"] == {"unreadable number of GPUs": 1}
    cluster.pull(tmp_path / "store", LAST)
    assert json.loads((tmp_path / "store" / "store.json").read_text())["history"][0]["refused"]


def test_other_tools_read_the_store(cluster, tmp_path):
    cluster.pull(tmp_path / "store", LAST)
    table = pq.read_table(next((tmp_path / "store" / "jobs").glob("2026-11.*.parquet")), partitioning=None)
    assert str(table.schema.field("submit").type) == "timestamp[us, tz=UTC]"
    assert table.num_rows == 87
    held = usage_series(tmp_path / "store", by="group", freq="D")
    pd.testing.assert_frame_equal(held, usage_series(stored(tmp_path / "store"), by="group", freq="D"))


def test_a_damaged_store_is_refused(cluster, tmp_path):
    store = tmp_path / "store"
    cluster.pull(store, LAST)
    part = next(store.glob("jobs/*"))
    part.write_bytes(part.read_bytes()[:-20] + b"x" * 20)
    for use in (read_jobs, usage_series, lambda place: cluster.pull(place)):
        with pytest.raises(InputError, match=r"jobs/2026-11.* is damaged or was edited"):
            use(store)


def test_a_folder_with_other_things_is_no_store(cluster, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"and no store; name an empty or a new folder"):
        cluster.pull(tmp_path, LAST)


def printed(path, name="sacct.psv"):
    """What sacct prints where times have no zone."""
    rows = ["JobIDRaw|JobID|Cluster|User|Account|Submit|Start|End|State|ReqTRES|AllocTRES"]
    for number in range(20):
        begin = pd.Timestamp("2026-03-25") + number * pd.Timedelta("11h")
        times = "|".join(f"{time:%Y-%m-%dT%H:%M:%S}" for time in (begin, begin, begin + pd.Timedelta("3h")))
        rows.append(f"{number}|{number}|lab|ada|a|{times}|COMPLETED||gres/gpu=4")
    (path / name).write_text("\n".join([*rows, ""]))
    return path / name


@pytest.mark.parametrize("tz", ["UTC", "+01:00", "Asia/Kathmandu"])
def test_files_in_another_zone_do_not_count_twice(tmp_path, tz):
    file, store = printed(tmp_path), tmp_path / "store"
    slurm.pull_slurm(store, files=[file], tz="Europe/Berlin")
    with pytest.raises(
        InputError, match=r"runs of 'sacct.psv' are in the store at times .* zone of its times with tz="
    ):
        slurm.pull_slurm(store, files=[file], tz=tz)
    slurm.pull_slurm(store, files=[file], tz="Europe/Berlin")
    assert len(stored(store)) == 20


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    file = printed(tmp_path)
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(InputError, match=r"'sacct.psv' ends within a line"):
        slurm.pull_slurm(tmp_path / "store", files=[file], tz="UTC")


def test_events_that_are_cut_off_are_refused(tmp_path):
    file = tmp_path / "sacctmgr-events.psv"
    file.write_text("Cluster|NodeName|TimeStart|TimeEnd|State|TRES\nlab||1780000000|Unknown||gres/gpu:a100=6")
    with pytest.raises(InputError, match=r"'sacctmgr-events.psv' ends within a line"):
        slurm.pull_slurm(tmp_path / "store", files=[file])
