from __future__ import annotations

import gzip
import json
import re
import warnings
from pathlib import Path

import pandas as pd
import pytest

import gpudemand
from gpudemand import read_usage, usage_series
from gpudemand._validation import InputError, RejectedRowsWarning, UnlikelyJobsWarning
from gpudemand.jobs import files, formats, read_jobs, write_jobs
from gpudemand.jobs.log_formats import read_prometheus
from gpudemand.jobs.read import FORMATS, SAME_ID
from gpudemand.jobs.table import check_jobs
from gpudemand.usage.query import open_log

CANONICAL = "job_id,user,submit,start,end,gpus,status\n"
GOOD = "1,ada,2024-05-01T08:00:00Z,2024-05-01T08:00:00Z,2024-05-01T09:00:00Z,2,completed\n"


def good(job_id: object, **changes: str) -> str:
    fields = dict(zip(CANONICAL.strip().split(","), GOOD.strip().split(","), strict=True))
    return ",".join({**fields, "job_id": str(job_id), **changes}.values()) + "\n"


def test_every_format_is_listed() -> None:
    assert formats()["name"].tolist() == [*FORMATS, "prometheus"]
    assert set(formats()["needs"]) == {"", "tz", "origin"}


def test_an_unknown_format_names_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean 'sacct'"):
        read_jobs("log", "sact")


@pytest.mark.parametrize("name", ["jobs.parquet", "jobs.csv", "jobs.csv.gz"])
def test_what_is_written_is_read(write, tmp_path: Path, name: str) -> None:
    awkward = good(2, user='"<script>alert(""x"")</script>, ""q"""', end="", status="running")
    with pytest.warns(RejectedRowsWarning):
        jobs = read_jobs(write(CANONICAL + GOOD + awkward + good(3, gpus="-1")), kind="synthetic")
    write_jobs(jobs, tmp_path / name)
    again = read_jobs(tmp_path / name)
    pd.testing.assert_frame_equal(again, jobs)
    if name.endswith("parquet"):
        assert again.attrs["kind"] == "synthetic"
        assert again.attrs["rejected"] == {"negative number of GPUs": 1}


def test_other_suffixes_are_refused(write) -> None:
    with pytest.raises(InputError, match="must end in"):
        write_jobs(read_jobs(write(CANONICAL + GOOD)), "jobs.xlsx")


def test_further_columns_stay(write) -> None:
    jobs = read_jobs(write(CANONICAL.replace("\n", ",colour,effective_cost\n") + GOOD.replace("\n", ",red,1.5\n")))
    assert jobs.loc[0, ["colour", "effective_cost"]].tolist() == ["red", 1.5]


