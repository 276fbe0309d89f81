"""Benchmark on public measurements of peak memory: the tracks ``memory``, ``memory-device`` and ``fits``.

``memory``: families of networks held out, on one card. ``memory-device``: cards held out. ``fits``: whether a job fits
into 24, 40 and 80 GB, families held out, with the runs that broke off. As all ran on a card of 40 GB, jobs are known to
fit into 80 that took less than 40, and not to fit whose tensors take more. Baselines: the FakeTensor estimate where a
project gives it, shape inference, boosting on sizes, and a linear model of weights and activations.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks.cost.memory_load import READERS, described
from benchmarks.cost.score import held_out as held_out_ratios
from benchmarks.cost.score import log_errors, summary
from benchmarks.cost.traced import TraceCache
from benchmarks.cost.tracks import Fold, held_out
from gpudemand._array import FloatArray
from gpudemand.cost.graph_features import OPTIMIZER_STATES
from gpudemand.cost.memory_model import MemoryModel
from gpudemand.cost.regression import fit_robust

log = logging.getLogger(__name__)
_GIB = 2.0**30
#: A run below this share of the FakeTensor estimate broke off before its peak, even if SOURCE.md lists it as complete.
_BROKEN = 0.75
#: Track -> project, column whose values are held out, folds, aim (median, 90th percentile).
TRACKS: dict[str, tuple[str, str, int | None, tuple[float, float]]] = {
    "memory": ("gpumemnet", "family", 8, (0.03, 0.10)),
    "memory-device": ("schedtune", "device_name", None, (0.03, 0.10)),
    "fits": ("gpumemnet", "family", 8, (0.98, 0.01)),
}
#: GiB of cards; of the one of 40 GB, on which all was measured, what can be measured before its ceiling.
_LIMITS = {"24 GB": 24.0, "40 GB": 38000 / 1024, "80 GB": 80.0}


class Line:
    """A non-negative sum of a constant and amounts that `terms` takes from a table."""

    def __init__(self, terms: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
        self.terms = terms

    def fit(self, X: pd.DataFrame, y: FloatArray, groups: Any = None) -> Line:
        """Fit in relative error, robust to outliers."""
        self.coefficients_ = fit_robust(self.terms(X), y)
        return self

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Sum up."""
        return np.asarray(self.terms(X).to_numpy(dtype=float) @ self.coefficients_.to_numpy())


class FakeTensor:
    """The estimate of PyTorch's FakeTensorMode."""

    def fit(self, X: pd.DataFrame, y: FloatArray, groups: Any = None) -> FakeTensor:
        """Learn nothing."""
        return self

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Return the estimate."""
        return X["fake_tensor_gib"].to_numpy(dtype=float)


class BoostedSizes:
    """Gradient boosting on the logarithms of a few sizes."""

    def fit(self, X: pd.DataFrame, y: FloatArray, groups: Any = None) -> BoostedSizes:
        """Fit the logarithm of the memory."""
        self.model_ = HistGradientBoostingRegressor(max_iter=300, learning_rate=0.05, random_state=0)
        self.model_.fit(self._sizes(X), np.log(y))
        return self

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Predict memory."""
        return np.asarray(np.exp(self.model_.predict(self._sizes(X))))

    @staticmethod
    def _sizes(X: pd.DataFrame) -> pd.DataFrame:
        return np.log1p(X[["part:parameters", "part:activations", "batch_size", "operators", "device_sms"]])


def _shapes(X: pd.DataFrame) -> pd.DataFrame:
    states = 2.0 + X["optimizer"].map(OPTIMIZER_STATES).astype(float)
    return ((X["part:parameters"] * states + X["part:activations"]) / _GIB).to_frame("sum")


def _line(X: pd.DataFrame) -> pd.DataFrame:
    return (X[["part:parameters", "part:activations"]] / _GIB).assign(start=1.0)


METHODS: dict[str, Callable[[], Any]] = {
    "gpudemand": MemoryModel,
    "simulation, scaled": lambda: Line(lambda X: (X[["segments"]] / _GIB).assign(start=1.0)),
    "FakeTensor": FakeTensor,
    "FakeTensor, line": lambda: Line(lambda X: X[["fake_tensor_gib"]].assign(start=1.0)),
    "weights + activations, line": lambda: Line(_line),
    "shape inference": lambda: Line(_shapes),
    "boosting on sizes": BoostedSizes,
}


