"""`CostModel`: step time and memory of training jobs, on devices that may not have been measured."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_columns, check_number
from gpudemand.cost import model_inputs as _inputs
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_models.breakdown import largest_micro_batch, run_breakdown
from gpudemand.cost.large_models.predictor import LargeModelPredictor
from gpudemand.cost.memory.breakdown import MemoryBreakdown, memory_breakdown
from gpudemand.cost.predict.largest_batch import max_batch_size
from gpudemand.cost.predict.memory_model import MemoryModel
from gpudemand.cost.predict.script_effect import ScriptEffect
from gpudemand.cost.predict.step_time_model import StepTimeModel
from gpudemand.cost.predict.stored_models import MANIFEST, load_models, save_models
from gpudemand.cost.sharded import one_pass, predict_traced
from gpudemand.datasets.registry import bundled_path

#: Target column -> class of its model.
TARGETS: dict[str, Any] = {"step_time_s": StepTimeModel, "memory_gib": MemoryModel}
Jobs = TrainingJob | Iterable[TrainingJob]


class CostModel:
    """Predict step time and memory of training jobs, the probability that they fit, and the largest batch.

    Time is a linear model of the job's work at the peaks of its device's datasheet, with a learned correction
    (`StepTimeModel`); memory is a fitted sum of simulated amounts (`MemoryModel`). CPUs and GPUs have separate models,
    jobs made by `TrainingJob.from_config` formulas of their own, `large_models`. Nothing is run or allocated.

    Parameters
    ----------
    random_state : int, default=0

    Attributes
    ----------
    models_ : dict of (str, str) to estimator
        Kind of device and target -> its model.
    fitted_on_ : dict of str to dict
        Kind of device -> number of jobs and names of devices in the training data.

    References
    ----------
    Bai et al., DNNAbacus, arXiv:2205.12095, 2022; Lattuada et al., Cluster Computing, 2022; Gao et al., DNNMem, 2020.

    Examples
    --------
    >>> from gpudemand.cost import zoo
    >>> net = zoo.build("resnet18", input_shape=(3, 32, 32))
    >>> model, job = CostModel.load(), TrainingJob(net, (3, 32, 32), batch_size=16, device="AMD EPYC")
    >>> model.predict(job).columns.tolist()[:3]
    ['step_time_s', 'step_time_s-lo-90', 'step_time_s-hi-90']
    >>> round(model.fits(job), 3)
    1.0
    """

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    @classmethod
    def load(cls, folder: str | os.PathLike[str] | None = None) -> CostModel:
        """Load a fitted model; its files hold arrays and JSON, no code (and no pickle).

        Parameters
        ----------
        folder : path-like, optional
            Where `save` wrote it; the bundled one by default.

        Raises
        ------
        InputError
            If there is no model, it has another format, or a file is missing, damaged or edited.

        Returns
        -------
        CostModel
        """
        source = bundled_path(f"cost/model/{MANIFEST}").parent if folder is None else Path(folder)
        manifest, models = load_models(source, TARGETS)
        model = cls(manifest.get("random_state", 0))
        model.fitted_on_, model.models_ = manifest["fitted_on"], models
        return model

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the model as ``.npz`` files and a JSON manifest.

        Parameters
        ----------
        folder : path-like
            Created if missing; an older model in it is replaced as a whole.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        InputError
            If the folder holds anything but a saved model.
        """
        save_models(folder, self._fitted(), {"random_state": self.random_state, "fitted_on": self.fitted_on_})
        return Path(folder)

    def fit(self, jobs: Sequence[TrainingJob], costs: pd.DataFrame, groups: Any = None) -> CostModel:
        """Fit to measurements; kinds of device (CPU or GPU) without any keep their models.

        Parameters
        ----------
        jobs : sequence of TrainingJob
            Measured jobs; `measured_jobs` makes them from rows of `measure_training_cost`.
        costs : DataFrame of shape (n_jobs, 2)
            ``step_time_s`` and ``memory_gib``; NaN where unknown.
        groups : array-like of shape (n_jobs,), optional
            Networks or families: intervals are about groups never seen. By default each network is a group.

        Raises
        ------
        InputError
            If the lengths differ, or a kind of device has fewer than two groups.

        Returns
        -------
        CostModel
            This object.
        """
        listed, costs = list(jobs), check_columns(costs, tuple(TARGETS), "costs")
        if not listed or len(listed) != len(costs):
            raise InputError(f"costs has {len(costs)} rows for {len(listed)} jobs; give one for each job.")
        names = np.array([id(job.model) for job in listed]) if groups is None else np.asarray(groups)
        kinds = np.array([job.hardware.kind for job in listed])
        self.models_, self.fitted_on_ = dict(getattr(self, "models_", {})), dict(getattr(self, "fitted_on_", {}))
        for kind in np.unique(kinds):
            rows = np.flatnonzero(kinds == kind)
            part = [listed[row] for row in rows]
            for target in TARGETS:
                y = costs[target].to_numpy()[rows]
                self.models_[str(kind), target] = self._fit_one(target, part, y, names[rows])
            devices = sorted({job.hardware.name for job in part})
            self.fitted_on_[str(kind)] = {"jobs": len(rows), "devices": devices}
        return self

    def _fit_one(self, target: str, jobs: list[TrainingJob], y: FloatArray, groups: Any) -> Any:
        known = np.isfinite(y) & (y > 0)
        X = _INPUTS[target](jobs)
        return TARGETS[target](random_state=self.random_state).fit(X[known], y[known], groups=groups[known])

    def predict(self, jobs: Jobs, level: Sequence[float] | float = 90, training_script: bool = False) -> pd.DataFrame:
        """Predict seconds a step and GiB, with intervals.

        Parameters
        ----------
        jobs : TrainingJob or iterable of TrainingJob
        level : float or sequence of float, default=90
            Interval levels in percent.
        training_script : bool, default=False
            Whether a step is one of a script, which also loads data, logs and evaluates, as public ones do
            (`ScriptEffect`); else it is the step alone. Of traced networks that are trained on GPUs.

        Returns
        -------
        DataFrame
            A row a job: ``step_time_s``, ``step_time_s-lo-90``, ``step_time_s-hi-90``, ``memory_gib`` (of a GPU what
            the process takes, on a CPU what a step adds to the resident memory) and its interval.

        Raises
        ------
        InputError
            For no jobs, or a kind of device without training data.
        """
        listed = _inputs.listed_jobs(jobs)
        levels = [check_number("level", value, 0, 99.9, open_low=True) for value in np.atleast_1d(level).tolist()]
        large, parts = np.array([job.run is not None for job in listed]), []
        if runs := [job.run for job in listed if job.run is not None]:
            parts.append(self.large_models.predict(runs, levels).set_axis(np.flatnonzero(large)))
        if traced := [job for job in listed if job.run is None]:
            effect = ScriptEffect.load() if training_script else None
            parts.append(predict_traced(traced, levels, self._predict_part, effect).set_axis(np.flatnonzero(~large)))
        return pd.concat(parts).sort_index()

    def _predict_part(self, kind: str, target: str, jobs: list[TrainingJob], levels: Sequence[float]) -> FloatArray:
        return np.asarray(self._model(kind, target).predict_all(_INPUTS[target](jobs), levels))

    @functools.cached_property
    def large_models(self) -> LargeModelPredictor:
        """Predictor of jobs from configurations."""
        return LargeModelPredictor.load()

    def fits(self, job: TrainingJob) -> float:
        """Probability that a job fits into the memory of its device.

        Parameters
        ----------
        job : TrainingJob
        """
        (only,) = _inputs.listed_jobs(job)
        if only.run is not None:
            return float(self.large_models.fits([only.run])[0])
        inputs, limit = _inputs.memory_inputs([one_pass(only)]), only.hardware.usable_memory_gib
        return float(self._model(only.hardware.kind, "memory_gib").probability_below(inputs, limit)[0])

    def max_batch_size(self, job: TrainingJob, probability: float = 0.95) -> int:
        """Largest batch that fits with a given probability, whatever the batch size of the job.

        Parameters
        ----------
        job : TrainingJob
        probability : float, default=0.95

        Returns
        -------
        int
            Samples on each GPU at once, of a `Transformer` on each replica; 0 if not even one fits.
        """
        (only,) = _inputs.listed_jobs(job)
        if only.run is not None:
            return largest_micro_batch(only.run, self.large_models, probability)
        model, hardware = self._model(only.hardware.kind, "memory_gib"), only.hardware
        setting, covariates = _inputs.memory_setting(only), _inputs.memory_covariates(only)
        limit = hardware.usable_memory_gib
        return max_batch_size(model, only.graph, limit, setting, level=probability, device=covariates)

    def breakdown(self, job: TrainingJob) -> MemoryBreakdown:
        """Simulated memory of a job by purpose, as a table that prints.

        Parameters
        ----------
        job : TrainingJob
        """
        (only,) = _inputs.listed_jobs(job)
        if only.run is not None:
            return run_breakdown(only.run, self.large_models)
        pass_, setting = one_pass(only), _inputs.memory_setting(only)
        options = {name: getattr(setting, name) for name in ("checkpointing", "inference", "shards")}
        return memory_breakdown(pass_.graph, pass_.batch_size, pass_.optimizer, pass_.precision, **options)

    def calibrate(self, jobs: Jobs, step_time_s: Any, memory_gib: Any = None) -> CostModel:
        """Calibrate step times with one or more measured jobs on a device.

        Predictions for other jobs on the device follow those alike (five take a fifth off the median error on GPUs held
        out); a measured job has factors of its own, for what does not depend on the batch and for the rest, which apply
        at other batch sizes (best from two or more). At up to four times the largest measured batch, half of held-out
        jobs are predicted within 10 %, nine of ten within 33 %.

        Jobs from a configuration tell how their stack differs from the public ones; others are then predicted with
        that, those alike the more so. It replaces what was told before and is not stored.

        Parameters
        ----------
        jobs : TrainingJob or iterable of TrainingJob
            Measured jobs, with their devices.
        step_time_s : float or array-like of shape (n_jobs,)
            Their measured seconds a step.
        memory_gib : float or array-like of shape (n_jobs,), optional
            For jobs from a configuration, of the GPU that holds most; NaN, as of time, where unknown.

        Raises
        ------
        InputError
            If the lengths differ, a time or memory is not positive, or there are jobs of both kinds.
        """
        listed, seconds = _inputs.listed_jobs(jobs), np.atleast_1d(np.asarray(step_time_s, dtype=float))
        if memory_gib is not None or any(job.run is not None for job in listed):
            self.large_models.calibrate([job.run for job in listed], seconds, memory_gib)
            return self
        if len(seconds) != len(listed):
            raise InputError(f"step_time_s has {len(seconds)} values for {len(listed)} jobs; give one for each.")
        for kind, rows in _inputs.rows_by_kind(listed).items():
            inputs = _inputs.step_time_inputs([listed[row] for row in rows])
            self._model(kind, "step_time_s").calibrate(inputs, seconds[rows])
        return self

    def _fitted(self) -> dict[tuple[str, str], Any]:
        if not getattr(self, "models_", None):
            raise InputError("this CostModel is not fitted; call CostModel.load() or fit().")
        return self.models_

    def _model(self, kind: str, target: str) -> Any:
        models = self._fitted()
        if (kind, target) not in models:
            kinds = ", ".join(sorted({known for known, _ in models}))
            raise InputError(f"there is no model of a {kind}, only of: {kinds}; fit with measurements of one.")
        return models[kind, target]

    def __repr__(self) -> str:
        parts = [f"{kind}: {data['jobs']:,} jobs" for kind, data in getattr(self, "fitted_on_", {}).items()]
        return f"CostModel({', '.join(parts) or 'not fitted'})"


_INPUTS = {"step_time_s": _inputs.step_time_inputs, "memory_gib": _inputs.memory_inputs}
