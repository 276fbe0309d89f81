"""`StepTimeModel`: step time as a linear model of the work at datasheet peaks, times a learned correction."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_columns
from gpudemand.cost.predict.device_calibration import STORED, Calibration, job_keys, split_work
from gpudemand.cost.predict.error_scale import MAX_RESIDUAL, fit_error_scale
from gpudemand.cost.predict.gaussian_process import distance, fit, kernel
from gpudemand.cost.predict.gp_features import gp_features, new_kinds
from gpudemand.cost.predict.monotone import monotone_correction
from gpudemand.cost.predict.stored_arrays import check_arrays
from gpudemand.cost.predict.trees import Trees
from gpudemand.cost.predict.work_coefficients import fit_training_coefficients
from gpudemand.cost.regression.conformal import ConformityScores
from gpudemand.cost.regression.targets import balanced_sample, check_costs, fold_masks, group_numbers, several_groups
from gpudemand.cost.roofline.roofline import LOWER_BOUND, NEEDED, TERMS

_FOLDS = 5
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
    "dual_coef_": "f rows",
    **{name: f"f rows {name}" for name in _INPUT_KEYS},
    **dict.fromkeys(("conformity_scores_", "conformity_weights_"), "f scores"),
    **Trees.stored("error_scale_"),
}
#: Jobs that are predicted at a time; bounds the memory of the kernel.
_CHUNK = 1000


class FarFromTrainingWarning(UserWarning):
    """Some jobs are unlike every job in the training data; their intervals are wide."""


class StepTimeModel(RegressorMixin, BaseEstimator):
    """Predict seconds a step: a linear model of the work, times a learned correction, times a factor of the device.

    Work is what each kind of operator would take at the peaks of the device (`step_terms`), so that a device needs
    no more than its datasheet. Its coefficients are non-negative and fitted in relative error. The log residual is
    predicted by a Gaussian process over network, device and software stack, which reverts to zero for jobs unlike all
    others; `monotone_correction` keeps less bandwidth and lower peaks from being faster. `calibrate` conditions it on
    measured jobs. No prediction is below `LOWER_BOUND`.

    Parameters
    ----------
    max_rows : int, default=2000
        Rows that the correction is fitted on, drawn evenly from the groups; coefficients are fitted on all rows.
    random_state : int, default=0

    Attributes
    ----------
    coefficients_ : Series
        Multiple of the datasheet's bound, by term of work.
    dual_coef_ : ndarray
        Weights of the training rows in the Gaussian process.
    calibration_ : Calibration
        What measured jobs say of their devices and of themselves.
    conformity_scores_ : ConformityScores
        Scaled absolute log errors of held-out groups.
    ood_threshold_ : float
        Distance from the training data beyond which a job is out of distribution.

    References
    ----------
    Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006.

    Examples
    --------
    Predict half a second of matrix products at the peak, which took 1.7 times as long in training:

    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({
    ...     "batch_size": 32, "precision": "fp32", "layout": "contiguous", "mode": "train", "optimizer_states": 0.0,
    ...     "n_gpus": 1, "framework": "torch", "execution": "eager", "device": "cuda", "framework_version": "2.4",
    ...     "device_name": "one", "device_peak_tflops": 20.0, "device_bandwidth_gb_s": 800.0, "device_sms": 80.0,
    ...     "device_interconnect_gb_s": 32.0, "device_fp32_tflops": 20.0, "device_l2_mib": 6.0, "device_year": 2020.0,
    ...     "work:gemm:flops": rng.uniform(0.01, 1.0, 80)})
    >>> y = 1.7 * table["work:gemm:flops"].to_numpy()
    >>> model = StepTimeModel().fit(table, y, groups=np.arange(80) % 8)
    >>> (model.predict(table.assign(**{"work:gemm:flops": 0.5})) / 0.5).round(1)[:2].tolist()
    [1.7, 1.7]
    """

    def __init__(self, max_rows: int = 2000, random_state: int = 0) -> None:
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> StepTimeModel:
        """Fit coefficients, correction and intervals.

        Parameters
        ----------
        X : DataFrame of shape (n_jobs, n_features)
            Columns of `gpudemand.cost.features_from_jobs` and of `gpudemand.cost.roofline.roofline.step_terms`, and
            ``mode``.
        y : array-like of shape (n_jobs,)
            Seconds a step.
        groups : array-like of shape (n_jobs,), optional
            What new jobs differ in (families, devices): intervals are about groups never seen. By default, every row.

        Raises
        ------
        InputError
            If a column is missing, or `y` holds values that are no times.
        """
        X, y = check_columns(X, (*NEEDED, "device_name"), "X"), check_costs(y, len(X), "are no times")
        if not set(TERMS) & set(X.columns):
            raise InputError("X has no columns of work; add those of gpudemand.cost.roofline.roofline.step_terms.")
        groups, terms = several_groups(group_numbers(groups, len(y))), X.reindex(columns=list(TERMS), fill_value=0.0)
        self.coefficients_ = fit_training_coefficients(terms, y, X)
        self.calibration_ = Calibration()
        rows = balanced_sample(groups, self.max_rows, self.random_state)
        X, y, groups = X.iloc[rows], y[rows], groups[rows]
        self.gp_inputs_ = gp_features(X, self._terms(X), self.coefficients_)
        residual = np.clip(np.log(y / self._work(X)), -MAX_RESIDUAL, MAX_RESIDUAL)
        self.dual_coef_, correction, distances = fit(self.gp_inputs_, residual, groups)
        errors = np.log(y / self._held_out_work(X, y, groups)) - correction
        features = self._scale_features(X, self.gp_inputs_)
        self._fit_error_scale(errors, np.column_stack([features, distances]), groups)
        return self

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Predict seconds a step, shape (n_jobs,)."""
        return self._predict(X)[0]

    def predict_interval(self, X: pd.DataFrame, level: float = 90) -> FloatArray:
        """Predict an interval that covers `level` percent of jobs of groups never seen.

        Split conformal prediction with errors of whole held-out groups, scaled by their size as predicted from features
        and distance.

        Returns
        -------
        ndarray of shape (n_jobs, 2)
            Lower and upper ends.

        Warns
        -----
        FarFromTrainingWarning
            If jobs are further from the training data than 98 % of its groups are from each other.
        """
        return self.predict_all(X, [level])[:, 1:]

    def predict_all(self, X: pd.DataFrame, levels: Sequence[float]) -> FloatArray:
        """Predict, with intervals of several levels; see `predict` and `predict_interval`.

        Returns
        -------
        ndarray of shape (n_jobs, 1 + 2 n_levels)
            The prediction, then the lower and the upper end at each level.
        """
        time, scale, distances = self._predict(X)
        far = distances > self.ood_threshold_
        if far.any():
            warnings.warn(self._unlike_training(X, far), FarFromTrainingWarning, stacklevel=2)
        return self.conformity_scores_.intervals(time, scale, levels)

    def distance(self, X: pd.DataFrame) -> FloatArray:
        """Distance from the nearest training job in mix of work, device and stack, shape (n_jobs,)."""
        return self._predict(X)[2]

    def calibrate(self, X: pd.DataFrame, y: Any) -> StepTimeModel:
        """Learn from measured jobs, for their devices and for themselves.

        On each device the correction is conditioned on the jobs measured there, and on an effect that they have in
        common. Each measured job has a factor for its fixed work and one for the rest, which hold at all batch sizes.

        Parameters
        ----------
        X : DataFrame
            As for `fit`, with ``device_name``. They replace what was measured earlier on these devices.
        y : array-like of shape (n_jobs,)
            Measured seconds a step.
        """
        check_is_fitted(self, "coefficients_")
        X, y = check_columns(X, (*NEEDED, "device_name"), "X"), check_costs(y, len(X), "are no times")
        inputs = gp_features(X, self._terms(X), self.coefficients_)
        # What monotonicity changes stays, as conditioning is of the posterior mean alone.
        mean = kernel(inputs, self.gp_inputs_)[1] @ self.dual_coef_
        residual = np.log(y / self._work(X)) - self._correction(X, inputs) + mean
        self.calibration_.fit_devices(X["device_name"], inputs, residual, self.gp_inputs_, self.dual_coef_)
        self.calibration_.fit_jobs(job_keys(X, self._terms(X)), self._uncalibrated(X)[0], y)
        return self

    def to_arrays(self) -> dict[str, Any]:
        """Return the fitted model as plain arrays, for ``numpy.savez``."""
        check_is_fitted(self, "coefficients_")
        return {
            "parameters": np.array([self.max_rows, self.random_state]),
            "coefficient_names": np.array(list(self.coefficients_.index), dtype=str),
            "coefficients_": self.coefficients_.to_numpy(),
            "ood_threshold_": np.array(self.ood_threshold_),
            **self.calibration_.to_arrays(self.gp_inputs_),
            "dual_coef_": self.dual_coef_,
            "conformity_scores_": self.conformity_scores_.scores,
            "conformity_weights_": self.conformity_scores_.weights,
            **dict(zip(_INPUT_KEYS, self.gp_inputs_, strict=True)),
            **{f"error_scale_{part}": array for part, array in self.error_scale_._asdict().items()},
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> StepTimeModel:
        """Restore a model from what `to_arrays` returned, or from an opened ``.npz``.

        Raises
        ------
        InputError
            If arrays are missing, unknown, or of another type or shape.
        """
        arrays = check_arrays(arrays, _STORED)
        model = cls(*(int(value) for value in arrays["parameters"]))
        model.coefficients_ = pd.Series(arrays["coefficients_"], index=arrays["coefficient_names"].tolist())
        model.calibration_ = Calibration.from_arrays(arrays)
        model.ood_threshold_ = float(arrays["ood_threshold_"])
        model.gp_inputs_, model.dual_coef_ = [arrays[name] for name in _INPUT_KEYS], arrays["dual_coef_"]
        n_features = sum(part.shape[1] for part in model.gp_inputs_) + len(model.coefficients_)
        model.error_scale_ = Trees.from_arrays(arrays, "error_scale_", n_features + 1)  # and the distance
        model.conformity_scores_ = ConformityScores(arrays["conformity_scores_"], arrays["conformity_weights_"])
        return model

    def _predict(self, X: pd.DataFrame) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Calibrated seconds, error scales, and distances from the training data."""
        check_is_fitted(self, "coefficients_")
        X = check_columns(X, (*NEEDED, "device_name"), "X")
        parts, change, scale, distances = self._uncalibrated(X)
        time, scale = self.calibration_.apply(X, self._terms(X), parts, change, scale)
        bound = X[LOWER_BOUND].to_numpy(dtype=float) if LOWER_BOUND in X.columns else 0.0
        return np.maximum(time, bound), scale, distances

    def _uncalibrated(self, X: pd.DataFrame) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Seconds of the fixed work and of the rest, log factors of devices, error scales, and distances."""
        chunks = [self._correct(X.iloc[start : start + _CHUNK]) for start in range(0, max(len(X), 1), _CHUNK)]
        correction, change, scale, distances = (np.concatenate(part) for part in zip(*chunks, strict=True))
        # Trees do not extrapolate: beyond the training data the scale grows with the distance.
        scale = scale * (1.0 + np.maximum(distances - self.ood_threshold_, 0.0))
        parts = split_work(self._terms(X), self.coefficients_) * np.exp(correction)[:, None]
        return parts, change, scale, distances

    def _correct(self, X: pd.DataFrame) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Log corrections, what calibration adds on the devices, error scales, and distances."""
        inputs = gp_features(X, self._terms(X), self.coefficients_)
        (similarity, covariance), features = kernel(inputs, self.gp_inputs_), self._scale_features(X, inputs)
        distances = distance(similarity)
        scale = np.exp(self.error_scale_.predict(np.column_stack([features, distances])))
        change = self.calibration_.device_change(X["device_name"], inputs, covariance, self.gp_inputs_)
        return self._correction(X, inputs), change, scale, distances

    def _correction(self, X: pd.DataFrame, inputs: list[FloatArray]) -> FloatArray:
        return monotone_correction(inputs, self.gp_inputs_, self.dual_coef_, self._terms(X), self.coefficients_)

    def _unlike_training(self, X: pd.DataFrame, far: BoolArray) -> str:
        """What a warning says of jobs that are far from training: how many, and what is new in them."""
        inputs = gp_features(X[far], self._terms(X[far]), self.coefficients_)
        new, unlike = new_kinds(inputs[0], self.gp_inputs_[0]), f"{far.sum()} of {len(X)} jobs are unlike every job"
        return f"{unlike} in training; their intervals are wide.{f' New is the share of {new}.' if new else ''}"

    def _scale_features(self, X: pd.DataFrame, inputs: list[FloatArray]) -> FloatArray:
        """GP inputs, and each term as a share of the work."""
        return np.column_stack([*inputs, self._terms(X).to_numpy(dtype=float) / self._work(X)[:, None]])

    def _terms(self, X: pd.DataFrame) -> pd.DataFrame:
        # A kind of work that a table lacks does not occur in its networks.
        return X.reindex(columns=self.coefficients_.index, fill_value=0.0)

    def _work(self, X: pd.DataFrame) -> FloatArray:
        return self._terms(X).to_numpy(dtype=float) @ self.coefficients_.to_numpy()

    def _held_out_work(self, X: pd.DataFrame, y: FloatArray, groups: IntArray) -> FloatArray:
        """Work with coefficients fitted without the row's group."""
        terms, work = self._terms(X), np.empty(len(y))
        for test in fold_masks(groups, _FOLDS):
            coefficients = fit_training_coefficients(terms[~test], y[~test], X[~test])
            work[test] = terms[test].to_numpy(dtype=float) @ coefficients.to_numpy()
        return work

    def _fit_error_scale(self, errors: FloatArray, features: FloatArray, groups: IntArray) -> None:
        folds = [(~test, test) for test in fold_masks(groups, _FOLDS)]
        settings = {"n_trees": _SCALE_TREES, "random_state": self.random_state}
        self.error_scale_, held_out = fit_error_scale(features, errors, folds, **settings)
        self.conformity_scores_ = ConformityScores.from_errors(np.abs(errors) / np.exp(held_out), groups)
        self.ood_threshold_ = float(np.quantile(features[:, -1], 0.98)) + 0.05
