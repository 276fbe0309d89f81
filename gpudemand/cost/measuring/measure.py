"""Measure what training costs: every job of a plan, a fresh process each, a row on disk each."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError, check_choice, check_columns, check_number
from gpudemand.cost.measuring import configuration
from gpudemand.cost.measuring.configuration import Configuration
from gpudemand.cost.measuring.environment import STAMP_COLUMNS
from gpudemand.cost.measuring.meter import Sampling
from gpudemand.cost.measuring.plan import read_plan
from gpudemand.cost.measuring.process import MeasuringProcess
from gpudemand.cost.measuring.rows import RowFile

STATUSES = ("ok", "oom", "timeout", "error")
#: Measured columns in the order of the file. Times in seconds, memory in GiB; empty where there is nothing to tell.
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
COLUMNS = ("key", *configuration.COLUMNS, *MEASURED_COLUMNS, *STAMP_COLUMNS)
_TEXT = (
    *("key", "framework", "network", "optimizer", "precision", "layout", "execution", "device"),
    *("status", "message", "device_gib_source", "process"),
    *("device_name", "driver", "framework_version", "backend", "python", "os", "cpu", "gpudemand_version", "date"),
)


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Parameters
    ----------
    done, total : int
        Rows finished, those of earlier runs among them, and rows of the plan.
    left_s : float
        Estimate of the seconds left, from the rows so far of the same framework.
    row : dict
        The row just finished.
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
    """Train every job of a plan for a few steps and record what that takes.

    A job is forward pass, loss, backward pass and optimizer step on synthetic data made on the device: an eager (or
    ``torch.compile``) step in PyTorch, the compiled step of ``keras.Model.fit`` in Keras. A row is on disk as soon
    as it is measured. Called again with the same file, the run goes on where it was killed. Jobs run in the order of
    their keys, which is a random one: a part of a plan is a random sample of it.

    Parameters
    ----------
    plan : path-like or DataFrame
        What to measure; see `make_plan`.
    out : path-like
        CSV file that receives the rows.
    steps : int, default=8
        Timed steps at least; they go on until they add up to `min_time_s`, 200 at most. Where three take 15 seconds,
        three are enough.
    warmup : int, default=2
        Steps dropped before, at least one. The first is reported as ``first_step_s``: it traces, compiles, tunes.
        Before it, ``start_s`` went into imports and into building the model.
    min_time_s : float, default=0.5
        See `steps`.
    timeout_s : float, default=300
        A job that takes longer, start of its process included, is killed and recorded as ``timeout``.
    memory_limit_gib : float, optional
        Address space a job may map beyond its libraries; one that asks for more is recorded as ``oom``.
    process : {"fresh", "shared"}
        ``fresh``: a process a job. ``shared``: one process a framework, allocator reset between jobs, renewed after
        an error; for GPUs, where starting takes longer than measuring. Not for memory on a CPU.
    progress : callable, optional
        Receives a `Progress` after each row.

    Returns
    -------
    DataFrame
        All rows of `out`: a key, the job, ``status`` (ok, oom, timeout, error), what was measured, the stamp.
        ``memory_gib`` is, on a CPU, the high-water mark of resident memory beyond what was resident before the first
        step (model and data are not in it; see ``model_gib``), on a GPU what the whole process held of the device.

    Raises
    ------
    InputError
        For an illegal plan or option, or a file of rows that is not one or is being written.
    """
    sampling = Sampling(
        int(check_number("steps", steps, 1, integer=True)),
        int(check_number("warmup", warmup, 1, integer=True)),
        check_number("min_time_s", min_time_s, 0),
    )
    limit = memory_limit_gib if memory_limit_gib is None else check_number("memory_limit_gib", memory_limit_gib, 0)
    runner = _Runner(sampling, check_number("timeout_s", timeout_s, 0, open_low=True), limit, process == "shared")
    check_choice("process", process, ("fresh", "shared"))
    with RowFile(out, COLUMNS) as rows:
        _run(read_plan(plan), rows, runner, progress or (lambda _: None))
    return read_rows(out)


def _run(plan: list[Configuration], rows: RowFile, runner: _Runner, report: Callable[[Progress], None]) -> None:
    finished = rows.read()
    keys = {row["key"] for row in finished}
    clock = _Clock([(row["framework"], float(row["wall_s"] or 0)) for row in finished])
    left = sorted(
        (job for job in plan if job.key not in keys), key=lambda job: (runner.shared * job.framework, job.key)
    )
    total = len({job.key for job in plan} | keys)
    with runner.running():
        for place, job in enumerate(left):
            row = runner.measure(job)
            rows.append(row)
            clock.add(job.framework, row["wall_s"])
            rest = clock.estimate([later.framework for later in left[place + 1 :]])
            report(Progress(total - len(left) + place + 1, total, rest, row))


class _Clock:
    """Seconds that rows took, by framework."""

    def __init__(self, taken: list[tuple[str, float]]) -> None:
        self._taken = taken

    def add(self, framework: str, seconds: float) -> None:
        self._taken.append((framework, seconds))

    def estimate(self, frameworks: list[str]) -> float:
        """Seconds that further rows will take; a framework not seen yet counts as the mean of all."""
        overall = float(np.mean([seconds for _, seconds in self._taken]))
        means = {name: np.mean([s for other, s in self._taken if other == name]) for name, _ in self._taken}
        return float(sum(means.get(name, overall) for name in frameworks))


class _Runner:
    """Measures one job after another, in processes of its own."""

    def __init__(self, sampling: Sampling, timeout_s: float, memory_limit_gib: float | None, shared: bool) -> None:
        self._request = {"sampling": asdict(sampling), "memory_limit_gib": memory_limit_gib}
        self._timeout_s = timeout_s
        self.shared = shared
        self._process: MeasuringProcess | None = None
        self._serves: tuple[str, str] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Leave no process behind, whatever happens inside."""
        try:
            yield
        finally:
            self._end()

    def measure(self, job: Configuration) -> dict[str, Any]:
        """Return the row of one job."""
        start = time.perf_counter()
        answer = self._ready(job).ask({**self._request, "configuration": asdict(job)}, self._timeout_s)
        if not self.shared or answer["status"] in ("error", "timeout") or self._process_ended():
            self._end()
        mode = "shared" if self.shared else "fresh"
        return {"key": job.key, **asdict(job), **answer, "process": mode, "wall_s": time.perf_counter() - start}

    def _process_ended(self) -> bool:
        return self._process is None or self._process.ended

    def _ready(self, job: Configuration) -> MeasuringProcess:
        if self._process is None or self._serves != (job.framework, job.device):
            self._end()
            self._process, self._serves = MeasuringProcess(job.device), (job.framework, job.device)
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


