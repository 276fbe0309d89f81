"""Ratios of the run times of the same work on two GPU types: measured in a log, predicted where it shows none."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError
from gpudemand.cost.devices import device
from gpudemand.jobs.as_of import seconds_since, start_times
from gpudemand.jobs.table import check_jobs
from gpudemand.planning.runtime.random_effects import random_effects, variance_within
from gpudemand.planning.scenarios.changes import NetworkCosts

#: Columns that tell whether two jobs did the same work.
_WORK = ("user", "name", "network", "gpus", "batch_size", "precision", "epochs", "samples")
#: Standard deviation of the logarithm of predicted ratios: what an unmeasured GPU costs in accuracy.
_PREDICTED_SD = 0.3


class MeasuredRunTimes:
    """Run times on another GPU type, from the jobs of a log that did the same work on both.

    Work is what agrees in user, name or network, GPUs and, where the log has them, batch size, precision, epochs and
    samples. Its ratio is that of the median run times of completed jobs. Ratios are relative to the predicted ones and
    shrunk twice by their evidence, as in a random-effects meta-analysis: those of each work towards their mean, and
    that mean, which stands for all other work, towards the prediction.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table; what a log names besides (``name``, ``network``, ``batch_size`` ...) tells work apart.
    step_costs : CostStepTime, optional
        Predicts ratios of the jobs whose networks it knows, and whether memory suffices. Those of other jobs are the
        geometric means of the ratios of bandwidth and of TFLOP/s on the data sheets, and they are taken to fit.

    Notes
    -----
    Users who choose a GPU type by the length of a job bias the ratio, as far as no column tells that work apart.

    Examples
    --------
    >>> start = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(np.arange(40), "h")
    >>> hours = np.where(np.arange(40) % 2, 1.0, 2.5)
    >>> jobs = pd.DataFrame({"user": "ada", "start": start, "end": start + pd.to_timedelta(hours, "h"), "gpus": 1.0})
    >>> jobs["gpu_type"] = np.where(np.arange(40) % 2, "H100", "A100")
    >>> MeasuredRunTimes(jobs).ratios("A100", "H100").round(2).iloc[0].to_dict()
    {'jobs_before': 20.0, 'jobs_after': 20.0, 'measured': 0.4, 'predicted': 0.37, 'ratio': 0.4}
    """

    def __init__(self, jobs: pd.DataFrame, step_costs: NetworkCosts | None = None) -> None:
        log = check_jobs(jobs, allow_unknown=True)
        run = seconds_since(log["end"], start_times(log))
        # Jobs that failed or were cancelled say little about how long the work takes.
        done = (log["status"].fillna("completed") == "completed").to_numpy() & (run > 0)
        kept = done & log["gpu_type"].notna().to_numpy()
        self.jobs, self.log_run = log[kept], pd.Series(np.log(run[kept]), log.index[kept])
        self.keys = [name for name in _WORK if name in log.columns and log[name].notna().any()]
        self.step_costs = step_costs
        self._found: dict[tuple[str, str], pd.DataFrame] = {}

    def costs(self, jobs: pd.DataFrame) -> pd.DataFrame:
        """Step time and memory of `step_costs`, for changes other than that of the GPU type."""
        if self.step_costs is None:
            raise InputError("batch size and precision need to know the networks; give step_costs=CostStepTime(...).")
        return self.step_costs.costs(check_jobs(jobs, allow_unknown=True))

    def knows(self, jobs: pd.DataFrame) -> NDArray[np.bool_]:
        """Whether `step_costs` predicts each job, rather than data sheets, shape (n_jobs,)."""
        known = check_jobs(jobs, allow_unknown=True)
        return np.zeros(len(known), dtype=bool) if self.step_costs is None else self.step_costs.knows(known)

    def move(self, jobs: pd.DataFrame, target: str) -> tuple[FloatArray, FloatArray]:
        """Run times on another GPU type relative to the present ones, and the chances that memory suffices.

        Parameters
        ----------
        jobs : DataFrame
        target : str
            GPU type.

        Returns
        -------
        tuple of two ndarray of shape (n_jobs,)
        """
        jobs = check_jobs(jobs, allow_unknown=True)
        ratio = np.ones(len(jobs))
        predicted, fits = self._predicted(jobs, target)
        types = jobs["gpu_type"].to_numpy(dtype=object)
        for source in pd.unique(types[pd.notna(types)]):
            table, rows = self.ratios(str(source), target), np.flatnonzero(types == source)
            relative = np.log(table["ratio"] / table["predicted"])
            own = self._works(jobs.iloc[rows]).map(relative).fillna(table.attrs["others"])
            ratio[rows] = predicted[rows] * np.exp(own.to_numpy(dtype=float))
        return ratio, fits

    def ratios(self, source: str, target: str) -> pd.DataFrame:
        """Ratios of run times by work that both GPU types completed.

        Returns
        -------
        DataFrame
            Index: the work; ``jobs_before``, ``jobs_after`` (completed on each type), ``measured`` (of median run
            times), ``predicted``, ``ratio`` (shrunk). ``attrs["others"]``: logarithm of the ratio over the predicted
            one for work without a row.
        """
        if (source, target) not in self._found:
            self._found[source, target] = self._ratios(source, target)
        return self._found[source, target].copy()

    def _ratios(self, source: str, target: str) -> pd.DataFrame:
        sides = [self.jobs[(self.jobs["gpu_type"] == name).to_numpy()] for name in (source, target)]
        groups = [self.log_run[side.index].groupby(self._works(side)) for side in sides]
        count = pd.concat([side.size() for side in groups], axis=1, keys=["jobs_before", "jobs_after"]).dropna()
        measured = (groups[1].median() - groups[0].median()).loc[count.index]
        first = sides[0].groupby(self._works(sides[0])).head(1)
        expected = pd.Series(np.log(self._predicted(first, target)[0]), self._works(first)).loc[count.index]
        noise = variance_within(groups) * np.pi / 2 * (1 / count).sum(axis=1)
        relative, others = _shrunk((measured - expected).to_numpy(), noise.to_numpy())
        table = count.astype(int).assign(measured=np.exp(measured), predicted=np.exp(expected))
        table["ratio"] = np.exp(expected + relative)
        table.attrs["others"] = others
        return table

    def _works(self, jobs: pd.DataFrame) -> pd.Series:
        """Name of the work of each job."""
        first, *others = (jobs[name].astype(object).astype(str) for name in self.keys)
        return first.str.cat(others, sep=" ") if others else first

    def _predicted(self, jobs: pd.DataFrame, target: str) -> tuple[FloatArray, FloatArray]:
        """Predicted ratio of run times, and the chance that memory suffices."""
        ratio, fits, known = _data_sheet_ratios(jobs, target), np.ones(len(jobs)), self.knows(jobs)
        if self.step_costs is not None and known.any():
            here = jobs[known]
            there = here.assign(gpu_type=pd.Series(target, index=here.index, dtype=jobs["gpu_type"].dtype))
            before, after = self.step_costs.costs(here), self.step_costs.costs(there)
            step = [table["step_time_s"].to_numpy(dtype=float) for table in (before, after)]
            ratio[known], fits[known] = step[1] / np.maximum(step[0], 1e-12), after["fits"].to_numpy(dtype=float)
        return ratio, fits


def data_sheet_speed(name: str) -> float:
    """Geometric mean of the bandwidth (GB/s) and TFLOP/s in fp32 of a device."""
    return float(np.sqrt(device(name).bandwidth_gb_s * device(name).fp32_tflops))


def _data_sheet_ratios(jobs: pd.DataFrame, target: str) -> FloatArray:
    """Geometric mean of the ratios of bandwidth and of TFLOP/s in fp32; 1 for jobs without a GPU type."""
    speed = {name: data_sheet_speed(name) for name in {target, *jobs["gpu_type"].dropna().astype(str)}}
    return speed[target] ** -1 * jobs["gpu_type"].map(speed).fillna(speed[target]).to_numpy(dtype=float)


def _shrunk(value: FloatArray, noise: FloatArray) -> tuple[FloatArray, float]:
    """Posterior means of values with known noise around a common mean, which itself is near 0, and that mean."""
    if not value.size:
        return value, 0.0
    effects = random_effects(value, noise)
    mean = effects.mean * _PREDICTED_SD**2 / (_PREDICTED_SD**2 + effects.error)
    return effects._replace(mean=mean).shrunk(value, noise)[0], mean
