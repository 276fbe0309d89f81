"""Measure step time and memory of the jobs of a plan, in processes of their own, and the noise floor."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand import _parallel
from gpudemand._typing import STRING
from gpudemand._validation import InputError, check_choice, check_columns, check_number
from gpudemand.cost.measuring import configuration
from gpudemand.cost.measuring.configuration import Configuration
from gpudemand.cost.measuring.environment import ENVIRONMENT_COLUMNS
from gpudemand.cost.measuring.meter import Sampling
from gpudemand.cost.measuring.plan import read_plan
from gpudemand.cost.measuring.process import MeasuringProcess
from gpudemand.cost.measuring.rows import RowFile, parse_rows

STATUSES = ("ok", "oom", "timeout", "error")
#: Measured columns in the order of the file. Times in seconds, memory in GiB; empty where unknown.
MEASURED_COLUMNS = (
    "status",
    "message",
    "step_time_s",
    "step_time_p10_s",
    "step_time_p90_s",
    "n_steps",
    "first_step_s",
    "start_s",
    "wall_s",
    "memory_gib",
    "resident_gib",
    "baseline_gib",
    "allocated_gib",
    "reserved_gib",
    "device_gib",
    "device_gib_source",
    "model_gib",
    "parameters",
    "process",
)
COLUMNS = ("key", *configuration.COLUMNS, *MEASURED_COLUMNS, *ENVIRONMENT_COLUMNS)
_TEXT = (
    *("key", "framework", "network", "optimizer", "precision", "layout", "execution", "device"),
    *("status", "message", "device_gib_source", "process"),
    *("device_name", "driver", "framework_version", "backend", "python", "os", "cpu", "gpudemand_version", "date"),
)


@dataclass(frozen=True)
class Progress:
    """Progress of a run: finished and all rows, estimated seconds left, and the last finished row.

    The estimate is by the mean of the rows so far of each framework.
    """

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
        See `make_plan`.
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
        Address space of a job beyond its libraries; exceeding it is recorded as ``oom``.
    process : {"fresh", "shared"}
        ``fresh``: a process a job. ``shared``: a process a framework, its allocator reset between jobs, restarted after
        an error; for GPUs, where the start takes longer than the measurement. Not for memory on a CPU.
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
    check_choice("process", process, ("fresh", "shared"))
    runner = _Runner(sampling, check_number("timeout_s", timeout_s, 0, open_low=True), limit, process == "shared")
    jobs = read_plan(plan)
    with RowFile(out, COLUMNS) as rows, closing(runner):
        _run(jobs, rows, runner, progress or (lambda _: None))
    return read_rows(out)


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

    def __init__(self, sampling: Sampling, timeout_s: float, memory_limit_gib: float | None, shared: bool) -> None:
        self.shared = shared
        self._request = {"sampling": asdict(sampling), "memory_limit_gib": memory_limit_gib}
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
    """Read measured rows, also while the file is being written.

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
        raise InputError(f"there is no file of rows {file.name!r}; make one with measure_training_cost.")
    whole = file.read_bytes().rpartition(b"\n")[0]
    if not parse_rows(whole + b"\n", file.name):
        raise InputError(f"{file.name} has no complete line; make one with measure_training_cost.")
    rows = pd.read_csv(io.BytesIO(whole), dtype=dict.fromkeys(_TEXT, STRING))
    for name in rows.columns.intersection(COLUMNS).difference(_TEXT):
        if not _all_finite(rows[name].dropna()):
            raise InputError(f"the column {name!r} of {file.name} holds what is no number; remove that row.")
    return check_columns(rows, COLUMNS, f"{file.name}")


def _all_finite(values: pd.Series) -> bool:
    try:
        return bool(np.isfinite(values.astype("float64")).all())
    except (ValueError, OverflowError):  # text, hundreds of digits
        return False


def noise_floor(rows: pd.DataFrame, targets: tuple[str, ...] = ("step_time_s", "memory_gib")) -> pd.DataFrame:
    """Relative error of repetitions of one job: a lower bound on the error of predictions.

    Each repetition is compared with the mean of the others of its job; the difference is multiplied by
    ``sqrt((n - 1) / n)`` for n repetitions, which removes the noise of that mean, and divided by the observation.

    Parameters
    ----------
    rows : DataFrame
        What `measure_training_cost` returns; only rows with status ``ok`` count.
    targets : tuple of str
        Columns to compare.

    Returns
    -------
    DataFrame
        A row per framework, device and target: ``n_jobs``, ``n_rows``, and the relative error's ``mean``, ``median``
        and ``p90``. Without repetitions, no rows.

    Raises
    ------
    InputError
        If a column is missing.

    Examples
    --------
    >>> job = {"framework": "torch", "device": "cpu", "network": "lenet", "status": "ok"}
    >>> rows = pd.DataFrame([{**job, "repeat": i, "step_time_s": s} for i, s in enumerate((1.0, 1.1))])
    >>> noise_floor(rows, ("step_time_s",))["mean"].round(3).tolist()
    [0.067]
    """
    rows = check_columns(rows, ("framework", "device", "status", *targets), "rows")
    job = [name for name in configuration.COLUMNS if name in rows.columns and name != "repeat"]
    measured = rows[(rows["status"] == "ok").to_numpy(dtype=bool)]
    parts = [_errors(measured, job, target) for target in targets]
    errors = pd.concat(parts, ignore_index=True)
    groups = errors.groupby(["framework", "device", "target"], sort=True)["error"]
    summary = groups.agg(n_rows="size", mean="mean", median="median", p90=lambda e: e.quantile(0.9)).reset_index()
    jobs = errors.groupby(["framework", "device", "target"], sort=True)["job"].nunique().to_numpy()
    summary.insert(3, "n_jobs", jobs)
    return summary


def _errors(rows: pd.DataFrame, job: list[str], target: str) -> pd.DataFrame:
    """Relative error of each repetition of jobs that were measured more than once."""
    known = rows[rows[target].notna()]
    groups = known.groupby(job, dropna=False)
    n, total = groups[target].transform("size"), groups[target].transform("sum")
    value, number = known[target], groups.ngroup()
    others = (total - value) / (n - 1).where(n > 1)
    error = (value - others).abs() * np.sqrt((n - 1) / n) / value
    table = pd.DataFrame({"framework": known["framework"], "device": known["device"], "job": number, "error": error})
    return table.assign(target=target)[(n > 1).to_numpy()]
