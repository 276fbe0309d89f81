"""Predicting our own measurements: the tables of ``make bench-cost``.

    python -m benchmarks.cost.own [--device cpu] [--rows FILE] [--graphs FILE] [--targets ...] [--splits ...] [--quick]

Rows are split at random (the setting of the DNNAbacus paper), by network (each one out), by family of networks, by
framework, and by size (networks wider, or with more inner modules, than any in training). Beside ours stand FLOPs
alone, shape inference (memory), the linear regression of Lattuada et al., an MLP, further shallow learners
under the same sum of work, and the same learner without the structural matrix. Repetitions are one row, their median.
Errors are relative, pooled over all held-out rows. ``--quick`` holds networks out in ten groups rather than one by one.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut

from gpudemand import _parallel
from gpudemand.cost import load_architectures, load_measurements, noise_floor, read_rows
from gpudemand.cost.families import family_of
from gpudemand.cost.measuring.configuration import COLUMNS
from gpudemand.cost.regression.additive import AdditiveCostModel
from gpudemand.cost.regression.augmented_linear import AugmentedLinearRegression
from gpudemand.cost.regression.feature_table import features_from_rows
from gpudemand.cost.regression.training_cost import LEARNERS, TrainingCostRegressor, correction_features, make_learner
from gpudemand.cost.splits import ExtrapolationSplit

SPLITS = ("random", "network out", "family out", "framework out", "wider", "deeper")
TARGETS = {"time": "step_time_s", "memory": "memory_gib"}
#: What a network's width and depth may be in training, relative to the published one, when larger ones are predicted.
_SIZES = {"width": 1.0, "depth": 0.5}
Fold = tuple[Any, Any]


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


class AugmentedLine:
    """The linear regression of Lattuada et al. on sizes of the network and the batch, for each framework."""

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> AugmentedLine:
        """Fit with the defaults."""
        frameworks = X["framework"].astype(str).to_numpy()
        self.models_ = {
            name: AugmentedLinearRegression().fit(self._sizes(X[frameworks == name]), np.asarray(y)[frameworks == name])
            for name in np.unique(frameworks)
        }
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Predict by the framework's own line, another one's where it has none; never below a thousandth."""
        names = X["framework"].astype(str)
        other = next(iter(self.models_.values()))
        parts = [
            pd.Series(self.models_.get(name, other).predict(self._sizes(rows)), index=rows.index)
            for name, rows in X.groupby(names)
        ]
        return np.maximum(pd.concat(parts).loc[X.index].to_numpy(), 1e-3)

    @staticmethod
    def _sizes(X: pd.DataFrame) -> pd.DataFrame:
        batch = X["batch_size"].astype(float)
        scaled = X[["flops", "bytes", "saved_bytes"]].mul(batch, axis=0) / 1e9
        return scaled.assign(batch=batch, parameters=X["parameters"] / 1e6, layers=X["layers"])


