"""What is compared: ours, and what one would try first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from gpudemand.cost.graph.features import OPERATOR_CLASSES
from gpudemand.cost.predict.step_time_model import StepTimeModel
from gpudemand.cost.roofline.roofline import WORK


class _Line:
    """A straight line between logarithms; a slope of one when `proportional`."""

    proportional = False

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> Any:
        """Fit slope and intercept, or the median factor."""
        size = np.log(self.size(X))
        self.line_ = [1.0, np.median(np.log(y) - size)] if self.proportional else np.polyfit(size, np.log(y), 1)
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Read the line off."""
        return np.exp(np.polyval(self.line_, np.log(self.size(X))))

    def size(self, X: pd.DataFrame) -> Any:
        """What time is compared with."""
        raise NotImplementedError


class FlopsOnly(_Line):
    """Operations over the peak of the device."""

    def size(self, X: pd.DataFrame) -> Any:
        """Seconds at the peak."""
        return _sums(X)["flops"] + 1e-9


class PlainRoofline(_Line):
    """The larger of operations over peak and bytes over bandwidth, times one factor."""

    proportional = True

    def size(self, X: pd.DataFrame) -> Any:
        """Seconds, with the passes of training."""
        sums = _sums(X)
        return np.maximum(sums["flops"], sums["bytes"]) * np.where(X["mode"] == "train", 3.0, 1.0) + 1e-9


class SimpleBoosting:
    """LightGBM on what everybody has at hand: totals, batch, and the datasheet."""

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> SimpleBoosting:
        """Fit the logarithm of time."""
        from lightgbm import LGBMRegressor

        settings = {"n_estimators": 300, "learning_rate": 0.05, "num_leaves": 15, "min_child_samples": 5}
        self.model_ = LGBMRegressor(**settings, random_state=0, n_jobs=1, verbose=-1)
        self.model_.fit(simple_features(X), np.log(y))
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Undo the logarithm."""
        return np.exp(self.model_.predict(simple_features(X)))


class AugmentedLine:
    """`gpudemand.cost.AugmentedLinearRegression` on a handful of columns."""

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> AugmentedLine:
        """Fit with the defaults."""
        from gpudemand.cost.regression.augmented_linear import AugmentedLinearRegression

        self.model_ = AugmentedLinearRegression().fit(linear_features(X), np.asarray(y))
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Predict, never below a millisecond."""
        return np.maximum(self.model_.predict(linear_features(X)), 1e-3)


class BatchLine(FlopsOnly):
    """A straight line over the batch for each job that was measured at several; FLOPs alone for any other."""

    _job = ("graph", "device_name", "precision", "n_gpus")

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> BatchLine:
        """Fit the lines in relative error, neither part below zero."""
        super().fit(X, y)
        times = pd.Series(np.asarray(y), index=X.index)
        measured = times.groupby([X[name] for name in self._job])
        self.lines_ = {
            job: nnls(self._sides(X.loc[t.index]) / t.to_numpy()[:, None], np.ones(len(t)))[0] for job, t in measured
        }
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Read the job's own line off, where it has one."""
        jobs, plain = zip(*(X[name] for name in self._job), strict=True), super().predict(X)
        lines = [self.lines_.get(job) for job in jobs]
        sides = self._sides(X)
        return np.array([p if line is None else s @ line for p, s, line in zip(plain, sides, lines, strict=True)])

    @staticmethod
    def _sides(X: pd.DataFrame) -> Any:
        batch = X["batch_size"].to_numpy(dtype=float)
        return np.column_stack([np.ones_like(batch), batch])


def simple_features(X: pd.DataFrame) -> pd.DataFrame:
    """Totals in seconds at the peaks, and device and stack as numbers."""
    numbers = X[[name for name in X.columns if name.startswith("device_")]].select_dtypes("number")
    codes = {name: pd.Categorical(X[name]).codes for name in ("precision", "layout", "framework", "mode")}
    return pd.concat([np.log(_sums(X) + 1e-9), numbers, X[["batch_size", "n_gpus"]]], axis=1).assign(**codes)


def linear_features(X: pd.DataFrame) -> pd.DataFrame:
    """The columns of Lattuada et al.: batch, GPUs, operations, bytes, parameters, speed of the device."""
    names = ["batch_size", "n_gpus", "device_peak_tflops", "device_bandwidth_gb_s"]
    return pd.concat([_sums(X)[["flops", "bytes", "update"]], X[names]], axis=1).astype(float)


def _sums(X: pd.DataFrame) -> pd.DataFrame:
    """Work by what is done, forward, over all operators."""
    names = {what: [f"{WORK}{kind}:{what}" for kind in OPERATOR_CLASSES] for what in ("flops", "bytes", "launch")}
    sums = {what: X[[name for name in found if name in X.columns]].sum(axis=1) for what, found in names.items()}
    return pd.DataFrame({**sums, "update": X[f"{WORK}update"]})


METHODS: dict[str, Callable[[], Any]] = {
    "gpudemand": StepTimeModel,
    "LightGBM, simple features": SimpleBoosting,
    "augmented linear": AugmentedLine,
    "plain roofline": PlainRoofline,
    "FLOPs only": FlopsOnly,
}
#: What is compared on one track alone.
EXTRA: dict[str, dict[str, Callable[[], Any]]] = {"batch": {"line over the batch": BatchLine}}
