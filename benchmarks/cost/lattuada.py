"""Scenarios of Lattuada et al.: inside and beyond the measured batches, numbers of GPUs and depths, and another GPU.

As published, a formula for each network (`AugmentedLinearRegression`) of batch size, number of GPUs and the speed of
the device; beside it one formula for all networks on the sizes of their graphs, our predictor, and a naive line over
operations at the peak for each network. Errors are mean absolute percentage errors, pooled over the jobs of a scenario.
The paper reports below 11 %.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.cost import own
from benchmarks.cost.methods import AugmentedLine, PlainRoofline
from benchmarks.cost.score import held_out, predictions
from benchmarks.cost.table import table_of
from benchmarks.cost.traced import TraceCache
from benchmarks.cost.tracks import Fold, Track
from benchmarks.cost.tracks import held_out as held_out_by
from gpudemand._array import BoolArray
from gpudemand.cost import (
    AugmentedLinearRegression,
    TrainingCostRegressor,
    features_from_rows,
    load_architectures,
    load_measurements,
)
from gpudemand.cost.networks import family_of
from gpudemand.cost.regression import fit_nonnegative
from gpudemand.cost.step_time_model import StepTimeModel

log = logging.getLogger(__name__)
PUBLISHED = 0.11
FORMULAS, ONE_FORMULA, OURS, NAIVE = "a formula a network", "one formula", "gpudemand", "a line a network"
#: What a formula of one network may use, on public measurements and on our own.
PUBLIC_COLUMNS = ("batch_size", "n_gpus", "device_peak_tflops", "device_bandwidth_gb_s")
OWN_COLUMNS = ("framework", "optimizer", "batch_size", "flops", "bytes", "parameters", "layers")


class ByNetwork:
    """A model for each network."""

    def __init__(self, make: Callable[[], Any], columns: tuple[str, ...]) -> None:
        self.make, self.columns = make, columns

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> ByNetwork:
        """Fit the models."""
        times = pd.Series(np.asarray(y), X.index)
        self.models_ = {
            name: self.make().fit(rows[list(self.columns)], times[rows.index])
            for name, rows in X.groupby(X["network"].astype(object))
        }
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Predict by the network's model; no less than a tenth of a millisecond."""
        parts = [
            pd.Series(self.models_[name].predict(_known(self.models_[name], rows[list(self.columns)])), rows.index)
            for name, rows in X.groupby(X["network"].astype(object))
        ]
        return np.maximum(pd.concat(parts)[X.index].to_numpy(), 1e-4)


