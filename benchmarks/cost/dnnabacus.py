"""The published protocol of DNNAbacus on the bundled measurements of both frameworks, and what its random split hides.

Features that do not depend on the structure of a network (hyper-parameters, input, FLOPs, parameters, layers) with the
network structural matrix; a learner chosen automatically, here on a fourth of the training rows; rows split at random;
the mean relative error (MRE). The same learners then predict networks, and families of them, that are held out. The
matrix stands beside a graph embedding, amounts by kind of operator, none of these, and beside `TrainingCostRegressor`
and a line over FLOPs.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit

from benchmarks.cost.embedding import PREFIX
from benchmarks.cost.own import TARGETS, medians
from benchmarks.cost.splits import FamilySplit
from benchmarks.cost.traced import TraceCache
from gpudemand.cost import (
    TrainingCostRegressor,
    features_from_rows,
    load_architectures,
    load_measurements,
    noise_floor,
)
from gpudemand.cost.feature_table import ARCHITECTURE, CATEGORIES, EDGE, NUMBERS
from gpudemand.cost.training_cost import LEARNERS, make_learner
from gpudemand.datasets.registry import bundled_path

log = logging.getLogger(__name__)
#: Independent of the structure of the network.
INDEPENDENT = (*CATEGORIES, *NUMBERS, "optimizer_states", "input_size", "channels", "flops", "parameters", "layers")
#: Name -> pattern of the columns that describe the structure.
REPRESENTATIONS = {
    "structural matrix, as published": EDGE,
    "graph embedding": PREFIX,
    "amounts by kind of operator": "(flops|bytes|saved_bytes|calls)_",
    "totals only": "$",
}
FOLDS = {
    "random split": KFold(5, shuffle=True, random_state=0),
    "networks out": GroupKFold(5),
    "families out": FamilySplit(5),
}


def features(rows: pd.DataFrame) -> pd.DataFrame:
    """All features of the rows, the graph embedding included."""
    embedding = pd.read_parquet(bundled_path("cost/cpu_embeddings.parquet"))
    points = embedding.reindex(pd.MultiIndex.from_frame(rows[list(ARCHITECTURE)])).set_axis(rows.index)
    return pd.concat([features_from_rows(rows, load_architectures()), rows[["input_size", "channels"]], points], axis=1)


def representation(X: pd.DataFrame, pattern: str) -> pd.DataFrame:
    """Independent features, sizes on a log scale, and the columns that begin with a pattern."""
    chosen = X[[*INDEPENDENT]].join(X.filter(regex=f"^{pattern}"))
    numbers = chosen.select_dtypes("number").clip(lower=0.0) if pattern != PREFIX else chosen[list(NUMBERS)]
    return chosen.assign(**np.log1p(numbers))


def automatic(X: pd.DataFrame) -> GridSearchCV:
    """The learner with the smallest MRE on a fourth of the training rows, drawn at random, refitted to all."""
    learners = [make_learner(name, X, random_state=0) for name in LEARNERS if name != "mlp"]
    model = TransformedTargetRegressor(func=np.log, inverse_func=np.exp)
    fourth = ShuffleSplit(1, test_size=0.25, random_state=0)
    return GridSearchCV(model, {"regressor": learners}, cv=fourth, scoring="neg_mean_absolute_percentage_error")


class Line:
    """Line of the logarithm of cost over that of FLOPs, for each framework."""

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> Line:
        """Fit the lines."""
        work = np.log(X["flops"] * X["batch_size"])
        parts = work.groupby(X["framework"].to_numpy()).groups
        logs = pd.Series(np.log(y), X.index)
        self.lines_ = {name: np.polyfit(work[rows], logs[rows], 1) for name, rows in parts.items()}
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Predict cost."""
        slope, start = np.transpose([self.lines_[name] for name in X["framework"]])
        return np.exp(start + slope * np.log(X["flops"] * X["batch_size"]).to_numpy())


def held_out(name: str, target: str, X: pd.DataFrame, y: Any, networks: Any, fold: tuple[Any, Any]) -> pd.DataFrame:
    """Prediction of the test rows of a fold by one method, and the learner that it chose."""
    warnings.filterwarnings("ignore")
    train, test = fold
    if name in REPRESENTATIONS:
        X = representation(X, REPRESENTATIONS[name])
        model: Any = automatic(X).fit(X.iloc[train], y[train])
        learner = type(model.best_params_["regressor"][-1]).__name__
    else:
        model = TrainingCostRegressor(target, "extra_trees") if name == "gpudemand" else Line()
        X = X.filter(regex=f"^(?!{PREFIX}|channels|input_size)")
        model, learner = model.fit(X.iloc[train], y[train], networks[train]), ""
    return pd.DataFrame({"ratio": model.predict(X.iloc[test]) / y[test], "learner": learner}, index=test)


def compared(rows: pd.DataFrame, target: str) -> Mapping[tuple[str, str], pd.DataFrame]:
    """(method, split) -> predicted over measured, of every row while it was held out."""
    X, y, networks = features(rows), rows[TARGETS[target]].to_numpy(dtype=float), rows["network"].to_numpy()
    cases = {
        (method, split): partial(held_out, method, target, X, y, networks)
        for method in (*REPRESENTATIONS, "gpudemand", "line over FLOPs")
        for split in FOLDS
    }
    return {
        case: pd.concat(map(run, FOLDS[case[1]].split(X, y, None if case[1] == "random split" else networks)))
        for case, run in cases.items()
    }


def run(data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Log the tables of both targets; the measurements are the bundled ones. Return all held-out ratios."""
    rows = load_measurements()
    floor = noise_floor(rows).set_index(["target", "framework"])["mean"].unstack()
    rows, ratios = medians(rows), []
    for target, column in TARGETS.items():
        found = compared(rows, target)
        log.info(
            "\n%s, %d jobs; two runs of one job differ by %s", target, len(rows), floor.loc[column].round(3).to_dict()
        )
        log.info("%s\nrows by learner chosen:\n%s", errors_of(found, rows["framework"]), learners_of(found))
        about = rows[["framework", "network"]].assign(target=target)
        ratios += [about.join(out).assign(method=method, split=split) for (method, split), out in found.items()]
    return pd.concat(ratios, ignore_index=True).round({"ratio": 4})


def errors_of(found: Mapping[tuple[str, str], pd.DataFrame], frameworks: pd.Series) -> str:
    """Mean and median relative error of all methods and splits, and the mean by framework."""
    errors = {case: (out.sort_index()["ratio"] - 1).abs() for case, out in found.items()}
    parts = {
        case: {"MRE": e.mean(), "median": e.median(), **e.groupby(frameworks).mean().add_prefix("MRE, ")}
        for case, e in errors.items()
    }
    table = pd.DataFrame(parts).T.unstack(sort=False).swaplevel(axis=1)
    return str(table[list(FOLDS)].to_string(float_format="{:.3f}".format))


def learners_of(found: Mapping[tuple[str, str], pd.DataFrame]) -> str:
    """Rows predicted by each of the learners that were chosen."""
    counts = {case: out["learner"].value_counts() for case, out in found.items() if case[0] in REPRESENTATIONS}
    return str(pd.DataFrame(counts).T.fillna(0).astype(int).to_string())
