"""Predicting our own CPU measurements: the tables of ``make bench-cost``.

    python -m benchmarks.cost.own [--rows FILE] [--traced FILE] [--targets time memory]

Rows are split at random (the setting of the DNNAbacus paper), by network, by family of networks, and by framework.
Beside `TrainingCostRegressor` stand FLOPs alone, shape inference (memory), an MLP, and the same learner without the
structural matrix. Repetitions are one row, their median. Errors are relative, pooled over all held-out rows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut

from gpudemand.cost import noise_floor, read_rows, zoo
from gpudemand.cost.configuration import COLUMNS
from gpudemand.cost.regression import TrainingCostRegressor
from gpudemand.cost.table import job_table, trace_architectures

TARGETS = {"time": "step_time_s", "memory": "memory_gib"}
Split = Iterator[tuple[Any, Any]]


class FlopsOnly:
    """A straight line from log FLOPs of a step to log cost."""

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> FlopsOnly:
        """Fit slope and intercept."""
        self.line_ = np.polyfit(self._size(X), np.log(y), 1)
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Read the line off."""
        return np.exp(np.polyval(self.line_, self._size(X)))

    @staticmethod
    def _size(X: pd.DataFrame) -> Any:
        return np.log(X["flops"] * X["batch_size"] + 1.0)


class ShapeInference:
    """Bytes of gradients, optimizer state and kept activations, times one fitted factor."""

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> ShapeInference:
        """Fit the factor."""
        self.factor_ = float(np.exp(np.median(np.log(np.asarray(y) / self._bytes(X)))))
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Scale the bytes."""
        return self.factor_ * self._bytes(X)

    @staticmethod
    def _bytes(X: pd.DataFrame) -> Any:
        weights = 4.0 * X["trainable_parameters"] * (1 + X["optimizer_states"])
        return (weights + X["saved_bytes"] * X["batch_size"]).to_numpy(dtype=float)


def methods(target: str) -> dict[str, Callable[[], Any]]:
    """Every method that is compared, ours first."""
    own: dict[str, Callable[[], Any]] = {
        "gpudemand": lambda: TrainingCostRegressor(target, "extra_trees"),
        "without the matrix": lambda: TrainingCostRegressor(target, "extra_trees", structure=False),
        "gradient boosting": lambda: TrainingCostRegressor(target, "gradient_boosting"),
        "ridge": lambda: TrainingCostRegressor(target, "ridge"),
        "k-NN": lambda: TrainingCostRegressor(target, "knn"),
        "MLP": lambda: TrainingCostRegressor(target, "mlp"),
        "FLOPs only": FlopsOnly,
    }
    return {**own, "shape inference": ShapeInference} if target == "memory" else own


def splits(rows: pd.DataFrame) -> dict[str, tuple[Split, Any]]:
    """Name -> (train and test positions, groups for the training rows)."""
    network, family = rows["network"].to_numpy(), rows["network"].map(zoo.family).to_numpy()
    X = np.zeros(len(rows))
    named = {
        "random": (KFold(5, shuffle=True, random_state=0).split(X), None),
        "network out": (GroupKFold(10).split(X, groups=network), network),
        "family out": (LeaveOneGroupOut().split(X, groups=family), family),
        "framework out": (LeaveOneGroupOut().split(X, groups=rows["framework"]), network),
    }
    return {name: (iter(list(split)), groups) for name, (split, groups) in named.items()}


def score(
    method: Callable[[], Any], X: pd.DataFrame, y: Any, split: list[tuple[Any, Any]], groups: Any
) -> dict[str, float]:
    """Pooled relative errors of one method on one split; coverage where it gives intervals."""
    error, inside = np.full(len(y), np.nan), np.full(len(y), np.nan)
    for train, test in split:
        model = method().fit(X.iloc[train], y[train], None if groups is None else groups[train])
        error[test] = np.abs(model.predict(X.iloc[test]) / y[test] - 1)
        if hasattr(model, "predict_interval"):
            low, high = model.predict_interval(X.iloc[test], 90).T
            inside[test] = (y[test] >= low) & (y[test] <= high)
    error = error[~np.isnan(error)]
    return {
        "mean": error.mean(),
        "median": np.median(error),
        "p90": np.quantile(error, 0.9),
        "within 10 %": (error <= 0.1).mean(),
        "in 90 % interval": np.nanmean(inside) if np.isfinite(inside).any() else np.nan,
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, default=Path("data/cost/cpu.csv"))
    parser.add_argument("--traced", type=Path, default=Path("data/cost/cpu_features.parquet"))
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows = read_rows(options.rows)
    print(noise_floor(rows).to_string())
    job = [name for name in COLUMNS if name not in ("repeat", "seed")]
    rows = rows[rows["status"] == "ok"].groupby(job, as_index=False)[list(TARGETS.values())].median()
    traced = pd.read_parquet(options.traced) if options.traced.is_file() else trace_architectures(rows, n_jobs=2)
    X = job_table(rows, traced)
    for target in options.targets:
        y = rows[TARGETS[target]].to_numpy(dtype=float)
        for name, (split, groups) in splits(rows).items():
            folds = list(split)
            table = pd.DataFrame({m: score(make, X, y, folds, groups) for m, make in methods(target).items()}).T
            print(f"\n{target}, {name}: {len(rows)} rows\n{table.to_string(float_format='{:.3f}'.format)}")


if __name__ == "__main__":
    main()