BAD = {
    "negative number of GPUs": {"gpus": "-1"},
    "more than 1,000,000 GPUs": {"gpus": "1e9"},
    "unreadable gpus": {"gpus": "many"},
    "without gpus": {"gpus": ""},
    "end before start": {"end": "2024-05-01T07:00:00Z"},
    "start before submit": {"submit": "2024-05-01T08:30:00Z"},
    "finished without an end time": {"end": ""},
    "unreadable time": {"start": "yesterday"},
    "time in milliseconds? (seconds were expected)": {"start": "1714550400000"},
    "time outside 1985 to 2200": {"end": "9999-01-01T00:00:00Z"},
    "no submit or start time": {"submit": "", "start": "", "end": "", "status": "pending"},
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_rows_are_counted_and_strict_names_their_lines(write, reason: str) -> None:
    path = write(CANONICAL + GOOD + good(2, **BAD[reason]) + good(3))
    with pytest.warns(RejectedRowsWarning, match="1 of 3 rows left out"):
        jobs = read_jobs(path)
    assert jobs.attrs["rejected"] == {reason: 1}
    assert jobs["job_id"].tolist() == ["1", "3"]
    with pytest.raises(InputError, match="line 3: ") as error:
        read_jobs(path, strict=True)
    assert reason in str(error.value)


LIMITS_OF_TIME = [
    *(("", None), ("UNLIMITED", None), ("infinite", None), ("inf", None), ("Partition_Limit", None), ("-", None)),
    (r"\N", None),
    *(("86400", 86400), ("1-00:00:00", 86400), ("2-12", 216000), ("2-12:30", 217800), ("01:30:00", 5400)),
    *(("02:30", 150), ("02:30.5", 150), ("1:00:00.250", 3600), ("-1", -1), ("1e3", 1000), ("30.5", 30.5)),
    *((text, "unread") for text in ("soon", "1e999", "1:2:3:4", "24h", "1-", ":30")),
]


@pytest.mark.parametrize(("text", "seconds"), LIMITS_OF_TIME)
def test_a_time_limit_is_read_alike_in_all_ways_and_takes_no_job_away(write, text: str, seconds: object) -> None:
    rows = [good(1).replace("\n", f",{text}\n"), good(2).replace("\n", ",60\n")]
    path = write(CANONICAL.replace("\n", ",requested_time\n") + "".join(rows))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with open_log(path, (), pending=False) as log:
            in_place = pd.DataFrame(log._db.execute("SELECT requested_time FROM typed ORDER BY job_id").fetchall())[0]
        table = check_jobs(pd.read_csv(path, dtype=str, keep_default_na=False))
        jobs = read_jobs(path)
    known = None if seconds == "unread" else seconds
    for limits in (in_place, table["requested_time"], jobs["requested_time"]):
        assert limits.astype(object).where(limits.notna(), None).tolist() == [known, 60]
    sentence = f"1 of 2 cells of requested_time cannot be read, such as {text!r}, and are unknown. "
    expected = [f"{source}: {sentence}" for source in ("log.csv", "jobs", "log.csv")] if seconds == "unread" else []
    assert [str(each.message).partition("Write")[0] for each in said] == expected
    assert [f"{each}" for each in jobs.attrs.get("doubts", ())] == table.attrs.get("doubts", [])


@pytest.mark.parametrize("column", ["used_gpu_seconds", "effective_cost"])
def test_an_unreadable_cell_that_no_job_needs_is_said_once(write, column: str) -> None:
    cells = ["7", "n.a.", "inf", "n/a"]
    rows = [good(n).replace("\n", f",{cell}\n") for n, cell in enumerate(cells)]
    with pytest.warns(
        UnlikelyJobsWarning, match=f"2 of 4 cells of {column} .*, such as 'inf', .* Write numbers"
    ) as said:
        jobs = read_jobs(write(CANONICAL.replace("\n", f",{column}\n") + "".join(rows)))
    assert len(said) == 1
    assert jobs[column].fillna(-1).tolist() == [7, -1, -1, -1]
    assert not jobs.attrs["rejected"]


def test_a_time_limit_without_an_end_is_none_in_tables_and_parquet(tmp_path: Path) -> None:
    times = pd.to_datetime(["2024-05-01T08:00:00Z"] * 2)
    jobs = pd.DataFrame({"start": times, "end": times, "gpus": 1.0, "requested_time": [float("inf"), 60.0]})
    jobs.to_parquet(tmp_path / "jobs.parquet")
    with open_log(tmp_path / "jobs.parquet", (), pending=False) as log:
        in_place = [row[0] for row in log._db.execute("SELECT requested_time FROM typed ORDER BY ALL").fetchall()]
    assert in_place == [60, None]
    for found in (check_jobs(jobs), read_jobs(tmp_path / "jobs.parquet")):
        assert found["requested_time"].fillna(0).tolist() == [0, 60]


def test_strict_names_ten_lines(write) -> None:
    path = write(CANONICAL + GOOD + "".join(good(n, gpus="x") for n in range(2, 32)))
    with pytest.raises(InputError, match=r"30 rows .*line 3: .*line 12: [^;]*\)"):
        read_jobs(path, strict=True)


def test_rows_of_a_wrong_length_are_counted_with_their_lines(write) -> None:
    path = write(CANONICAL + "1,ada\n\n" + GOOD + GOOD.strip() + ",one,more\n")
    with pytest.warns(RejectedRowsWarning, match="2 of 3 rows left out"):
        assert read_jobs(path).attrs["rejected"] == {"with a wrong number of fields": 2}
    with pytest.raises(InputError, match=r"line 2: .*; line 5: "):
        read_jobs(path, strict=True)


def test_repeated_ids_keep_the_latest_record(write) -> None:
    with pytest.warns(RejectedRowsWarning, match="1 replaced by a later record"):
        jobs = read_jobs(write(CANONICAL + good(1, end="", status="running") + GOOD))
    assert jobs["status"].tolist() == ["completed"]


@pytest.mark.parametrize(
    "word", ["PD", "PEND", "Q", "qw", "Idle", "Inqueue", "Held", "SchedulingGated", "QUEUEING", ""]
)
@pytest.mark.filterwarnings("ignore::gpudemand._validation.UnlikelyJobsWarning")
def test_a_job_that_waits_holds_nothing_whatever_its_scheduler_calls_it(write, word: str) -> None:
    path = write(CANONICAL + GOOD + good(2, start="", end="", gpus="8", status=word))
    jobs = read_jobs(path)
    assert jobs["status"].tolist() == ["completed", "pending"]
    raw = jobs.assign(status=["completed", None])
    for log in (jobs, raw, path):
        assert usage_series(log, by=None, value="gpus_peak")["y"].max() == 2
    assert set(usage_series(path, by="status")["unique_id"]) == {"completed", "pending"}


@pytest.mark.parametrize("word", ["EXIT", "Aborted", "Crashed", "Expired", "Dead", "Lost"])
def test_a_job_that_is_over_does_not_run_whatever_its_scheduler_calls_it(write, word: str) -> None:
    with pytest.warns(RejectedRowsWarning, match="1 finished without an end time"):
        read_jobs(write(CANONICAL + GOOD + good(2, end="", status=word)))


def test_a_status_that_is_not_known_is_said_where_it_counts(write) -> None:
    odd = [good(2, status="Odd"), good(3, end="", status="Odd"), good(4, start="", end="", status="Admitted")]
    with pytest.warns(UnlikelyJobsWarning) as said:
        jobs = read_jobs(write(CANONICAL + GOOD + "".join(odd)))
    assert jobs["status"].fillna("").tolist() == ["completed", "", "", "pending"]
    assert {"'Odd' (1)", "'Admitted' (1)"} <= set(re.findall(r"'\w+' \(\d\)", str(said[0].message)))
    assert "without a start as pending (1) and without an end as running (1)" in str(said[0].message)


@pytest.mark.parametrize(("nodes", "others"), [("122", 1), ("221", 2), ("3322122331", 8)])
def test_rows_of_nodes_and_tasks_are_not_called_earlier_records(write, nodes: str, others: int) -> None:
    log = CANONICAL.replace("\n", ",node\n") + "".join(good(1).replace("\n", f",n{node}\n") for node in nodes)
    with pytest.warns(RejectedRowsWarning, match=f"{others} with the id and start of another row"):
        jobs = read_jobs(write(log))
    copies = len(nodes) - 1 - others
    assert jobs.attrs["rejected"] == {SAME_ID: others} | ({"replaced by a later record": copies} if copies else {})


def test_a_log_without_ids_that_has_every_row_twice_is_said(write) -> None:
    rows = [good("", end=f"2024-05-02T08:{minute:02}:00Z") for minute in range(12)]
    with pytest.warns(UnlikelyJobsWarning, match="24 of 25 rows stand in this log exactly twice"):
        read_jobs(write(CANONICAL + "".join([*rows, *rows, GOOD.replace("1,", ",", 1)])))
    read_jobs(write(CANONICAL + "".join(rows) + GOOD.replace("1,", ",", 1) * 20))


@pytest.mark.parametrize("copies", [1, 2])
def test_exports_that_overlap_are_said_with_the_time(write, copies: int) -> None:
    rows = [
        good("", submit="", start=f"2024-05-{1 + n // 5:02}T{n % 5:02}:17:00Z", end=f"2024-06-01T00:00:{n % 60:02}Z")
        for n in range(140)
    ]
    again = rows[70:105] * copies
    with pytest.warns(UnlikelyJobsWarning, match="nearly all rows from 2024-05-15 00:17 to 2024-05-2"):
        read_jobs(write(CANONICAL + "".join([*rows, *again])))
    read_jobs(write(CANONICAL + "".join([*rows, *rows[::4]])))  # as many, but strewn
    read_jobs(write(CANONICAL + "".join(rows) + rows[0] * 50))  # an array


def test_a_total_in_the_place_of_a_user_is_left_out(write) -> None:
    log = CANONICAL + GOOD + good(2, gpus="4") + good("", user="Total", gpus="6")
    with pytest.warns(RejectedRowsWarning, match="1 a total of the other rows"):
        assert read_jobs(write(log))["user"].tolist() == ["ada", "ada"]
    path = write(log)
    with pytest.raises(InputError, match="a total of the other rows"):
        usage_series(path)
    assert len(read_jobs(write(CANONICAL + GOOD + good(2, user="Total", gpus="6")))) == 2


@pytest.mark.parametrize("reason", ["JobHeldUser", "(Dependency)", "DependencyNeverSatisfied", "BeginTime"])
def test_a_job_that_could_not_start_does_not_wait_for_gpus(write, reason: str) -> None:
    rows = "".join(
        good(n, start="", end="", status="pending").replace("\n", f",{why}\n")
        for n, why in enumerate((reason, "Resources", "Priority"))
    )
    log = CANONICAL.replace("\n", ",reason\n") + rows + good(9).replace("\n", f",{reason}\n")
    with pytest.warns(RejectedRowsWarning, match="1 pending and held by its user, or until another job ends"):
        assert read_jobs(write(log))["job_id"].tolist() == ["1", "2", "9"]


def test_zones_may_be_mixed(write) -> None:
    other = good(2, submit="2024-05-01 10:00+02:00", start="1714550400", end="2024-05-01T02:00:00-07:00")
    jobs = read_jobs(write(CANONICAL + GOOD + other))
    assert jobs[["submit", "start", "end"]].nunique().tolist() == [1, 1, 1]


def test_a_log_of_running_jobs(write) -> None:
    jobs = read_jobs(write(CANONICAL + "".join(good(n, end="", status="running") for n in range(3))))
    assert jobs["end"].isna().all()
    assert jobs.attrs["rejected"] == {}


def test_a_user_of_a_million_characters(write) -> None:
    name = "x" * 1_000_000
    assert read_jobs(write(CANONICAL + GOOD + good(2, user=name))).loc[1, "user"] == name


@pytest.mark.parametrize("block", [50, 1 << 24])
def test_users_in_another_encoding_stay_apart_and_are_told(write, monkeypatch, block: int) -> None:
    monkeypatch.setattr(files, "_BLOCK", block)
    text = CANONICAL + GOOD + good(2, user="M\u00fcller-M\u00fcller") + good(3, user="M\u00f6ller")
    path = write(b"\xef\xbb\xbf" + text.encode("latin-1").replace(b"\n", b"\r\n").removesuffix(b"\r\n"))
    with pytest.warns(UnlikelyJobsWarning, match="text in 2 lines is not UTF-8.* export the file as UTF-8") as told:
        jobs = read_jobs(path)
    assert jobs["user"].tolist() == ["ada", "M\\xfcller-M\\xfcller", "M\\xf6ller"]
    assert [f"log.csv: {sentence}" for sentence in jobs.attrs["doubts"]] == [str(warning.message) for warning in told]


@pytest.mark.parametrize(
    ("content", "read"),
    [
        (CANONICAL + good(1, user="M\u00fcller"), usage_series),
        ("unique_id,ds,y\nM\u00fcller,2026-03-28T00:00Z,4\n", read_usage),
        ("timestamp,M\u00fcller\n1714521600,4\n", read_prometheus),
    ],
)
def test_usage_in_another_encoding_is_told_once(write, content: str, read) -> None:
    with pytest.warns(UnlikelyJobsWarning, match="text in 1 line is not UTF-8") as told:
        usage = read(write(content.encode("latin-1")))
    assert len(told) == 1
    assert usage["unique_id"].iloc[0] in ("M\\xfcller", "M%5Cxfcller")


def test_json_in_another_encoding_is_refused(write) -> None:
    with pytest.raises(InputError, match="export it as UTF-8"):
        read_jobs(write('{"jobs": [{"user": "M\u00fcller"}]}'.encode("latin-1")), "sacct")


@pytest.mark.parametrize("form", ["canonical", "sacct", "helios", "swf", "openb", "philly", "focus", "genai"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"\x00\x01\xff" * 99, "not a text file"),
        (gzip.compress(b"a,b\n" * 1000, mtime=0)[:-9], "cut off"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"PK\x03\x04\x00\x00", "save the sheet as CSV"),
        (b"PAR1 and no more", None),
        (b"\xff\xfe\xfd junk \x07 of a few bytes", None),
        (b"<html><body>log in first</body></html>\n", None),
        (b"\n1,2,3\n", None),
    ],
)
def test_files_that_are_no_logs(write, form: str, content: bytes, message: str | None) -> None:
    with pytest.raises(InputError, match=message):
        read_jobs(write(content), form, tz="UTC", origin="2024-01-01")


