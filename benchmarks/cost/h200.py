"""Our own measurements on a GPU (``data/cost/h200``) as features of `StepTimeModel` and `MemoryModel`.

    python -m benchmarks.cost.h200 [--cache DIR]

prints the constants of `gpudemand.cost.host`, and how host b changed its speed meanwhile (`host_drift`); how far
predictions are off is in `benchmarks.cost.exam`.
"""

from __future__ import annotations

import argparse
import json
import logging
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cost.on_gpu.decoders import Decoder
from benchmarks.cost.on_gpu.foreign import key_of
from benchmarks.cost.on_gpu.operators import OneOperator
from benchmarks.cost.traced import CACHE, TraceCache
from gpudemand.cost import TrainingJob
from gpudemand.cost.feature_table import ARCHITECTURE
from gpudemand.cost.host import LAUNCHES, STEP_LAUNCHES, TENSOR_LAUNCHES
from gpudemand.cost.model import memory_inputs, memory_setting, step_time_inputs
from gpudemand.cost.networks import family_of
from gpudemand.cost.regression import cauchy_weights, fit_nonnegative
from gpudemand.cost.step_time_model import DEVICE_TIME, StepTimeModel
from gpudemand.datasets.registry import data_folder

log = logging.getLogger(__name__)
#: Share of a step up to which work at the peaks leaves it bound by the host.
_LITTLE = 0.2
_DESIGNS: dict[str, Any] = {"decoders": Decoder, "operators": OneOperator}


def measured_rows() -> pd.DataFrame:
    """All rows that ran: ``set``, ``graph``, ``family``, the options of the job, and what was measured."""
    folder = data_folder() / "cost" / "h200"
    parts = [_steps(pd.read_csv(folder / "steps.csv")), _networks(pd.read_csv(folder / "networks.csv"))]
    parts += [_designs(name, pd.read_csv(folder / f"{name}.csv")) for name in _DESIGNS]
    return pd.concat(parts, ignore_index=True)


