"""GPU-hours per user of synthetic clusters with known networks: from predicted and from true costs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from benchmarks import zoo
from benchmarks.planning.truth import true_run_time
from gpudemand.cost import CostModel
from gpudemand.datasets import make_cluster
from gpudemand.datasets.simulate import EXPECTED_RUN_SHARE, NETWORKS, true_step_time
from gpudemand.planning.demand import JobDemandModel, forecast_submissions
from gpudemand.planning.run_time import RunTimeModel
from gpudemand.planning.training_run_time import CostStepTime, StepTime, TrainingRunTime
from gpudemand.usage.series import usage_series

#: Networks of the synthetic cluster under the names they have in the zoo, where these differ, and their sizes there.
_IN_ZOO = {"vit_b_16": "vit_base", "bert_base": "bert", "gpt2_small": "gpt"}
_TOKENS: dict[str, tuple[int, int]] = {"bert_base": (128, 30_522), "gpt2_small": (1024, 50_257)}


class FlawedStepTime:
    """True step time times a log-normal error by network, GPU and precision, like that of a cost model."""

    def __init__(self, spread: float, seed: int) -> None:
        self.spread, self.seed = spread, seed

    def __call__(self, jobs: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Seconds of one step."""
        setting = jobs["network"].str.cat([jobs["gpu_type"], jobs["precision"]], sep=" ").astype(object)
        factor = {name: np.exp(self.spread * _normal(name, self.seed)) for name in setting.unique()}
        return true_step_time(jobs) * setting.map(factor).to_numpy(dtype=float)


def _normal(name: str, seed: int) -> float:
    return float(np.random.default_rng([seed, *name.encode()]).standard_normal())


def modelled_step_time() -> CostStepTime:
    """The bundled cost model on the real networks, built and traced without memory for their weights."""
    with torch.device("meta"):
        networks = {name: _built(name) for name in NETWORKS}
    return CostStepTime(CostModel.load(), networks)


def _built(name: str) -> tuple[torch.nn.Module, tuple[int, ...]]:
    if name in _TOKENS:
        length, vocabulary = _TOKENS[name]
        return zoo.build(_IN_ZOO[name], input_shape=(length,), width=3, depth=3, vocabulary=vocabulary), (length,)
    shape = (3, 224, 224)
    return zoo.build(_IN_ZOO.get(name, name), input_shape=shape, n_classes=1000), shape


def gpu_hours_per_user(step_time: StepTime, n_users: int = 100, n_days: int = 180, seed: int = 0) -> pd.Series:
    """Pooled WAPE, over users, of next month's GPU-hours from predicted costs against those from true costs."""
    jobs, truth = make_cluster(n_users, n_days + 30, random_state=seed)
    origin = jobs["submit"].min().normalize() + pd.Timedelta(days=n_days)
    usage = usage_series(jobs, by=None, freq="h", value="gpus", until=origin)
    run_time = RunTimeModel(costs=TrainingRunTime(step_time), history_keys=("user",))
    model = JobDemandModel(run_time=run_time).fit(jobs, usage)
    past = model.jobs_
    true = EXPECTED_RUN_SHARE * true_run_time(past, truth) / 3600 * past["gpus"].to_numpy()
    driven = forecast_submissions(past, true, origin)["gpu_hours"]
    ratio = step_time(past) / true_step_time(past)
    forecasts = {
        "predicted costs": model.submissions(30)["gpu_hours"],
        "without correction by history": forecast_submissions(past, true * ratio, origin)["gpu_hours"],
    }
    wapes = {name: (hours - driven).abs().sum() / driven.sum() for name, hours in forecasts.items()}
    return pd.Series({**wapes, "predicted / true step time, median": float(np.median(ratio))})
