"""GPU-hours of whole trainings as projects publish them, beside predictions of `training_totals`.

    python -m benchmarks.cost --track trainings

Rows of ``data/cost/trainings.csv`` are facts, each with its document. A fixed seed halves the projects: one half was
looked at, the other is scored once. Beside the predictor stand 6 N D at 40 % of the peak (MFU) and at the share that fits
the first half best.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cost.public_runs import halves_of
from gpudemand.cost.devices import device
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_models.parallel import Parallel
from gpudemand.datasets.registry import bundled_path

#: Of the draw of the halves.
_SEED = 20261126
_CHECKPOINTING = {"none": False, "selective": "selective", "full": "full"}
#: Where no document states how many GPUs there were: as many as take so long at this share of the peak.
_HOURS, MFU = 30 * 24, 0.4


def read_trainings() -> pd.DataFrame:
    """Rows of the bundled table with their ``job`` and ``half``."""
    rows = pd.read_csv(bundled_path("cost/trainings.csv"))
    halves = rows["source"].map(halves_of(rows, _SEED))
    return rows.assign(job=[_job(row) for row in rows.to_dict("records")], half=halves)


def _job(row: dict[str, Any]) -> TrainingJob:
    """What a user would say of the training; what no document states stays unknown."""
    config = row["model"] if row["sizes"] != row["sizes"] else {"name": row["model"], **_fields(row["sizes"])}
    layout = None if row["layout"] != row["layout"] else Parallel(**_fields(row["layout"]))
    options = {name: int(row[name]) for name in ("global_batch", "micro_batch") if row[name] == row[name]}
    job = TrainingJob.from_config(
        config,
        None if row["class"] == "encoder" and row["sizes"] != row["sizes"] else row["seq_len"],
        device=row["gpu"],
        precision=row["precision"],
        n_gpus=int(row["n_gpus"]) if row["n_gpus"] == row["n_gpus"] else _gpus(row),
        parallel=layout,
        checkpointing=_CHECKPOINTING.get(row["checkpointing"]),
        attention=row["attention"],
        execution="compiled" if row["compiled"] == 1 else "eager",
        **options,
    )
    return job


def _gpus(row: dict[str, Any]) -> int:
    """The power of two, of eight or more, on which 6 N D takes about `_HOURS`."""
    peak = device(row["gpu"]).peak("fp16")
    seconds = 6.0 * 1e9 * row["parameters_b"] * row["tokens"] / peak / MFU
    return int(2 ** max(round(np.log2(seconds / 3600 / _HOURS)), 3))


def _fields(text: str) -> dict[str, Any]:
    """``name=value`` pairs, with a semicolon between them."""
    pairs = dict(part.split("=", 1) for part in text.split(";"))
    known: dict[str, Any] = {"true": True, "false": False}
    return {key: int(value) if value.isdigit() else known.get(value, value) for key, value in pairs.items()}
