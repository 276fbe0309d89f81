"""Methods of the step-time benchmark: `StepTimeModel` and baselines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from gpudemand.cost.operators import KINDS
from gpudemand.cost.regression import fit_nonnegative
from gpudemand.cost.roofline import WORK, WORK_TERMS
from gpudemand.cost.step_time_model import StepTimeModel, fit_work_coefficients


class LogLinear:
    """Linear regression of log cost on log size; with slope one if `proportional`."""

    proportional = False

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> Any:
        """Fit slope and intercept, or the median factor."""
        size = np.log(self.size(X))
        self.line_ = [1.0, np.median(np.log(y) - size)] if self.proportional else np.polyfit(size, np.log(y), 1)
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Predict cost."""
        return np.exp(np.polyval(self.line_, np.log(self.size(X))))

    def size(self, X: pd.DataFrame) -> Any:
        """Size of each job."""
        raise NotImplementedError


class FlopsOnly(LogLinear):
    """Operations over the peak of the device."""

    def size(self, X: pd.DataFrame) -> Any:
        """Seconds at the peak."""
        return _sums(X)["flops"] + 1e-9


class PlainRoofline(LogLinear):
    """The larger of operations over peak and bytes over bandwidth, times one factor."""

    proportional = True

    def size(self, X: pd.DataFrame) -> Any:
        """Seconds."""
        sums = _sums(X)
        return np.maximum(sums["flops"], sums["bytes"]) + 1e-9


class SimpleBoosting:
    """LightGBM on total work, batch and datasheet figures."""

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> SimpleBoosting:
        """Fit the logarithm of time."""
        from lightgbm import LGBMRegressor

        settings = {"n_estimators": 300, "learning_rate": 0.05, "num_leaves": 15, "min_child_samples": 5}
        self.model_ = LGBMRegressor(**settings, random_state=0, n_jobs=1, verbose=-1)
        self.model_.fit(simple_features(X), np.log(y))
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Predict time."""
        return np.exp(self.model_.predict(simple_features(X)))


class WorkAlone:
    """The sum of the work by kind of kernel with fitted coefficients, without the learned correction."""

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> WorkAlone:
        """Fit the coefficients."""
        self.coefficients_ = fit_work_coefficients(self._terms(X), np.asarray(y))
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Predict time."""
        return self._terms(X).to_numpy(dtype=float) @ self.coefficients_.to_numpy()

    @staticmethod
    def _terms(X: pd.DataFrame) -> pd.DataFrame:
        return X.reindex(columns=list(WORK_TERMS), fill_value=0.0)


class AugmentedLine:
    """`gpudemand.cost.AugmentedLinearRegression` on a handful of columns."""

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> AugmentedLine:
        """Fit with the defaults."""
        from gpudemand.cost.augmented_linear import AugmentedLinearRegression

        self.model_ = AugmentedLinearRegression().fit(linear_features(X), np.asarray(y))
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Predict, never below a millisecond."""
        return np.maximum(self.model_.predict(linear_features(X)), 1e-3)


class BatchLine(FlopsOnly):
    """Linear in the batch for each job measured at several batch sizes; FLOPs alone for others."""

    _job = ("graph", "device_name", "precision", "n_gpus")

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> BatchLine:
        """Fit non-negative lines in relative error."""
        super().fit(X, y)
        times = pd.Series(np.asarray(y), index=X.index)
        measured = times.groupby([X[name] for name in self._job])
        self.lines_ = {
            job: fit_nonnegative(self._terms(X.loc[t.index]), t.to_numpy()).to_numpy() for job, t in measured
        }
        return self

    def predict(self, X: pd.DataFrame) -> Any:
        """Predict by the job's line, where it has one."""
        jobs, plain = zip(*(X[name] for name in self._job), strict=True), super().predict(X)
        lines = [self.lines_.get(job) for job in jobs]
        terms = self._terms(X).to_numpy()
        return np.array([p if line is None else s @ line for p, s, line in zip(plain, terms, lines, strict=True)])

    @staticmethod
    def _terms(X: pd.DataFrame) -> pd.DataFrame:
        return X[["batch_size"]].astype(float).assign(start=1.0)


def simple_features(X: pd.DataFrame) -> pd.DataFrame:
    """Total work in seconds at the peaks, datasheet figures, and codes of the stack."""
    numbers = X[[name for name in X.columns if name.startswith("device_")]].select_dtypes("number")
    codes = {name: pd.Categorical(X[name]).codes for name in ("precision", "layout", "framework", "mode")}
    return pd.concat([np.log(_sums(X) + 1e-9), numbers, X[["batch_size", "n_gpus"]]], axis=1).assign(**codes)


def linear_features(X: pd.DataFrame) -> pd.DataFrame:
    """The columns of Lattuada et al.: batch, GPUs, operations, bytes, parameters, speed of the device."""
    names = ["batch_size", "n_gpus", "device_peak_tflops", "device_bandwidth_gb_s"]
    return pd.concat([_sums(X)[["flops", "bytes", "update"]], X[names]], axis=1).astype(float)


def _sums(X: pd.DataFrame) -> pd.DataFrame:
    """Work by term, over all kinds of kernels."""
    names = {what: [f"{WORK}{kind}:{what}" for kind in KINDS] for what in ("flops", "bytes", "launch")}
    sums = {what: X[[name for name in found if name in X.columns]].sum(axis=1) for what, found in names.items()}
    return pd.DataFrame({**sums, "update": X[f"{WORK}update"]})


METHODS: dict[str, Callable[[], Any]] = {
    "gpudemand": StepTimeModel,
    "work alone": WorkAlone,
    "LightGBM, simple features": SimpleBoosting,
    "augmented linear": AugmentedLine,
    "plain roofline": PlainRoofline,
    "FLOPs only": FlopsOnly,
}
#: Methods of single tracks.
EXTRA: dict[str, dict[str, Callable[[], Any]]] = {"batch": {"line over the batch": BatchLine}}