def _steps(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows[rows["status"] == "ok"].reset_index(drop=True)
    setting = pd.DataFrame(rows["setting"].map(json.loads).tolist())
    name = setting["network"].str.partition(":")[2]
    return setting.assign(
        set="networks of libraries",
        graph=setting["network"].map(key_of),
        family=name.map(family_of),
        host="b",
        step_time_s=rows["step_time_s"],
        memory_gib=rows["device_gib"],
        **{DEVICE_TIME: rows["kernel_s"]},
    )


def _networks(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows[rows["status"] == "ok"].reset_index(drop=True)
    key = rows[list(ARCHITECTURE[1:])].astype(str).agg(",".join, axis=1)
    names = ["network", "batch_size", "precision", "optimizer", "layout", "host", "step_time_s", "memory_gib"]
    return rows[names].assign(
        set="random design", graph="zoo:" + key + "@0", family=rows["network"].map(family_of), mode="train"
    )


def _designs(what: str, rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows[rows["status"] == "ok"].reset_index(drop=True)
    table = pd.DataFrame(rows["design"].map(json.loads).tolist())
    sizes = [each.name for each in fields(_DESIGNS[what])][: 6 if what == "decoders" else 4]
    key = table[[name for name in sizes if name != "checkpointing"]].astype(str).agg(",".join, axis=1)
    # Operators of a kind are held out together, decoders of one width.
    family = what + " " + table["hidden" if what == "decoders" else "kind"].astype(str)
    network = table["attention" if what == "decoders" else "kind"].astype(str)
    measured = rows[["host", "step_time_s", "memory_gib"]]
    about = {"set": what, "graph": f"{what}:" + key + "@0", "family": family, "network": network, "mode": "train"}
    return pd.concat([table, measured], axis=1).assign(**about, layout="contiguous")


def jobs_of_rows(rows: pd.DataFrame, cache: TraceCache) -> list[TrainingJob]:
    """Jobs of rows whose networks the cache holds."""
    graphs = {key: cache.graph(key) for key in rows["graph"].unique()}
    recomputed = rows.get("checkpointing", pd.Series(0.0, rows.index)).fillna(0.0)
    return [
        TrainingJob(
            graphs[row["graph"]],
            batch_size=int(row["batch_size"]),
            optimizer=row["optimizer"] or "sgd",
            precision=row["precision"],
            device="H200",
            layout=row["layout"],
            framework_version="2.11",
            mode="inference" if row["mode"] == "infer" else "training",
            **({"checkpointing": "full"} if again else {}),
        )
        for row, again in zip(rows.to_dict("records"), recomputed, strict=True)
    ]


def own_table(cache: TraceCache, *, trace: bool = True) -> tuple[pd.DataFrame, list[TrainingJob]]:
    """Features of our own rows, as `benchmarks.cost.table.time_table` has those of public ones, and the jobs."""
    rows = measured_rows()
    if trace:
        cache.trace(rows["graph"].unique())
    rows = rows[rows["graph"].map(lambda key: key in cache)].reset_index(drop=True)
    jobs = jobs_of_rows(rows, cache)
    table = step_time_inputs(jobs).reset_index(drop=True)
    about = rows[["set", "network", "family", "host", "step_time_s", "memory_gib", DEVICE_TIME]]
    return pd.concat([table, about.assign(source="h200")], axis=1), jobs


def own_memory(own: pd.DataFrame, jobs: list[TrainingJob]) -> pd.DataFrame:
    """Inputs of `MemoryModel` and what was measured; single operators and decoders were given gradients, no loss."""
    settings = [
        replace(memory_setting(job), loss=what not in _DESIGNS) for job, what in zip(jobs, own["set"], strict=True)
    ]
    inputs = memory_inputs(jobs, settings)
    inputs = inputs.loc[:, ~inputs.columns.str.startswith(("compile:", "share:"))]
    return inputs.assign(**own[["network", "family", "device_name", "memory_gib"]])


def time_model_of(public: pd.DataFrame | None, own: pd.DataFrame) -> StepTimeModel:
    """Fit step time on public rows and calibrate it on own ones, which tell nothing of other GPUs; or on own alone.

    Fitted together, our small steps of one GPU and a new release of PyTorch make all others worse.
    """
    if public is None:
        return StepTimeModel().fit(own, own["step_time_s"], groups=own["family"].astype(str))
    return public_model(public).calibrate(own, own["step_time_s"], jobs=False)


def public_model(public: pd.DataFrame) -> StepTimeModel:
    """Step time fitted on public rows; each project is a host of its own."""
    public = public.assign(host=public["source"])
    return StepTimeModel().fit(public, public["step_time_s"], groups=public["family"].astype(str))


def together(*tables: pd.DataFrame) -> pd.DataFrame:
    """Tables of features one below the other; work and terms that one of them lacks do not occur there."""
    table = pd.concat(tables, ignore_index=True)
    return table.fillna({name: 0.0 for name in table.columns if name.startswith(("work:", "compile:", "share:"))})


def host_constants(own: pd.DataFrame) -> pd.Series:
    """Seconds a launch of the machines, launches of a tensor of parameters and of a step, sharpness of steps."""
    rows = pd.read_csv(data_folder() / "cost" / "h200" / "steps.csv").query("status == 'ok'").reset_index(drop=True)
    table = own[own["set"] == "networks of libraries"].reset_index(drop=True)
    host = rows[[f"host_{part}_s" for part in ("forward", "backward", "update")]].sum(axis=1).to_numpy()
    tensors = (rows["parameter_tensors"] * (table["mode"] == "train")).to_numpy(dtype=float)
    steps = STEP_LAUNCHES * (table["mode"] == "train")
    parts = pd.DataFrame({"kernel": table[LAUNCHES] - TENSOR_LAUNCHES * tensors - steps, "tensor": tensors})
    found = fit_nonnegative(parts, host, cauchy_weights(np.zeros(len(host)), 1.0))
    powers = np.arange(2.0, 13.0)
    device, seconds = rows["kernel_s"].to_numpy(), rows["step_time_s"].to_numpy()
    error = [np.abs(np.log(seconds / (device**p + host**p) ** (1 / p))).mean() for p in powers]
    machines = time_model_of(None, own).hosts_
    single = own[own["set"] == "operators"]
    work = single.filter(regex="^work:(?!.*:launch$)").sum(axis=1)
    logs = single["host"].map(dict(zip(sorted(own["host"].unique()), machines.logs, strict=True)))
    waited = single["step_time_s"] / np.exp(logs) - (single[LAUNCHES] - STEP_LAUNCHES)
    return pd.Series(
        {
            **{f"seconds a launch, machine {place}": np.exp(log) for place, log in enumerate(machines.logs, start=1)},
            "launches a tensor": found["tensor"] / found["kernel"],
            "launches a step": waited[work < _LITTLE * single["step_time_s"]].median(),
            "sharpness": powers[int(np.argmin(error))],
        }
    )


def host_drift() -> pd.Series:
    """Seconds a tensor of an optimizer's update over their median, by minute, of steps that the host bounds."""
    rows = pd.read_csv(data_folder() / "cost" / "h200" / "steps.csv")
    rows = rows.assign(minute=(rows["wall_s"].cumsum() // 60).astype(int) + 1)
    rows = rows.assign(optimizer=rows["setting"].map(lambda text: json.loads(text)["optimizer"]))
    rows = rows[(rows["status"] == "ok") & (rows["optimizer"] != "") & (rows["kernel_s"] < 0.6 * rows["step_time_s"])]
    update = rows["host_update_s"] / rows["parameter_tensors"]
    return (update / update.groupby(rows["optimizer"]).transform("median")).groupby(rows["minute"]).median().round(2)


def main() -> None:
    """Print the constants, and the drift."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=CACHE)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    log.info("%s", host_constants(own_table(TraceCache(parser.parse_args().cache))[0]).to_string())
    log.info("an optimizer's update over its median, by minute\n%s", host_drift().to_string())


if __name__ == "__main__":
    main()
