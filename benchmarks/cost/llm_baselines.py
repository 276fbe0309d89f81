"""Baselines for runs of large models: 6 N D at a share of the peak, boosting, and published formulas of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from gpudemand.cost.job import TrainingRun
from gpudemand.units import GIB


def fill_baselines(rows: pd.DataFrame, train: Any, test: Any, outs: dict[str, Any], sizes: dict[str, Any]) -> None:
    """Predict time (`outs`) and memory (`sizes`) of test rows by methods that know the training rows."""
    seconds, ideal = rows["seconds_per_token"], np.array([ideal_seconds(run) for run in rows["run"]])
    known = seconds.notna().to_numpy() & train
    share = pd.Series(np.where(known, ideal / seconds, np.nan))
    by_gpu = share.groupby(names_of(rows)).median().reindex(names_of(rows)).fillna(share.median()).to_numpy()
    outs["6 N D, one MFU"].loc[test, "predicted"] = (ideal / share.median())[test]
    outs["6 N D, MFU by GPU"].loc[test, "predicted"] = (ideal / by_gpu)[test]
    outs["boosting"].loc[test, "predicted"] = _boosted(rows, seconds, known, test)
    memory = rows["memory_gib"].where(rows["status"] == "ok")
    sizes["boosting"].loc[test, "predicted"] = _boosted(rows, memory, memory.notna().to_numpy() & train, test)
    sizes["DeepSpeed's formula"].loc[test, "predicted"] = [state_gib(run, sharded=True) for run in rows["run"][test]]
    sizes["Hugging Face's formula"].loc[test, "predicted"] = [
        state_gib(run, sharded=False) for run in rows["run"][test]
    ]


def names_of(rows: pd.DataFrame) -> Any:
    """Device of each run."""
    return np.array([run.job.hardware.name for run in rows["run"]])


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


def _boosted(rows: pd.DataFrame, y: pd.Series, known: Any, test: Any) -> Any:
    names = ["n_gpus", "seq_len", "micro_batch", "grad_accum", "global_batch", "tensor_parallel", "pipeline_parallel"]
    X = rows[[*names, "data_parallel", "context_parallel", "expert_parallel", "lora_rank", "hidden", "n_layers"]]
    runs = list(rows["run"])
    X = X.assign(
        parameters=[np.log(run.model.n_active_parameters) for run in runs],
        peak=[run.job.hardware.peak("fp16") for run in runs],
        bandwidth=[run.job.hardware.bandwidth for run in runs],
        fp8=[run.job.precision == "fp8" for run in runs],
        adapter=[run.job.adapter is not None for run in runs],
    )
    codes = {name: pd.factorize(rows[name])[0] for name in ("sharding", "activation_checkpointing", "method")}
    X = X.assign(**codes).astype(float)
    model = HistGradientBoostingRegressor(random_state=0).fit(X[known], np.log(y[known]))
    return np.exp(model.predict(X[test]))
