"""Damaged logs: a small valid one of every format, ways to damage it, and what must hold of whatever is left."""

from __future__ import annotations

import functools
import json
import random
import re
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from gpudemand._validation import InputError
from gpudemand.jobs import read_jobs, read_prometheus
from gpudemand.jobs.read import REPLACED, SAME_ID

FIXTURES = Path(__file__).parent / "fixtures"


def _lines(header: str, row: str, n: int = 7) -> bytes:
    return "".join([header and header + "\n", *(row.format(i=i, h=f"{i:02}") + "\n" for i in range(1, n + 1))]).encode()


def _philly() -> bytes:
    times = {"start_time": "2017-10-09 07:10:00", "end_time": "2017-10-09 08:10:00"}
    attempt = {**times, "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}
    job = {"status": "Pass", "vc": "v1", "user": "u1", "submitted_time": "2017-10-09 07:00:00", "attempts": [attempt]}
    return json.dumps([{**job, "jobid": f"application_{i}"} for i in range(7)], indent=0).encode()


def _prometheus() -> bytes:
    series = [{"metric": {"namespace": f"n{i}"}, "values": [[1714521600 + 60 * i, f"{i}"]]} for i in range(7)]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}).encode()


_DAY, _END = "2024-05-01T{h}:00:00", "2024-05-02T00:00:00"
#: Name -> format and contents of a valid log of seven jobs of one GPU or more.
LOGS: dict[str, tuple[str, bytes]] = {
    "canonical": (
        "canonical",
        _lines(
            "job_id,user,submit,start,end,gpus,status", f"{{i}},ada,{_DAY}Z,{_DAY}Z,2024-05-02T00:00:00Z,2,completed"
        ),
    ),
    "canonical-quoted": (
        "canonical",
        _lines("job_id,user,submit,start,end,gpus", f'"{{i}}","ada, ""the""",{_DAY}Z,{_DAY}Z,{_END}Z,"2"'),
    ),
    "sacct": (
        "sacct",
        _lines(
            "JobID|User|State|Submit|Start|End|AllocTRES",
            f"{{i}}|ada|COMPLETED|{_DAY}|{_DAY}|2024-05-02T00:00:00|gres/gpu=2",
        ),
    ),
    "swf": (
        "swf",
        b"; UnixStartTime: 1714521600\n" + _lines("", "{i} {i}0 5 100 8 -1 -1 8 -1 -1 1 3 1 -1 -1 -1 -1 -1"),
    ),
    "focus": (
        "focus",
        _lines(
            "ChargePeriodStart,ChargePeriodEnd,ConsumedQuantity,ConsumedUnit,Tags,x_GPUs",
            _DAY + 'Z,2024-05-02T00:00:00Z,4,Hours,"{{""user"": ""u{i}""}}",8',
        ),
    ),
    "helios": (
        "helios",
        _lines(
            "job_id,user,vc,gpu_num,state,submit_time,start_time,end_time",
            f"{{i}},u1,vc1,8,COMPLETED,{_DAY},{_DAY},{_END}",
        ),
    ),
    "acme": (
        "acme",
        _lines(
            "job_id,user,gpu_num,type,state,submit_time,start_time,end_time",
            f"{{i}},u1,8,Pretrain,COMPLETED,{_DAY}+08:00,{_DAY}+08:00,{_END}+08:00",
        ),
    ),
    "philly": ("philly", _philly()),
    "philly-pollux": ("philly-pollux", _lines("timestamp,duration,num_gpus,cluster", f"{_DAY},3600,4,v{{i}}")),
    "pai": ("pai", _lines("", "j{i},worker,4,Terminated,15{i},3750,600.0,29.3,50.0,V100")),
    "openb": (
        "openb",
        _lines(
            "name,num_gpu,gpu_milli,pod_phase,creation_time,scheduled_time,deletion_time",
            "p{i},1,460,Running,0,1{i},3600",
        ),
    ),
    "dlrm": ("dlrm", _lines("instance_sn,app_name,gpu_request,creation_time,deletion_time", "s{i},app,2,1{i},3600")),
    "genai": ("genai", _lines("gmt_create,exec_time_seconds,groupId", f"{_DAY},12.5,g{{i}}")),
    "spot": (
        "spot",
        _lines(
            "job_name,organization,gpu_model,gpu_request,worker_num,submit_time,duration", "s{i},o,A100,8,4,6{i},3600"
        ),
    ),
    "dirlab": ("dirlab", _lines("user,gpu_num,interval,run_time", "u{i},2,60,3600")),
    "pbs": (
        "pbs",
        _lines(
            "",
            "03/01/2026 10:01:00;E;{i}.s;user=u{i} qtime=1772355600 start=1772355660 "
            "Resource_List.ngpus=4 end=1772362860",
        ),
    ),
    "sge": (
        "sge",
        _lines("", "q:n1:g1:u{i}:t:10{i}:s:0:1772355600:1772355660:1772362860:0:0:" + ":" * 21 + "1:0:::-l gpu=4:::::"),
    ),
    "lsf": (
        "lsf",
        _lines(
            "",
            '"JOB_FINISH" "10.1" 1772362860 10{i} 1001 3 8 1772355600 0 0 1772355660 "u{i}" "q" "" "" "" "h" '
            '"" "" "" "" "" 0 1 "n1" 64 60.0 "t" "c" 1 0 "" "p" 0 8 "num=4"',
        ),
    ),
    "simulator": ("simulator", _lines("job_id,arrival_s,service_sec,gpu_count", "{i},6{i},3600,2")),
}
HEADERLESS = ("pai", "pbs", "sge", "lsf")
USAGE: dict[str, bytes] = {
    "prometheus": _prometheus(),
    "prometheus-long": _lines("timestamp,namespace,value", "171452160{i},n{i},4"),
    "prometheus-wide": _lines("timestamp,vision,speech", "171452160{i},4,0.5"),
}

