"""`StepTimeModel`: step time from work at the peaks, its coefficients, and calibration on a device."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._files import read_whole
from gpudemand._validation import InputError, check_features, check_number, stack_level
from gpudemand.cost import gaussian_process as gp
from gpudemand.cost.host import LAUNCHES, Hosts, device_seconds, step_seconds
from gpudemand.cost.host import STORED as STORED_HOSTS
from gpudemand.cost.operators import UNIT_OF
from gpudemand.cost.regression import (
    ConformityScores,
    IntervalMixin,
    balanced_sample,
    cauchy_weights,
    check_costs,
    fit_nonnegative,
    fold_masks,
    group_numbers,
    several_groups,
)
from gpudemand.cost.roofline import LOWER_BOUND, PARALLEL_TERMS, STEP_COLUMNS, UPDATE, WORK, WORK_TERMS

#: Weight of the prior means in units of relative errors: of the datasheet's bounds for the pooled coefficients, and of
#: the pooled coefficients for those by kind. With a weaker first prior, costs that are nearly the same for all training
#: networks, as those of a step's start, take what others cannot explain; with a weaker second, a kind that is rare in
#: training takes any (``python -m benchmarks.cost --track novelty family device``).
_POOLED_PENALTY, _PENALTY = 1.0, 0.2
_IRLS_STEPS = 4
#: No work is free: the least multiple of the bound that coefficients are shrunk to.
_LEAST = 0.05
#: Term whose bound is at the share of the peak that is sustained: unless measured, it is no faster. Pooled coefficients
#: are below 1 for convolutions, which need fewer operations than counted.
_ATTENTION = f"{WORK}attention:flops"


def pooled_names(terms: Iterable[str]) -> list[str]:
    """Pooled term of each term: work on the same units of the hardware, whatever the kind of kernel."""
    parts = [name.split(":")[1:] for name in terms]
    return [
        "launch" if part[-1] == "launch" else ":".join([UNIT_OF.get(part[0], part[0]), *part[1:]]) for part in parts
    ]


def fit_work_coefficients(terms: pd.DataFrame, y: FloatArray) -> pd.Series:
    """Fit non-negative coefficients in relative error, under a Cauchy loss.

    A hierarchical model: the datasheet's bounds are the prior means of pooled coefficients, one for the work of all
    kinds of kernels on the same units, and these of the coefficients by kind. What no row has takes the prior mean.
    """
    names = np.array(pooled_names(terms.columns))
    together = terms.T.groupby(names).sum().T
    pooled = _irls(together, y, np.ones(together.shape[1]), _POOLED_PENALTY).clip(lower=_LEAST)
    means = pooled.reindex(names).set_axis(terms.columns)
    means = means.where(means.index != _ATTENTION, means.clip(lower=1.0))
    coefficients = _irls(terms, y, means.to_numpy(), _PENALTY)
    # The states of all parameters stream through memory, which is no faster than its datasheet says.
    return coefficients.where(coefficients.index != UPDATE, coefficients.clip(lower=1.0))


def fit_training_coefficients(terms: pd.DataFrame, y: FloatArray, jobs: pd.DataFrame) -> pd.Series:
    """Fit coefficients to rows in training mode with a known framework, if there are any; see `fit_work_coefficients`.

    Kernels of inference differ, above all by the version of the framework, which the learned correction knows; where
    the version is unknown (``0.0``), so is the time of a launch.

    >>> terms = pd.DataFrame({"work:gemm:flops": np.ones(80)})
    >>> jobs = pd.DataFrame({"mode": ["train", "infer"] * 40, "framework_version": "2.9"})
    >>> fit_training_coefficients(terms, np.where(jobs["mode"] == "train", 3.0, 2.0), jobs).round(1).tolist()
    [3.0]
    """
    training = (jobs["mode"] == "train").to_numpy()
    known = training & (jobs["framework_version"].astype(str) != "0.0").to_numpy()
    rows = known if known.any() else training if training.any() else ~training
    return fit_work_coefficients(terms[rows], y[rows])


def _irls(terms: pd.DataFrame, y: FloatArray, mean: FloatArray, penalty: float) -> pd.Series:
    """Iteratively reweighted least squares for the Cauchy loss, from the prior mean scaled to the rows."""
    relative = terms.to_numpy(dtype=float) / y[:, None]
    coefficients = pd.Series(mean / np.median(relative @ mean), index=terms.columns)
    for _ in range(_IRLS_STEPS):
        error = np.log(np.maximum(relative @ coefficients.to_numpy(), np.finfo(float).tiny))
        weight = cauchy_weights(error, 2.0 * max(1.4826 * float(np.median(np.abs(error))), 0.01))
        # Relative to the measured time, a row that was measured too fast would outweigh all others.
        coefficients = fit_nonnegative(terms, y, weight / np.maximum(np.exp(error), 1.0), prior=(mean, mean / penalty))
    return coefficients


class ScriptEffect(NamedTuple):
    """Ratio of the step time of training scripts to that of the bare step: a random effect of the project they are of.

    A script loads and augments data, computes losses, metrics and assignments on the host, logs and evaluates. The log
    ratio of a project never seen is around `mean` with Student's t and a scale of `spread`; what the prediction of the
    bare step may err by comes on top.

    `projects`: published ones that tell `mean` and `spread`. `start_s`: seconds of a script's step beside those that
    the ratio applies to, whatever the network: batches are handed over, losses read.

    Meeker, Hahn, Escobar, "Statistical Intervals", Wiley 2017, 4.7: prediction interval of one more normal observation.
    """

    mean: float
    spread: float
    projects: int
    start_s: float = 0.0

    @property
    def ratio(self) -> float:
        """Geometric mean of the ratio of a script's step to the bare step."""
        return float(np.exp(self.mean))

    def interval(self, level: float) -> tuple[float, float]:
        """Ratio of a project never seen: the ends of its interval at a level in percent."""
        reach = float(student.ppf(0.5 + level / 200, self.projects - 1) * self.spread)
        return float(np.exp(self.mean - reach)), float(np.exp(self.mean + reach))

    def apply(self, seconds: FloatArray, levels: Sequence[float]) -> FloatArray:
        """Seconds of steps in scripts from those of bare ones, with intervals; logs of the errors add in quadrature."""
        script = np.array([self.ratio, *(end for level in levels for end in self.interval(level))])
        bare = np.log(seconds / seconds[:, :1])
        time = seconds[:, :1] + self.start_s
        reach = np.hypot(bare, np.log(script / self.ratio))
        sign = np.array([0.0, *([-1.0, 1.0] * len(levels))])
        return np.asarray(time * self.ratio * np.exp(sign * reach))

    @classmethod
    def load(cls, path: Path | None = None) -> ScriptEffect:
        """Read a stored effect, by default the bundled one."""
        from gpudemand.datasets.registry import bundled_path

        source = path or bundled_path("cost/script_effect.json")
        try:
            content = dict(json.loads(read_whole(source)))
            numbers = {name: check_number(name, content[name]) for name in cls._fields}
            return cls(numbers["mean"], numbers["spread"], int(numbers["projects"]), numbers["start_s"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{source.name} holds no effect of scripts that is known here: {error}.") from error


#: Work whose time does not depend on the batch: host time, and work on the parameters.
_FIXED_TERMS = ("launch", "start", "update", "weights")
#: Columns of `split_work`.
_FIXED, _REST, _EXCHANGE = range(3)
#: Columns in which all batch sizes and numbers of GPUs of one job agree.
_JOB_CATEGORIES = ("device_name", "precision", "layout", "framework", "framework_version", "execution", "mode")
#: Prior standard deviations of the log factors of the fixed part, of the rest, of the exchange between GPUs and of the
#: host, and noise of a log measurement.
_PRIOR_STD, _NOISE_STD = np.array([2.0, 0.3, 2.0, 2.0]), 0.08
#: Keys of stored arrays: inputs of measured jobs, in the order of `Inputs`.
MEASURED_KEYS = ("measured_network", "measured_hardware", "measured_stack")
#: Types and shapes of the arrays of a stored calibration.
STORED = {
    "device_names": "U devices",
    "device_variances": "f devices",
    "device_weights": "f devices rows",
    "measured_device": "i measured",
    "measured_weights": "f measured",
    "measured_residuals": "f measured",
    **dict(zip(MEASURED_KEYS, ("f measured network", "f measured device", "f measured stack"), strict=True)),
    "job_keys": "u jobs",
    "job_factors": "f jobs 4",
    "job_covariances": "f jobs 4 4",
    "job_of_row": "u job_rows",
    "job_rows": "f job_rows 6",
}
#: Arrays that calibrations stored before lack: their jobs keep their factors, and measured anew they get others.
_LATER = {"job_of_row": np.empty(0, dtype=np.uint64), "job_rows": np.empty((0, 6))}
#: Arrays of a calibration with a column for each part of the work.
_PARTS = ("job_factors", "job_covariances", "job_rows")


def _with_later(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays of a stored calibration, also of before jobs had rows and a factor of the exchange between GPUs."""
    later = {**_LATER, **arrays}
    if later["job_factors"].shape[1:] == (3,):
        exchange = {name: np.insert(later[name], _EXCHANGE, 0.0, axis=1) for name in _PARTS if name in arrays}
        covariances = np.insert(exchange["job_covariances"], _EXCHANGE, 0.0, axis=2)
        covariances[:, _EXCHANGE, _EXCHANGE] = _PRIOR_STD[_EXCHANGE] ** 2
        later |= {**exchange, "job_covariances": covariances}
    return later


def job_keys(X: pd.DataFrame, terms: pd.DataFrame) -> IntArray:
    """Hash that a job has at all batch sizes and on any number of GPUs; its network is identified by its fixed work."""
    picoseconds = (1e12 * terms[[name for name in terms.columns if _part(name) == _FIXED]]).round()
    # Plain types, so that the hash does not depend on how the table was stored or on the version of pandas.
    names = X[list(_JOB_CATEGORIES)].astype(object)
    counts = X[["optimizer_states"]].astype(float)
    counts.insert(0, "n_gpus", 1.0)  # calibrations stored before had it in their keys
    same = [names.where(names.notna(), "").astype(str), counts, picoseconds]
    return np.asarray(pd.util.hash_pandas_object(pd.concat(same, axis=1), index=False), dtype=np.uint64)


def split_work(terms: pd.DataFrame, coefficients: pd.Series) -> FloatArray:
    """Seconds of the fixed work, of the rest and of the exchange between GPUs, shape (n_jobs, 3)."""
    parts = np.array([_part(name) for name in terms.columns])
    cost = terms.to_numpy(dtype=float) * coefficients.to_numpy()
    return np.column_stack([cost[:, parts == part].sum(axis=1) for part in (_FIXED, _REST, _EXCHANGE)])


def _part(name: str) -> int:
    last = name.rsplit(":", 1)[-1]
    return _FIXED if last in _FIXED_TERMS else _EXCHANGE if last in PARALLEL_TERMS else _REST


class Parts(NamedTuple):
    """What step times of jobs come from.

    `device`: seconds by part, as of `split_work`, shape (n_jobs, 3). `host`: seconds of launching. `scale`: of
    log errors of the device's time, in units of the conformity scores. `host_deviation`: of log errors of the host's.
    """

    device: FloatArray
    host: FloatArray
    scale: FloatArray
    host_deviation: FloatArray

    @property
    def seconds(self) -> FloatArray:
        """Seconds a step."""
        return step_seconds(self.device.sum(axis=1), self.host)

    def intervals(self, scores: ConformityScores, levels: Sequence[float]) -> FloatArray:
        """Seconds a step with intervals; log errors of device and host are independent."""
        device, ends = self.device.sum(axis=1), [self.seconds]
        of_device = scores.intervals(np.ones(len(device)), self.scale, levels)[:, 1:]
        for place, level in enumerate(levels):
            reach = np.exp(norm.ppf(0.5 + level / 200) * self.host_deviation)
            for end, factor in ((0, 1.0 / reach), (1, reach)):
                changes = [
                    np.log(step_seconds(device * of_device[:, 2 * place + end], self.host) / ends[0]),
                    np.log(step_seconds(device, self.host * factor) / ends[0]),
                ]
                ends.append(ends[0] * np.exp((2 * end - 1) * np.hypot(*changes)))
        return np.column_stack(ends)


@dataclass
class Calibration:
    """What measured jobs say of their devices and of themselves.

    The Gaussian process is conditioned on the jobs measured on a device, for predictions on that device alone. A
    measured job has, by `job_keys`, log factors for the parts of its work (`split_work`) and for the host, with their
    covariance, and rows of what they were fitted to: seconds of the parts, launches, measured seconds, and seconds a
    launch as they were known then, which the factor of the host is of.
    """

    devices: dict[str, gp.Condition] = field(default_factory=dict)
    jobs: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict)
    rows: dict[int, FloatArray] = field(default_factory=dict)

    def fit_devices(
        self, names: pd.Series, inputs: gp.Inputs, residual: FloatArray, training: gp.Inputs, dual_coef: FloatArray
    ) -> None:
        """Condition a fitted Gaussian process on the log residuals of the jobs of each device."""
        for name, rows in _rows_by_name(names):
            # One measurement that is far from the others must not count for all.
            middle = float(np.median(residual[rows]))
            y = np.clip(residual[rows], middle - gp.MAX_RESIDUAL, middle + gp.MAX_RESIDUAL)
            measured = [part[rows] for part in inputs]
            if name in self.devices:
                measured = [np.vstack(pair) for pair in zip(self.devices[name].rows, measured, strict=True)]
                y = np.concatenate([self.devices[name].measured, y])
            self.devices[name] = gp.condition(training, dual_coef, measured, y)

    def device_change(
        self, names: pd.Series, inputs: gp.Inputs, covariance: FloatArray, training: gp.Inputs
    ) -> FloatArray:
        """Change of the log correction of jobs on calibrated devices, zero for others."""
        change = np.zeros(len(names))
        for name, rows in _rows_by_name(names):
            if name in self.devices:
                change[rows] = self.devices[name].change([part[rows] for part in inputs], covariance[rows], training)
        return change

    def fit_jobs(self, keys: IntArray, measured: FloatArray) -> None:
        """Fit each job's factors to all that was measured of it (`rows`); of the same work the last counts."""
        for key in np.unique(keys):
            number, new = int(key), measured[keys == key]
            rows = self.rows.get(number, new[:0])
            is_kept = ~np.isclose(rows[:, None, :4], new[:, :4], rtol=1e-9, atol=0.0).all(axis=2).any(axis=1)
            rows = np.vstack([rows[is_kept], new])
            rows[:, 5] = new[0, 5]
            self.rows[number] = rows
            self.jobs[number] = _laplace(rows[:, :3], rows[:, 3] * rows[:, 5], rows[:, 4])

    def apply(self, X: pd.DataFrame, terms: pd.DataFrame, parts: Parts, change: FloatArray) -> Parts:
        """Calibrated parts, from those before calibration and `device_change`."""
        device, host = parts.device * np.exp(change)[:, None], parts.host.copy()
        scale, deviation = parts.scale.copy(), parts.host_deviation.copy()
        launches, keys = _launches(X), job_keys(X, terms) if self.jobs else np.empty(0, dtype=np.uint64)
        for row in np.flatnonzero(np.isin(keys, np.array(list(self.jobs), dtype=np.uint64))):
            theta, covariance = self.jobs[int(keys[row])]
            if int(keys[row]) in self.rows:  # others that were measured later tell of other hosts
                host[row] = launches[row] * self.rows[int(keys[row])][0, 5]
            device[row], host[row] = parts.device[row] * np.exp(theta[:3]), host[row] * np.exp(theta[3])
            share = device[row] / device[row].sum()
            scale[row] = min(scale[row], float(np.sqrt(share @ covariance[:3, :3] @ share + _NOISE_STD**2)))
            deviation[row] = min(deviation[row], float(np.sqrt(covariance[3, 3] + _NOISE_STD**2)))
        return Parts(device, host, scale, deviation)

    def to_arrays(self, training: gp.Inputs) -> dict[str, Any]:
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
            "measured_residuals": np.concatenate([np.empty(0), *(one.measured for one in found)]),
            **dict(zip(MEASURED_KEYS, rows, strict=True)),
            "job_keys": np.array(list(self.jobs), dtype=np.uint64),
            "job_factors": np.array(factors, dtype=float).reshape(-1, 4),
            "job_covariances": np.array(covariances, dtype=float).reshape(-1, 4, 4),
            "job_of_row": np.repeat(np.array(list(self.rows), dtype=np.uint64), list(map(len, self.rows.values()))),
            "job_rows": np.vstack([_LATER["job_rows"], *self.rows.values()]),
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> Calibration:
        """Restore what `to_arrays` returned."""
        devices = {}
        for number, name in enumerate(arrays["device_names"]):
            of = arrays["measured_device"] == number
            rows = [arrays[key][of] for key in MEASURED_KEYS]
            residuals, weights = arrays["measured_residuals"][of], arrays["measured_weights"][of]
            variance = float(arrays["device_variances"][number])
            devices[str(name)] = gp.Condition(rows, residuals, weights, arrays["device_weights"][number], variance)
        keys = [int(key) for key in arrays["job_keys"]]
        posteriors = zip(arrays["job_factors"], arrays["job_covariances"], strict=True)
        of, measured = arrays["job_of_row"], arrays["job_rows"]
        by_job = {int(key): measured[of == key] for key in np.unique(of)}
        return cls(devices, dict(zip(keys, posteriors, strict=True)), by_job)


def _rows_by_name(names: pd.Series) -> list[tuple[str, IntArray]]:
    """Positions of the rows of each device."""
    found = pd.Series(np.arange(len(names))).groupby(names.astype(object).astype(str).to_numpy())
    return [(str(name), rows.to_numpy()) for name, rows in found]


def _laplace(device: FloatArray, host: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Posterior mode and Laplace covariance of the log factors of the parts of the device's time, and of the host."""

    def residuals(theta: FloatArray) -> FloatArray:
        """Residuals of the log measurements, then of the prior on the log factors, in standard deviations."""
        steps = step_seconds(device @ np.exp(theta[:3]), host * np.exp(theta[3]))
        return np.concatenate([(np.log(steps) - np.log(y)) / _NOISE_STD, theta / _PRIOR_STD])

    found = least_squares(residuals, np.zeros(4))
    return found.x, np.linalg.inv(found.jac.T @ found.jac)


def check_arrays(arrays: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """Return the arrays if they have these names, types and shapes, and all numbers are finite.

    `arrays`: such as an opened ``.npz``. `known`: name -> type (``f``, ``i``, ``u`` or ``U``, as in ``dtype.kind``)
    and sizes. A size is a number, or a name that stands for one number wherever it occurs.

    >>> check_arrays({"x": np.zeros((3, 2)), "y": np.zeros(4)}, {"x": "f rows 2", "y": "f rows"})
    Traceback (most recent call last):
    ...
    gpudemand._validation.InputError: y has type f and shape (4,) where f and (3,) are expected.
    """
    if set(arrays) != set(known):
        names = ", ".join(sorted(set(arrays) ^ set(known))[:5])
        raise InputError(f"arrays are missing or unknown: {names}.")
    checked, sizes = {name: arrays[name] for name in known}, dict[str, int]()
    for name, array in checked.items():
        kind, *shape = known[name].split()
        for size, length in zip(shape, array.shape, strict=False):
            sizes.setdefault(size, int(size) if size.isdigit() else length)
        expected = tuple(sizes.get(size, 0) for size in shape)
        if (array.dtype.kind, array.shape) != (kind, expected):
            found = f"type {array.dtype.kind} and shape {array.shape}"
            raise InputError(f"{name} has {found} where {kind} and {expected} are expected.")
        if kind == "f" and not np.isfinite(array).all():
            raise InputError(f"{name} holds numbers that are not finite.")
    return checked


#: Column of seconds of the device in a step, of rows that were profiled.
DEVICE_TIME = "device_time_s"
#: Turns in which coefficients of work and hosts are fitted.
_HOST_STEPS = 3
#: Fewest steps that the device bounds, from which coefficients are fitted.
_LEAST_KNOWN = 10
_FOLDS = 5
#: How much further off steps on other GPUs are than held-out ones on the only GPU in training: geometric mean over
#: twelve of them (``python -m benchmarks.cost --track alone``).
_FURTHER = 1.9
#: Trees of the error scale.
_SCALE_TREES = 60
#: Keys of a stored model: inputs of the Gaussian process.
_INPUT_KEYS = ("network", "device", "stack")
#: Types and shapes of the arrays of a stored model.
_STORED = {
    "parameters": "i 2",
    "coefficient_names": "U terms",
    "coefficients_": "f terms",
    "ood_threshold_": "f",
    **STORED,
    **STORED_HOSTS,
    "dual_coef_": "f rows",
    **{name: f"f rows {name}" for name in _INPUT_KEYS},
    **dict.fromkeys(("conformity_scores_", "conformity_weights_"), "f scores"),
    **gp.Trees.stored("error_scale_"),
}
#: Jobs that are predicted at a time; bounds the memory of the kernel.
_CHUNK = 1000


class FarFromTrainingWarning(UserWarning):
    """Some jobs are unlike every job in the training data; their intervals are wide."""


class StepTimeModel(IntervalMixin, BaseEstimator):
    """Predict seconds a step: a linear model of the work, times a learned correction, times a factor of the device.

    Work is what each kind of operator would take at the peaks of the device (`step_terms`), so that a device needs
    no more than its datasheet. Its coefficients are non-negative and fitted in relative error. The log residual is
    predicted by a Gaussian process over network, device and software stack, which reverts to zero for jobs unlike all
    others; `monotone_correction` keeps less bandwidth and lower peaks from being faster. `calibrate` conditions it on
    measured jobs. No prediction is below `LOWER_BOUND`.

    `max_rows`: rows that the correction is fitted on, drawn evenly from the groups; coefficients are fitted on all
    rows. `coefficients_`: multiple of the datasheet's bound, by term of work. `dual_coef_`: weights of the training
    rows in the Gaussian process. `calibration_`: what measured jobs say of their devices and of themselves.
    `conformity_scores_`: scaled absolute log errors of held-out groups. `ood_threshold_`: distance from the training
    data beyond which a job is out of distribution.

    Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006.
    """

    def __init__(self, max_rows: int = 2000, random_state: int = 0) -> None:
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> StepTimeModel:
        """Fit coefficients, correction and intervals.

        `X`: columns of `gpudemand.cost.features_from_jobs` and of `step_terms`, and ``mode``. `groups`: what new jobs
        differ in (families, devices): intervals are about groups never seen. By default, every row.
        """
        X, y = _checked(X), check_costs(y, len(X), "are no times")
        if not set(WORK_TERMS) & set(X.columns):
            raise InputError("X has no columns of work; add those of gpudemand.cost.roofline.step_terms.")
        numbers = group_numbers(groups, len(y))
        groups, further = several_groups(numbers), 1.0 if numbers.any() else _FURTHER
        terms = X.reindex(columns=list(WORK_TERMS), fill_value=0.0)
        known, device = self._fit_hosts(terms, y, X)
        X, y, groups = X[known], device[known], groups[known]
        self.calibration_ = Calibration()
        rows = balanced_sample(groups, self.max_rows, self.random_state)
        X, y, groups = X.iloc[rows], y[rows], groups[rows]
        self.gp_inputs_ = self._inputs(X)
        residual = np.clip(np.log(y / self._work(X)), -gp.MAX_RESIDUAL, gp.MAX_RESIDUAL)
        self.dual_coef_, correction, distances = gp.fit(self.gp_inputs_, residual, groups)
        errors = np.log(y / self._held_out_work(X, y, groups)) - correction
        features = self._scale_features(X, self.gp_inputs_)
        self._fit_error_scale(errors, np.column_stack([features, distances]), groups, further)
        return self

    def _fit_hosts(self, terms: pd.DataFrame, y: FloatArray, X: pd.DataFrame) -> tuple[BoolArray, FloatArray]:
        """Fit coefficients of work and hosts in turn; return which rows tell the device's time, and that.

        A column ``device_time_s`` of `X` holds it where a profiler told.
        """
        profiled = _profiled(X)
        device, launches = np.where(np.isfinite(profiled), profiled, y), _launches(X)
        for _ in range(_HOST_STEPS):
            known = np.isfinite(device)
            self.coefficients_ = fit_training_coefficients(terms[known], device[known], X[known])
            work = terms.to_numpy(dtype=float) @ self.coefficients_.to_numpy()
            self.hosts_ = Hosts.fit(_hosted(X), y, np.where(np.isfinite(profiled), profiled, work))
            host = launches * np.exp(self.hosts_.of(list(X["device_name"]))[0])
            device = np.where(np.isfinite(profiled), profiled, device_seconds(y, host))
            if np.isfinite(device).sum() < _LEAST_KNOWN:  # the host bounds all of them: they are taken as they are
                return np.ones(len(y), dtype=bool), y
        return np.isfinite(device), device

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Predict seconds a step, shape (n_jobs,)."""
        return self.predict_all(X, [])[:, 0]

    def predict_all(self, X: pd.DataFrame, levels: Sequence[float]) -> FloatArray:
        """Predict, with intervals, shape (n_jobs, 1 + 2 n_levels): lower and upper end at each level."""
        parts, distances = self._predict(X)
        far = distances > self.ood_threshold_
        if levels and far.any():
            warnings.warn(self._unlike_training(X, far), FarFromTrainingWarning, stacklevel=stack_level())
        bound = X[LOWER_BOUND].to_numpy(dtype=float) if LOWER_BOUND in X.columns else np.zeros(len(X))
        found = parts.intervals(self.conformity_scores_, levels)
        return found * np.maximum(bound[:, None] / np.maximum(found[:, :1], np.finfo(float).tiny), 1.0)

    def distance(self, X: pd.DataFrame) -> FloatArray:
        """Distance from the nearest training job in mix of work, device and stack, shape (n_jobs,)."""
        return self._predict(X)[1]

    def is_measured(self, X: pd.DataFrame) -> BoolArray:
        """Whether the model is calibrated with each job, at whatever batch size, shape (n_jobs,)."""
        known = np.array(list(self.calibration_.jobs), dtype=np.uint64)
        return np.isin(job_keys(X, self._terms(X)), known) if len(known) else np.zeros(len(X), dtype=bool)

    def calibrate(self, X: pd.DataFrame, y: Any, jobs: bool = True) -> StepTimeModel:
        """Learn from measured jobs, for their devices, for the hosts of these and for themselves.

        Small steps tell how fast the host launches kernels, large ones how fast the device is: on each device the
        correction is conditioned on the latter, and on an effect that they have in common, beside what was measured
        there before. With `jobs`, each measured job has factors for its fixed work, for the rest, for the exchange
        between GPUs and for the host, which hold at all batch sizes and on any number of GPUs, and are fitted to all
        that was ever measured of it. A column ``device_time_s`` of `X` holds what a profiler told.
        """
        check_is_fitted(self, "coefficients_")
        X, y = _checked(X), check_costs(y, len(X), "are no times")
        profiled = _profiled(X)
        predicted = np.where(np.isfinite(profiled), profiled, self._predict(X)[0].device.sum(axis=1))
        self.hosts_ = self.hosts_.measured(_hosted(X), y, predicted, here=jobs)
        logs, deviations = self.hosts_.of(list(X["device_name"]))
        device = np.where(np.isfinite(profiled), profiled, device_seconds(y, _launches(X) * np.exp(logs)))
        # A step that a slow host may have bound would be taken for one of a slow device.
        slow = _launches(X) * np.exp(logs + norm.ppf(0.95) * deviations)
        known = np.isfinite(profiled) | np.isfinite(device_seconds(y, slow))
        if known.any():
            self._calibrate_devices(X[known], device[known])
        if jobs:
            measured = np.column_stack([self._uncalibrated(X)[0].device, _launches(X), y, np.exp(logs)])
            self.calibration_.fit_jobs(job_keys(X, self._terms(X)), measured)
        return self

    def _calibrate_devices(self, X: pd.DataFrame, device: FloatArray) -> None:
        inputs = self._inputs(X)
        # What monotonicity changes stays, as conditioning is of the posterior mean alone.
        covariance = gp.kernel(inputs, self.gp_inputs_)[1]
        correction, mean = self._corrections(X, inputs, covariance)[0], covariance @ self.dual_coef_
        residual = np.log(device / self._work(X)) - correction + mean
        self.calibration_.fit_devices(X["device_name"], inputs, residual, self.gp_inputs_, self.dual_coef_)

    def to_arrays(self) -> dict[str, Any]:
        """Return the fitted model as plain arrays, for ``numpy.savez``."""
        check_is_fitted(self, "coefficients_")
        return {
            "parameters": np.array([self.max_rows, self.random_state]),
            "coefficient_names": np.array(list(self.coefficients_.index), dtype=str),
            "coefficients_": self.coefficients_.to_numpy(),
            "ood_threshold_": np.array(self.ood_threshold_),
            **self.calibration_.to_arrays(self.gp_inputs_),
            **self.hosts_.to_arrays(),
            "dual_coef_": self.dual_coef_,
            **self.conformity_scores_.to_arrays(),
            **dict(zip(_INPUT_KEYS, self.gp_inputs_, strict=True)),
            **{f"error_scale_{part}": array for part, array in self.error_scale_._asdict().items()},
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> StepTimeModel:
        """Restore a model from what `to_arrays` returned, or from an opened ``.npz``."""
        arrays = check_arrays(_with_later(arrays), _STORED)
        model = cls(*(int(value) for value in arrays["parameters"]))
        model.coefficients_ = pd.Series(arrays["coefficients_"], index=arrays["coefficient_names"].tolist())
        model.calibration_, model.hosts_ = Calibration.from_arrays(arrays), Hosts.from_arrays(arrays)
        model.ood_threshold_ = float(arrays["ood_threshold_"])
        model.gp_inputs_, model.dual_coef_ = [arrays[name] for name in _INPUT_KEYS], arrays["dual_coef_"]
        n_features = sum(part.shape[1] for part in model.gp_inputs_) + len(model.coefficients_)
        model.error_scale_ = gp.Trees.from_arrays(arrays, "error_scale_", n_features + 1)  # and the distance
        model.conformity_scores_ = ConformityScores(arrays["conformity_scores_"], arrays["conformity_weights_"])
        return model

    def _predict(self, X: pd.DataFrame) -> tuple[Parts, FloatArray]:
        """Calibrated parts, and distances from the training data."""
        check_is_fitted(self, "coefficients_")
        X = _checked(X)
        parts, change, distances = self._uncalibrated(X)
        return self.calibration_.apply(X, self._terms(X), parts, change), distances

    def uncalibrated(self, X: pd.DataFrame) -> FloatArray:
        """Seconds a step as if nothing had been measured, on the mean host, shape (n_jobs,)."""
        X = _checked(X)
        host = _launches(X) * np.exp(self.hosts_.mean)
        return self._uncalibrated(X)[0]._replace(host=host).seconds

    def _uncalibrated(self, X: pd.DataFrame) -> tuple[Parts, FloatArray, FloatArray]:
        """Parts before calibration of the devices, log factors of these, and distances."""
        chunks = [self._correct(X.iloc[start : start + _CHUNK]) for start in range(0, max(len(X), 1), _CHUNK)]
        correction, change, scale, distances = (np.concatenate(part) for part in zip(*chunks, strict=True))
        # Trees do not extrapolate: beyond the training data the scale grows with the distance.
        scale = scale * (1.0 + np.maximum(distances - self.ood_threshold_, 0.0))
        work = split_work(self._terms(X), self.coefficients_) * np.exp(correction)[:, None]
        logs, deviations = self.hosts_.of(list(X["device_name"]))
        return Parts(work, _launches(X) * np.exp(logs), scale, deviations), change, distances

    def _correct(self, X: pd.DataFrame) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Log corrections, what calibration adds on the devices, error scales, and distances."""
        inputs = self._inputs(X)
        (similarity, covariance), features = gp.kernel(inputs, self.gp_inputs_), self._scale_features(X, inputs)
        distances = gp.distance(similarity)
        scale = np.exp(self.error_scale_.predict(np.column_stack([features, distances])))
        return *self._corrections(X, inputs, covariance), scale, distances

    def _corrections(
        self, X: pd.DataFrame, inputs: list[FloatArray], covariance: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Log corrections, and what calibration adds on the devices; `covariance`: with the training rows."""
        terms, training = self._terms(X), self.gp_inputs_
        found = gp.monotone_correction(inputs, training, self.dual_coef_, terms, self.coefficients_)
        change = self.calibration_.device_change(X["device_name"], inputs, covariance, training)
        several = (X["n_gpus"] > 1).to_numpy(dtype=bool)
        if several.any():
            # Each of several GPUs does what one would do alone, and then they exchange; as calibrated, too, although
            # what was measured on one GPU says less of more of them.
            one = X[several].assign(**{"n_gpus": 1, "n_nodes": 1, **{f"{WORK}{name}": 0.0 for name in PARALLEL_TERMS}})
            own = self._inputs(one)
            alone, alone_change = self._corrections(one, own, gp.kernel(own, training)[1])
            alone += np.log(self._work(one) / self._work(X[several]))
            total = np.maximum(found[several] + change[several], alone + alone_change)
            found[several] = np.maximum(found[several], alone)
            change[several] = np.maximum(change[several], total - found[several])
        return found, change

    def _unlike_training(self, X: pd.DataFrame, far: BoolArray) -> str:
        """What a warning says of jobs that are far from training: how many, and what is new in them."""
        inputs = self._inputs(X[far])
        new, unlike = gp.new_kinds(inputs[0], self.gp_inputs_[0]), f"{far.sum()} of {len(X)} jobs are unlike every job"
        return f"{unlike} in training; their intervals are wide.{f' New is the share of {new}.' if new else ''}"

    def _scale_features(self, X: pd.DataFrame, inputs: list[FloatArray]) -> FloatArray:
        """GP inputs, and each term as a share of the work."""
        return np.column_stack([*inputs, self._terms(X).to_numpy(dtype=float) / self._work(X)[:, None]])

    def _terms(self, X: pd.DataFrame) -> pd.DataFrame:
        # A kind of work that a table lacks does not occur in its networks.
        return X.reindex(columns=self.coefficients_.index, fill_value=0.0)

    def _inputs(self, X: pd.DataFrame) -> list[FloatArray]:
        return gp.features(X, self._terms(X), self.coefficients_)

    def _work(self, X: pd.DataFrame) -> FloatArray:
        return self._terms(X).to_numpy(dtype=float) @ self.coefficients_.to_numpy()

    def _held_out_work(self, X: pd.DataFrame, y: FloatArray, groups: IntArray) -> FloatArray:
        """Work with coefficients fitted without the row's group."""
        terms, work = self._terms(X), np.empty(len(y))
        for test in fold_masks(groups, _FOLDS):
            coefficients = fit_training_coefficients(terms[~test], y[~test], X[~test])
            work[test] = terms[test].to_numpy(dtype=float) @ coefficients.to_numpy()
        return work

    def _fit_error_scale(self, errors: FloatArray, features: FloatArray, groups: IntArray, further: float) -> None:
        folds = [(~test, test) for test in fold_masks(groups, _FOLDS)]
        settings = {"n_trees": _SCALE_TREES, "random_state": self.random_state}
        self.error_scale_, held_out = gp.fit_error_scale(features, errors, folds, **settings)
        self.conformity_scores_ = ConformityScores.from_errors(further * np.abs(errors) / np.exp(held_out), groups)
        self.ood_threshold_ = float(np.quantile(features[:, -1], 0.98)) + 0.05


def _hosted(X: pd.DataFrame) -> pd.DataFrame:
    """The columns that `Hosts` takes."""
    return X[["device_name", *({"host"} & set(X.columns))]].assign(**{LAUNCHES: _launches(X)})


def _profiled(X: pd.DataFrame) -> FloatArray:
    """Seconds of the device that a profiler told; NaN elsewhere."""
    return X[DEVICE_TIME].to_numpy(dtype=float) if DEVICE_TIME in X.columns else np.full(len(X), np.nan)


def _launches(X: pd.DataFrame) -> FloatArray:
    """Launches of each job; none where a table has no column of them."""
    return X[LAUNCHES].to_numpy(dtype=float) if LAUNCHES in X.columns else np.zeros(len(X))


def _checked(X: pd.DataFrame) -> pd.DataFrame:
    return check_features(X, (*STEP_COLUMNS, "device_name"))
