"""What measured jobs tell of their device, and of themselves at another batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from gpudemand._typing import BoolArray, FloatArray, IntArray

#: Work that takes as long whatever the batch: what the host does, and what is done to the parameters.
_FIXED = ("launch", "start", "update", "weights")
#: What a job has in common with itself at another batch, beside the fixed work: names, and counts.
_SAME = ("device_name", "precision", "layout", "framework", "framework_version", "execution", "mode")
_SAME_COUNTS = ("n_gpus", "optimizer_states")
#: How far the fixed part and the rest may be from what was predicted, and a measurement from the truth, as logarithms.
_DOUBTS, _NOISE = np.array([2.0, 0.3]), 0.08
#: How far devices usually are from their predictions, as a logarithm, and how many errors are no chance.
_DEVICES, _BEYOND_CHANCE = 0.1, 4.0


def job_keys(X: pd.DataFrame, terms: pd.DataFrame) -> IntArray:
    """Number that jobs have in common if only their batch differs, shape (n_jobs,); a network is its fixed work."""
    picoseconds = (1e12 * terms[[name for name in terms.columns if _is_fixed(name)]]).round()
    # Plain types, so that a job that was stored and read again, by another pandas, still is the same.
    names = X[list(_SAME)].astype(object)
    same = [names.where(names.notna(), "").astype(str), X[list(_SAME_COUNTS)].astype(float), picoseconds]
    return np.asarray(pd.util.hash_pandas_object(pd.concat(same, axis=1), index=False), dtype=np.uint64)


def split_work(terms: pd.DataFrame, prices: pd.Series) -> FloatArray:
    """Price the fixed work and the rest, shape (n_jobs, 2)."""
    fixed: BoolArray = np.array([_is_fixed(name) for name in terms.columns])
    cost = terms.to_numpy(dtype=float) * prices.to_numpy()
    return np.column_stack([cost[:, fixed].sum(axis=1), cost[:, ~fixed].sum(axis=1)])


def _is_fixed(name: str) -> bool:
    return name.rsplit(":", 1)[-1] in _FIXED


@dataclass
class Calibration:
    """Factors of devices, and of jobs that were measured on them.

    A job that was measured before keeps what was measured: its fixed part and the rest each have a factor, the most
    probable ones given how far predictions usually are from either. Other jobs get the factor of their device.

    Attributes
    ----------
    devices : dict of str to float
        Log factor by name.
    jobs : dict of int to (ndarray of shape (2,), ndarray of shape (2, 2))
        Log factors of a job's fixed part and of the rest, and their covariance, by key of `job_keys`.
    """

    devices: dict[str, float] = field(default_factory=dict)
    jobs: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict)

    def learn_devices(self, names: pd.Series, keys: IntArray, ratio: FloatArray, usual: float) -> None:
        """Set the factor of each device that was measured on; batches of one job count as one.

        Parameters
        ----------
        names : Series of str, shape (n,)
        keys : ndarray of shape (n,)
            Of `job_keys`.
        ratio : ndarray of shape (n,)
            Measured over predicted.
        usual : float
            How far a job usually is from its prediction, as a logarithm: a factor is shrunk by the error of its median.
        """
        errors = pd.Series(np.log(ratio)).groupby([names.astype(str).to_numpy(), keys]).median()
        for name, jobs in errors.groupby(level=0):
            self.devices[str(name)] = _shrunk(float(jobs.median()), usual / np.sqrt(len(jobs)))

    def learn_jobs(self, keys: IntArray, parts: FloatArray, y: FloatArray) -> None:
        """Fit the factors of each job.

        Parameters
        ----------
        keys : ndarray of shape (n,)
        parts : ndarray of shape (n, 2)
            Predicted seconds, the fixed part and the rest.
        y : ndarray of shape (n,)
            Measured seconds.
        """
        for key in np.unique(keys):
            self.jobs[int(key)] = _most_probable(parts[keys == key], y[keys == key])

    def apply(
        self, X: pd.DataFrame, terms: pd.DataFrame, parts: FloatArray, doubt: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Seconds and doubts, with what was measured."""
        factor = X["device_name"].astype(object).map(self.devices).astype(float).fillna(0.0).to_numpy()
        seconds, doubt = parts.sum(axis=1) * np.exp(factor), doubt.copy()
        keys = job_keys(X, terms) if self.jobs else np.empty(0, dtype=np.uint64)
        for row in np.flatnonzero(np.isin(keys, np.array(list(self.jobs), dtype=np.uint64))):
            theta, covariance = self.jobs[int(keys[row])]
            moved = parts[row] * np.exp(theta)
            share = moved / moved.sum()
            seconds[row] = moved.sum()
            doubt[row] = min(doubt[row], float(np.sqrt(share @ covariance @ share + _NOISE**2)))
        return seconds, doubt

    def to_arrays(self) -> dict[str, Any]:
        """Return plain arrays, for ``numpy.savez``."""
        factors = [factors for factors, _ in self.jobs.values()]
        return {
            "device_names": np.array(list(self.devices), dtype=str),
            "device_factors": np.array(list(self.devices.values()), dtype=float),
            "job_keys": np.array(list(self.jobs), dtype=np.uint64),
            "job_factors": np.array(factors, dtype=float).reshape(-1, 2),
            "job_covariances": np.array([spread for _, spread in self.jobs.values()], dtype=float).reshape(-1, 2, 2),
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> Calibration:
        """Restore what `to_arrays` returned."""
        names = [str(name) for name in arrays["device_names"]]
        devices = dict(zip(names, map(float, arrays["device_factors"]), strict=True))
        if "job_keys" not in arrays:  # stored before jobs had factors
            return cls(devices)
        keys = [int(key) for key in arrays["job_keys"]]
        return cls(
            devices, dict(zip(keys, zip(arrays["job_factors"], arrays["job_covariances"], strict=True), strict=True))
        )


def _most_probable(parts: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log factors of two parts whose sum was measured, with the covariance of Laplace's approximation."""

    def misfit(theta: FloatArray) -> FloatArray:
        return np.concatenate([(np.log(parts @ np.exp(theta)) - np.log(y)) / _NOISE, theta / _DOUBTS])

    found = least_squares(misfit, np.zeros(2))
    return found.x, np.linalg.inv(found.jac.T @ found.jac)


def _shrunk(factor: float, error: float) -> float:
    """Factor of a device, given how far off it may be by the chance of which jobs were measured.

    Devices differ by little from their datasheets, unless what was measured is far beyond chance: then it is believed.
    """
    spread = max(_DEVICES**2, factor**2 - (_BEYOND_CHANCE * error) ** 2)
    return factor * spread / (spread + error**2)
