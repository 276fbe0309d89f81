"""Step times on other numbers of GPUs after a job was measured on one, on two, or on both.

    python -m benchmarks.cost --track counts [--train DIR] [--cache DIR] [--traced]

The bundled model is calibrated with the jobs of one network on one device and in one precision, at all batch sizes, and
predicts those at the same batch a GPU. Sequence lengths of these networks were assumed, so that uncalibrated
predictions are far off. Forty curves of each project, drawn once, were looked at while `CostModel.calibrate` was made
(``development``); fifty others, where there are so many, served once (``scoring``).
"""

from __future__ import annotations

import copy
import logging
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.cost.lattuada import one_machine
from benchmarks.cost.score import held_out
from benchmarks.cost.table import table_of
from benchmarks.cost.traced import TraceCache
from benchmarks.cost.tracks import Track
from benchmarks.cost.tracks import held_out as held_out_by
from gpudemand.cost import CostModel

log = logging.getLogger(__name__)
_SOURCES, _CURVE = ("lambda_pytorch", "sia_pollux"), ["network", "device_name", "precision"]
#: Numbers of GPUs that were measured, the most rows of a curve that are predicted, and curves of both parts.
_TOLD, _MOST, _DEVELOPMENT, _SCORING = ((1,), (1, 2), (2,)), 20, 40, 50


def run(data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Log errors by what was measured; return the ratios of `held_out`."""
    model, ratios = CostModel.load()._model("gpu", "step_time_s"), []
    rng = np.random.default_rng(0)
    for source in _SOURCES:
        track = Track((source,), one_machine, "family", held_out_by("family"), (0.1, 0.3))
        table = table_of(track, data, cache, trace=trace)
        by_curve = [rows for _, rows in table.groupby(_CURVE, observed=True)]
        curves = [rows for rows in by_curve if rows["n_gpus"].min() == 1 < rows["n_gpus"].max()]
        order = rng.permutation(len(curves))
        parts = {"development": order[:_DEVELOPMENT], "scoring": order[_DEVELOPMENT:][:_SCORING]}
        for name, numbers in parts.items():
            for told in _TOLD if len(numbers) else ():
                found = pd.concat([_told(model, curves[number], told) for number in numbers])
                _log(f"{source}, {name}, told {' and '.join(map(str, told))}", found)
                ratios.append(held_out("counts", {f"told {told}": found[~found["told"]]}, table))
    return pd.concat(ratios, ignore_index=True)


def _told(model: object, rows: pd.DataFrame, told: tuple[int, ...]) -> pd.DataFrame:
    """Predictions of a curve after calibration with its rows of these numbers of GPUs; none if one was not measured."""
    known = rows[rows["n_gpus"].isin(told)]
    if known["n_gpus"].nunique() < len(told):
        return pd.DataFrame()
    own, test = copy.deepcopy(model), rows[rows["batch_size"].isin(known["batch_size"])]
    test = test.sample(min(len(test), _MOST), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own.calibrate(known, known["step_time_s"].to_numpy())
        predicted = own.predict_all(test, [90])
    ends = dict(zip(("predicted", "low", "high"), predicted.T, strict=True))
    about = {"y": test["step_time_s"], "told": test["n_gpus"].isin(told)}
    return pd.DataFrame(about | ends, index=test.index)


def _log(name: str, found: pd.DataFrame) -> None:
    for told, rows in found.groupby("told"):
        error = rows["predicted"] / rows["y"] - 1.0
        inside = ((rows["y"] >= rows["low"]) & (rows["y"] <= rows["high"])).mean()
        log.info(
            "%s, on %s: %d rows, median %.1f %%, p90 %.1f %%, bias %+.1f %%, %.0f %% inside",
            *(name, "these" if told else "others", len(rows), 100 * error.abs().median()),
            *(100 * error.abs().quantile(0.9), 100 * error.median(), 100 * inside),
        )