def read_rows(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a file of measured rows; one that is being written may be read.

    Parameters
    ----------
    path : path-like
        What `measure_training_cost` wrote.

    Returns
    -------
    DataFrame
        A row a job, with numbers and text typed.

    Raises
    ------
    InputError
        If there is no such file, or it holds other columns.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"there is no file of rows {file.name!r}; make one with measure_training_cost.")
    whole = file.read_bytes().rpartition(b"\n")[0]
    rows = pd.read_csv(io.BytesIO(whole), dtype=dict.fromkeys(_TEXT, STRING))
    return check_columns(rows, COLUMNS, f"{file.name}")


def noise_floor(rows: pd.DataFrame, targets: tuple[str, ...] = ("step_time_s", "memory_gib")) -> pd.DataFrame:
    """How far repetitions of one job lie apart: the error that the best predictor cannot get below.

    Each repetition is compared with the mean of its job's others; the difference is scaled from that mean, which is
    itself noisy, to the true one (by ``sqrt((n - 1) / n)`` for n repetitions), and divided by the observation.

    Parameters
    ----------
    rows : DataFrame
        What `measure_training_cost` returns; only rows with status ``ok`` count.
    targets : tuple of str
        Columns to judge.

    Returns
    -------
    DataFrame
        A row per framework, device and target: ``n_jobs``, ``n_rows``, and the relative error's ``mean``, ``median``
        and ``p90``. Without repetitions, no rows.

    Raises
    ------
    InputError
        If a column is absent.

    Examples
    --------
    >>> job = {"framework": "torch", "device": "cpu", "network": "lenet", "status": "ok"}
    >>> rows = pd.DataFrame([{**job, "repeat": i, "step_time_s": s} for i, s in enumerate((1.0, 1.1))])
    >>> noise_floor(rows, ("step_time_s",))["mean"].round(3).tolist()
    [0.067]
    """
    check_columns(rows, ("framework", "device", "status", *targets), "rows")
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
    """One relative error per repetition of a job that was measured more than once."""
    known = rows[rows[target].notna()]
    groups = known.groupby(job, dropna=False)
    n, total = groups[target].transform("size"), groups[target].transform("sum")
    value, number = known[target], groups.ngroup()
    others = (total - value) / (n - 1).where(n > 1)
    error = (value - others).abs() * np.sqrt((n - 1) / n) / value
    table = pd.DataFrame({"framework": known["framework"], "device": known["device"], "job": number, "error": error})
    return table.assign(target=target)[(n > 1).to_numpy()]