_TOKENS = (
    *(
        '"',
        '""',
        "'",
        ",",
        "|",
        ";",
        " ",
        "\t",
        "\n",
        "\r\n",
        "\r",
        "\0",
        "\ufeff",
        "\u2028",
        "\x1a",
        "-",
        ".",
        "e",
        "=",
    ),
    *("9" * 400, "1e999", "nan", "inf", "null", "NaN", "\u0663", "-1", "1970-01-01", "{", "}", "[", "]", "\\", "0"),
)

_VALUES = (
    "",
    "0",
    "-1",
    "2",
    "0.5",
    "null",
    "None",
    "nan",
    "1e999",
    "9" * 400,
    "true",
    "x",
    "1714521600",
    "1714521600000",
)


def mutate(data: bytes, seed: int) -> bytes:
    """Damage a file in one to four places: bytes, tokens, lines, a cut, a duplicate."""
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 4)):
        data = rng.choice(_DAMAGE)(data, rng)
    return data


def _token(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(_TOKENS).encode() + data[at + rng.choice((0, 0, 1, 5)) :]


def _value(data: bytes, rng: random.Random) -> bytes:
    """Another value in place of a word or a number."""
    found = list(re.finditer(rb"[A-Za-z0-9.]+", data))
    start, end = rng.choice(found).span() if found else (0, 0)
    return data[:start] + rng.choice(_VALUES).encode() + data[end:]


def _two_quotes(data: bytes, rng: random.Random) -> bytes:
    """A quotation mark at the start of two fields, and at times at the end of the second."""
    fields = [match.start() for match in re.finditer(rb'(?<=[,|\n])[^,|\n"]', data)]
    first, second = sorted(rng.sample(fields, 2)) if len(fields) > 1 else (0, len(data))
    return data[:first] + b'"' + data[first:second] + b'"' + data[second:]


def _byte(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:a] + data[b:] if rng.random() < 0.5 else data[:b]


def _order(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines or [b"\n"]))
    return b"".join(lines)


_DAMAGE: tuple[Callable[[bytes, random.Random], bytes], ...] = (_token, _value, _two_quotes, _byte, _cut, _order)


