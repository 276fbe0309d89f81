"""Calibration of step times with measured jobs: of other jobs on their devices, and of themselves at other batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand.cost.predict.error_scale import MAX_RESIDUAL
from gpudemand.cost.predict.gaussian_process import Condition, Inputs, condition

#: Work whose time does not depend on the batch: host time, and work on the parameters.
_FIXED = ("launch", "start", "update", "weights")
#: Columns in which all batch sizes of one job agree.
_JOB_CATEGORIES = ("device_name", "precision", "layout", "framework", "framework_version", "execution", "mode")
_JOB_COUNTS = ("n_gpus", "optimizer_states")
#: Prior standard deviations of the log factors of the fixed part and of the rest, and noise of a log measurement.
_PRIOR_STD, _NOISE_STD = np.array([2.0, 0.3]), 0.08
#: Keys of stored arrays: inputs of measured jobs, in the order of `Inputs`.
MEASURED_KEYS = ("measured_network", "measured_hardware", "measured_stack")
#: Types and shapes of the arrays of a stored calibration.
STORED = {
    "device_names": "U devices",
    "device_variances": "f devices",
    "device_weights": "f devices rows",
    "measured_device": "i measured",
    "measured_weights": "f measured",
    **dict(zip(MEASURED_KEYS, ("f measured network", "f measured device", "f measured stack"), strict=True)),
    "job_keys": "u jobs",
    "job_factors": "f jobs 2",
    "job_covariances": "f jobs 2 2",
}


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
    """What measured jobs say of their devices and of themselves.

    The Gaussian process is conditioned on the jobs measured on a device, for predictions on that device alone. A
    measured job has a log factor for its fixed part and one for the rest, with their posterior covariance.

    Attributes
    ----------
    devices : dict of str to Condition
        By name.
    jobs : dict of int to (ndarray of shape (2,), ndarray of shape (2, 2))
        Log factors and covariance, by key of `job_keys`.
    """

    devices: dict[str, Condition] = field(default_factory=dict)
    jobs: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict)

    def fit_devices(
        self, names: pd.Series, inputs: Inputs, residual: FloatArray, training: Inputs, dual_coef: FloatArray
    ) -> None:
        """Condition a fitted Gaussian process on the log residuals of the jobs of each device."""
        for name, rows in _rows_by_name(names):
            # One measurement that is far from the others must not count for all.
            middle = float(np.median(residual[rows]))
            clipped = np.clip(residual[rows], middle - MAX_RESIDUAL, middle + MAX_RESIDUAL)
            self.devices[name] = condition(training, dual_coef, [part[rows] for part in inputs], clipped)

    def device_change(self, names: pd.Series, inputs: Inputs, covariance: FloatArray, training: Inputs) -> FloatArray:
        """Change of the log correction of jobs on calibrated devices, zero for others."""
        change = np.zeros(len(names))
        for name, rows in _rows_by_name(names):
            if name in self.devices:
                change[rows] = self.devices[name].change([part[rows] for part in inputs], covariance[rows], training)
        return change

    def fit_jobs(self, keys: IntArray, parts: FloatArray, y: FloatArray) -> None:
        """Fit the factors of each job from predicted parts, shape (n, 2), and measured seconds."""
        for key in np.unique(keys):
            self.jobs[int(key)] = _laplace(parts[keys == key], y[keys == key])

    def apply(
        self, X: pd.DataFrame, terms: pd.DataFrame, parts: FloatArray, change: FloatArray, scale: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Calibrated seconds and error scales, from parts before calibration, `device_change` and the scales before."""
        seconds, scale = parts.sum(axis=1) * np.exp(change), scale.copy()
        keys = job_keys(X, terms) if self.jobs else np.empty(0, dtype=np.uint64)
        for row in np.flatnonzero(np.isin(keys, np.array(list(self.jobs), dtype=np.uint64))):
            theta, covariance = self.jobs[int(keys[row])]
            scaled = parts[row] * np.exp(theta)
            share = scaled / scaled.sum()
            seconds[row] = scaled.sum()
            scale[row] = min(scale[row], float(np.sqrt(share @ covariance @ share + _NOISE_STD**2)))
        return seconds, scale

    def to_arrays(self, training: Inputs) -> dict[str, Any]:
        """Return plain arrays, for ``numpy.savez``; see `STORED`."""
        widths, n_training = [part.shape[1] for part in training], len(training[0])
        factors, covariances = ([pair[i] for pair in self.jobs.values()] for i in (0, 1))
        found = list(self.devices.values())
        rows = [
            np.concatenate([one.rows[i] for one in found]) if found else np.empty((0, n)) for i, n in enumerate(widths)
        ]
        return {
            "device_names": np.array(list(self.devices), dtype=str),
            "device_variances": np.array([one.common_variance for one in found], dtype=float),
            "device_weights": np.array([one.training_weights for one in found]).reshape(len(found), n_training),
            "measured_device": np.repeat(np.arange(len(found)), [len(one.weights) for one in found]),
            "measured_weights": np.concatenate([np.empty(0), *(one.weights for one in found)]),
            **dict(zip(MEASURED_KEYS, rows, strict=True)),
            "job_keys": np.array(list(self.jobs), dtype=np.uint64),
            "job_factors": np.array(factors, dtype=float).reshape(-1, 2),
            "job_covariances": np.array(covariances, dtype=float).reshape(-1, 2, 2),
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> Calibration:
        """Restore what `to_arrays` returned."""
        devices = {}
        for number, name in enumerate(arrays["device_names"]):
            of = arrays["measured_device"] == number
            rows, weights = [arrays[key][of] for key in MEASURED_KEYS], arrays["measured_weights"][of]
            variance = float(arrays["device_variances"][number])
            devices[str(name)] = Condition(rows, weights, arrays["device_weights"][number], variance)
        keys = [int(key) for key in arrays["job_keys"]]
        posteriors = zip(arrays["job_factors"], arrays["job_covariances"], strict=True)
        return cls(devices, dict(zip(keys, posteriors, strict=True)))


def _rows_by_name(names: pd.Series) -> list[tuple[str, IntArray]]:
    """Positions of the rows of each device."""
    found = pd.Series(np.arange(len(names))).groupby(names.astype(object).astype(str).to_numpy())
    return [(str(name), rows.to_numpy()) for name, rows in found]


def _laplace(parts: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Posterior mode and Laplace covariance of the log factors of two parts whose sum was measured."""

    def residuals(theta: FloatArray) -> FloatArray:
        """Residuals of the log measurements, then of the prior on the log factors, in standard deviations."""
        return np.concatenate([(np.log(parts @ np.exp(theta)) - np.log(y)) / _NOISE_STD, theta / _PRIOR_STD])

    found = least_squares(residuals, np.zeros(2))
    return found.x, np.linalg.inv(found.jac.T @ found.jac)
