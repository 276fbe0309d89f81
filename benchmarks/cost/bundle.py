"""Fit the GPU models of the bundled predictor on public measurements.

    python -m benchmarks.cost.bundle --train DIR [--cache DIR] [--traced] [--only time]
    python -m benchmarks.cost.bundle --only scripts [--cache DIR]

DIR is laid out as `benchmarks.cost` wants it. These measurements are not part of this repository; what is learned from
them, and from our own in ``data/cost/h200``, is, in ``data/cost/model/gpu_*.npz``. How much longer steps
take in training scripts is fitted to the bundled table of these, after step time.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.cost.h200 import own_memory, own_table, time_model_of, together
from benchmarks.cost.memory_load import public_memory
from benchmarks.cost.scripts import bundle_effect
from benchmarks.cost.table import time_table
from benchmarks.cost.traced import CACHE, TraceCache
from gpudemand.cost.memory_model import MemoryModel
from gpudemand.cost.model import CostModel
from gpudemand.cost.step_time_model import StepTimeModel
from gpudemand.datasets.registry import data_folder
from scripts.checksums import refresh_checksums

log = logging.getLogger(__name__)


def time_model(data: Path, cache: TraceCache) -> tuple[StepTimeModel, pd.DataFrame]:
    """Fit step time on all tracks, then calibrate it on our own rows."""
    public, (own, _) = time_table(data, cache), own_table(cache)
    return time_model_of(public, own), together(public, own)


def memory_model(data: Path, cache: TraceCache, *, trace: bool) -> tuple[MemoryModel, pd.DataFrame]:
    """Fit memory on the usable rows and our own."""
    jobs = together(public_memory(data, cache, trace=trace), own_memory(*own_table(cache)))
    return MemoryModel().fit(jobs, jobs["memory_gib"], groups=jobs["family"]), jobs


def fitted_on(before: dict[str, Any], tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Jobs and devices in the training data, by target where a model was left as it is."""
    counts = {**before.get("jobs_by_target", {}), **{target: len(table) for target, table in tables.items()}}
    names = set().union(*(table["device_name"] for table in tables.values()))
    names |= set() if set(tables) == set(counts) else set(before["devices"])
    about = {"jobs": sum(counts.values()), "jobs_by_target": counts, "devices": sorted(names)}
    return {**about, "kind": "public measurements"}


def main() -> None:
    """Fit and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, help="needed but for scripts")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--traced", action="store_true", help="memory: only networks that the cache has already")
    parser.add_argument("--only", choices=("time", "memory", "scripts"), help="leave the others as they are")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    place, cache = data_folder() / "cost" / "model", TraceCache(options.cache)
    if options.only == "scripts":
        log.info("%s", bundle_effect(cache))
        return
    if options.train is None:
        parser.error("--train is needed")
    model = CostModel.load(place)
    models: dict[tuple[str, str], Any] = dict(model.models_)
    tables = {}
    if options.only != "memory":
        models["gpu", "step_time_s"], tables["step_time_s"] = time_model(options.train, cache)
    if options.only != "time":
        models["gpu", "memory_gib"], tables["memory_gib"] = memory_model(options.train, cache, trace=not options.traced)
    model.fitted_on_ = {**model.fitted_on_, "gpu": fitted_on(model.fitted_on_["gpu"], tables)}
    model.models_ = models
    model.save(place)
    refresh_checksums(data_folder(), "cost/")
    log.info("%s\n%s", model, model.fitted_on_["gpu"])
    if options.only != "memory":
        log.info("%s", bundle_effect(cache))


if __name__ == "__main__":
    main()
