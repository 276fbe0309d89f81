"""A cost as a sum of what a network does, each kind of work at its own fitted price."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from gpudemand._typing import BoolArray, FloatArray
from gpudemand.cost.features import OPERATOR_CLASSES

#: Columns that a table must have for its costs to be summed up.
NEEDED = ("batch_size", "flops", "bytes", "saved_bytes", "trainable_parameters", "optimizer_states")
#: Rows that a framework (or device) needs for prices of its own.
_FEWEST = 40


def time_terms(X: pd.DataFrame) -> pd.DataFrame:
    """What the time of a training step is made of.

    Operations and bytes of every operator class grow with the batch; calls cost a launch each, whatever the batch; the
    optimizer reads and writes the parameters and its own state.
    """
    batch = X["batch_size"].to_numpy(dtype=float)[:, None]
    work = [f"{amount}_{group}" for amount in ("flops", "bytes") for group in OPERATOR_CLASSES]
    calls = [f"calls_{group}" for group in OPERATOR_CLASSES]
    scaled = pd.DataFrame(X[work].to_numpy(dtype=float) * batch, columns=work, index=X.index)
    update = X["trainable_parameters"] * (2 + X["optimizer_states"])
    return pd.concat([scaled, X[calls]], axis=1).assign(update=update, start=1.0)


def memory_terms(X: pd.DataFrame) -> pd.DataFrame:
    """What the memory of a training step is made of.

    Activations kept for the backward pass, by operator class, and the largest single one grow with the batch; gradients
    and optimizer state do not.
    """
    batch = X["batch_size"].to_numpy(dtype=float)[:, None]
    kept = [f"saved_bytes_{group}" for group in OPERATOR_CLASSES] + ["largest_output_bytes"]
    scaled = pd.DataFrame(X[kept].to_numpy(dtype=float) * batch, columns=kept, index=X.index)
    gradients = 4.0 * X["trainable_parameters"]
    return scaled.assign(gradients=gradients, state=gradients * X["optimizer_states"], calls=X["operators"], start=1.0)


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
