"""Error on devices held out against the number of jobs that were measured on them, on the same rows throughout."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd

from benchmarks.cost.tracks import Fold
from gpudemand._array import IntArray
from gpudemand.cost.step_time_model import Calibration, StepTimeModel

#: Measured jobs of a device, draws of them, and the least rows that remain for the test.
_JOBS, _DRAWS, _LEAST = (0, 1, 2, 3, 5, 10), 10, 5


def calibration_curve(table: pd.DataFrame, folds: list[Fold], group: str) -> pd.DataFrame:
    """Median and 90th percentile of the relative error by number of jobs that `StepTimeModel.calibrate` is given.

    Devices with fewer than 15 rows are left out.
    """
    errors: dict[int, list[float]] = {n: [] for n in _JOBS}
    rng = np.random.default_rng(0)
    for fold in folds:
        train, test = table.iloc[fold.train], np.concatenate([fold.test, np.asarray(fold.calibrate, dtype=np.int64)])
        model = StepTimeModel().fit(train, train["step_time_s"], train[group].astype(object).to_numpy())
        for rows in table.iloc[test].groupby("device_name").indices.values():
            for order in (
                test[rng.permutation(rows)] for _ in range(_DRAWS if len(rows) >= max(_JOBS) + _LEAST else 0)
            ):
                for n, error in _errors(model, table, order):
                    errors[n] += error
    summary = {n: {"median": np.median(found), "p90": np.quantile(found, 0.9)} for n, found in errors.items()}
    return pd.DataFrame(summary).T.rename_axis("measured jobs")


def _errors(model: StepTimeModel, table: pd.DataFrame, order: IntArray) -> Iterator[tuple[int, list[float]]]:
    """Relative errors on the last rows of `order` after calibration with its first `n`, for each `n`."""
    test = table.iloc[order[max(_JOBS) :]]
    for n in _JOBS:
        known, model.calibration_ = table.iloc[order[:n]], Calibration()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if n:
                model.calibrate(known, known["step_time_s"])
            yield n, (model.predict(test) / test["step_time_s"] - 1.0).abs().tolist()
