"""Accounting of other schedulers, in small samples of what they write: read by its content, and refused by its name."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import gpudemand as gd
from gpudemand._validation import InputError, RejectedRowsWarning, UnlikelyJobsWarning
from gpudemand.jobs.schedulers import _lsf_gpus
from gpudemand.usage.read import read_log

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
    "lsf.bhist": (
        "lsf",
        [
            ("u1", "vision", "09:01", "11:01", 4, "NVIDIAA100", "completed"),
            ("u2", "speech", "10:01", "11:01", 4, "", "failed"),
            ("u2", "speech", "11:02", "", 2, "", "running"),
            ("u2", "speech", "", "", 1, "", "pending"),
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
    zone = {"tz": "UTC"} if name == "lsf.bhist" else {}
    jobs = gd.read_jobs(SAMPLES / name, **zone)
    found = rows(jobs)
    assert [row[:4] + row[5:] for row in found] == [row[:4] + row[5:] for row in expected]
    assert [row[4] for row in found] == pytest.approx([row[4] for row in expected])
    pd.testing.assert_frame_equal(jobs, gd.read_jobs(SAMPLES / name, form, **zone))
    assert jobs.attrs["kind"] == "measured"
    # Of the job of bhist that was put back, the second run was submitted when the first ended.
    submit = {"pods": {"08:00"}, "runai": {"08:00"}, "lsf.bhist": {"09:00", "11:01"}}
    assert set(jobs["submit"].dt.strftime("%H:%M")) == submit.get(form, submit.get(name, {"09:00"}))


@silent
@pytest.mark.parametrize("name", [*JOBS, "opencost.json", "slurmdbd.csv"])
def test_a_refusal_says_what_the_file_looks_like(name: str) -> None:
    form = JOBS.get(name, [name.partition(".")[0]])[0]
    with pytest.raises(InputError, match=f"looks like format='{form}'"):
        gd.read_jobs(SAMPLES / name, "sacct", tz="UTC")


LSF = (
    '"JOB_FINISH" "10.1" 1772362860 101 1001 3 8 1772355600 0 0 1772355660 "u1" "q" "{asked}" "" "" "h" "" "" "" "" "" '
    '0 1 "n1" 64 60.0 "t" "{command}" ' + "0 " * 19 + '"" "p" 0 8 "" "" {task} 0 0 "" "{gpus}"\n'
)


def test_a_job_of_bhist_without_its_user_is_counted(write) -> None:
    text = (SAMPLES / "lsf.bhist").read_text(encoding="utf-8").replace("Job <103>, User <u2>", "Job <103>")
    with pytest.warns(RejectedRowsWarning, match="1 of 4 rows left out"):
        assert len(gd.read_jobs(write(text), tz="UTC")) == 3


def test_a_command_of_lsf_is_no_request(write) -> None:
    texts = [("", ""), ("rusage[ngpus_physical=2]", ""), ("", "num=4")]
    lines = [
        LSF.format(asked=asked, command="t.py --num=64", task=0, gpus=gpus).replace(" 101 ", f" 10{place} ")
        for place, (asked, gpus) in enumerate(texts)
    ]
    assert gd.read_jobs(write("".join(lines)), "lsf")["gpus"].tolist() == [0, 2, 4]


def test_tasks_of_an_array_of_lsf_that_start_at_once_all_count(write) -> None:
    lines = [LSF.format(asked="", command="", task=task, gpus="num=1") for task in (1, 2, 3)]
    jobs = gd.read_jobs(write("".join(lines)), "lsf")
    assert jobs["job_id"].tolist() == ["101[1]", "101[2]", "101[3]"]
    assert jobs["gpus"].sum() == 3


@silent
def test_a_parallel_job_of_grid_engine_counts_once(write) -> None:
    start = "q:{host}:g:u:t:101:s:0:1772355600:{start}:1772362860:0:0:" + "0:" * 18
    rest = "p:d:mpi:16:0:0:0:0:-l gpu=4 -pe mpi 16:0.0:{task}:0:0\n"
    parts = [("n1", 1772355660, "NONE"), ("n1", 1772355661, "1.n1"), ("n2", 1772355662, "1.n2.example")]
    text = "".join((start + rest).format(host=host, start=begin, task=task) for host, begin, task in parts)
    jobs = gd.read_jobs(write(text), "sge")
    assert jobs["gpus"].tolist() == [4]


def test_gpus_of_torque_beside_nodes_that_name_none(write) -> None:
    line = (
        "03/01/2026 10:01:00;E;{job}.s;user=u start=1772355660 Resource_List.nodes={nodes} Resource_List.ngpus=3 "
        "end=1772362860\n"
    )
    text = line.format(job=1, nodes="1:ppn=8") + line.format(job=2, nodes="2:ppn=8:gpus=4")
    assert gd.read_jobs(write(text), "pbs")["gpus"].tolist() == [3, 8]


def test_gpus_that_are_named_elsewhere_in_a_record_of_pbs(write) -> None:
    line = "03/01/2026 10:01:00;E;1.s;user=u start=1772355660 {asked} end=1772362860 Exit_status=0\n"
    held = "exec_vnode=(n1[0]:ncpus=8:ngpus=4)+(n1[1]:ncpus=8:ngpus=4) Resource_List.ncpus=16"
    assert gd.read_jobs(write(line.format(asked=held)), "pbs")["gpus"].tolist() == [8]
    moab = write(line.format(asked="Resource_List.nodes=1:ppn=4 Resource_List.gres=gpus:2"))
    with pytest.warns(UnlikelyJobsWarning, match="gpus did not count"):
        assert gd.read_jobs(moab, "pbs")["gpus"].tolist() == [0]
    assert gd.read_jobs(moab, "pbs", gpu_share={"gpus": 1})["gpus"].tolist() == [2]
    with pytest.warns(UnlikelyJobsWarning, match="no job of this log names a GPU"):
        gd.read_jobs(write(line.format(asked="Resource_List.ncpus=16")), "pbs")


def test_a_time_of_hundreds_of_digits_is_refused(write) -> None:
    line = "03/01/2026 10:01:00;E;{job}.s;user=u start={start} Resource_List.ngpus=4 end=1772362860\n"
    text = line.format(job=1, start="9" * 400) + line.format(job=2, start=1772355660)
    with pytest.warns(RejectedRowsWarning, match="1 of 2 rows left out"):
        assert len(gd.read_jobs(write(text), "pbs")) == 1


def test_a_part_of_a_gpu_of_lsf() -> None:
    assert _lsf_gpus(["rusage[ngpus_physical=0.50]"], ["n1", "n1"]) == (0.5, None)


@pytest.mark.parametrize(("scheduled", "gpus"), [("True", 8), ("False", 0)])
def test_a_pod_that_pulls_its_image_holds_its_gpus(write, scheduled: str, gpus: int) -> None:
    time = "2026-03-01T08:00:00Z"
    spec = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    condition = {"type": "PodScheduled", "status": scheduled, "lastTransitionTime": time}
    waits = {"phase": "Pending", "conditions": [condition]}
    over = {"terminated": {"finishedAt": "2026-03-02T08:00:00Z"}}
    ended = {"phase": "Succeeded", "startTime": time, "containerStatuses": [{"state": over}]}
    pods = [
        {"metadata": {"creationTimestamp": time, "name": name, "namespace": name}, "spec": spec, "status": status}
        for name, status in (("a", waits), ("b", ended))
    ]
    usage = gd.usage_series(gd.read_jobs(write(json.dumps({"items": pods})), "pods"))
    assert usage.groupby("unique_id")["y"].sum().to_dict() == {"a": 24 * gpus, "b": 24 * 8}


def test_a_pod_with_slices_of_several_profiles(write) -> None:
    asked = {"nvidia.com/mig-1g.10gb": "1", "nvidia.com/mig-3g.40gb": "1"}
    times = {"creationTimestamp": "2026-03-01T08:00:00Z", "name": "a", "namespace": "n"}
    pod = {"kind": "Pod", "metadata": times, "spec": {"containers": [{"resources": {"limits": asked}}]}}
    status = {"phase": "Running", "startTime": "2026-03-01T08:00:00Z"}
    jobs = gd.read_jobs(write(json.dumps({"items": [pod | {"status": status}]})), "pods")
    assert jobs["gpus"].tolist() == pytest.approx([1 / 7 + 1 / 2])


@pytest.mark.parametrize("form", ["pods", "opencost", "htcondor", "sacct"])
@pytest.mark.parametrize(
    "text", ['{"a": 1}', "[1, 2]", "12", '{"items": 3}', '{"data": [3]}', '[{"Owner": "x"}]', "a,b\n1,2\n"]
)
def test_other_files_are_refused_in_words(write, form: str, text: str) -> None:
    with pytest.raises(InputError):
        gd.read_jobs(write(text), form, tz="UTC")


def test_shares_that_would_not_count_are_refused(write) -> None:
    text = "user,start,end,gpus\nu,2026-03-01T08:00:00Z,2026-03-01T09:00:00Z,2\n"
    with pytest.raises(InputError, match="gpu_share= is for logs that name devices"):
        gd.read_jobs(write(text), gpu_share={"accel": 1})
    usage = write("unique_id,ds,y\nu,2026-03-01T08:00:00Z,2\n")
    with pytest.raises(InputError, match="gpu_share= is for logs that name devices"):
        read_log(usage, gpu_share={"accel": 1})
    with pytest.raises(InputError, match="columns= names those of a dump of sacct"):
        read_log(usage, columns="jobid,user")


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
    with pytest.warns(UnlikelyJobsWarning, match="names '1003', which no device of this log has. Did you mean '100"):
        assert gd.read_jobs(SAMPLES / "slurmdbd.csv", gpu_share={"1003": 1})["gpus"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("nothing", ["", "NULL", r"\N"])
def test_what_mysql_prints_for_nothing_is_nothing(tmp_path, nothing: str) -> None:
    log = tmp_path / "jobs.csv"
    log.write_text(
        "id_job,id_array_job,account,state,time_submit,time_start,time_end,timelimit,tres_alloc,tres_req,array_task_str\n"
        f'101,0,ml,3,1772355600,1772355660,1772362860,1440,"1=20,1001=2","1=20,1001=2",{nothing}\n'
        f'103,0,{nothing},0,1772355600,0,0,{nothing},{nothing},"1=20,1001=8",{nothing}\n'
    )
    with pytest.warns(UnlikelyJobsWarning, match="numbers"):
        jobs = gd.read_jobs(log)
    assert jobs["job_id"].tolist() == ["101", "103"]
    assert jobs["gpus"].tolist() == [2, 8]
    assert jobs["group"].isna().tolist() == [False, True]


@pytest.mark.parametrize(("limit", "seconds"), [("1440", 86400), ("4294967294", -1), ("4294967295", -1)])
def test_a_number_that_stands_for_no_limit_is_none(tmp_path, limit: str, seconds: float) -> None:
    log = tmp_path / "jobs.csv"
    log.write_text(
        "id_job,account,state,time_submit,time_start,time_end,timelimit,tres_alloc\n"
        f'101,ml,3,1772355600,1772355660,1772362860,{limit},"1=20,1001=2"\n'
    )
    with pytest.warns(UnlikelyJobsWarning, match="numbers"):
        assert gd.read_jobs(log)["requested_time"].fillna(-1).tolist() == [seconds]


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


@pytest.mark.parametrize("name", ["htcondor.txt", "htcondor.csv"])
def test_a_history_of_htcondor_without_a_header_is_refused_with_how_to_print_one(write, name: str) -> None:
    path = write((SAMPLES / name).read_text().partition("\n")[2])
    with pytest.raises(InputError, match=r"no header with ClusterId.*condor_history -af:h, take -json or -long"):
        gd.read_jobs(path, "htcondor")
    with pytest.raises(InputError, match=r"looks like the output of condor_history -af; .* condor_history -af:h"):
        gd.read_jobs(path)


def test_a_dump_of_sacct_without_a_header(write) -> None:
    times = "2026-03-01T08:00:00|2026-03-01T08:00:00|2026-03-01T10:00:00"
    path = write(f"12|u1|a|1|COMPLETED|{times}|cpu=8,gres/gpu=2\n13_2|x|a|2|COMPLETED|{times}|gres/gpu=2\n")
    with pytest.raises(InputError, match=r"no header: run sacct without --noheader \(-n\)"):
        gd.read_jobs(path, "sacct", tz="UTC")
    names = "jobid%20,user,account,gid,state,submit,start,end,alloctres"
    for given in (names, names.split(","), tuple(names.split(","))):
        assert gd.read_jobs(path, "sacct", tz="UTC", columns=given)["gpus"].tolist() == [2, 2]
    for none in (5, [1, 2], [], "", ["jobid", ""]):
        with pytest.raises(InputError, match=r"columns (must be|is empty)"):
            gd.read_jobs(path, "sacct", tz="UTC", columns=none)
    with pytest.raises(InputError, match="columns= names those of a dump of sacct"):
        gd.read_jobs(path, "focus", columns=names)


def test_answers_of_prometheus_are_sent_to_their_reader(fixtures) -> None:
    with pytest.raises(InputError, match="format='prometheus'"):
        gd.read_jobs(fixtures / "prometheus.json")


PBS = "03/01/2026 {at};{kind};7.s;user=u1 group=g queue=q {times} Resource_List.ngpus=2 {more}\n"


def test_runs_of_pbs_wait_since_the_one_before_ended(write) -> None:
    times = "ctime=1772355600 qtime=1772355600 etime=1772355600 start={} end={}"
    log = PBS.format(at="10:00:00", kind="R", times=times.format(1772355600, 1772359200), more="")
    log += PBS.format(at="12:00:00", kind="E", times=times.format(1772359260, 1772366400), more="Exit_status=0")
    jobs = gd.read_jobs(write(log))
    assert (jobs["start"] - jobs["submit"]).dt.total_seconds().tolist() == [0, 60]


def test_nodes_that_a_job_of_pbs_gave_back_are_said(write) -> None:
    times = "ctime=1772355600 qtime=1772355600 etime=1772355600 start=1772355600"
    log = "".join(PBS.format(at="10:00:00", kind=kind, times=times, more="") for kind in "uce")
    log += PBS.format(at="12:00:00", kind="E", times=times + " end=1772366400", more="Exit_status=0")
    with pytest.warns(UnlikelyJobsWarning, match="gave nodes back while they ran"):
        jobs = gd.read_jobs(write(log))
    assert (len(jobs), jobs.attrs["rejected"]) == (1, {})


RUNAI = "Workload name,Project,Submitted by,Created,Started,Ended,Allocated GPUs,Requested GPUs,Status\n"


def test_workloads_that_gave_their_gpus_back(write) -> None:
    day = "2026-03-01T{}:00:00Z"
    begin, end = day.format("08"), day.format("10")
    rows = [
        f"a,p,u,{begin},{begin},{end},0,4,Completed",
        f"b,p,u,{begin},{begin},{end},4,4,Stopped",
        f"c,p,u,{begin},{begin},,2,4,Running",
        f"d,p,u,{begin},,,0,4,Pending",
        f"e,p,u,{begin},{begin},,0,4,Running",
    ]
    with pytest.warns(UnlikelyJobsWarning, match="1 workload ended with 0 allocated GPUs"):
        jobs = gd.read_jobs(write(RUNAI + "\n".join(rows)))
    assert jobs["gpus"].tolist() == [4, 4, 2, 4, 0]
    assert jobs["status"].tolist() == ["completed", "cancelled", "running", "pending", "running"]
    with pytest.warns(UnlikelyJobsWarning, match="no job of this log names a GPU"):
        gd.read_jobs(write(RUNAI + rows[0].replace("0,4", "0,")))


@pytest.mark.parametrize(
    ("notes", "share", "gpus"),
    [
        ({"gpu-fraction": "0.5"}, None, 0.5),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "4"}, None, 2),
        ({"gpu-memory": "40000", "runai-allocated-gpus": "0.5"}, None, 0.5),
        ({"gpu-memory": "20480", "gpu-fraction-num-devices": "2"}, 1 / 81920, 0.5),
    ],
)
def test_parts_of_gpus_in_annotations(write, notes: dict[str, str], share: float | None, gpus: float) -> None:
    begin, end = "2026-03-01T08:00:00Z", "2026-03-01T10:00:00Z"
    status = {
        "phase": "Succeeded",
        "startTime": begin,
        "containerStatuses": [{"state": {"terminated": {"finishedAt": end}}}],
    }
    pods = [
        {
            "metadata": {"name": name, "namespace": "v", "creationTimestamp": begin, "annotations": notes},
            "spec": {"containers": [{"resources": {"limits": {resource: "1"}}}]},
            "status": status,
        }
        for name, resource in (("whole", "nvidia.com/gpu"), ("part", "cpu"))
    ]
    path = write(json.dumps({"kind": "List", "items": [{"kind": "Pod", **pod} for pod in pods]}))
    shares = {"gpu-memory": share} if share else None
    assert gd.read_jobs(path, "pods", gpu_share=shares)["gpus"].tolist() == pytest.approx([1, gpus])
    if share:
        with pytest.warns(UnlikelyJobsWarning, match="gpu-memory did not count.*gpu-memory=1/81920"):
            gd.read_jobs(path, "pods")


def test_a_parallel_job_of_htcondor_asks_for_gpus_of_each_machine(write) -> None:
    ad = {"ClusterId": 1, "Owner": "u", "QDate": 1772355600, "JobStartDate": 1772355600, "CompletionDate": 1772359200}
    ad |= {"JobStatus": 4, "RemoteWallClockTime": 3600, "RequestGPUs": 2, "CurrentHosts": 0}
    hosts = [{}, {"MinHosts": 1, "MaxHosts": 1}, {"JobUniverse": 11, "MinHosts": 4, "MaxHosts": 4}]
    ads = [{**ad, "ProcId": place, **each} for place, each in enumerate(hosts)]
    assert gd.read_jobs(write(json.dumps(ads)))["gpus"].tolist() == [2, 2, 8]