class Corrected:
    """The sum of work times a learner's correction, without intervals: a fit instead of six."""

    def __init__(self, target: str, learner: str, structure: bool = True, random_state: int = 0) -> None:
        self.target, self.learner, self.structure, self.random_state = target, learner, structure, random_state

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> Corrected:
        """Fit work and correction."""
        self.work_ = AdditiveCostModel(self.target).fit(X, y)
        features, work = self._describe(X)
        self.columns_ = features.columns
        self.model_ = make_learner(self.learner, features, self.random_state).fit(features, np.log(y / work))
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Multiply the two."""
        features, work = self._describe(X)
        return work * np.exp(self.model_.predict(features.reindex(columns=self.columns_, fill_value=0.0)))

    def _describe(self, X: pd.DataFrame) -> tuple[pd.DataFrame, Any]:
        work = self.work_.predict(X)
        return correction_features(X, work, structure=self.structure), work


class WorkOnly:
    """The sum of work alone, which is linear in what a network does."""

    def __init__(self, target: str) -> None:
        self.target = target

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> AdditiveCostModel:
        """Fit the prices."""
        return AdditiveCostModel(self.target).fit(X, y)


def methods(target: str) -> dict[str, Callable[[], Any]]:
    """Every method that is compared, ours first."""
    ours = "extra_trees"
    compared: dict[str, Callable[[], Any]] = {"gpudemand": partial(TrainingCostRegressor, target, ours)}
    compared |= {f"{ours}, no matrix": partial(Corrected, target, ours, structure=False)}
    compared |= {name: partial(Corrected, target, name) for name in LEARNERS if name != ours}
    compared |= {"sum of work": partial(WorkOnly, target), "augmented linear": AugmentedLine, "FLOPs only": FlopsOnly}
    return {**compared, "shape inference": ShapeInference} if target == "memory" else compared


def splits(rows: pd.DataFrame, quick: bool) -> dict[str, tuple[list[Fold], Any]]:
    """Name -> (train and test positions, groups for the training rows)."""
    network, family = rows["network"].to_numpy(), rows["network"].map(family_of).to_numpy()
    by_network = GroupKFold(10) if quick else LeaveOneGroupOut()
    X = np.zeros(len(rows))
    wider, deeper = (list(ExtrapolationSplit({name: bound}).split(rows)) for name, bound in _SIZES.items())
    return {
        "random": (list(KFold(10, shuffle=True, random_state=0).split(X)), None),
        "network out": (list(by_network.split(X, groups=network)), network),
        "family out": (list(LeaveOneGroupOut().split(X, groups=family)), family),
        "framework out": (list(LeaveOneGroupOut().split(X, groups=rows["framework"])), network),
        "wider": (wider, network),
        "deeper": (deeper, network),
    }


def held_out(method: Callable[[], Any], X: pd.DataFrame, y: Any, folds: list[Fold], groups: Any) -> pd.DataFrame:
    """Relative error of each row while it was held out, and whether its 90 % interval held it."""
    parts = _parallel.run(partial(_fold, method, X, y, groups), folds, n_jobs=2)
    return pd.concat(parts).sort_index()


def _fold(method: Callable[[], Any], X: pd.DataFrame, y: Any, groups: Any, fold: Fold) -> pd.DataFrame:
    warnings.filterwarnings("ignore")
    train, test = fold
    model = method().fit(X.iloc[train], y[train], groups=None if groups is None else groups[train])
    result = pd.DataFrame({"error": np.abs(model.predict(X.iloc[test]) / y[test] - 1)}, index=test)
    if hasattr(model, "predict_interval"):
        low, high = model.predict_interval(X.iloc[test], 90).T
        result["inside"] = (y[test] >= low) & (y[test] <= high)
    return result


def summary(result: pd.DataFrame) -> dict[str, float]:
    """Pooled figures of one method on one split."""
    error = result["error"]
    figures = {"mean": error.mean(), "median": error.median(), "p90": error.quantile(0.9)}
    covered = result["inside"].mean() if "inside" in result else np.nan
    return {**figures, "within 10 %": (error <= 0.1).mean(), "in 90 % interval": covered}


def effect_of_the_matrix(X: pd.DataFrame, y: Any, target: str, folds: list[Fold], clusters: Any) -> str:
    """How the median error changes without the structural matrix: three seeds, whole networks drawn again and again."""
    sides = []
    for structure in (True, False):
        runs = [partial(Corrected, target, "extra_trees", structure, seed) for seed in range(3)]
        sides.append(np.mean([held_out(run, X, y, folds, None)["error"] for run in runs], axis=0))
    names, random = np.unique(clusters), np.random.default_rng(0)
    rows_of = {name: np.flatnonzero(clusters == name) for name in names}
    draws = [np.concatenate([rows_of[name] for name in random.choice(names, len(names))]) for _ in range(1000)]
    gains = [100 * (np.median(sides[1][draw]) - np.median(sides[0][draw])) for draw in draws]
    low, high = np.quantile(gains, [0.025, 0.975])
    point = 100 * (np.median(sides[1]) - np.median(sides[0]))
    return f"the matrix lowers the median error by {point:.2f} points (95 % interval {low:.2f} to {high:.2f})"


def load(options: argparse.Namespace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measured rows and the graphs of their networks."""
    rows = read_rows(options.rows) if options.rows else load_measurements(options.device)
    if not options.graphs:
        return rows, load_architectures(options.device)
    return rows, pd.read_parquet(options.graphs)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--graphs", type=Path)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--splits", nargs="+", default=list(SPLITS), choices=SPLITS)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rows, graphs = load(options)
    print(f"noise floor: what repetitions of one job differ by\n{noise_floor(rows).to_string()}")
    job = [name for name in COLUMNS if name not in ("repeat", "seed")]
    rows = rows[rows["status"] == "ok"].groupby(job, as_index=False)[list(TARGETS.values())].median()
    X = features_from_rows(rows, graphs)
    for target in options.targets:
        y = rows[TARGETS[target]].to_numpy(dtype=float)
        every = splits(rows, options.quick)
        for name in options.splits:
            folds, groups = every[name]
            table = {m: summary(held_out(make, X, y, folds, groups)) for m, make in methods(target).items()}
            print(
                f"\n{target}, {name}: {len(rows)} jobs\n{pd.DataFrame(table).T.to_string(float_format='{:.3f}'.format)}"
            )
            if name in ("network out", "family out"):
                print(effect_of_the_matrix(X, y, target, folds, rows["network"].to_numpy()), flush=True)


if __name__ == "__main__":
    main()
