"""`StepTimeModel`: seconds of a training step from its work, the prices of work, and what else was learned."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_columns
from gpudemand.cost.predict.device_calibration import Calibration, job_keys, split_work
from gpudemand.cost.predict.gaussian_process import distance, kernel, solve
from gpudemand.cost.predict.gp_features import describe_blocks
from gpudemand.cost.predict.prices import fit_prices
from gpudemand.cost.predict.trees import Trees, grow_averaged, grow_boosted
from gpudemand.cost.regression.targets import (
    check_costs,
    draw_rows,
    fold_masks,
    group_numbers,
    several_groups,
    sort_errors,
    with_intervals,
)
from gpudemand.cost.roofline.roofline import NEEDED, WORK

#: Corrections beyond a factor of this size are not learned from: a broken row, or a network that was not what it said.
_LARGEST = 0.7
_FOLDS = 5
#: Trees of a held-out forest: enough for the size of its errors.
_TREES, _FEW_TREES, _DOUBT_TREES = 100, 25, 60
_TREES_KEPT = ("trees", "doubt")
#: Least doubt about a prediction, in units of the logarithm.
_LEAST_DOUBT = 0.01
_ARRAYS = ("weights_", "spread_", "spread_weights_")
_BLOCKS = ("network", "device", "stack")
#: Jobs that are compared with the training data at a time.
_CHUNK = 1000


class FarFromTrainingWarning(UserWarning):
    """Some jobs are unlike every job that a model was fitted on; their intervals are wide."""


class StepTimeModel(RegressorMixin, BaseEstimator):
    """Predict seconds a step: priced work, times a correction from jobs like it, times the device's own factor.

    Work is what each kind of operator would take at the peaks of the device (`step_terms`), so that a device needs
    no more than its datasheet. Its prices are fitted in relative error and never negative. The logarithm of what is
    left is predicted twice, and the mean is taken: interpolated between jobs alike in network, device and software
    stack (a Gaussian process, which fades to nothing for jobs that are like no other), and by extremely randomised
    trees. `calibrate` adds what measured jobs tell of their device, and of their own
    larger batches.

    Parameters
    ----------
    max_rows : int, default=2000
        Rows that the correction interpolates between, drawn evenly from the groups; prices see all rows.
    random_state : int, default=0

    Attributes
    ----------
    prices_ : Series
        Multiple of the datasheet's bound, by term of work.
    calibration_ : Calibration
        What `calibrate` has learned of devices, and of the jobs that were measured on them.
    spread_, spread_weights_ : ndarray
        Sorted scaled errors of held-out groups, and how much each counts: intervals are made of them.
    usual_ : float
        Usual error of a job of a held-out group, on a log scale.
    far_ : float
        Distance beyond which a job is unlike those of training.

    See Also
    --------
    gpudemand.TrainingCostRegressor : Time or memory on hardware that was measured.

    References
    ----------
    Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006; Vovk, Gammerman, Shafer, "Algorithmic
    Learning in a Random World", 2005, for the intervals.

    Examples
    --------
    A device nobody measured, twice as fast as the one that was:

    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({
    ...     "batch_size": 32, "precision": "fp32", "layout": "contiguous", "mode": "train", "optimizer_states": 0.0,
    ...     "n_gpus": 1, "framework": "torch", "execution": "eager", "device": "cuda", "framework_version": "2.4",
    ...     "device_name": "one", "device_peak_tflops": 20.0, "device_bandwidth_gb_s": 800.0, "device_sms": 80.0,
    ...     "device_interconnect_gb_s": 32.0, "device_boost_clock_mhz": 1500.0,
    ...     "device_fp32_tflops": 20.0, "device_l2_mib": 6.0, "device_year": 2020.0,
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
        """Fit prices, correction and intervals.

        Parameters
        ----------
        X : DataFrame of shape (n_jobs, n_features)
            Columns of `gpudemand.cost.jobs_table` and of `gpudemand.cost.roofline.roofline.step_terms`, and ``mode``.
        y : array-like of shape (n_jobs,)
            Seconds a step.
        groups : array-like of shape (n_jobs,), optional
            What new jobs will differ in (families, devices): intervals are about groups never seen. By default every
            row is a group.

        Raises
        ------
        InputError
            If a column is missing, or `y` holds what is no time.
        """
        X, y = check_columns(X, (*NEEDED, "device_name"), "X"), check_costs(y, len(X), "are no times")
        names = _work_columns(X)
        groups = several_groups(group_numbers(groups, len(y)))
        self.prices_ = fit_prices(X[names], y)
        self.calibration_ = Calibration()
        rows = draw_rows(groups, self.max_rows, self.random_state)
        X, y, groups = X.iloc[rows], y[rows], groups[rows]
        self.blocks_ = describe_blocks(X, X[names], self.prices_)
        left = np.clip(np.log(y / self._work(X)), -_LARGEST, _LARGEST)
        self.weights_, smooth, away = solve(self.blocks_, left, groups)
        described = self._described(X, self.blocks_)
        self.trees_ = grow_averaged(described, left, n_trees=_TREES, random_state=self.random_state)
        rough = self._held_out_trees(described, left, groups)
        error = np.log(y / self._held_out_work(X, y, groups)) - (smooth + rough) / 2.0
        self._set_spread(error, np.column_stack([described, away]), groups)
        self.feature_names_in_, self.n_features_in_ = np.asarray(X.columns, dtype=object), X.shape[1]
        return self

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Predict seconds a step, shape (n_jobs,)."""
        return self._predict(X)[0]

    def predict_interval(self, X: pd.DataFrame, level: float = 90) -> FloatArray:
        """Predict an interval that holds `level` percent of jobs of groups never seen.

        Errors are those of whole held-out groups, relative to how large they are for jobs like it, which is learned as
        well; away from the training data the interval widens further.

        Returns
        -------
        ndarray of shape (n_jobs, 2)
            Lower and upper ends.

        Warns
        -----
        FarFromTrainingWarning
            If jobs are further from the training data than almost all of it is from the rest of itself.
        """
        return self.predict_all(X, [level])[:, 1:]

    def predict_all(self, X: pd.DataFrame, levels: Sequence[float]) -> FloatArray:
        """Predict, with intervals of several levels; see `predict` and `predict_interval`.

        Returns
        -------
        ndarray of shape (n_jobs, 1 + 2 n_levels)
            The prediction, then the lower and the upper end at each level.
        """
        time, trouble, away = self._predict(X)
        far = int((away > self.far_).sum())
        if far:
            warnings.warn(
                f"{far} of {len(X)} jobs are unlike every job in training; their intervals are wide.",
                FarFromTrainingWarning,
                stacklevel=2,
            )
        return with_intervals(time, trouble, (self.spread_, self.spread_weights_), levels)

    def calibrate(self, X: pd.DataFrame, y: Any) -> StepTimeModel:
        """Learn from measured jobs: a factor for each device, and for each job what another batch of it will take.

        A single job is also unlike its prediction for reasons of its own, so the factor of a device is shrunk, by less
        the more jobs agree on it. The job itself, at whatever batch, gets a factor for what does not depend on the
        batch and one for what does.

        Parameters
        ----------
        X : DataFrame
            As for `fit`; ``device_name`` says whose factor it is. What is measured again replaces what was.
        y : array-like of shape (n_jobs,)
            Measured seconds a step.
        """
        check_is_fitted(self, "prices_")
        X, y = check_columns(X, (*NEEDED, "device_name"), "X"), check_costs(y, len(X), "are no times")
        (parts, _, _), keys = self._uncalibrated(X), job_keys(X, self._terms(X))
        self.calibration_.learn_devices(X["device_name"], keys, y / parts.sum(axis=1), self.usual_)
        self.calibration_.learn_jobs(keys, parts, y)
        return self

    def to_arrays(self) -> dict[str, Any]:
        """Return everything that was learned as plain arrays, for ``numpy.savez``."""
        check_is_fitted(self, "prices_")
        return {
            "parameters": np.array([self.max_rows, self.random_state]),
            "price_names": np.array(list(self.prices_.index), dtype=str),
            "prices": self.prices_.to_numpy(),
            "scales": np.array([self.far_, self.usual_]),
            "feature_names": np.array(list(map(str, self.feature_names_in_)), dtype=str),
            **self.calibration_.to_arrays(),
            **{name: getattr(self, name) for name in _ARRAYS},
            **dict(zip(_BLOCKS, self.blocks_, strict=True)),
            **{
                f"{part}_{name}": array
                for part in _TREES_KEPT
                for name, array in getattr(self, f"{part}_")._asdict().items()
            },
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> StepTimeModel:
        """Restore a model from what `to_arrays` returned, or from an opened ``.npz``."""
        model = cls(*(int(value) for value in arrays["parameters"]))
        model.prices_ = pd.Series(arrays["prices"], index=[str(name) for name in arrays["price_names"]])
        model.calibration_ = Calibration.from_arrays(arrays)
        model.far_, model.usual_ = (float(value) for value in arrays["scales"])
        model.blocks_ = [np.asarray(arrays[name]) for name in _BLOCKS]
        for part in _TREES_KEPT:
            setattr(model, f"{part}_", Trees(*(np.asarray(arrays[f"{part}_{name}"]) for name in Trees._fields)))
        model.feature_names_in_ = np.array([str(name) for name in arrays["feature_names"]], dtype=object)
        model.n_features_in_ = model.feature_names_in_.size
        for name in _ARRAYS:
            setattr(model, name, np.asarray(arrays[name]))
        return model

    def _predict(self, X: pd.DataFrame) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Seconds, doubts, and how far jobs are from the training data."""
        check_is_fitted(self, "prices_")
        X = check_columns(X, (*NEEDED, "device_name"), "X")
        parts, trouble, away = self._uncalibrated(X)
        return *self.calibration_.apply(X, self._terms(X), parts, trouble), away

    def _uncalibrated(self, X: pd.DataFrame) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Seconds of the fixed work and of the rest, doubts, and distances."""
        chunks = [self._correct(X.iloc[start : start + _CHUNK]) for start in range(0, max(len(X), 1), _CHUNK)]
        correction, trouble, away = (np.concatenate(part) for part in zip(*chunks, strict=True))
        # Trees repeat the largest doubt that they have seen; beyond the training data there is more.
        trouble = trouble * np.maximum(away / self.far_, 1.0) ** 2
        return split_work(self._terms(X), self.prices_) * np.exp(correction)[:, None], trouble, away

    def _correct(self, X: pd.DataFrame) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Log corrections, doubts by trees, and distances."""
        blocks = describe_blocks(X, self._terms(X), self.prices_)
        similarity, described = kernel(blocks, self.blocks_), self._described(X, blocks)
        away = distance(similarity)
        trouble = np.exp(self.doubt_.predict(np.column_stack([described, away])))
        return (similarity @ self.weights_ + self.trees_.predict(described)) / 2.0, trouble, away

    def _described(self, X: pd.DataFrame, blocks: list[FloatArray]) -> FloatArray:
        """What trees split on: the blocks, and each term as a share of the work."""
        return np.column_stack([*blocks, self._terms(X).to_numpy(dtype=float) / self._work(X)[:, None]])

    def _held_out_trees(self, described: FloatArray, left: FloatArray, groups: IntArray) -> FloatArray:
        """Corrections by trees that did not see the row's group."""
        rough = np.empty(len(left))
        for test in fold_masks(groups, _FOLDS):
            settings = {"n_trees": _FEW_TREES, "random_state": self.random_state}
            rough[test] = grow_averaged(described[~test], left[~test], **settings).predict(described[test])
        return rough

    def _terms(self, X: pd.DataFrame) -> pd.DataFrame:
        # A kind of work that a table lacks does not occur in its networks.
        return X.reindex(columns=self.prices_.index, fill_value=0.0)

    def _work(self, X: pd.DataFrame) -> FloatArray:
        return self._terms(X).to_numpy(dtype=float) @ self.prices_.to_numpy()

    def _held_out_work(self, X: pd.DataFrame, y: FloatArray, groups: IntArray) -> FloatArray:
        """Work at prices that were fitted without the row's group."""
        terms, work = self._terms(X), np.empty(len(y))
        for test in fold_masks(groups, _FOLDS):
            work[test] = terms[test].to_numpy(dtype=float) @ fit_prices(terms[~test], y[~test]).to_numpy()
        return work

    def _set_spread(self, error: FloatArray, features: FloatArray, groups: IntArray) -> None:
        """Learn where errors are large, and how errors of held-out groups compare with that."""
        size, doubt = np.log(np.clip(np.abs(error), _LEAST_DOUBT, _LARGEST)), np.empty(len(error))
        self.doubt_ = self._grow_doubt(features, size)
        for test in fold_masks(groups, _FOLDS):
            doubt[test] = np.exp(self._grow_doubt(features[~test], size[~test]).predict(features[test]))
        self.spread_, self.spread_weights_ = sort_errors(np.abs(error) / doubt, groups)
        self.far_ = float(np.quantile(features[:, -1], 0.98)) + 0.05
        self.usual_ = 1.4826 * float(np.median(np.abs(error)))

    def _grow_doubt(self, features: FloatArray, size: FloatArray) -> Trees:
        return grow_boosted(features, size, n_trees=_DOUBT_TREES, depth=3, random_state=self.random_state)


def _work_columns(X: pd.DataFrame) -> list[str]:
    names = [name for name in X.columns if str(name).startswith(WORK)]
    if not names:
        raise InputError("X has no columns of work; add those of gpudemand.cost.roofline.roofline.step_terms.")
    return [name for name in names if X[name].any()]
