"""`CostModel`: what training jobs will take, on hardware that may never have been measured."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_columns, check_number
from gpudemand.cost.describe import memory_context, memory_setting, memory_table, time_table
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.memory.breakdown import MemoryBreakdown, memory_breakdown
from gpudemand.cost.predict.largest_batch import max_batch_size
from gpudemand.cost.predict.memory_model import MemoryModel
from gpudemand.cost.predict.step_time_model import StepTimeModel
from gpudemand.datasets.registry import bundled_path

#: What is predicted, and the model that does it.
TARGETS: dict[str, Any] = {"step_time_s": StepTimeModel, "memory_gib": MemoryModel}
_FORMAT = 1
_MANIFEST = "model.json"
Jobs = TrainingJob | Iterable[TrainingJob]


class CostModel:
    """Predict step time and memory of training jobs, whether they fit, and the largest batch that does.

    Time is the job's work at the peaks of its device's datasheet, priced, times what was learned from jobs alike
    (`StepTimeModel`); memory is a simulation of the allocator, corrected (`MemoryModel`). CPUs and GPUs have models of
    their own. Nothing is run and nothing is allocated.

    Parameters
    ----------
    random_state : int, default=0

    Attributes
    ----------
    models_ : dict of (str, str) to estimator
        Kind of device and target -> its model.
    about_ : dict
        What the models were fitted on.

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
    >>> model.fits(job)
    1.0
    """

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    @classmethod
    def load(cls, folder: str | os.PathLike[str] | None = None) -> CostModel:
        """Load a fitted model; nothing in the file can run code.

        Parameters
        ----------
        folder : path-like, optional
            Where `save` wrote it; the bundled one by default.

        Raises
        ------
        InputError
            If there is no model, or one of a later version.

        Returns
        -------
        CostModel
        """
        place = bundled_path(f"cost/model/{_MANIFEST}").parent if folder is None else Path(folder)
        if not (place / _MANIFEST).is_file():
            raise InputError(f"there is no {_MANIFEST} in {str(place)!r}; give the folder that CostModel.save wrote.")
        about = json.loads((place / _MANIFEST).read_text(encoding="utf-8"))
        if about["format"] > _FORMAT:
            raise InputError(
                f"the model has format {about['format']}, and this version reads {_FORMAT}; update gpudemand."
            )
        model = cls(about["random_state"])
        model.about_ = about["fitted_on"]
        model.models_ = {}
        for kind in model.about_:
            for target, estimator in TARGETS.items():
                with np.load(place / f"{kind}_{target}.npz", allow_pickle=False) as arrays:
                    model.models_[kind, target] = estimator.from_arrays(arrays)
        return model

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the model: plain arrays and a JSON file.

        Parameters
        ----------
        folder : path-like
            Is made if need be.

        Returns
        -------
        Path
            The folder.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for (kind, target), model in self._fitted().items():
            np.savez_compressed(place / f"{kind}_{target}.npz", **model.to_arrays())
        about = {"format": _FORMAT, "random_state": self.random_state, "fitted_on": self.about_}
        (place / _MANIFEST).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        return place

    def fit(self, jobs: Sequence[TrainingJob], costs: pd.DataFrame, groups: Any = None) -> CostModel:
        """Fit to measurements; a kind of device (CPU or GPU) without any keeps the model it has.

        Parameters
        ----------
        jobs : sequence of TrainingJob
            What was measured; `measured_jobs` makes them from rows of `measure_training_cost`.
        costs : DataFrame of shape (n_jobs, 2)
            ``step_time_s`` and ``memory_gib``; NaN where not known.
        groups : array-like of shape (n_jobs,), optional
            Networks or families: intervals are about groups never seen. By default each network is one.

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
        self.models_, self.about_ = dict(getattr(self, "models_", {})), dict(getattr(self, "about_", {}))
        for kind in np.unique(kinds):
            rows = np.flatnonzero(kinds == kind)
            part = [listed[row] for row in rows]
            for target in TARGETS:
                self.models_[str(kind), target] = self._fit_one(
                    target, part, costs[target].to_numpy()[rows], names[rows]
                )
            devices = sorted({job.hardware.name for job in part})
            self.about_[str(kind)] = {"jobs": len(rows), "devices": devices}
        return self

    def _fit_one(self, target: str, jobs: list[TrainingJob], y: FloatArray, groups: Any) -> Any:
        known = np.isfinite(y) & (y > 0)
        X = _TABLES[target](jobs)
        return TARGETS[target](random_state=self.random_state).fit(X[known], y[known], groups=groups[known])

    def predict(self, jobs: Jobs, level: Sequence[float] | float = 90) -> pd.DataFrame:
        """Predict seconds a step and GiB.

        Parameters
        ----------
        jobs : TrainingJob or iterable of TrainingJob
        level : float or sequence of float, default=90
            Interval levels in percent.

        Returns
        -------
        DataFrame
            A row a job: ``step_time_s``, ``step_time_s-lo-90``, ``step_time_s-hi-90``, ``memory_gib`` (on a GPU what
            the process takes of the device, on a CPU what a step adds to the resident memory) and its interval.

        Raises
        ------
        InputError
            For no jobs, or a kind of device that nothing was measured on.
        """
        listed = _listed(jobs)
        levels = [check_number("level", value, 0, 99.9, open_low=True) for value in np.atleast_1d(np.asarray(level))]
        ends = [f"-{side}-{value:g}" for value in levels for side in ("lo", "hi")]
        result = pd.DataFrame(
            index=range(len(listed)), columns=[t + e for t in TARGETS for e in ("", *ends)], dtype=float
        )
        for kind, rows in self._by_kind(listed).items():
            for target in TARGETS:
                table = _TABLES[target]([listed[row] for row in rows])
                found = self._model(kind, target).predict_all(table, levels)
                result.loc[rows, [target + end for end in ("", *ends)]] = found
        return result

    def fits(self, job: TrainingJob) -> float:
        """Probability that a job's memory fits on its device, from 0 to 1.

        Parameters
        ----------
        job : TrainingJob
        """
        (only,) = _listed(job)
        limit = only.hardware.usable_memory_gib
        return float(self._model(only.hardware.kind, "memory_gib").probability_below(memory_table([only]), limit)[0])

    def max_batch_size(self, job: TrainingJob, probability: float = 0.95) -> int:
        """Largest batch that fits with a probability; the job's own batch size does not matter.

        Parameters
        ----------
        job : TrainingJob
        probability : float, default=0.95

        Returns
        -------
        int
            Samples on each GPU; 0 if not even one fits.
        """
        (only,) = _listed(job)
        model, hardware = self._model(only.hardware.kind, "memory_gib"), only.hardware
        setting, limit = memory_setting(only), hardware.usable_memory_gib
        return max_batch_size(model, only.graph, limit, setting, level=probability, device=memory_context(only))

    def breakdown(self, job: TrainingJob) -> MemoryBreakdown:
        """What the memory of a job is for, simulated, as a table that prints.

        Parameters
        ----------
        job : TrainingJob
        """
        (only,) = _listed(job)
        return memory_breakdown(
            only.graph, only.batch_size, only.optimizer, only.precision, checkpointing=only.checkpointing
        )

    def calibrate(self, jobs: Jobs, step_time_s: Any) -> CostModel:
        """Sharpen the step time of devices by as little as one measured job on each.

        A job that was measured is known at other batches too, and best from two or more, which tell what the host takes
        apart from what the device does. Up to four times the largest measured batch, half of the jobs that were held
        out are predicted within some ten per cent, and nine of ten within a third.

        Parameters
        ----------
        jobs : TrainingJob or iterable of TrainingJob
            Measured jobs; each says its device.
        step_time_s : float or array-like of shape (n_jobs,)
            Their measured seconds a step.

        Returns
        -------
        CostModel
            This object.
        """
        listed, seconds = _listed(jobs), np.atleast_1d(np.asarray(step_time_s, dtype=float))
        if len(seconds) != len(listed):
            raise InputError(f"step_time_s has {len(seconds)} values for {len(listed)} jobs; give one for each.")
        for kind, rows in self._by_kind(listed).items():
            self._model(kind, "step_time_s").calibrate(time_table([listed[row] for row in rows]), seconds[rows])
        return self

    def _fitted(self) -> dict[tuple[str, str], Any]:
        if not getattr(self, "models_", None):
            raise InputError("this CostModel is not fitted; call CostModel.load() or fit().")
        return self.models_

    def _model(self, kind: str, target: str) -> Any:
        models = self._fitted()
        if (kind, target) not in models:
            kinds = ", ".join(sorted({known for known, _ in models}))
            raise InputError(f"nothing was measured on a {kind} yet, only on: {kinds}; fit with measurements of one.")
        return models[kind, target]

    @staticmethod
    def _by_kind(jobs: list[TrainingJob]) -> dict[str, Any]:
        kinds = np.array([job.hardware.kind for job in jobs])
        return {str(kind): np.flatnonzero(kinds == kind) for kind in np.unique(kinds)}

    def __repr__(self) -> str:
        parts = [f"{kind}: {about['jobs']:,} jobs" for kind, about in getattr(self, "about_", {}).items()]
        return f"CostModel({', '.join(parts) or 'not fitted'})"


_TABLES = {"step_time_s": time_table, "memory_gib": memory_table}


def _listed(jobs: Jobs) -> list[TrainingJob]:
    listed = [jobs] if isinstance(jobs, TrainingJob) else list(jobs)
    wrong = next((job for job in listed if not isinstance(job, TrainingJob)), None)
    if wrong is not None or not listed:
        raise InputError(f"jobs must be TrainingJobs, one or more; got {type(wrong).__name__ if listed else 'none'}.")
    return listed