def read(name: str, data: bytes, folder: Path) -> pd.DataFrame | None:
    """Read a log that may be damaged; None if it is refused in one sentence that names the file."""
    path = folder / "log.dat"
    path.write_bytes(data)
    (folder / "pai_job_table.csv").write_bytes((FIXTURES / "pai/pai_job_table.csv").read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of rows left out, and of what does not add up
        try:
            if name in USAGE:
                return read_prometheus(path, tz="UTC")
            return read_jobs(path, LOGS[name][0], tz="Asia/Shanghai", origin="2024-01-01")
        except InputError as error:
            if path.name not in str(error):
                raise AssertionError(f"the message does not name the file: {error}") from error
            return None


def text_lines(data: bytes) -> list[str]:
    """Lines as any editor shows them."""
    return re.split("\r\n|\r|\n", data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "backslashreplace"))


def count_rows(name: str, data: bytes) -> int:
    """Rows that a file holds, counted without the readers."""
    if name == "philly":
        return sum(max(1, len(job["attempts"])) for job in json.loads(data.decode("utf-8-sig", "backslashreplace")))
    lines = [line for line in text_lines(data) if line.strip(" \t\f")]
    if name == "swf":
        comments = [line for line in lines if line.lstrip(" \t\f").startswith(";")]
        return len(lines) - sum(not _is_job(line.lstrip("; \t\f").split()) for line in comments)
    return len(lines) - (name not in HEADERLESS)


def _is_job(fields: list[str]) -> bool:
    """Whether a comment of SWF is a job that somebody commented out: eighteen numbers."""
    return len(fields) == 18 and all(re.fullmatch(r"[+-]?[0-9.]+", field) for field in fields)


def gpu_seconds(jobs: pd.DataFrame) -> pd.Series:
    """GPU-seconds of each job, zero without an end."""
    held = jobs["end"] - jobs["start"].fillna(jobs["submit"])
    return (jobs["gpus"] * held.dt.total_seconds()).fillna(0.0)


def check_jobs_of(name: str, data: bytes, folder: Path) -> pd.DataFrame | None:
    """Assert that no row of a damaged log is lost, and that rows that are whole count as they did."""
    jobs = read(name, data, folder)
    if jobs is None:
        return None
    rejected = jobs.attrs["rejected"]
    assert len(jobs) + sum(rejected.values()) == count_rows(name, data), rejected
    if (
        name != "philly"
        and text_lines(data)[0] == text_lines(LOGS[name][1])[0]
        and not {REPLACED, SAME_ID} & set(rejected)
    ):
        whole = Counter(row for line, row in rows_by_line(name, folder) for _ in range(text_lines(data).count(line)))
        lost = whole - Counter(_signatures(jobs))
        # Times of ``dirlab`` are sums over the lines before: a damaged line may move the others out of the calendar.
        assert sum(lost.values()) <= (sum(rejected.values()) if name == "dirlab" else 0), lost
    return jobs


@functools.cache
def rows_by_line(name: str, folder: Path) -> list[tuple[str, tuple[str, float]]]:
    """Lines of the valid log, each with user and GPU-seconds of its job."""
    jobs = read(name, LOGS[name][1], folder)
    assert jobs is not None
    assert len(jobs) == 7
    return list(zip(text_lines(LOGS[name][1])[-8:-1], _signatures(jobs), strict=True))


def _signatures(jobs: pd.DataFrame) -> list[tuple[str, float]]:
    return list(zip(jobs["user"].fillna("").tolist(), gpu_seconds(jobs).round(3).tolist(), strict=True))


def check_usage_of(name: str, data: bytes, folder: Path) -> bool:
    """Assert that what is left of damaged usage is finite, and no more than the file holds; False if it is refused."""
    usage = read(name, data, folder)
    if usage is not None:
        assert usage["y"].between(0, 1e300).all()
        cells = data.count(b"\n") + data.count(b"\r") + data.count(b",") + data.count(b"[")
        assert len(usage) + sum(usage.attrs["rejected"].values()) <= cells + 1
    return usage is not None
