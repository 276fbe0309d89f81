"""Step time and memory of our own measurements on a GPU (``data/cost/h200``), by what the model is told of them.

    python -m benchmarks.cost --track h200 alone [--train DIR] [--cache DIR]

Families of networks are held out throughout, but for the random split. A host is one of the two machines.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold, KFold

from benchmarks.cost.h200 import own_memory, own_table, public_model, together
from benchmarks.cost.memory_load import public_memory
from benchmarks.cost.score import predictions, summary
from benchmarks.cost.table import table_of, time_table
from benchmarks.cost.traced import TraceCache
from benchmarks.cost.tracks import TRACKS, within
from gpudemand._array import FloatArray, IntArray
from gpudemand.cost.host import LAUNCHES
from gpudemand.cost.memory_model import MemoryModel
from gpudemand.cost.step_time_model import DEVICE_TIME, StepTimeModel

log = logging.getLogger(__name__)
_FOLDS = 5
#: Steps that a calibration measures, as many as a minute allows; of how many it can choose.
_MEASURED, _CHOICE = 10, 60
#: Share that a 90 % interval is to cover at least.
_COVERED = 0.85
#: Tracks of which the ledger keeps the errors by kind of rows.
_BY_KIND = ("networks held out", "memory")
#: Fewest rows of the only GPU in training.
_LEAST = 20


def run(data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Log the errors by track and kind of rows; return the ratios of prediction and measurement."""
    own, jobs = own_table(cache, trace=trace)
    tracks = step_times(own, public_model(time_table(data, cache, trace=trace)))
    measured = own_memory(own, jobs)
    tracks["memory"] = memory(measured)
    tracks["memory, as bundled"] = memory(measured, public_memory(data, cache, trace=trace))
    log.info("\nown rows on an H200:\n%s", errors_of(tracks, own).round(3).to_string())
    parts = [_ratios(f"h200, {name}", out, own) for name, out in tracks.items()]
    return pd.concat(parts, ignore_index=True)


def errors_of(tracks: dict[str, pd.DataFrame], own: pd.DataFrame) -> pd.DataFrame:
    """Rows, median and 90th percentile of the error, bias of the logarithm and share inside, by track and rows."""
    found = {}
    for track, out in tracks.items():
        about = own.loc[out.index]
        again = about.get("checkpointing", pd.Series(0.0, about.index)) > 0
        kinds = {"all": out["y"] > 0, **{name: about["set"] == name for name in about["set"].unique()}}
        kinds |= {f"host {name}": about["host"] == name for name in ("a", "b")} | {"checkpointed": again}
        for kind, rows in kinds.items():
            part = out[rows.to_numpy()]
            if len(part):
                bias = float(np.log(part["predicted"] / part["y"]).median())
                found[track, kind] = {"rows": len(part), **summary(part), "bias": bias}
    columns = ["rows", "median", "p90", "bias", "in 90 % interval"]
    return pd.DataFrame(found).T[columns]


def step_times(own: pd.DataFrame, public: StepTimeModel) -> dict[str, pd.DataFrame]:
    """Predicted step times by track."""
    names = ("networks held out", "host never seen", "ten steps measured", "either host", "random split")
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in names}
    for train, test in _folds(own, GroupKFold(_FOLDS)):
        either = _calibrated(public, own.iloc[train], jobs=False)  # as the bundled model, for a third machine
        parts["either host"].append(_predicted(either, own, test))
        for elsewhere, known, rows in _machines(public, own, train, test):
            parts["host never seen"].append(_predicted(elsewhere, own, rows))
            parts["networks held out"].append(_told(elsewhere, own.iloc[known], own, rows))
            ten = own.iloc[small_to_large(own, known)].drop(columns=DEVICE_TIME)
            parts["ten steps measured"].append(_told(elsewhere, ten, own, rows))
    for train, test in _folds(own, KFold(_FOLDS, shuffle=True, random_state=0)):
        for elsewhere, known, rows in _machines(public, own, train, test):
            parts["random split"].append(_told(elsewhere, own.iloc[known], own, rows))
    return {name: pd.concat(found) for name, found in parts.items()}


def _machines(
    public: StepTimeModel, own: pd.DataFrame, train: IntArray, test: IntArray
) -> Iterator[tuple[StepTimeModel, IntArray, IntArray]]:
    """For each host: the model that knows the other one, and the training and test rows of this one."""
    for host in ("a", "b"):
        here = (own["host"] == host).to_numpy()
        yield _calibrated(public, own.iloc[train[~here[train]]], jobs=False), train[here[train]], test[here[test]]


def _told(model: StepTimeModel, measured: pd.DataFrame, own: pd.DataFrame, rows: IntArray) -> pd.DataFrame:
    """Predictions for a machine of which some steps were measured."""
    return _predicted(_calibrated(model, measured, jobs=True), own, rows)


