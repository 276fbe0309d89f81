"""Log correction of the work under which no job is faster on less bandwidth or at a lower peak."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.predict.gaussian_process import Inputs, means_on_devices
from gpudemand.cost.predict.gp_features import device_figure

#: Octaves of bandwidth or peak from one device to the next.
_STEP = 0.5
#: What grows, in the order of `_speeds`. The peak of matrix units is not among the features of the process.
_FIGURES = ("bandwidth_gb_s", "fp32_tflops")


def monotone_correction(
    inputs: Inputs, training: Inputs, dual_coef: FloatArray, terms: pd.DataFrame, coefficients: pd.Series
) -> FloatArray:
    """Posterior means of a Gaussian process, changed where the time would grow with the speed of the device.

    Of the devices in training the one most like a job's in all but bandwidth and peak is where nothing changes. From
    there to the job's device, time is the least so far as bandwidth (or peak) grows, and the most as it falls.

    Parameters
    ----------
    inputs, training : Inputs
        `gp_features` of the jobs in question and of those in training.
    dual_coef : ndarray of shape (n_training,)
        Weights of the latter.
    terms : DataFrame
        Of `step_terms`, the columns of `coefficients`.
    coefficients : Series
        Multiple of the datasheet's bound, by term.

    Returns
    -------
    ndarray of shape (n_jobs,)
    """
    device = inputs[1]
    first = _speeds(_most_alike(device, training[1]))
    change = _speeds(device) - first
    steps = 1 + np.ceil(np.abs(change).max(axis=0, initial=0.0) / _STEP).astype(int)
    reached = [np.clip(change, -_STEP * np.array(at), _STEP * np.array(at)) for at in np.ndindex(*steps)]
    devices = [_with_speeds(device, first + part) for part in reached]
    work = _log_work(terms, coefficients, [change - part for part in reached])
    times = (means_on_devices(inputs, training, dual_coef, devices) + work).reshape(*steps, -1)
    for axis in (1, 0):
        times = np.where(change[:, axis] < 0, times.max(axis=axis), times.min(axis=axis))
    return times


def _speeds(device: FloatArray) -> FloatArray:
    """Binary logarithms of bandwidth and peak, from the features of devices."""
    return np.column_stack([device[:, 0], device[:, 0] + device[:, 1]])


def _with_speeds(device: FloatArray, speeds: FloatArray) -> FloatArray:
    return np.column_stack([speeds[:, 0], speeds[:, 1] - speeds[:, 0], device[:, 2:]])


def _most_alike(device: FloatArray, training: FloatArray) -> FloatArray:
    """The device in training that is next in what is neither bandwidth nor peak, for each row."""
    known, (own, which) = np.unique(training, axis=0), np.unique(device[:, 2:], axis=0, return_inverse=True)
    distances = np.abs(own[:, None, :] - known[None, :, 2:]).sum(axis=2)
    return known[distances.argmin(axis=1)][which.ravel()]


def _log_work(terms: pd.DataFrame, coefficients: pd.Series, octaves: list[FloatArray]) -> FloatArray:
    """Log ratios of the work if bandwidth and peak are so many octaves lower, shape (n_devices, n_jobs)."""
    figures = np.array([device_figure(*name.split(":")[1:]) for name in terms.columns])
    costs = terms.to_numpy(dtype=float) * coefficients.to_numpy()
    share = np.column_stack([costs[:, figures == name].sum(axis=1) for name in _FIGURES]) / costs.sum(axis=1)[:, None]
    return np.log1p([((2.0**part - 1.0) * share).sum(axis=1) for part in octaves])
