"""Jobs on unequal machines: how much a predicted step time shortens the makespan.

DNNAbacus uses its predictions to place jobs on two machines. Here the networks of torchvision, whose step time was
measured on several GPUs in several precisions, train for a random number of steps on one GPU of each kind. Families of
networks are held out of the predictor. Makespans by measured times, relative to a lower bound: the larger of
the linear relaxation, in which a job may be divided among machines, and the longest job.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import linprog

from benchmarks.cost.methods import METHODS
from benchmarks.cost.score import predictions
from benchmarks.cost.table import table_of
from benchmarks.cost.traced import TraceCache
from benchmarks.cost.tracks import Track, held_out
from gpudemand._array import FloatArray, IntArray
from gpudemand.planning.placement import place_jobs

log = logging.getLogger(__name__)
N_DRAWS, N_JOBS = 200, 40
MACHINES = ["TITAN Xp", "TITAN RTX", "GeForce RTX 2080 Ti"]
#: Median number of steps, and the standard deviation of its logarithm.
_STEPS, _SPREAD = 1000.0, 1.0
_TRACK = Track(
    ("pytorch_gpu_benchmark",),
    lambda jobs: (jobs["mode"] == "train") & (jobs["n_gpus"] == 1),
    "family",
    held_out("family", 8),
    (0.1, 0.3),
    beside=("timm",),
)


def makespan(device: IntArray, seconds: FloatArray) -> float:
    """Time at which the last machine finishes."""
    return float(np.bincount(device, seconds[np.arange(len(device)), device], seconds.shape[1]).max())


def lower_bound(seconds: FloatArray) -> float:
    """Least makespan if jobs could be divided among machines (a linear program), at least the longest job."""
    n_jobs, n_machines = seconds.shape
    load = np.zeros((n_machines, n_jobs * n_machines + 1))
    for machine in range(n_machines):
        load[machine, machine : n_jobs * n_machines : n_machines] = seconds[:, machine]
    load[:, -1] = -1.0
    whole = np.hstack([np.kron(np.eye(n_jobs), np.ones(n_machines)), np.zeros((n_jobs, 1))])
    cost = np.append(np.zeros(n_jobs * n_machines), 1.0)
    divided = linprog(cost, A_ub=load, b_ub=np.zeros(n_machines), A_eq=whole, b_eq=np.ones(n_jobs)).fun
    return float(max(divided, seconds.min(axis=1).max()))


def first_free(seconds: FloatArray) -> IntArray:
    """Each job in turn to the machine that is free first, without a prediction."""
    free, device = np.zeros(seconds.shape[1]), np.empty(len(seconds), dtype=np.int64)
    for job, times in enumerate(seconds):
        device[job] = np.argmin(free)
        free[device[job]] += times[device[job]]
    return device


def step_times(data: Path, cache: TraceCache, *, trace: bool) -> dict[str, pd.DataFrame]:
    """Step times on every machine, a row a network and precision: measured, and by method while held out."""
    table = table_of(_TRACK, data, cache, trace=trace)
    folds = _TRACK.folds(table, _TRACK.testable(table))
    job = [table["network"].astype(str), table["precision"].astype(str), table["device_name"].astype(str)]
    methods = ("gpudemand", "augmented linear", "FLOPs only")
    outs = {name: predictions(METHODS[name], table, folds, "family") for name in methods}
    columns = {"measured": outs["gpudemand"]["y"], **{name: out["predicted"] for name, out in outs.items()}}
    found = {
        name: column.groupby([key[column.index] for key in job]).median().unstack() for name, column in columns.items()
    }
    known = found["measured"][MACHINES].dropna().index
    return {name: wide.loc[known, MACHINES] for name, wide in found.items()}


def makespans(times: dict[str, pd.DataFrame], rng: np.random.Generator) -> dict[str, float]:
    """Makespan of one draw of jobs by policy, relative to the lower bound."""
    drawn = rng.choice(len(times["measured"]), N_JOBS)
    steps = _STEPS * rng.lognormal(0.0, _SPREAD, (N_JOBS, 1))
    seconds = {name: steps * wide.to_numpy()[drawn] for name, wide in times.items()}
    true, fits = seconds.pop("measured"), np.ones((N_JOBS, len(MACHINES)), dtype=bool)
    placed = {
        "random": rng.integers(0, len(MACHINES), N_JOBS),
        "first free machine": first_free(true),
        **{f"placed by {name}": place_jobs(predicted, fits) for name, predicted in seconds.items()},
        "placed by measured times": place_jobs(true, fits),
    }
    bound = lower_bound(true)
    return {name: makespan(device, true) / bound for name, device in placed.items()}


def run(data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Log the table, mean and 90th percentile over the draws; return the ratio of every draw by policy."""
    times, rng = step_times(data, cache, trace=trace), np.random.default_rng(0)
    errors = {name: np.abs(wide / times["measured"] - 1).stack() for name, wide in times.items() if name != "measured"}
    ratios = pd.DataFrame([makespans(times, rng) for _ in range(N_DRAWS)])
    table = ratios.agg(["mean", lambda part: part.quantile(0.9)]).T.set_axis(["mean", "p90"], axis=1)
    table["median error"] = pd.Series({f"placed by {name}": error.median() for name, error in errors.items()})
    log.info("makespan over the lower bound, %d draws of %d jobs on %s", N_DRAWS, N_JOBS, ", ".join(MACHINES))
    log.info(table.to_string(float_format="{:.3f}".format))
    return ratios