@pytest.mark.parametrize("form", [name for name in FORMATS if FORMATS[name].columns])
def test_a_header_alone(write, form: str) -> None:
    bar = "|" if form == "sacct" else ","
    header = bar.join(column.split("|")[0] for column in FORMATS[form].columns)
    with pytest.raises(InputError, match="no rows"):
        read_jobs(write(header + "\n"), form, tz="UTC", origin="2024-01-01")


@pytest.mark.parametrize(("mark", "word"), [(";", "semicolons"), ("|", "vertical bars"), ("\t", "tabs")])
def test_a_wrong_delimiter_is_named(write, mark: str, word: str) -> None:
    with pytest.raises(InputError, match=f"separated by {word}"):
        read_jobs(write((CANONICAL + GOOD).replace(",", mark)))


def test_another_format_is_recognised(fixtures: Path) -> None:
    with pytest.raises(InputError, match="format='helios'"):
        read_jobs(fixtures / "Venus/cluster_log.csv")


def test_an_unclosed_quotation_mark_is_refused(write) -> None:
    broken = good(2, user='"ada')
    with pytest.raises(InputError, match=r"line 3 .* never closed"):
        read_jobs(write(CANONICAL + GOOD + broken + "".join(good(n) for n in range(3, 9))))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Jobs of March,,,,,,\n" + CANONICAL, "remove a title above its header"),
        ("sep=,\n" + CANONICAL, "is for spreadsheets only; remove it"),
        ("JobID,User,Submit,Start,End,AllocTRES\n", "the output of sacct --delimiter; what can be read is sacct -P"),
        ("JobIDRaw;State;Submit;ReqTRES;End\n", "the output of sacct --delimiter; what can be read is sacct -P"),
        ('{"kind": "Pod"}\n{"kind": "Pod"}\n', "write its parts into one list"),
    ],
)
def test_what_stands_in_place_of_a_header_is_named(write, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_jobs(write(text + GOOD))


@pytest.mark.parametrize("form", ["canonical", "pods"])
@pytest.mark.parametrize("api", ["batch/v1", "batch.volcano.sh/v1alpha1", "kueue.x-k8s.io/v1beta1", "kubeflow.org/v1"])
def test_jobs_of_kubernetes_are_refused_for_its_pods(write, api: str, form: str) -> None:
    items = [{"apiVersion": api, "kind": "Job", "metadata": {"name": "a"}}]
    log = json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}, indent=4)
    with pytest.raises(InputError, match=r"what can be read is kubectl get pods -A -o json .*, or a table with user"):
        read_jobs(write(log), form)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ([{"submission_id": "raysubmit_x", "start_time": 1772438400000}], "ray list jobs; .* is a table with user"),
        ({"jobs": [{"jobArn": "arn", "createdAt": 1772438400000}]}, "aws batch; .* is a table with user"),
        ({"TrainingJobSummaries": [{"CreationTime": 1.0}]}, "aws sagemaker; .* is a table with user"),
        ([{"name": "x", "jobSpec": {"workerPoolSpecs": []}}], "gcloud ai custom-jobs; .* is a table with user"),
        ({"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [{"JOBID": "1"}]}, "bjobs; what can be read is lsb.acct"),
        ([{"id": 1}], "is JSON; export it as CSV or Parquet.$"),
    ],
)
def test_json_of_other_schedulers_is_not_sent_to_slurm(write, log: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_jobs(write(json.dumps(log)))


def test_squeue_with_bars_is_recognised(fixtures: Path) -> None:
    jobs = read_jobs(fixtures / "threads/squeue-o.psv", tz="UTC")
    assert usage_series(jobs, by=None)["y"].sum() == 4


def test_a_column_named_twice(write) -> None:
    with pytest.raises(InputError, match="twice"):
        read_jobs(write(CANONICAL.replace("status", "gpus") + GOOD))


def test_paths_without_a_log_are_refused(fixtures: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        read_jobs(tmp_path)
    with pytest.raises(InputError, match=r"no file .* Did you mean 'sacct.psv'"):
        read_jobs(fixtures / "sacct.psw", "sacct")
    for name in ("\0", "x" * 5000, ""):
        with pytest.raises(InputError):
            read_jobs(name)
    with pytest.raises(InputError, match="name of a file"):
        read_jobs(5)  # type: ignore[arg-type]


def test_no_usable_row_is_an_error(write) -> None:
    with pytest.raises(InputError, match=r"no row .* can be used: 2 unreadable gpus"):
        read_jobs(write(CANONICAL + good(1, gpus="x") + good(2, gpus="y")))


def test_an_unknown_kind(write) -> None:
    with pytest.raises(InputError, match="kind="):
        read_jobs(write(CANONICAL + GOOD), kind="real")


def test_line_ends_of_any_machine(write) -> None:
    for end in ("\r\n", "\r"):
        assert len(read_jobs(write((CANONICAL + GOOD + good(2)).replace("\n", end)))) == 2


def test_a_header_of_a_million_characters(write) -> None:
    with pytest.raises(InputError):
        read_jobs(write("x" * 1_000_000 + "\n1\n"))


def test_rows_that_are_all_of_a_wrong_length(write) -> None:
    with pytest.raises(InputError, match="2 with a wrong number of fields"):
        read_jobs(write(CANONICAL + "1\n2\n"))


@pytest.mark.parametrize(
    ("header", "cell", "message"),
    [("User,start,end,gpus", "46027.4", r"rename it to 'user'\.$"), ("user,start,end, GPUs", "", "rename it to 'gpus'")]
    + [("user,start,end,gpus", cell, "2026-01-05 10:00") for cell in ("46027.4", "05.01.2026 10:00")]
    + [("user;start;end;gpus", "", "separated by semicolons; export it with those of the format, and")],
)
def test_tables_of_spreadsheets_are_refused_with_what_to_do(write, header: str, cell: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_jobs(write(f"{header}\nada,{cell},{cell},1\n"), tz="UTC")


PAGE = Path(gpudemand.__file__).parents[1] / "docs/howto/own_log.md"
LINE = re.compile(r"\| `([\w-]+)` \| .* \| `(\S+)` \| `(\d+) (jobs|series), ([\d.]+) (?:GPU-hours|GPUs)` \|")
#: Format, sample, how many jobs or series it has, and their GPU-hours or GPUs.
TEXT = PAGE.read_text("utf-8") if PAGE.is_file() else ""
LINES = [line.groups() for line in map(LINE.fullmatch, TEXT.splitlines()) if line]
needs_page = pytest.mark.skipif(not PAGE.is_file(), reason="runs from a checkout")


@needs_page
def test_each_line_of_the_table_of_formats_has_a_sample_and_each_format_a_line() -> None:
    table = TEXT.partition("| format | what it reads |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(table) == len(LINES)
    assert {line[0] for line in LINES} == set(formats()["name"])
    assert len({line[1] for line in LINES}) == len(LINES)


@needs_page
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "sample", "count", "what", "gpus"), LINES, ids=[line[1] for line in LINES])
def test_a_sample_reads_as_the_table_of_formats_says(fixtures, name, sample, count, what, gpus) -> None:
    needs = {"tz": "UTC"} if name in ("sacct", "lsf", "prometheus") else {}
    needs |= {"": {}, "tz": {"tz": "UTC"}, "origin": {"origin": "2026-01-01T00:00Z"}}[
        formats().set_index("name").loc[name, "needs"]
    ]
    if sample == "formats/no-header.psv":
        needs["columns"] = "jobid,user,account,state,submit,start,end,alloctres"
    if what == "series":
        usage = read_usage(fixtures / sample, name, **needs)
        found, total = usage["unique_id"].nunique(), usage.groupby("unique_id")["y"].max().sum()
    else:
        jobs = read_jobs(fixtures / sample, name, **needs)
        found, total = len(jobs), usage_series(jobs, by=None, value="gpu_hours")["y"].sum()
    assert (found, round(float(total), 2)) == (int(count), float(gpus))
