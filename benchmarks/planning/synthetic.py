"""Synthetic clusters with known networks: GPU-hours per user from predicted costs, and from true ones."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand.datasets import make_cluster
from gpudemand.datasets.make import true_run_time
from gpudemand.datasets.runs import KEPT
from gpudemand.datasets.steptime import true_step_time
from gpudemand.planning.arrivals import forecast_submissions
from gpudemand.planning.runtime import RunTimeModel
from gpudemand.planning.training import TrainingRunTime
from gpudemand.planning.workload import JobDemandModel
from gpudemand.usage import usage_series


class FlawedStepTime:
    """The true step time, wrong by a factor for each network, GPU and precision, as a cost model would be."""

    def __init__(self, spread: float, seed: int) -> None:
        self.spread, self.seed = spread, seed

    def __call__(self, jobs: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Seconds of one step."""
        setting = jobs["network"].str.cat([jobs["gpu_type"], jobs["precision"]], sep=" ").astype(object)
        factor = {name: np.exp(self.spread * _normal(name, self.seed)) for name in setting.unique()}
        return true_step_time(jobs) * setting.map(factor).to_numpy(dtype=float)


def _normal(name: str, seed: int) -> float:
    return float(np.random.default_rng([seed, *name.encode()]).standard_normal())


def gpu_hours_per_user(n_users: int = 100, n_days: int = 180, seed: int = 0, spread: float = 0.4) -> pd.Series:
    """Pooled WAPE, over users, of next month's GPU-hours from predicted costs against those from true costs."""
    jobs, truth = make_cluster(n_users, n_days + 30, random_state=seed)
    origin = jobs["submit"].min().normalize() + pd.Timedelta(days=n_days)
    usage = usage_series(jobs, by=None, freq="h", value="gpus", until=origin)
    costs = TrainingRunTime(FlawedStepTime(spread, seed))
    model = JobDemandModel(run_time=RunTimeModel(costs=costs, pasts=("user",))).fit(jobs, usage)
    past = model.jobs_
    raw = true_step_time(past) / costs.step_time(past)
    true = KEPT * true_run_time(past, truth) / 3600 * past["gpus"].to_numpy()
    driven = forecast_submissions(past, true, origin)["gpu_hours"]
    predicted = model.submissions(30)["gpu_hours"]
    uncorrected = forecast_submissions(past, true / raw, origin)["gpu_hours"]
    return pd.Series(
        {
            "predicted costs": (predicted - driven).abs().sum() / driven.sum(),
            "without correction by history": (uncorrected - driven).abs().sum() / driven.sum(),
        }
    )