def predicted(make: Callable[[], Any], table: pd.DataFrame, folds: list[Fold], group: str) -> pd.DataFrame:
    """Predict the held-out rows; methods are fitted on usable rows only."""
    outs = []
    for fold in folds:
        train, test = table.iloc[fold.train], table.iloc[fold.test]
        train = train[train["usable"].astype(bool)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make().fit(train, train["memory_gib"].to_numpy(), train[group].astype(object).to_numpy())
            out = pd.DataFrame({"y": test["memory_gib"].to_numpy(), "predicted": model.predict(test)}, index=fold.test)
            out["fold"] = fold.name
            if isinstance(model, MemoryModel):
                out["low"], out["high"] = model.predict_interval(test).T
                for name, limit in _LIMITS.items():
                    out[name] = model.probability_below(test, limit)
        outs.append(out)
    return pd.concat(outs).sort_index()


def report(name: str, table: pd.DataFrame, folds: list[Fold]) -> pd.DataFrame:
    """Log errors of all methods, and of ours by group; return the ratios of usable rows."""
    group, aim = TRACKS[name][1], TRACKS[name][3]
    usable = table["usable"].to_numpy(dtype=bool)
    methods = {key: make for key, make in METHODS.items() if "FakeTensor" not in key or "fake_tensor_gib" in table}
    outs = {key: predicted(make, table, folds, group) for key, make in methods.items()}
    outs = {key: out[usable[out.index]] for key, out in outs.items()}
    ours = outs["gpudemand"]
    log.info("\n%s: %d rows, target %.0f %% / %.0f %%", name, len(ours), *(100 * value for value in aim))
    log_errors(outs, table[group])
    if "fake_tensor_gib" in table:
        whole = ours["y"] > _BROKEN * table["fake_tensor_gib"].iloc[ours.index]
        what = "gpudemand, %d runs that took at least 3/4 of the FakeTensor estimate: %s"
        log.info(what, whole.sum(), summary(ours[whole]))
    return held_out_ratios(name, outs, table)


def report_fits(table: pd.DataFrame, folds: list[Fold]) -> None:
    """Log the accuracy of the classification "fits into memory", with the runs that broke off."""
    ours = predicted(METHODS["gpudemand"], table, folds, "family")
    line = predicted(METHODS["FakeTensor, line"], table, folds, "family")
    table, rows = table.iloc[ours.index], {}  # with a folder of its own, the test rows are a part
    broken = table["usable"] & (table["memory_gib"] < _BROKEN * table["fake_tensor_gib"])
    for name, limit in _LIMITS.items():
        fits = _fits(table, limit)
        known, chance, other = ~np.isnan(fits), ours[name].to_numpy(), line["predicted"].to_numpy() <= limit
        rows[f"{name}, gpudemand"] = _accuracy(fits[known] > 0, chance[known] >= 0.5)
        rows[f"{name}, gpudemand, 95 % sure"] = _accuracy(fits[known] > 0, chance[known] >= 0.95)
        rows[f"{name}, FakeTensor, line"] = _accuracy(fits[known] > 0, other[known])
        known &= ~broken.to_numpy()
        rows[f"{name}, gpudemand, whole runs"] = _accuracy(fits[known] > 0, chance[known] >= 0.5)
    log.info(
        "\nfits: target 98 %% right, at most 1 %% false\n%s",
        pd.DataFrame(rows).T.to_string(float_format="{:.3f}".format),
    )


def _fits(table: pd.DataFrame, limit: float) -> FloatArray:
    """1 for jobs that fit into `limit` GiB, 0 for those that do not, missing where it is not known."""
    # Where a job ran, what it took decides; where it did not, it does not fit into less either, nor into more if the
    # estimate of its tensors alone is above that.
    fits = table["fits"].where((table["fits"] != 1.0) | (table["memory_gib"] <= limit), 0.0)
    may_fit = (table["fits"] == 0.0) & (table["fake_tensor_gib"] <= limit) & (limit > _LIMITS["40 GB"])
    return fits.mask(may_fit).to_numpy(dtype=float)


def _accuracy(truth: Any, predicted: Any) -> dict[str, float]:
    wrong = ~truth & predicted
    return {
        "rows": len(truth),
        "right": float((truth == predicted).mean()),
        "false fits of all": float(wrong.mean()),
        "false fits of predicted fits": float(wrong.sum() / max(predicted.sum(), 1)),
    }


def run(name: str, train: Path, test: Path | None, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Log one track; return its held-out ratios (none for ``fits``)."""
    project, column, n_folds, _ = TRACKS[name]
    table = described(READERS[project](train / project), cache, trace=trace)
    folds = held_out(column, n_folds)(table, np.ones(len(table), dtype=bool))
    if test is not None:
        other = described(READERS[project](test / project), cache, trace=trace)
        folds = [Fold(np.arange(len(table)), len(table) + np.arange(len(other)))]
        table = pd.concat([table, other], ignore_index=True)
    if name == "fits":
        report_fits(table, folds)
        return pd.DataFrame()
    return report(name, table, folds)
