"""Step time and memory as non-negative sums of the work in a network."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.graph.features import OPERATOR_CLASSES
from gpudemand.cost.regression.nonnegative import fit_nonnegative

#: Columns that the terms are computed from, in every table.
NEEDED = ("batch_size", "flops", "bytes", "saved_bytes", "trainable_parameters", "optimizer_states")


def time_terms(X: pd.DataFrame) -> pd.DataFrame:
    """Terms of step time.

    Operations and bytes of every operator class grow with the batch; calls cost a launch each, whatever the batch; the
    optimizer reads and writes the parameters and its own state, layer by layer.
    """
    scaled = _scaled(X, [f"{amount}_{group}" for amount in ("flops", "bytes") for group in OPERATOR_CLASSES])
    calls, states = _amounts(X, [f"calls_{group}" for group in OPERATOR_CLASSES]), X["optimizer_states"]
    update, layers = X["trainable_parameters"] * (2 + states), _amounts(X, ["layers"])["layers"]
    return pd.concat([scaled, calls], axis=1).assign(update=update, updates=layers * states, start=1.0)


def memory_terms(X: pd.DataFrame) -> pd.DataFrame:
    """Terms of peak memory.

    Bytes allocated at the simulated peak, saved activations by operator class, the largest output and convolution
    workspaces grow with the batch; gradients and optimizer state do not. Compilation takes memory for each operator and
    for each update of a layer.
    """
    saved = [f"saved_bytes_{group}" for group in OPERATOR_CLASSES] + ["largest_output_bytes"]
    scaled = _scaled(X, saved + [name for name in X.columns if name.startswith("workspace_")])
    calls = _amounts(X, [f"calls_{group}" for group in OPERATOR_CLASSES])
    count, states = _amounts(X, ["operators", "layers"]), X["optimizer_states"]
    gradients = 4.0 * X["trainable_parameters"]
    fixed = {"gradients": gradients, "state": gradients * states, "calls": count["operators"], "start": 1.0}
    updates = {"updates": count["layers"] * states, "update_calls": count["operators"] * states}
    return pd.concat([scaled, calls], axis=1).assign(allocated=allocated(X), **fixed, **updates)


def _amounts(X: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Columns by name; zero where the table lacks one."""
    return X.reindex(columns=names, fill_value=0.0).astype(float)


def _scaled(X: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    return _amounts(X, names).mul(X["batch_size"].astype(float), axis=0)


def allocated(X: pd.DataFrame) -> FloatArray:
    """Bytes allocated at the peak of a step: `memory_summary` interpolated in the batch; zero where it is missing."""
    knots = sorted((int(name.rpartition("_")[2]), name) for name in X.columns if name.startswith("allocated_"))
    if not knots:
        return np.zeros(len(X))
    at, batch = np.array([size for size, _ in knots], dtype=float), X["batch_size"].to_numpy(dtype=float)
    peaks = X[[name for _, name in knots]].to_numpy(dtype=float)
    left = np.clip(np.searchsorted(at, batch) - 1, 0, at.size - 2)
    rows = np.arange(len(X))
    slope = (peaks[rows, left + 1] - peaks[rows, left]) / (at[left + 1] - at[left])
    state = 4.0 * X["trainable_parameters"].to_numpy(dtype=float) * X["optimizer_states"].to_numpy(dtype=float)
    return np.asarray(peaks[rows, left] + slope * (batch - at[left]) + state)


TERMS = {"time": time_terms, "memory": memory_terms}


class AdditiveCostModel:
    """Non-negative linear regression of a cost on its terms in relative error, by framework and pooled.

    Parameters
    ----------
    target : {"time", "memory"}
        Which terms.

    Attributes
    ----------
    coefficients_ : dict of str to Series
        Framework -> coefficient of each term; ``""`` is the pooled fit, for frameworks with fewer
        training rows than terms.
    """

    def __init__(self, target: str) -> None:
        self.target = target

    def fit(self, X: pd.DataFrame, y: FloatArray) -> AdditiveCostModel:
        """Fit the coefficients.

        Parameters
        ----------
        X : DataFrame of shape (n_jobs, n_features)
        y : ndarray of shape (n_jobs,)
            Positive costs.
        """
        terms, framework = TERMS[self.target](X), _framework(X)
        self.coefficients_ = {"": fit_nonnegative(terms, y)}
        for name in np.unique(framework):
            rows = framework == name
            if rows.sum() >= terms.shape[1]:
                self.coefficients_[str(name)] = fit_nonnegative(terms[rows], y[rows])
        return self

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Predict the cost, shape (n_jobs,); clipped to the smallest positive number, so that its logarithm exists."""
        terms, framework = TERMS[self.target](X), _framework(X)
        cost = np.empty(len(X))
        for name in np.unique(framework):
            rows = framework == name
            coefficients = self.coefficients_.get(str(name), self.coefficients_[""])
            cost[rows] = terms[rows].to_numpy(dtype=float) @ coefficients.to_numpy()
        return np.maximum(cost, np.finfo(float).tiny)


def _framework(X: pd.DataFrame) -> FloatArray:
    if "framework" not in X.columns:
        return np.full(len(X), "", dtype=object)
    return X["framework"].astype(object).to_numpy()
