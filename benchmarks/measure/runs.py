"""`measure_training_cost`: training runs measured, each in a process of its own."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure.child import OUT_OF_MEMORY
from benchmarks.measure.meter import (
    ENVIRONMENT_COLUMNS,
    PLAN_COLUMNS,
    Configuration,
    RowFile,
    Sampling,
    configuration_from_row,
    parse_rows,
)
from benchmarks.measure.networks import ZOO, load_networks
from gpudemand import _parallel
from gpudemand._array import STRING
from gpudemand._child import Child
from gpudemand._validation import (
    InputError,
    RejectedRowsWarning,
    check_choice,
    check_columns,
    check_number,
    stack_level,
)
from gpudemand.cost.measurements import TEXT_COLUMNS


class MeasuringProcess(Child):
    """A fresh Python process that trains jobs on request and is killed at a timeout; on ``cpu`` it sees no GPU."""

    def __init__(self, device: str) -> None:
        super().__init__(["-m", "benchmarks.measure.child"], _environment(device))
        self._timed_out = False

    def request(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a request and return the answer, or the cause of death of a process that did not answer."""
        timer = threading.Timer(timeout_s, self._abort)
        timer.start()
        try:
            answer = self.ask(message)
        finally:
            timer.cancel()
        return self._cause_of_death(timeout_s) if answer is None else answer

    def _abort(self) -> None:
        self._timed_out = True
        self.kill()

    def _cause_of_death(self, timeout_s: float) -> dict[str, Any]:
        code = self.wait()
        if self._timed_out:
            return {"status": "timeout", "message": f"not finished within {timeout_s:g} s"}
        if code in (-signal.SIGTERM, -signal.SIGINT):
            # The run is being stopped from outside: the job is not recorded, and measured by the next run.
            raise KeyboardInterrupt("the measuring process was stopped")
        if sys.platform != "win32" and code == -signal.SIGKILL:
            return {"status": "oom", "message": "killed by the system"}
        found = OUT_OF_MEMORY.search(self.said())
        if found:
            return {"status": "oom", "message": f"ended with code {code}: {found[0]}"}
        return {"status": "error", "message": f"the process ended with code {code}"}


