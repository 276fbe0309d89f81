"""A cost as a sum of what a network does, each kind of work at its own fitted price."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from gpudemand._typing import BoolArray, FloatArray
from gpudemand.cost.graph.features import OPERATOR_CLASSES

#: Columns that a table must have for its costs to be summed up.
NEEDED = ("batch_size", "flops", "bytes", "saved_bytes", "trainable_parameters", "optimizer_states")
#: Rows that a framework (or device) needs for prices of its own.
_FEWEST = 40


def time_terms(X: pd.DataFrame) -> pd.DataFrame:
    """What the time of a training step is made of.

    Operations and bytes of every operator class grow with the batch; calls cost a launch each, whatever the batch; the
    optimizer reads and writes the parameters and its own state, layer by layer.
    """
    scaled = _scaled(X, [f"{amount}_{group}" for amount in ("flops", "bytes") for group in OPERATOR_CLASSES])
    calls, states = _amounts(X, [f"calls_{group}" for group in OPERATOR_CLASSES]), X["optimizer_states"]
    update, layers = X["trainable_parameters"] * (2 + states), _amounts(X, ["layers"])["layers"]
    return pd.concat([scaled, calls], axis=1).assign(update=update, updates=layers * states, start=1.0)


def memory_terms(X: pd.DataFrame) -> pd.DataFrame:
    """What the memory of a training step is made of.

    What is allocated at the simulated peak, activations kept for the backward pass by operator class, the largest
    single one and scratch memory of convolutions grow with the batch; gradients and optimizer state do not. What a
    compiler makes of a network takes memory for each operator, and for each update of a weight by the optimizer.
    """
    kept = [f"saved_bytes_{group}" for group in OPERATOR_CLASSES] + ["largest_output_bytes"]
    scaled = _scaled(X, kept + [name for name in X.columns if name.startswith("workspace_")])
    calls = _amounts(X, [f"calls_{group}" for group in OPERATOR_CLASSES])
    count, states = _amounts(X, ["operators", "layers"]), X["optimizer_states"]
    gradients = 4.0 * X["trainable_parameters"]
    fixed = {"gradients": gradients, "state": gradients * states, "calls": count["operators"], "start": 1.0}
    updates = {"updates": count["layers"] * states, "update_calls": count["operators"] * states}
    return pd.concat([scaled, calls], axis=1).assign(allocated=allocated(X), **fixed, **updates)


def _amounts(X: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Columns by name; an amount that a table does not tell is none."""
    return X.reindex(columns=names, fill_value=0.0).astype(float)


def _scaled(X: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Columns by name, times the batch."""
    return _amounts(X, names).mul(X["batch_size"].astype(float), axis=0)


def allocated(X: pd.DataFrame) -> FloatArray:
    """Bytes allocated at the peak of a step, from the summary that `memory_summary` gives.

    Zero where a table lacks the summary.
    """
    knots = sorted((int(name.rpartition("_")[2]), name) for name in X.columns if name.startswith("allocated_"))
    if not knots:
        return np.zeros(len(X))
    at, batch = np.array([size for size, _ in knots], dtype=float), X["batch_size"].to_numpy(dtype=float)
    held = X[[name for _, name in knots]].to_numpy(dtype=float)
    left = np.clip(np.searchsorted(at, batch) - 1, 0, at.size - 2)
    rows = np.arange(len(X))
    slope = (held[rows, left + 1] - held[rows, left]) / (at[left + 1] - at[left])
    state = 4.0 * X["trainable_parameters"].to_numpy(dtype=float) * X["optimizer_states"].to_numpy(dtype=float)
    return np.asarray(held[rows, left] + slope * (batch - at[left]) + state)


TERMS = {"time": time_terms, "memory": memory_terms}


class WorkModel:
    """Non-negative prices for the terms of a cost, fitted in relative error, for each framework and for all together.

    Parameters
    ----------
    target : {"time", "memory"}
        Which terms.

    Attributes
    ----------
    prices_ : dict of str to Series
        Context -> price of each term; ``""`` is for contexts not seen in training.
    """

    def __init__(self, target: str) -> None:
        self.target = target

    def fit(self, X: pd.DataFrame, y: FloatArray) -> WorkModel:
        """Fit the prices; `y` is positive."""
        terms, context = TERMS[self.target](X), _context(X)
        self.prices_ = {"": _prices(terms, y)}
        for name in np.unique(context):
            rows = context == name
            if rows.sum() >= _FEWEST:
                self.prices_[str(name)] = _prices(terms[rows], y[rows])
        return self

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Sum the terms up, shape (n_rows,); never below a tenth of the smallest sum seen in training."""
        terms, context = TERMS[self.target](X), _context(X)
        cost = np.empty(len(X))
        for name in np.unique(context):
            rows: BoolArray = context == name
            prices = self.prices_.get(str(name), self.prices_[""])
            cost[rows] = terms[rows].to_numpy(dtype=float) @ prices.to_numpy()
        return np.maximum(cost, np.finfo(float).tiny)


def _context(X: pd.DataFrame) -> FloatArray:
    if "framework" not in X.columns:
        return np.full(len(X), "", dtype=object)
    return X["framework"].astype(object).to_numpy()


def _prices(terms: pd.DataFrame, y: FloatArray) -> pd.Series:
    # Rows divided by their cost: an error of ten percent weighs the same for a small job and for a large one.
    matrix = terms.to_numpy(dtype=float) / y[:, None]
    size = np.abs(matrix).max(axis=0)
    scale = np.where(size > 0, size, 1.0)
    weights, _ = nnls(matrix / scale, np.ones(y.size), maxiter=50 * matrix.shape[1])
    return pd.Series(weights / scale, index=terms.columns)
