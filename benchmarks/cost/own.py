"""Benchmark on the bundled measurements: the tables of ``make bench-cost``.

    python -m benchmarks.cost.own [--rows FILE] [--graphs FILE] [--targets ...] [--splits ...] [--quick]

Rows are split at random (as in the DNNAbacus paper), by network, by family, by framework, and by size (networks wider
or deeper than any in training). Baselines: FLOPs alone, shape inference (memory), the linear regression of Lattuada et
al., an MLP and further learners of the correction, and the same learner without the structural matrix. Repetitions are
replaced by their median. Errors are relative, pooled over all held-out rows. ``--quick`` holds networks out in ten
groups rather than one by one.
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

from benchmarks.cost.methods import LogLinear
from benchmarks.cost.score import summary
from benchmarks.cost.splits import ExtrapolationSplit
from benchmarks.measure.meter import PLAN_COLUMNS
from benchmarks.measure.runs import read_rows
from gpudemand import _parallel
from gpudemand.cost import load_architectures, load_measurements, noise_floor
from gpudemand.cost.augmented_linear import AugmentedLinearRegression
from gpudemand.cost.feature_table import features_from_rows
from gpudemand.cost.networks import family_of
from gpudemand.cost.regression import AdditiveCostModel
from gpudemand.cost.training_cost import LEARNERS, TrainingCostRegressor, correction_features, make_learner

SPLITS = ("random", "network out", "family out", "framework out", "wider", "deeper")
TARGETS = {"time": "step_time_s", "memory": "memory_gib"}
#: Largest width and depth in training, relative to the published network, of the splits "wider" and "deeper".
_SIZES = {"width": 1.0, "depth": 0.5}
Fold = tuple[Any, Any]


class FlopsOnly(LogLinear):
    """FLOPs of a step."""

    def size(self, X: pd.DataFrame) -> Any:
        """FLOPs."""
        return X["flops"] * X["batch_size"] + 1.0


class ShapeInference:
    """Bytes of gradients, optimizer state and saved activations, times one fitted factor."""

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
        """Predict by the model of the framework, or another one's where it has none; at least 0.001."""
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
    """The additive model times a learner's correction, without intervals: one fit instead of six."""

    def __init__(self, target: str, learner: str, structure: bool = True, random_state: int = 0) -> None:
        self.target, self.learner, self.structure, self.random_state = target, learner, structure, random_state

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> Corrected:
        """Fit additive model and correction."""
        self.additive_model_ = AdditiveCostModel(self.target).fit(X, y)
        features, work = self._describe(X)
        self.columns_ = features.columns
        self.model_ = make_learner(self.learner, features, self.random_state).fit(features, np.log(y / work))
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Multiply the two."""
        features, work = self._describe(X)
        return work * np.exp(self.model_.predict(features.reindex(columns=self.columns_, fill_value=0.0)))

    def _describe(self, X: pd.DataFrame) -> tuple[pd.DataFrame, Any]:
        work = self.additive_model_.predict(X)
        return correction_features(X, work, structure=self.structure), work


class AdditiveOnly:
    """The additive model alone."""

    def __init__(self, target: str) -> None:
        self.target = target

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> AdditiveCostModel:
        """Fit the coefficients."""
        return AdditiveCostModel(self.target).fit(X, y)


def methods(target: str) -> dict[str, Callable[[], Any]]:
    """Methods by name, ours first."""
    ours = "extra_trees"
    compared: dict[str, Callable[[], Any]] = {"gpudemand": partial(TrainingCostRegressor, target, ours)}
    compared |= {f"{ours}, no matrix": partial(Corrected, target, ours, structure=False)}
    compared |= {name: partial(Corrected, target, name) for name in LEARNERS if name != ours}
    compared |= {
        "sum of work": partial(AdditiveOnly, target),
        "augmented linear": AugmentedLine,
        "FLOPs only": FlopsOnly,
    }
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
    """Held-out prediction of each row, with its 90 % interval."""
    parts = _parallel.run(partial(_fold, method, X, y, groups), folds, n_jobs=2)
    return pd.concat(parts).sort_index()


def _fold(method: Callable[[], Any], X: pd.DataFrame, y: Any, groups: Any, fold: Fold) -> pd.DataFrame:
    warnings.filterwarnings("ignore")
    train, test = fold
    model = method().fit(X.iloc[train], y[train], groups=None if groups is None else groups[train])
    result = pd.DataFrame({"y": y[test], "predicted": model.predict(X.iloc[test])}, index=test)
    if hasattr(model, "predict_interval"):
        result["low"], result["high"] = model.predict_interval(X.iloc[test], 90).T
    return result


def effect_of_the_matrix(X: pd.DataFrame, y: Any, target: str, folds: list[Fold], clusters: Any) -> str:
    """Change of the median error without the structural matrix: three seeds, cluster bootstrap over networks."""
    sides = []
    for structure in (True, False):
        runs = [partial(Corrected, target, "extra_trees", structure, seed) for seed in range(3)]
        outs = [held_out(run, X, y, folds, None) for run in runs]
        sides.append(np.mean([np.abs(out["predicted"] / out["y"] - 1) for out in outs], axis=0))
    names, random = np.unique(clusters), np.random.default_rng(0)
    rows_of = {name: np.flatnonzero(clusters == name) for name in names}
    draws = [np.concatenate([rows_of[name] for name in random.choice(names, len(names))]) for _ in range(1000)]
    gains = [100 * (np.median(sides[1][draw]) - np.median(sides[0][draw])) for draw in draws]
    low, high = np.quantile(gains, [0.025, 0.975])
    point = 100 * (np.median(sides[1]) - np.median(sides[0]))
    return f"the matrix lowers the median error by {point:.2f} points (95 % interval {low:.2f} to {high:.2f})"


def medians(rows: pd.DataFrame) -> pd.DataFrame:
    """Jobs that were measured, repetitions replaced by their median."""
    job = [name for name in PLAN_COLUMNS if name not in ("repeat", "seed")]
    return rows[rows["status"] == "ok"].groupby(job, as_index=False)[list(TARGETS.values())].median()


def load(options: argparse.Namespace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measured rows and the graphs of their networks."""
    rows = read_rows(options.rows) if options.rows else load_measurements()
    if not options.graphs:
        return rows, load_architectures()
    return rows, pd.read_parquet(options.graphs)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--graphs", type=Path)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--splits", nargs="+", default=list(SPLITS), choices=SPLITS)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rows, graphs = load(options)
    print(f"noise floor: what repetitions of one job differ by\n{noise_floor(rows).to_string()}")
    rows = medians(rows)
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