def small_to_large(own: pd.DataFrame, rows: IntArray) -> IntArray:
    """Some networks of a machine, evenly by seconds a launch: the first are bound by the host, the last by the GPU."""
    networks = rows[own["set"].iloc[rows].isin(["networks of libraries", "random design"]).to_numpy()]
    drawn = np.random.default_rng(0).permutation(networks)[:_CHOICE]
    order = drawn[np.argsort((own["step_time_s"] / own[LAUNCHES]).to_numpy()[drawn], kind="stable")]
    return np.asarray(order[(np.linspace(0.05, 0.95, _MEASURED) * (len(order) - 1)).astype(int)])


def memory(own: pd.DataFrame, public: pd.DataFrame | None = None) -> pd.DataFrame:
    """Predicted memory of own rows, families of networks held out, with public rows in training if there are any."""
    parts = []
    for train, test in _folds(own, GroupKFold(_FOLDS)):
        known = own.iloc[train] if public is None else together(public, own.iloc[train])
        model = MemoryModel().fit(known, known["memory_gib"], groups=known["family"].astype(str))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = model.predict_all(own.iloc[test], [90])
        parts.append(_intervals(found, own["memory_gib"].to_numpy()[test], test))
    return pd.concat(parts)


def _folds(own: pd.DataFrame, splitter: Any) -> Iterator[tuple[IntArray, IntArray]]:
    yield from splitter.split(own, groups=own["family"].astype(str) if isinstance(splitter, GroupKFold) else None)


def _calibrated(model: StepTimeModel, rows: pd.DataFrame, *, jobs: bool) -> StepTimeModel:
    return copy.deepcopy(model).calibrate(rows, rows["step_time_s"], jobs=jobs)


def _predicted(model: StepTimeModel, own: pd.DataFrame, rows: IntArray) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.predict_all(own.iloc[rows], [90])
    return _intervals(found, own["step_time_s"].to_numpy()[rows], rows)


def _intervals(found: FloatArray, y: FloatArray, rows: IntArray) -> pd.DataFrame:
    return pd.DataFrame(found, columns=["predicted", "low", "high"], index=rows).assign(y=y)


def _ratios(track: str, out: pd.DataFrame, own: pd.DataFrame) -> pd.DataFrame:
    about = own.loc[out.index, ["network", "family", "device_name"]].rename(columns={"device_name": "device"})
    inside = ((out["y"] >= out["low"]) & (out["y"] <= out["high"])).astype(float)
    ratio = (out["predicted"] / out["y"]).round(4)
    return about.assign(ratio=ratio, inside=inside, method="gpudemand", track=track)


def alone(data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Log how much further off other GPUs are than held-out rows where one GPU is in training (`_FURTHER`)."""
    ratios, parts = {}, []
    for name in ("device", "device-tensorflow"):
        table = table_of(TRACKS[name], data, cache, trace=trace)
        for die, rows in table.groupby(table["device_die"].astype(str)).indices.items():
            if len(rows) >= _LEAST:
                others = np.setdiff1d(np.arange(len(table)), rows)
                model = StepTimeModel().fit(table.iloc[rows], table["step_time_s"].iloc[rows])
                out = _predicted(model, table, others)
                scale = model._predict(table.iloc[others])[0].scale
                errors = np.abs(np.log(out["predicted"] / out["y"])) / scale
                ratios[name, die] = errors.quantile(0.9) / model.conformity_scores_.quantile(0.9)
                parts.append(_ratios(f"alone, {die}", out, table))
    found = pd.Series(ratios)
    log.info("\n%s\ngeometric mean %.2f", found.round(2).to_string(), np.exp(np.log(found).mean()))
    return pd.concat(parts, ignore_index=True)


def ledger_lines(data: Path, cache: TraceCache) -> dict[str, float]:
    """Errors that the ledger keeps: of own rows, and of each generation of GPUs held out with all newer ones."""
    own, jobs = own_table(cache, trace=False)
    tracks = {
        **step_times(own, public_model(time_table(data, cache, trace=False))),
        "memory": memory(own_memory(own, jobs)),
    }
    found = errors_of(tracks, own)
    lines = {
        f"H200, {track}, {kind}": row
        for (track, kind), row in found.iterrows()
        if kind == "all" or (track in _BY_KIND and not kind.startswith("host"))
    }
    track = TRACKS["generation"]
    table = table_of(track, data, cache, trace=False)
    newer = predictions(StepTimeModel, table, within(track, table), track.group)
    lines |= {f"GPUs of {name}": pd.Series(summary(out)) for name, out in newer.groupby("fold")}
    return {
        f"{name}, {what}": float(value)
        for name, row in lines.items()
        for what, value in (
            ("median error", row["median"]),
            ("90th percentile", row["p90"]),
            ("short of 85 % inside the 90 % interval", max(_COVERED - row["in 90 % interval"], 0.0)),
        )
    }