def _environment(device: str) -> dict[str, str]:
    # The process finds this package and modules of networks where this process does.
    extra = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    extra |= {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {**os.environ, **extra, **({"CUDA_VISIBLE_DEVICES": "-1"} if device == "cpu" else {})}


#: Measured columns in the order of the file. Times in seconds, memory in GiB; empty where unknown.
MEASURED_COLUMNS = (
    *("status", "message", "step_time_s", "step_time_p10_s", "step_time_p90_s", "n_steps", "first_step_s", "start_s"),
    *("wall_s", "memory_gib", "resident_gib", "baseline_gib", "allocated_gib", "reserved_gib", "device_gib"),
    *("device_gib_source", "model_gib", "parameters", "process"),
)
COLUMNS = ("key", *PLAN_COLUMNS, *MEASURED_COLUMNS, *ENVIRONMENT_COLUMNS)
_MAKE = "make one with measure_training_cost."


@dataclass(frozen=True)
class Progress:
    """Finished and all rows, seconds left by the mean of each framework's rows so far, and the last finished row."""

    done: int
    total: int
    left_s: float
    row: Mapping[str, Any]


def measure_training_cost(
    plan: str | os.PathLike[str] | pd.DataFrame,
    out: str | os.PathLike[str],
    *,
    steps: int = 8,
    warmup: int = 2,
    min_time_s: float = 0.5,
    timeout_s: float = 300.0,
    memory_limit_gib: float | None = None,
    process: str = "fresh",
    networks: str = ZOO,
    progress: Callable[[Progress], None] | None = None,
) -> pd.DataFrame:
    """Train every job of a plan for a few steps and record step time and memory.

    While a ``dask.distributed.Client`` is active, jobs in fresh processes run on its workers; give each machine one
    worker with one thread, so that jobs do not disturb each other.

    A step is forward pass, loss, backward pass and optimizer update on synthetic data on the device: eager (or
    ``torch.compile``) in PyTorch, the compiled step of ``keras.Model.fit`` in Keras. Each row is synced to disk; called
    again with the same file, a run resumes. Jobs run in the order of their keys, which are hashes, so that finished
    rows are a random sample of the plan.

    Parameters
    ----------
    plan : path-like or DataFrame
        A row a job: ``framework``, ``network`` and, unless they have their defaults, the other columns of
        `benchmarks.measure.meter.Configuration`.
    out : path-like
        CSV file that receives the rows.
    steps : int, default=8
        Timed steps at least; they continue up to `min_time_s` in all, or 200 steps. Three suffice if they take 15 s.
    warmup : int, default=2
        Untimed steps before, at least one. The first is reported as ``first_step_s`` (tracing, compilation, tuning);
        ``start_s`` is the time of imports and of building the model.
    min_time_s : float, default=0.5
        See `steps`.
    timeout_s : float, default=300
        Limit of a job including the start of its process; then it is killed and recorded as ``timeout``.
    memory_limit_gib : float, optional
        Address space of a job beyond its libraries (on Linux); exceeding it is recorded as ``oom``.
    process : {"fresh", "shared"}
        ``fresh``: a process a job. ``shared``: a process a framework, its allocator reset between jobs, restarted after
        an error; for GPUs, where the start takes longer than the measurement. Not for memory on a CPU.
    networks : str
        Module that builds the networks of the plan, by its name or the path of a ``.py`` file, with functions
        ``names()``, ``kind(name)`` and ``build(name, framework, input_shape, n_classes, width=, depth=, vocabulary=)``.
        By default ``benchmarks.zoo``, which has those of the bundled measurements.
    progress : callable, optional
        Receives a `Progress` after each row.

    Returns
    -------
    DataFrame
        All rows of `out`: key, job, ``status`` (ok, oom, timeout, error), measurements, environment. ``memory_gib`` is,
        on a CPU, the peak of resident memory beyond that before the first step (without model and data; see
        ``model_gib``), on a GPU the memory that the whole process held of the device.

    Raises
    ------
    InputError
        For an invalid plan or option, or a file that has other columns (which stays as it is), is damaged, or is being
        written.
    """
    sampling = Sampling(
        int(check_number("steps", steps, 1, integer=True)),
        int(check_number("warmup", warmup, 1, integer=True)),
        check_number("min_time_s", min_time_s, 0),
    )
    limit = memory_limit_gib if memory_limit_gib is None else check_number("memory_limit_gib", memory_limit_gib, 0)
    if limit is not None and sys.platform != "linux":
        raise InputError("memory_limit_gib needs Linux; leave it out.")
    check_choice("process", process, ("fresh", "shared"))
    request = {"sampling": asdict(sampling), "memory_limit_gib": limit, "networks": networks}
    runner = _Runner(request, check_number("timeout_s", timeout_s, 0, open_low=True), process == "shared")
    jobs = read_plan(plan, networks)
    with RowFile(out, COLUMNS) as rows, closing(runner):
        _run(jobs, rows, runner, progress or (lambda _: None))
    return read_rows(out)


def read_plan(plan: str | os.PathLike[str] | pd.DataFrame, networks: str = ZOO) -> list[Configuration]:
    """Configurations of a plan, without duplicates: a CSV file or a table with the columns of `Configuration`.

    Missing columns take their defaults. An `InputError` for an invalid row counts rows from 1.
    """
    known, jobs = load_networks(networks), dict[str, Configuration]()
    for number, row in enumerate(_plan_rows(plan), start=1):
        try:
            job = configuration_from_row(row)
            job.check_network(known)
        except InputError as error:
            raise InputError(f"row {number} of the plan: {error}") from error
        jobs[job.key] = job
    if not jobs:
        raise InputError("the plan has no rows.")
    return list(jobs.values())


def _plan_rows(plan: str | os.PathLike[str] | pd.DataFrame) -> list[dict[str, object]]:
    if isinstance(plan, pd.DataFrame):
        return [{str(name): value for name, value in row.items()} for row in plan.to_dict("records")]
    path = Path(plan)
    if not path.is_file():
        raise InputError(f"there is no plan file {path.name!r}; a plan is a CSV file with a row a job.")
    names, *rows = parse_rows(path.read_bytes(), path.name) or [[]]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _run(plan: list[Configuration], rows: RowFile, runner: _Runner, report: Callable[[Progress], None]) -> None:
    finished = rows.read()
    seconds = [(row["framework"], float(row["wall_s"] or 0)) for row in finished]
    keys = {row["key"] for row in finished}
    total = len({job.key for job in plan} | keys)
    left = [job for job in plan if job.key not in keys]
    left.sort(key=lambda job: (runner.shared * job.framework, job.key))
    # Side by side on Dask's workers alone: jobs that share a machine disturb each other.
    measured = map(runner.measure, left) if runner.shared else _parallel.stream(runner.measure, left, n_jobs=1)
    for place, (job, row) in enumerate(zip(left, measured, strict=True), start=1):
        rows.append(row)
        seconds.append((job.framework, row["wall_s"]))
        left_s = _estimate(seconds, [later.framework for later in left[place:]])
        report(Progress(total - len(left) + place, total, left_s, row))


def _estimate(seconds: list[tuple[str, float]], frameworks: list[str]) -> float:
    """Seconds of further rows by the means of their frameworks, or by the mean of all for a new framework."""
    table = pd.DataFrame(seconds, columns=["framework", "seconds"])
    means = table.groupby("framework")["seconds"].mean()
    return float(means.reindex(frameworks).fillna(table["seconds"].mean()).sum())


class _Runner:
    """Measures one job after another, in fresh processes or in a shared one."""

    def __init__(self, request: dict[str, Any], timeout_s: float, shared: bool) -> None:
        self.shared = shared
        self._request = request
        self._timeout_s = timeout_s
        self._process: MeasuringProcess | None = None
        self._serves: tuple[str, str] | None = None

    def measure(self, job: Configuration) -> dict[str, Any]:
        """Return the row of one job."""
        start = time.perf_counter()
        process = self._process_for(job)
        answer = process.request({**self._request, "configuration": asdict(job)}, self._timeout_s)
        if not self.shared or answer["status"] in ("error", "timeout") or process.ended:
            self.close()
        mode = "shared" if self.shared else "fresh"
        return {"key": job.key, **asdict(job), **answer, "process": mode, "wall_s": time.perf_counter() - start}

    def _process_for(self, job: Configuration) -> MeasuringProcess:
        if self._process is None or self._serves != (job.framework, job.device):
            self.close()
            self._process, self._serves = MeasuringProcess(job.device), (job.framework, job.device)
        return self._process

    def close(self) -> None:
        """End the process, if any."""
        if self._process is not None:
            self._process.close()
            self._process = None


def read_rows(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read measured rows, also while the file is written: a last line that lacks fields is left out with a warning.

    Parameters
    ----------
    path : path-like
        Of `measure_training_cost`.

    Returns
    -------
    DataFrame
        A row a job, with numeric and text columns.

    Raises
    ------
    InputError
        If there is no such file, it is damaged, or it holds other columns.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"there is no file of rows {file.name!r}; {_MAKE}")
    whole = _whole_rows(file)
    rows = pd.read_csv(io.BytesIO(whole), dtype=dict.fromkeys(TEXT_COLUMNS, STRING))
    for name in rows.columns.intersection(COLUMNS).difference(TEXT_COLUMNS):
        if not _all_finite(rows[name].dropna()):
            raise InputError(f"the column {name!r} of {file.name} holds what is no number; remove that row.")
    return check_columns(rows, COLUMNS, f"{file.name}")


def _whole_rows(file: Path) -> bytes:
    """Content of a file without a last line that is being written; an editor leaves out but its end."""
    content = file.read_bytes()
    whole, end, last = content.rpartition(b"\n")
    table = parse_rows(whole + end, file.name)
    if not table:
        raise InputError(f"{file.name} has no complete line; {_MAKE}")
    if not last.strip():
        return whole
    with suppress(InputError):
        if len(parse_rows(content, file.name)) > len(table):
            return content
    message = f"the last line of {file.name} is not complete and is left out; if nothing writes it, end or remove it."
    warnings.warn(message, RejectedRowsWarning, stacklevel=stack_level())
    return whole


def _all_finite(values: pd.Series) -> bool:
    try:
        return bool(np.isfinite(values.astype("float64")).all())
    except (ValueError, OverflowError):  # text, hundreds of digits
        return False
