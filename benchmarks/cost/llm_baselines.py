"""Baselines for runs of large models: 6 N D at a share of the peak, boosting, and published formulas of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from gpudemand.cost.job import TrainingRun
from gpudemand.units import GIB

_LEVELS = {None: np.nan, False: 0, "selective": 1, "full": 2}


def held_out_baselines(rows: pd.DataFrame, y: Any, label: str, split: str) -> dict[str, Any]:
    """Predictions of methods, each value of a column held out: of time seconds a token, of memory bytes."""
    runs = list(rows["run"])
    if label == "memory":
        formulas = {"DeepSpeed's formula": True, "Hugging Face's formula": False}
        return {
            name: GIB * np.array([state_gib(run, sharded=sharded) for run in runs])
            for name, sharded in formulas.items()
        }
    ideal, X = np.array([ideal_seconds(run) for run in runs]), _features(runs)
    names = ("6 N D, one MFU", "6 N D, MFU by generation", *(["boosting"] if split == "source" else []))
    found = {name: np.full(len(y), np.nan) for name in names}
    share, by = pd.Series(ideal / y), rows["generation"]
    for value in rows[split].unique():
        out = (rows[split] == value).to_numpy()
        usual, train = share[~out].median(), share[~out].groupby(by[~out]).median()
        found[names[0]][out] = ideal[out] / usual
        found[names[1]][out] = ideal[out] / train.reindex(by[out]).fillna(usual).to_numpy()
        if split == "source":
            model = HistGradientBoostingRegressor(random_state=0).fit(X[~out], np.log(share[~out]))
            found["boosting"][out] = ideal[out] / np.exp(model.predict(X[out]))
    return found


def ideal_seconds(run: TrainingRun) -> float:
    """Seconds of 6 N D for one token at the peak in half precision."""
    return 6.0 * run.model.n_active_parameters / run.job.hardware.peak("fp16")


def state_gib(run: TrainingRun, *, sharded: bool) -> float:
    """GiB of weights and gradients in half precision and Adam's states with weights in single precision."""
    model, layout = run.model, run.parallel
    trained = 1.0 if run.job.adapter is None else run.trained_share
    gpus = run.n_gpus if sharded and (layout is None or layout.sharding != "none") else 1
    split = 1 if layout is None or not sharded else layout.tensor * layout.pipeline
    weight = 2.0 if run.job.adapter is None else run.job.adapter.bits / 8.0
    return model.n_parameters * (weight / split + 14.0 * trained / max(gpus, split)) / GIB


def _features(runs: list[TrainingRun]) -> Any:
    """Simple features of each run: sizes, degrees and options."""
    return np.array([_row(run) for run in runs], dtype=float)


def _row(run: TrainingRun) -> list[float]:
    part, layout, adapter = run.job.hardware, run.parallel, run.job.adapter
    degrees = [np.nan] * 4 if layout is None else [layout.tensor, layout.pipeline, layout.context, layout.expert_degree]
    sizes = [run.model.n_active_parameters, run.model.n_parameters, run.model.hidden, run.seq_len, run.n_gpus]
    batch = [run.micro_batch or np.nan, run.global_batch or np.nan, _LEVELS[run.checkpointing]]
    options = [
        run.is_quantised,
        adapter is not None,
        16 if adapter is None else adapter.bits,
        run.model.routed_experts > 0,
    ]
    sharding = np.nan if layout is None or layout.sharding is None else layout.divided
    return [*np.log(sizes), np.log(part.peak("fp16")), part.bandwidth, *degrees, sharding, *batch, *options]
