"""Accounting of schedulers other than Slurm, and the JSON of Slurm, Kubernetes and OpenCost."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from gpudemand._array import STRING
from gpudemand._validation import InputError
from gpudemand.jobs.columns import LogColumns, canonical_status, map_unique, start_unstarted_at_end
from gpudemand.jobs.files import LIMITS, Limits, TextTable, first_bytes, line_blocks, read_json, read_table
from gpudemand.jobs.plausibility import not_counted, unused_shares
from gpudemand.jobs.times import EPOCH
from gpudemand.units import RESERVATIONS, format_number_of, gpu_share, parse_slurm_seconds

#: What `open_accounting` and its sisters make of every record.
FIELDS = (
    *("job_id", "user", "group", "cluster", "partition", "submit", "start", "end", "gpus", "gpu_type", "status"),
    "requested_time",
)
Record = dict[str, Any]
Opener: TypeAlias = Callable[[Path, Limits], TextTable]


def scheduled(log: LogColumns) -> pd.DataFrame:
    """Jobs whose fields have the canonical names already; one that ended without a start never held anything."""
    jobs = pd.DataFrame(
        {
            **{name: log.text(name) for name in ("job_id", "user", "group", "cluster", "gpu_type", "partition")},
            **{name: log.time(name) for name in ("submit", "start", "end")},
            "gpus": log.number("gpus", required=True),
            "status": log.status("status"),
            "requested_time": map_unique(log.text("requested_time"), parse_slurm_seconds, "float64"),
        }
    )
    other = jobs["gpu_type"].str.startswith(_OTHER).fillna(False)
    jobs["gpu_type"] = jobs["gpu_type"].str.removeprefix(_OTHER)
    shares = map_unique(
        jobs["gpu_type"], lambda name: float(log.gpu_share.get(name.lower(), gpu_share(name))), "float64"
    )
    unknown = other & ~jobs["gpu_type"].str.lower().isin([*log.gpu_share])
    log.doubts += log.table.header.get("doubts", "").splitlines()
    log.doubts += unused_shares(log.gpu_share, jobs["gpu_type"].dropna().unique())
    if unknown.any():
        names = sorted(set(jobs["gpu_type"][unknown]))
        log.doubts.append(not_counted(names, worth="1/81920" if names[0] == _MEMORY else "1"))
    elif len(jobs) and not jobs["gpus"].gt(0).any():
        log.doubts.append(_NO_GPUS)
    return start_unstarted_at_end(jobs.assign(gpus=(jobs["gpus"] * shares.fillna(1.0)).mask(unknown, 0.0)))


_NO_GPUS = (
    "no job of this log names a GPU, so that what jobs held is not known, and all GPU-hours are 0; if they had GPUs, "
    "read a log that says how many, such as a table of user, submit, start, end and gpus."
)
#: Mark of a type that is the name of a resource of which it is not known whether it is an accelerator.
_OTHER = "?"
_LIKE_GPU = re.compile(
    r"(?:^|[\s,.:\[])((?!\w*(?:mem|type|model|name|util))\w*(?:gpu|cuda|accel)\w*)=(\d+|true)\b", re.IGNORECASE
)


def _asked_by_other_name(asked: str) -> tuple[float, str | None]:
    """Number of what is called like GPUs in a request, and its marked name."""
    match = _LIKE_GPU.search(asked)
    return (float(match[2]) if match[2].isdecimal() else 1.0, _OTHER + match[1]) if match else (0.0, None)


def _table(
    records: Iterable[tuple[int, Record]], source: str, bad: Mapping[int, str], doubts: Iterable[str]
) -> TextTable:
    """Table of records, each with its line."""
    found = list(records)
    if not found and not bad:
        raise InputError(f"{source!r} holds no record of a job.")
    columns = [[_text(record.get(name)) for _, record in found] for name in FIELDS]
    rows = pa.table(columns, schema=pa.schema([(name, pa.string()) for name in FIELDS]))
    return TextTable(
        rows, np.array([line for line, _ in found], dtype=np.int64), source, bad, {"doubts": "\n".join(doubts)}
    )


def _text(value: Any) -> str | None:
    return None if value in (None, "") else f"{value:.10g}" if isinstance(value, float) else str(value)


def _epoch(value: Any) -> str | None:
    """Epoch seconds of a field; nothing where it is zero. Univa's Grid Engine writes milliseconds."""
    time = _number(value)
    if time == float("inf"):  # of hundreds of digits, which are refused as no time
        return str(value)
    return str(int(time) // (1000 if time > 1e11 else 1)) if time else None


def _number(value: Any) -> float | None:
    return float(value) if re.fullmatch(r"\d+(\.\d*)?", str(value).strip()) else None


def _opener(read: Callable[[str, list[str]], Record | None]) -> Opener:
    """Reader of a file of records, one a line; `read` gives none for a record that is no run of a job."""

    def open_lines(path: Path, limits: Limits = LIMITS) -> TextTable:
        bad: dict[int, str] = {}
        doubts: list[str] = []

        def records() -> Iterator[tuple[int, Record]]:
            for first, lines in line_blocks(path, limits):
                for number, line in enumerate(lines.to_pylist(), start=first):
                    if not line.strip() or line.startswith("#"):
                        continue
                    try:
                        record = read(line, doubts)
                    except (ValueError, IndexError, KeyError):
                        bad[number] = "no record of this format"
                        continue
                    if record is not None:
                        yield number, record

        return _table(_last_of_each(records()), path.name, bad, dict.fromkeys(doubts))

    return open_lines


def _last_of_each(records: Iterable[tuple[int, Record]]) -> Iterator[tuple[int, Record]]:
    """Records, of which one that says that a run began is none of its own once another says how it ended."""
    runs: dict[Any, tuple[int, Record]] = {}
    aborted = set()
    for line, record in records:
        if record["status"] == "aborted":
            aborted.add(record["job_id"])
            continue
        key = (record["job_id"], record["start"]) if record.get("start") else line
        if key not in runs or runs[key][1]["status"] == "running":
            runs[key] = line, record
        else:
            runs[line] = line, record
    for _, record in runs.values():
        if record["status"] == "running" and record["job_id"] in aborted:
            record["status"] = "failed"
    return iter(sorted(runs.values(), key=lambda run: run[0]))


_PBS_FIELD = re.compile(r'(\S+?)=("[^"]*"|\S*)')
_PBS_COUNT = re.compile(r"n?gpus?|naccelerators|nmics", re.IGNORECASE)
_TYPE = re.compile(r"gpu_?(?:type|model|name)=([\w.+-]+)|accelerator_model=([\w.+-]+)", re.IGNORECASE)
#: Of other records, such as a job that is put into a queue, none is a run.
_PBS_KINDS = {*"ABCDEGKLMQRSTUYaekcrsu"}
#: Phases of a job that gave nodes back while it ran (pbs_release_nodes).
_PBS_PHASES = {*"cue"}
_PBS_STATUS = {"0": "completed", "-29": "timeout", "": "failed"}


def _pbs(line: str, doubts: list[str]) -> Record | None:
    """A record of PBS or Torque: of a run that began (S), ended (E), was put back (R) or aborted (A)."""
    _, kind, job, text = line.split(";", 3)
    if kind not in _PBS_KINDS:
        raise ValueError(kind)
    if kind in _PBS_PHASES and re.search("gpu|accelerator|nmics", text, re.IGNORECASE):
        doubts.append(
            "some jobs gave nodes back while they ran (pbs_release_nodes, records u, c and e): their GPUs count as "
            "asked for until their end, which may be too many."
        )
    # An array has a record of its own beside those of its tasks.
    if kind not in "SERA" or "[]" in job:
        return None
    if kind == "A":
        return {"job_id": job, "status": "aborted"}
    field = {name: value.strip('"') for name, value in _PBS_FIELD.findall(text)}
    asked = (
        field.get("Resource_List.select") or field.get("Resource_List.nodes") or field.get("Resource_List.neednodes")
    )
    model = _TYPE.search(f"{asked} {text}")
    status = _PBS_STATUS.get(field.get("Exit_status", ""), "failed")
    gpus, name = _pbs_gpus(field, asked or ""), None
    if not gpus:
        listed = (f"{key}={value}" for key, value in field.items() if key.startswith("Resource_List."))
        # Moab has gres=name:count for each task, of which a record does not tell the number.
        gpus, name = _asked_by_other_name(re.sub(r"gres=(\w+):(?=\d)", r"\1=", " ".join(listed)))
    return {
        "job_id": job,
        "user": field["user"],
        "group": field.get("account") or field.get("group"),
        "partition": field.get("queue"),
        "submit": next((t for t in map(_epoch, (field.get(n) for n in ("etime", "qtime", "ctime"))) if t), None),
        "start": _epoch(field.get("start")),
        "end": _epoch(field.get("end")) if kind != "S" else None,
        "gpus": gpus,
        "gpu_type": name or ((model[1] or model[2]) if model else None),
        "status": {"S": "running", "R": "requeued"}.get(kind, status),
        "requested_time": field.get("Resource_List.walltime"),
    }


def _pbs_gpus(field: Mapping[str, str], asked: str) -> float:
    """GPUs of a job: its sum, or those of each chunk (``2:ncpus=8:ngpus=4+1:...``, ``2:ppn=8:gpus=4``), or as held."""
    total = [value for name, value in field.items() if _PBS_COUNT.fullmatch(name.removeprefix("Resource_List."))]
    gpus = 0.0
    for chunk in asked.split("+"):
        count, *parts = chunk.split(":")
        each = [
            float(value) for name, _, value in (p.partition("=") for p in (count, *parts)) if _PBS_COUNT.fullmatch(name)
        ]
        gpus += sum(each) * (float(count) if count.isdecimal() else 1.0)
    if total and ("ppn=" not in asked or not gpus):
        return float(total[0])
    held = re.findall(r":(\w+)=(\d+)", field.get("exec_vnode", ""))
    return gpus or sum(float(count) for name, count in held if _PBS_COUNT.fullmatch(name))


_SGE_GPUS = re.compile(r"(?:^|[\s,])(?:[\w.]*gpus?\d*|cuda|nvidia)=(\d+)(?=[\s,]|$)", re.IGNORECASE)
_SGE_TYPE = re.compile(r"gpu_?(?:type|model|name)=([\w.-]+)", re.IGNORECASE)
#: Name of a task of a parallel job, which has a record beside that of its job where ``accounting_summary`` is off.
_SGE_TASK = re.compile(r"\d+\.[A-Za-z]\S*")


def _sge(line: str, doubts: list[str]) -> Record | None:
    """A record of Grid Engine's ``accounting``; its category, in a place by version, is what the job asked for."""
    part = line.split(":")
    place = next((i for i, text in enumerate(part) if i > 30 and re.match(r"\s*-\w+ ", text)), 39)
    asked = part[place] if place < len(part) else ""
    if any(_SGE_TASK.fullmatch(text) for text in part[place + 2 : place + 3]):
        return None
    gpus, name = sum(float(count) for count in _SGE_GPUS.findall(asked)), None
    if not gpus:
        gpus, name = _asked_by_other_name(asked)
    slots, task = part[place - 5], part[place - 4]
    if gpus and slots.isdecimal() and int(slots) > 1:
        doubts.append(
            "GPUs asked for (-l gpu=4) count a job, also where it has several slots; where `qconf -sc` lists them as "
            "consumable YES rather than JOB, they are a slot: multiply them."
        )
    begin, limit, model = _epoch(part[9]), re.search(r"[hs]_rt=([\d:]+)", asked), _SGE_TYPE.search(asked)
    seconds = limit[1] if limit else ""
    return {
        "job_id": part[5] + (f".{task}" if task.isdecimal() and task != "0" else ""),
        "user": part[3],
        "group": part[2],
        "partition": part[0],
        "submit": _epoch(part[8]) or int(part[8]),
        "start": begin,
        "end": _epoch(part[10]) or _epoch(part[8]),
        "gpus": gpus,
        "gpu_type": name or (model[1] if model else None),
        "status": "cancelled" if not begin else "completed" if part[11] == part[12] == "0" else "failed",
        "requested_time": f"0:0:{seconds}" if seconds.isdecimal() else seconds,
    }


_LSF_TOKEN = re.compile(r'"((?:[^"]|"")*)"|(\S+)')
_LSF_OTHER = re.compile(
    r"JOB_(?:NEW|START|ACCEPT|STATUS|RESIZE\w*|SWITCH|MOVE|MODIFY2|SIGNAL|EXECUTE|CLEAN)|EVENT_ADRSV_FINISH"
)
#: Numbers are for each host, unless they are for each task; of slices (MIG) the compute of seven is written.
_LSF_GPUS = re.compile(r"(?:num|ngpus\w*)=(?P<count>\d+(?:\.\d+)?|\.\d+)(?P<task>/task)?(?:.*?\bmig=(?P<slice>\d))?")


def _lsf(line: str, doubts: list[str]) -> Record | None:
    """A record of LSF's ``lsb.acct`` of a job that ended."""
    found = [
        (match[1] if match[1] is not None else match[2], match[1] is not None) for match in _LSF_TOKEN.finditer(line)
    ]
    token = [text for text, _ in found]
    if token[0] != "JOB_FINISH":
        if _LSF_OTHER.fullmatch(token[0]):
            return None
        raise ValueError(token[0])
    place = 23 + int(token[22])
    hosts = []
    place += 1
    while found[place][1]:
        times, _, host = token[place].rpartition("*")
        hosts += [host] * int(times or 1)
        place += 1
    status = token[place]
    after = [i for i in range(place + 4, len(found)) if found[i][1]][0]  # noqa: RUF015 (an IndexError where it is cut)
    task = "".join(token[after + 6 : after + 7])
    # Not the name and the command, in which users write what they like.
    gpus, gpu_type = _lsf_gpus([text for text, quoted in found[13:14] + found[after:] if quoted], hosts)
    return {
        "job_id": token[3] + (f"[{task}]" if task.isdecimal() and task != "0" else ""),
        "user": token[11],
        "group": token[after + 1],
        "partition": token[12],
        "submit": _epoch(token[7]),
        "start": _epoch(token[10]),
        "end": _epoch(token[2]),
        "gpus": gpus,
        "gpu_type": gpu_type,
        "status": "completed" if status == "64" else "failed",
    }


def _lsf_gpus(asked: list[str], hosts: list[str]) -> tuple[float, str | None]:
    """GPUs of a job and their type, from its requests, of which the last one that names GPUs counts."""
    match = next(filter(None, map(_LSF_GPUS.search, reversed(asked))), None)
    gpus, name = (float(match["count"]), None) if match else _asked_by_other_name(" ".join(asked))
    each = hosts if match and match["task"] else set(hosts)
    part = int(match["slice"]) / 7 if match and match["slice"] else 1.0
    model = re.search(r"gmodel=(\w+)", " ".join(asked))
    return gpus * max(len(each), 1) * min(part, 1.0), name or (model[1] if model else None)


_BHIST_EVENT = re.compile(r"(?P<day>\w{3} \w{3} [ \d]\d) (?P<time>[\d:]{8})(?: (?P<year>\d{4}))?: (?P<what>.*)")


def _bhist(path: Path, limits: Limits) -> TextTable:
    """Jobs of ``bhist -l``, which breaks lines after 80 characters and says the day of the week, but no year."""
    joined: list[tuple[int, str]] = []
    for first, lines in line_blocks(path, limits):
        for number, line in enumerate(lines.to_pylist(), start=first):
            if line.startswith(" " * 21) and joined:
                joined[-1] = joined[-1][0], joined[-1][1] + line[21:]
            else:
                joined.append((number, line))
    heads = [place for place, (_, line) in enumerate(joined) if line.startswith("Job <")]
    runs: list[tuple[int, Record]] = []
    bad: dict[int, str] = {}
    for begin, end in pairwise([*heads, len(joined)]):
        try:
            runs += _bhist_runs(joined[begin:end])
        except (LookupError, ValueError):
            bad[joined[begin][0]] = "no record of this format"
    return _table(runs, path.name, bad, ())


def _bhist_runs(lines: list[tuple[int, str]]) -> Iterator[tuple[int, Record]]:
    """Runs of a job, or one that waits."""
    head = dict(re.findall(r"(Job|User|Project) <([^>]*)>", lines[0][1]))
    record: Record = {"job_id": head["Job"], "user": head["User"], "group": head.get("Project"), "status": "pending"}
    asked, ran = [], False
    for _, line in lines[1:]:
        event = _BHIST_EVENT.match(line)
        if event is None:
            continue
        what, time = event["what"], f"{_date(event['day'], event['year'])} {event['time']}"
        asked += re.findall(r"(?:Requested GPU|Requested Resources|RES_REQ) <(.*?)>(?:[,;]|$)", what)
        if what.startswith("Submitted"):
            record |= {"submit": time, "partition": "".join(re.findall(r"to Queue <([^>]*)>", what))}
        elif what.startswith("Dispatched"):
            hosts = re.findall(r"<(?:\d+\*)?([^<>]+)>", re.split(r",? (?:Allocated|Effective)", what)[0])
            record |= {"start": time, "status": "running", "hosts": hosts}
        elif what.startswith(("Done", "Exited")) and record["status"] == "running":
            gpus, gpu_type = _lsf_gpus(asked, record["hosts"])
            status = "completed" if what.startswith("Done") else "failed"
            yield lines[0][0], record | {"end": time, "status": status, "gpus": gpus, "gpu_type": gpu_type}
            record, ran = record | {"start": None, "status": "pending"}, True
    if not ran or record["status"] == "running":
        gpus, gpu_type = _lsf_gpus(asked, record.get("hosts", []))
        yield lines[0][0], record | {"gpus": gpus, "gpu_type": gpu_type}


def _date(day: str, year: str | None) -> str:
    """The last day of that name that was one of the week; nothing where there is none."""
    last = pd.Timestamp.now() + pd.Timedelta("1D")
    years = [year] if year else range(last.year, last.year - 12, -1)
    dates = (pd.to_datetime(f"{day[4:]} {each}", format="%b %d %Y", errors="coerce") for each in years)
    return next((f"{date:%Y-%m-%d}" for date in dates if f"{date:%a}" == day[:3] and date <= last), "")


open_pbs, open_sge, _open_lsf = _opener(_pbs), _opener(_sge), _opener(_lsf)


def _refuses(what: str) -> Callable[[Opener], Opener]:
    """Let an opener refuse a file that is not built like `what`."""

    def decorate(read: Opener) -> Opener:
        @functools.wraps(read)
        def open_file(path: Path, limits: Limits = LIMITS) -> TextTable:
            try:
                return read(path, limits)
            except InputError:
                raise
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                why = f"it lacks {error}" if isinstance(error, KeyError) else "its parts are of other kinds"
                raise InputError(f"{path.name!r} is not {what}: {why:.80}.") from error

        return open_file

    return decorate


@_refuses("lsb.acct or bhist -l of LSF")
def open_lsf(path: Path, limits: Limits = LIMITS) -> TextTable:
    """Read the accounting of LSF: ``lsb.acct``, or what ``bhist -l`` prints."""
    return (_bhist if re.match(r"\s*Job <", first_bytes(path)) else _open_lsf)(path, limits)


_CONDOR_STATUS = ("", "pending", "running", "cancelled", "completed", "pending", "running", "running")


@_refuses("a history of HTCondor, as -json, -long or -af:h print it, with ClusterId")
def open_htcondor(path: Path, limits: Limits = LIMITS) -> TextTable:
    """Read the history of HTCondor: of ``-json``, ``-long``, ``-af:h`` and ``-format`` as CSV."""
    kind = first_bytes(path).lstrip()
    if kind[:1] in "[{":
        found = read_json(path, limits)
        rows = [(number, ad) for number, ad in enumerate(found if isinstance(found, list) else [found], start=1)]
    elif re.match(r"\w+ = ", kind):
        rows = list(_classads(path, limits))
    else:
        rows = _rows(path, limits)
    return _table(((line, run) for line, ad in rows for run in _condor_runs(ad)), path.name, {}, ())


def _classads(path: Path, limits: Limits) -> Iterator[tuple[int, Record]]:
    """Records of ``Name = value`` lines, which a blank line or one of asterisks ends."""
    ad: Record = {}
    for first, lines in line_blocks(path, limits):
        for number, line in enumerate(lines.to_pylist(), start=first):
            name, mark, value = line.partition(" = ")
            if mark:
                ad[name.strip()] = value.strip().strip('"')
            elif ad:
                yield number, ad
                ad = {}
    if ad:
        yield number, ad


def _rows(path: Path, limits: Limits) -> list[tuple[int, Record]]:
    """Rows of a table with a header, separated by commas or by blanks."""
    header = first_bytes(path).partition("\n")[0]
    if not re.search(r"\bClusterId\b", header, re.IGNORECASE):
        how = "print one with condor_history -af:h, take -json or -long, or write one into the first line of CSV"
        raise InputError(f"{path.name!r} has no header with ClusterId, as -af alone prints none; {how}.")
    if "," in header:
        table = read_table(path, limits)
        return list(zip(table.lines.tolist(), table.rows.to_pylist(), strict=True))
    lines = [line.split() for _, block in line_blocks(path, limits) for line in block.to_pylist()]
    named = [(n, dict(zip(lines[0], line, strict=False))) for n, line in enumerate(lines, start=1) if line]
    return named[1:]


def _condor_runs(ad: Record) -> Iterator[Record]:
    """Runs of a job of HTCondor, or one that waits; those that were evicted are one, from the first start on."""
    ad = {name.lower(): value for name, value in ad.items()}
    last, first = _condor(ad), _epoch(ad.get("jobstartdate"))
    begin, end = last["start"], last["end"]
    lost = (_number(ad.get("remotewallclocktime")) or 0.0) - (int(end) - int(begin) if begin and end else 0)
    if first and lost > 0 and first != begin:
        over = str(min(int(first) + round(lost), int(begin) if begin else sys.maxsize))
        yield {**last, "start": first, "end": over, "status": "requeued"}
        last["submit"] = over
    yield last


def _condor(ad: Record) -> Record:
    """The last run of a job; one that was removed ended when it was."""
    code = str(ad.get("jobstatus", ""))
    status = _CONDOR_STATUS[int(code)] if code.isdecimal() and int(code) < len(_CONDOR_STATUS) else None
    start = _epoch(ad.get("jobcurrentstartdate") or ad.get("jobstartdate"))
    end, ran = _epoch(ad.get("completiondate")), _number(ad.get("remotewallclocktime"))
    if not end and status == "cancelled":
        # It may have waited again when it was removed.
        end = _epoch(ad.get("enteredcurrentstatus"))
        if end and start and ran is not None:
            end = str(min(int(end), int(start) + round(ran)))
    assigned = [name for name in re.split(r"[\s,]+", str(ad.get("assignedgpus") or "")) if name]
    gpus = str(ad.get("requestgpus") or len(assigned))
    if _number(gpus) is None:
        gpus = str(ad.get("gpusprovisioned") or len(assigned) or gpus)
    # The parallel universe asks for GPUs of each of its machines.
    hosts = max(_number(ad.get(name)) or 1.0 for name in ("minhosts", "maxhosts", "currenthosts"))
    if _number(gpus) is not None:
        gpus = f"{hosts * float(gpus):g}"
    return {
        "job_id": f"{ad['clusterid']}.{ad.get('procid', 0)}",
        "user": str(ad.get("owner") or ad.get("user") or "").partition("@")[0],
        "group": ad.get("acctgroup") or ad.get("accountinggroup"),
        "submit": _epoch(ad.get("qdate")),
        "start": None if status == "pending" else start,
        "end": None if status in ("pending", "running") else end,
        "gpus": "0" if gpus.lower() in ("undefined", "error") else gpus,
        "gpu_type": ad.get("gpus_devicename") or ad.get("gpu_devicename"),
        "status": status,
    }


#: Kubernetes' names of whole accelerators and of slices (MIG) of NVIDIA, as in the specification of a pod.
K8S_GPUS = re.compile(
    r"(?:nvidia|amd)\.com/(?:gpu|mig-.+|gpu-.+|pgpu)|gpu\.intel\.com/(?:i915|xe)|habana\.ai/gaudi|google\.com/tpu"
    r"|huawei\.com/Ascend\w+|(?:hygon|cambricon|enflame|metax-tech|mthreads|iluvatar|kunlunxin|biren)\.\w+/\w+"
    r"|aws\.amazon\.com/neuron(?:device)?"
)
#: Resources of nodes that are no accelerators, and those of HAMi and Volcano that are percentages of each GPU.
_NO_DEVICE = re.compile(r"[^/]+|.*(?:rdma|hca|sriov|nic|efa|eni|ipv4|kvm|fuse|tun|vhost|storage).*", re.IGNORECASE)
_PERCENT = re.compile(r".*/(?:v?gpu-?cores|v?gpu-?mem(?:ory)?-percentage)")


@_refuses("the JSON of kubectl get pods")
def open_pods(path: Path, limits: Limits = LIMITS) -> TextTable:
    """Read the pods of ``kubectl get pods -A -o json``; the user is the namespace."""
    found = read_json(path, limits)
    pods = found.get("items", [found])
    records = [(number, _pod(pod)) for number, pod in enumerate(pods, start=1) if pod.get("kind", "Pod") == "Pod"]
    lost = [pod for _, pod in records if pod["status"] in _OVER and pod["start"] and pod["end"] is None]
    for pod in lost:
        pod["end"] = pod["start"]
    said = f"{format_number_of('pod', len(lost))} ended at a time that is not told; what such pods held does not count."
    return _table(records, path.name, {}, [said] * bool(lost))


_OVER = ("Succeeded", "Failed")


def _asked_of(containers: Iterable[Record]) -> dict[str, float]:
    asked: dict[str, float] = {}
    for container in containers:
        resources = container.get("resources", {})
        listed = {**resources.get("limits", {}), **resources.get("requests", {})}
        counts = {name: number for name, count in listed.items() if (number := _number(count)) is not None}
        part = max((count / 100 for name, count in counts.items() if _PERCENT.fullmatch(name)), default=1.0)
        for name, count in counts.items():
            asked[name] = asked.get(name, 0.0) + count * (min(part, 1.0) if K8S_GPUS.fullmatch(name) else 1.0)
    return asked


def _asked_by_pod(spec: Record) -> dict[str, float]:
    """Devices of a pod: of its containers and sidecars together, or what one that runs before them needs."""
    first = spec.get("initContainers", ())
    sidecars = [container for container in first if container.get("restartPolicy") == "Always"]
    asked = _asked_of([*spec.get("containers", ()), *sidecars])
    for place, container in enumerate(first):
        before = _asked_of([container, *(each for each in first[:place] if each in sidecars)])
        asked |= {name: max(count, asked.get(name, 0.0)) for name, count in before.items()}
    return asked


#: What KAI and Run:ai call memory of a GPU that a pod asks for, in MiB, of which one with 80 GiB has 81,920.
_MEMORY = "gpu-memory"


def _parts_of_gpus(notes: Record) -> tuple[dict[str, float], dict[str, float]]:
    """What a pod has of GPUs that it shares (KAI, Run:ai), or else the memory of which that is not told."""
    part, memory, given = (_number(notes.get(name)) for name in ("gpu-fraction", _MEMORY, "runai-allocated-gpus"))
    devices = _number(notes.get("gpu-fraction-num-devices")) or 1.0
    if part or (memory and given):
        return {"nvidia.com/gpu": part * devices if part else given or 0.0}, {}
    return {}, {_MEMORY: memory * devices} if memory else {}


def _pod(pod: Record) -> Record:
    meta, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    asked = _asked_by_pod(spec)
    gpus = {name: count for name, count in asked.items() if K8S_GPUS.fullmatch(name)}
    others = {name: count for name, count in asked.items() if name not in gpus and not _NO_DEVICE.fullmatch(name)}
    if spec.get("resourceClaims"):
        others["resource.k8s.io/claims"] = float(len(spec["resourceClaims"]))
    if not gpus:
        gpus, memory = _parts_of_gpus(meta.get("annotations") or {})
        others |= memory
    if re.fullmatch(RESERVATIONS, str(meta.get("namespace"))):
        gpus, others = {}, {}
    slices = [name.partition("mig-")[2] for name in gpus if "mig-" in name]
    gpu_type = slices[0] if len(slices) == len(gpus) == 1 else None
    if others and not gpus:
        # A number rather than the memory that goes with it.
        name = min(others, key=lambda name: (any(word in name for word in ("mem", "core", "percent")), name))
        gpu_type, gpus = _OTHER + name, {name: others[name]}
    phase, start = status.get("phase"), status.get("startTime")
    if phase == "Pending" and (given := _scheduled(status)):
        phase = "Running"  # a node keeps the devices of a pod for it while it pulls the image
        start = start or given
    return {
        "job_id": meta.get("uid") or f"{meta.get('namespace')}/{meta['name']}",
        "user": meta.get("namespace"),
        "group": meta.get("namespace"),
        "submit": meta.get("creationTimestamp"),
        "start": start if phase != "Pending" else None,
        "end": _end_of_pod(meta, status) if phase in _OVER else None,
        # `scheduled` counts the share of the one type; several have none.
        "gpus": sum(count * (1.0 if gpu_type else float(gpu_share(name))) for name, count in gpus.items()),
        "gpu_type": gpu_type,
        "status": phase,
    }


def _scheduled(status: Record) -> str | None:
    """When a pod was given to a node, None while it waits for one."""
    conditions = (each for each in status.get("conditions", ()) if each.get("type") == "PodScheduled")
    return next((each.get("lastTransitionTime") for each in conditions if each.get("status") == "True"), None)


def _end_of_pod(meta: Record, status: Record) -> str | None:
    """When the last container ended; for a pod that was evicted, when its state changed last."""
    states = [state.get("state", {}).get("terminated", {}) for state in status.get("containerStatuses", ())]
    ends = [state["finishedAt"] for state in states if state.get("finishedAt")]
    changed = [each["lastTransitionTime"] for each in status.get("conditions", ()) if each.get("lastTransitionTime")]
    return max(ends or changed, default=meta.get("deletionTimestamp"))


@_refuses("an allocation of OpenCost")
def open_opencost(path: Path, limits: Limits = LIMITS) -> TextTable:
    """Read an allocation of OpenCost or Kubecost; the user is the namespace. What nobody held (idle) is left out."""
    found = read_json(path, limits)
    sets = found["data"] if isinstance(found, dict) else found
    sets = sets.get("sets", sets) if isinstance(sets, dict) else sets
    sets = [each.get("allocations", each) for each in (sets if isinstance(sets, list) else [sets]) if each]
    each = [
        (name, part)
        for one in sets
        for name, part in one.items()
        if "__" not in (name[:2], name.rpartition("/")[2][:2])
    ]
    records = (_allocation(name, part) for name, part in each)
    return _table(enumerate(records, start=1), path.name, {}, ())


def _allocation(name: str, part: Record) -> Record:
    about = part.get("properties") or {}
    begin, end = part["start"], part["end"]
    hours = (pd.Timestamp(end) - pd.Timestamp(begin)).total_seconds() / 3600
    return {
        "user": about.get("namespace") or name,
        "group": about.get("namespace") or name,
        "cluster": about.get("cluster"),
        "job_id": f"{name}@{begin}",
        "submit": begin,
        "start": begin,
        "end": end,
        "gpus": float(part.get("gpuHours") or 0.0) / hours if hours > 0 else 0.0,
        "status": "completed",
    }


RUNAI_COLUMNS = (
    "Workload name|Workload",
    "Project",
    "Created",
    "Started",
    "Ended|Finished",
    "Allocated GPUs",
    "Status",
)


def runai(log: LogColumns) -> pd.DataFrame:
    """Workloads of Run:ai as its console exports them: the group is the project.

    What a workload holds now is none once it has ended, or while it waits: such ones count what they asked for.
    """
    held, asked = log.number("Allocated GPUs"), log.number(log.first_present("Requested GPUs", "GPU compute request"))
    status, start = log.status("Status"), log.time("Started")
    end = log.time(log.first_present("Ended", "Finished"))
    none = held.fillna(0.0).eq(0) & asked.gt(0)
    waits, ended = none & status.eq("pending").fillna(False), none & end.notna()
    gpus = held.mask(waits | ended, asked)
    log.reject(gpus.isna(), "without Allocated GPUs")
    if not gpus.gt(0).any():
        log.doubts.append(_NO_GPUS)
    if (ended & start.notna()).any():
        log.doubts.append(
            f"{format_number_of('workload', (ended & start.notna()).sum())} ended with 0 allocated GPUs, as they give "
            "them back then; what was requested counts as held."
        )
    jobs = pd.DataFrame(
        {
            "job_id": log.text(log.first_present("Workload name", "Workload")),
            **log.texts(user="Submitted by", group="Project", cluster="Cluster"),
            "submit": log.time("Created", required=True),
            "start": start,
            "end": end,
            "gpus": gpus,
            "status": status,
        }
    )
    return start_unstarted_at_end(jobs)


SLURMDBD_COLUMNS = ("id_job", "state", "time_submit", "time_start", "time_end", "tres_alloc")
_DBD_STATES = (
    *("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"),
    *("BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"),
)
#: Slurm's numbers for a limit that was not given, and for none.
_DBD_NO_LIMIT = 2**32 - 2


def slurmdbd(log: LogColumns) -> pd.DataFrame:
    """Rows of ``<cluster>_job_table``; a job that runs has the end 0.

    Kinds of resources are numbers there, which ``tres_table`` explains. 1001, the first beyond Slurm's own, counts as
    gres/gpu, unless `gpu_share` names others.
    """
    ids = [name for name in log.gpu_share if name.isdecimal()] or ["1001"]
    lists = _dbd_text(log, "tres_alloc").fillna(_dbd_text(log, "tres_req"))
    counts = map_unique(lists, lambda text: _dbd_gpus(text, log, ids), "float64")
    log.doubts += unused_shares(log.gpu_share, {each for text in lists.dropna().unique() for each in _dbd_counts(text)})
    if not any(name.isdecimal() for name in log.gpu_share):
        log.doubts.append(
            "resources are numbers in this table: 1001 counts as gres/gpu, others do not. `select id, type, name from "
            "tres_table` tells whether that is right; name another with gpu_share={'1002': 1} (--gpu-share 1002=1)."
        )
    states = log.number("state").mod(256)
    limit = log.optional_number("timelimit")
    words = states.map({float(code): canonical_status(word) for code, word in enumerate(_DBD_STATES)})
    log.exclude(log.number("deleted").eq(1), "deleted record")
    tasks = _dbd_text(log, "array_task_str")
    waits = words.eq("pending") & tasks.notna()
    array = log.text("id_array_job") + "_[" + tasks + "]"
    keys = {"user": "id_user", "group": "account", "cluster": "cluster", "partition": "partition"}
    names = [name for name in ("submit", "eligible", "start", "end") if f"time_{name}" in log]
    seconds = {name: log.number(f"time_{name}") for name in names}
    times = {name: log.since_origin(each.where(each > 0), EPOCH) for name, each in seconds.items()}
    frame = pd.DataFrame(
        {
            "job_id": log.text("id_job").mask(waits, array),
            **{name: _dbd_text(log, column) for name, column in keys.items()},
            "submit": pd.concat([times[name] for name in names if name in ("submit", "eligible")], axis=1).max(axis=1),
            "start": times["start"],
            "end": times["end"],
            "gpus": counts.fillna(0.0),
            "status": words.astype(STRING),
            "requested_time": limit.where(limit < _DBD_NO_LIMIT) * 60,
        }
    )
    return start_unstarted_at_end(frame)


def _dbd_text(log: LogColumns, name: str) -> pd.Series:
    """Column of text, missing where MySQL prints that it is."""
    text = log.text(name)
    return text.mask(text.isin(["NULL", r"\N"]).to_numpy(dtype=bool))


def _dbd_counts(text: str) -> dict[str, str]:
    """Counts of a list of resources by their numbers."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _dbd_gpus(text: str, log: LogColumns, ids: Sequence[str]) -> float:
    counts = _dbd_counts(text)
    return sum(float(counts.get(each, 0)) * log.gpu_share.get(each, 1.0) for each in ids)
