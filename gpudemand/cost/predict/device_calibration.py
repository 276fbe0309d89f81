"""Calibration of step times with measured jobs: log factors of devices, and of jobs at other batch sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from gpudemand._typing import BoolArray, FloatArray, IntArray

#: Work whose time does not depend on the batch: host time, and work on the parameters.
_FIXED = ("launch", "start", "update", "weights")
#: Columns in which all batch sizes of one job agree.
_JOB_CATEGORIES = ("device_name", "precision", "layout", "framework", "framework_version", "execution", "mode")
_JOB_COUNTS = ("n_gpus", "optimizer_states")
#: Prior standard deviations of the log factors of the fixed part and of the rest, and noise of a log measurement.
_PRIOR_STD, _NOISE_STD = np.array([2.0, 0.3]), 0.08
#: Prior standard deviation of a device's log factor, and standard errors beyond which the data override it.
_DEVICE_STD, _MAX_Z = 0.1, 4.0


def job_keys(X: pd.DataFrame, terms: pd.DataFrame) -> IntArray:
    """Hash that all batch sizes of a job share, shape (n_jobs,); its network is identified by its fixed work."""
    picoseconds = (1e12 * terms[[name for name in terms.columns if _is_fixed(name)]]).round()
    # Plain types, so that the hash does not depend on how the table was stored or on the version of pandas.
    names = X[list(_JOB_CATEGORIES)].astype(object)
    same = [names.where(names.notna(), "").astype(str), X[list(_JOB_COUNTS)].astype(float), picoseconds]
    return np.asarray(pd.util.hash_pandas_object(pd.concat(same, axis=1), index=False), dtype=np.uint64)


def split_work(terms: pd.DataFrame, coefficients: pd.Series) -> FloatArray:
    """Seconds of the fixed work and of the rest, shape (n_jobs, 2)."""
    fixed: BoolArray = np.array([_is_fixed(name) for name in terms.columns])
    cost = terms.to_numpy(dtype=float) * coefficients.to_numpy()
    return np.column_stack([cost[:, fixed].sum(axis=1), cost[:, ~fixed].sum(axis=1)])


def _is_fixed(name: str) -> bool:
    return name.rsplit(":", 1)[-1] in _FIXED


@dataclass
class Calibration:
    """Log factors of devices and of measured jobs.

    A measured job has a factor for its fixed part and one for the rest, with their posterior covariance; other jobs get
    the factor of their device.

    Attributes
    ----------
    devices : dict of str to float
        Log factor by name.
    jobs : dict of int to (ndarray of shape (2,), ndarray of shape (2, 2))
        Log factors and covariance, by key of `job_keys`.
    """

    devices: dict[str, float] = field(default_factory=dict)
    jobs: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict)

    def fit_devices(self, names: pd.Series, keys: IntArray, ratio: FloatArray, residual_mad: float) -> None:
        """Set the shrunken log factor of each device from ratios of measured over predicted times.

        Batch sizes of one job count as one observation, whose standard deviation is `residual_mad`.
        """
        errors = pd.Series(np.log(ratio)).groupby([names.astype(str).to_numpy(), keys]).median()
        for name, jobs in errors.groupby(level=0):
            self.devices[str(name)] = _shrink(float(jobs.median()), residual_mad / np.sqrt(len(jobs)))

    def fit_jobs(self, keys: IntArray, parts: FloatArray, y: FloatArray) -> None:
        """Fit the factors of each job from predicted parts, shape (n, 2), and measured seconds."""
        for key in np.unique(keys):
            self.jobs[int(key)] = _laplace(parts[keys == key], y[keys == key])

    def apply(
        self, X: pd.DataFrame, terms: pd.DataFrame, parts: FloatArray, scale: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Calibrated seconds and error scales, from the parts of `split_work` and the scales before."""
        factor = X["device_name"].astype(object).map(self.devices).astype(float).fillna(0.0).to_numpy()
        seconds, scale = parts.sum(axis=1) * np.exp(factor), scale.copy()
        keys = job_keys(X, terms) if self.jobs else np.empty(0, dtype=np.uint64)
        for row in np.flatnonzero(np.isin(keys, np.array(list(self.jobs), dtype=np.uint64))):
            theta, covariance = self.jobs[int(keys[row])]
            scaled = parts[row] * np.exp(theta)
            share = scaled / scaled.sum()
            seconds[row] = scaled.sum()
            scale[row] = min(scale[row], float(np.sqrt(share @ covariance @ share + _NOISE_STD**2)))
        return seconds, scale

    def to_arrays(self) -> dict[str, Any]:
        """Return plain arrays, for ``numpy.savez``."""
        factors, covariances = ([pair[i] for pair in self.jobs.values()] for i in (0, 1))
        return {
            "device_names": np.array(list(self.devices), dtype=str),
            "device_factors": np.array(list(self.devices.values()), dtype=float),
            "job_keys": np.array(list(self.jobs), dtype=np.uint64),
            "job_factors": np.array(factors, dtype=float).reshape(-1, 2),
            "job_covariances": np.array(covariances, dtype=float).reshape(-1, 2, 2),
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> Calibration:
        """Restore what `to_arrays` returned."""
        names = [str(name) for name in arrays["device_names"]]
        devices = dict(zip(names, map(float, arrays["device_factors"]), strict=True))
        keys = [int(key) for key in arrays["job_keys"]]
        posteriors = zip(arrays["job_factors"], arrays["job_covariances"], strict=True)
        return cls(devices, dict(zip(keys, posteriors, strict=True)))


def _laplace(parts: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Posterior mode and Laplace covariance of the log factors of two parts whose sum was measured."""

    def residuals(theta: FloatArray) -> FloatArray:
        """Residuals of the log measurements, then of the prior on the log factors, in standard deviations."""
        return np.concatenate([(np.log(parts @ np.exp(theta)) - np.log(y)) / _NOISE_STD, theta / _PRIOR_STD])

    found = least_squares(residuals, np.zeros(2))
    return found.x, np.linalg.inv(found.jac.T @ found.jac)


def _shrink(factor: float, error: float) -> float:
    """Posterior mean of a device's log factor with a standard error; the prior widens for factors beyond chance."""
    variance = max(_DEVICE_STD**2, factor**2 - (_MAX_Z * error) ** 2)
    return factor * variance / (variance + error**2)