def _known(model: Any, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows in which an optimizer that a network was never run with is one that the formula has no term of."""
    for name, known in getattr(model, "categories_", {}).items():
        own = {factor.category for term in model.terms_ for factor in term if factor.column == name}
        plain = next((one for one in known if one not in own), known[0])
        rows = rows.assign(**{name: rows[name].where(rows[name].isin(known), plain)})
    return rows


class Line:
    """Non-negative line in relative error."""

    def fit(self, X: pd.DataFrame, y: Any) -> Line:
        """Fit slope and start."""
        self.coefficients_ = fit_nonnegative(X.assign(start=1.0), np.asarray(y))
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Predict time."""
        return X.assign(start=1.0).to_numpy(dtype=float) @ self.coefficients_.to_numpy()


class Ours:
    """`TrainingCostRegressor`, which must not see the name of a network."""

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> Ours:
        """Fit with the defaults and extra trees."""
        self.model_ = TrainingCostRegressor("time", "extra_trees").fit(X.drop(columns=["network", "size"]), y, groups)
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Predict time."""
        return self.model_.predict(X.drop(columns=["network", "size"]))


METHODS: dict[str, Callable[[], Any]] = {
    FORMULAS: partial(ByNetwork, AugmentedLinearRegression, PUBLIC_COLUMNS),
    ONE_FORMULA: AugmentedLine,
    OURS: StepTimeModel,
    NAIVE: partial(ByNetwork, Line, ("size",)),
}
OWN_METHODS: dict[str, Callable[[], Any]] = {
    FORMULAS: partial(ByNetwork, AugmentedLinearRegression, OWN_COLUMNS),
    ONE_FORMULA: own.AugmentedLine,
    OURS: Ours,
    NAIVE: partial(ByNetwork, Line, ("size",)),
}
Outs = dict[str, pd.DataFrame]
Split = Callable[[pd.DataFrame], list[BoolArray]]


def inside(column: str, *curve: str) -> Split:
    """Test every second value of a column inside the range of a curve."""

    def split(jobs: pd.DataFrame) -> list[BoolArray]:
        values = jobs[column].groupby([jobs[name] for name in curve])
        rank = values.rank("dense")
        return [((rank % 2 == 0) & (jobs[column] < values.transform("max"))).to_numpy()]

    return split


def beyond(column: str, *curve: str) -> Split:
    """Test the values of a column above a quarter of the largest of a curve."""

    def split(jobs: pd.DataFrame) -> list[BoolArray]:
        values = jobs[column].groupby([jobs[name] for name in curve])
        bound = np.maximum(values.transform("max") / 4, values.transform("min"))
        return [(jobs[column] > bound).to_numpy()]

    return split


def each(column: str) -> Split:
    """Test every value of a column in turn."""
    return lambda jobs: [(jobs[column] == value).to_numpy() for value in jobs[column].unique()]


def deeper(jobs: pd.DataFrame) -> list[BoolArray]:
    """Test networks of the published depth, known at half of it."""
    return [(jobs["depth"] > 0.5).to_numpy()]


def one_machine(jobs: pd.DataFrame) -> pd.Series:
    """Training on any number of GPUs of one machine."""
    return (jobs["mode"] == "train") & (jobs["n_nodes"] == 1)


def _one_gpu(jobs: pd.DataFrame) -> pd.Series:
    return one_machine(jobs) & (jobs["n_gpus"] == 1)


class Scenario(NamedTuple):
    """Public rows, and how they are split.

    Our predictor is also fitted to the rows `beside`, on GPUs that are not tested; where the batch alone is new, to
    these only, and is calibrated on the known jobs.
    """

    source: str
    rows: Callable[[pd.DataFrame], pd.Series]
    split: Split
    beside: tuple[str, ...] = ()
    calibrates: bool = False


_CURVE, _OTHERS = ("network", "device_name", "precision"), ("lambda_pytorch", "timm")
SCENARIOS = {
    "batch, inside, Sia": Scenario("sia_pollux", _one_gpu, inside("batch_size", *_CURVE), _OTHERS, True),
    "batch, beyond, Sia": Scenario("sia_pollux", _one_gpu, beyond("batch_size", *_CURVE), _OTHERS, True),
    "GPUs, inside, Sia": Scenario("sia_pollux", one_machine, inside("n_gpus", *_CURVE), _OTHERS),
    "GPUs, beyond, Sia": Scenario("sia_pollux", one_machine, beyond("n_gpus", *_CURVE), _OTHERS),
    "GPUs, inside, Lambda": Scenario("lambda_pytorch", one_machine, inside("n_gpus", *_CURVE)),
    "GPUs, beyond, Lambda": Scenario("lambda_pytorch", one_machine, beyond("n_gpus", *_CURVE)),
    "another GPU, Sia": Scenario("sia_pollux", _one_gpu, each("device_die"), _OTHERS),
    "another GPU, Lambda": Scenario("lambda_pytorch", _one_gpu, each("device_die")),
    "another GPU, torchvision": Scenario("pytorch_gpu_benchmark", _one_gpu, each("device_die")),
}
OWN_SCENARIOS = {
    "batch, inside, own": inside("batch_size", "network", "framework"),
    "batch, beyond, own": beyond("batch_size", "network", "framework"),
    "depth, beyond, own": deeper,
}


def public(scenario: Scenario, data: Path, cache: TraceCache, *, trace: bool) -> tuple[pd.DataFrame, Outs, Any]:
    """Rows, the predictions of every method for those held out, and the formulas of the first fold."""
    track = Track(
        (scenario.source,), scenario.rows, "family", held_out_by("family"), (0, PUBLISHED), beside=scenario.beside
    )
    table = table_of(track, data, cache, trace=trace)
    table["size"] = PlainRoofline().size(table)
    own_rows = (table["source"] == scenario.source).to_numpy()
    tests = [test & own_rows for test in scenario.split(table)]
    same = [Fold(np.flatnonzero(own_rows & ~test), np.flatnonzero(test)) for test in tests if test.any()]
    ours = [_with_others(table, fold, ~own_rows, scenario.calibrates) for fold in same]
    outs = {n: predictions(make, table, ours if n == OURS else same, "family") for n, make in METHODS.items()}
    return table, outs, METHODS[FORMULAS]().fit(table.iloc[same[0].train], table["step_time_s"].iloc[same[0].train])


def _with_others(table: pd.DataFrame, fold: Fold, others: BoolArray, calibrates: bool) -> Fold:
    dies = table["device_die"].astype(str)
    new = set(dies.iloc[fold.test]) - set(dies.iloc[fold.train])
    beside = np.flatnonzero(others & ~dies.isin(new).to_numpy())
    return Fold(beside, fold.test, fold.train) if calibrates else Fold(np.append(beside, fold.train), fold.test)


def bundled(split: Split) -> tuple[pd.DataFrame, Outs, Any]:
    """Return the same of our own measurements."""
    rows = own.medians(load_measurements())
    table = features_from_rows(rows, load_architectures()).assign(network=rows["network"])
    table = table.assign(step_time_s=rows["step_time_s"], family=rows["network"].map(family_of), device_name="CPU")
    table = table.assign(size=table["flops"] * table["batch_size"] / 1e9)
    (test,) = split(rows)
    known, y = table.drop(columns=["step_time_s", "family", "device_name"]), table["step_time_s"].to_numpy()
    folds = [(np.flatnonzero(~test), np.flatnonzero(test))]
    outs = {n: own.held_out(make, known, y, folds, rows["network"].to_numpy()) for n, make in OWN_METHODS.items()}
    return table, outs, OWN_METHODS[FORMULAS]().fit(known[~test], table["step_time_s"][~test])


def run(data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Log the table and the formulas; return the ratios of `held_out`."""
    cases = {name: partial(public, scenario, data, cache, trace=trace) for name, scenario in SCENARIOS.items()}
    cases |= {name: partial(bundled, split) for name, split in OWN_SCENARIOS.items()}
    ratios, lines = [], {}
    for name, case in cases.items():
        table, outs, formulas = case()
        mape = {method: (out["predicted"] / out["y"] - 1).abs().mean() for method, out in outs.items()}
        lines[name] = {"rows": len(outs[OURS]), **mape, f"below {PUBLISHED:.0%}": mape[FORMULAS] < PUBLISHED}
        ratios.append(held_out(name, outs, table))
        terms = "\n".join(f"  {network}: {model.formula_}" for network, model in formulas.models_.items())
        log.info("%s, formulas:\n%s", name, terms)
    table = pd.DataFrame(lines).T.to_string(float_format="{:.3f}".format)
    log.info("\nmean absolute percentage error by scenario\n%s", table)
    return pd.concat(ratios, ignore_index=True)
