"""`CostModel`: predictions for training jobs."""

from __future__ import annotations

import copy
import functools
import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray, IntArray
from gpudemand._files import read_manifest, replace_folder
from gpudemand._validation import InputError, as_numbers, check_columns, check_length, check_levels, check_number, told
from gpudemand.cost.feature_table import distinct_graphs, features_from_jobs, listed_jobs
from gpudemand.cost.graph_features import OPTIMIZER_STATES, features_by_name
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_memory import MEMORY_MEANS, bucket_bytes
from gpudemand.cost.large_models import LargeModelPredictor
from gpudemand.cost.liveness import Setting
from gpudemand.cost.memory import MemoryBreakdown, interpolated_features, memory_breakdown
from gpudemand.cost.memory_model import BOUND, LOADED, MemoryModel, max_batch_size
from gpudemand.cost.parallel import Parallel
from gpudemand.cost.regression import check_costs, interval_columns, warn_unlikely
from gpudemand.cost.roofline import ring_seconds, step_terms
from gpudemand.cost.step_time_model import FarFromTrainingWarning, ScriptEffect, StepTimeModel
from gpudemand.datasets.registry import bundled_path
from gpudemand.units import GIB, MIB

#: Target column -> class of its model.
TARGETS: dict[str, Any] = {"step_time_s": StepTimeModel, "memory_gib": MemoryModel}


def rows_by_kind(jobs: Sequence[TrainingJob]) -> dict[str, IntArray]:
    """Positions of the jobs on each kind of device."""
    kinds = np.array([job.hardware.kind for job in jobs])
    return {str(kind): np.flatnonzero(kinds == kind) for kind in np.unique(kinds)}


def step_time_inputs(jobs: Sequence[TrainingJob]) -> pd.DataFrame:
    """Columns of `features_from_jobs` and of `step_terms`, and ``mode``, a row a job."""
    graphs, positions = distinct_graphs(list(jobs))
    modes = ["infer" if job.mode == "inference" else "train" for job in jobs]
    table = pd.concat([features_from_jobs(jobs), pd.DataFrame({"mode": modes})], axis=1)
    return pd.concat([table, step_terms(table, [graphs[position] for position in positions])], axis=1)


def memory_setting(job: TrainingJob) -> Setting:
    """Options of the memory simulation for a job."""
    device = "cpu" if job.hardware.kind == "cpu" else "cuda"
    half = job.precision in ("fp16", "bf16")
    inference, passes = job.mode == "inference", job.accumulate or 1
    options = (job.optimizer, half, bool(job.checkpointing), device, inference, _shards(job))
    return Setting(*options, accumulate=passes, buckets=_buckets(job))


def _shards(job: TrainingJob) -> tuple[int, int, int]:
    """GPUs that optimizer states, gradients and parameters are divided over."""
    layout = job.parallel or Parallel()
    size = layout.shard_size(job.n_gpus, job.hardware.node_gpus)
    states, gradients, parameters = (size if layout.divided > place else 1 for place in range(3))
    return states, gradients, parameters


def _buckets(job: TrainingJob) -> float:
    """Bytes of the buckets of data parallelism; gradients of sparse tables are gathered without any.

    Keras' strategies reduce copies of the gradients, too, which are taken to be as large; none was measured.
    """
    graph = job.graph
    trained = graph.n_trainable - graph.n_sparse
    return bucket_bytes(job.parallel or Parallel(), trained, graph.parameter_width) if job.n_gpus > 1 else 0.0


def memory_covariates(job: TrainingJob) -> dict[str, float]:
    """Columns of the memory model that are not simulated.

    Keras compiles a step: compilation takes memory for each operator by class (``compile:calls_<class>``) and for each
    update of a layer (``compile:updates``), here in units of a MiB.
    """
    compiled, states = float(job.framework == "keras"), OPTIMIZER_STATES[job.optimizer]
    counts = features_by_name(job.graph)
    terms = {name: count for name, count in counts.items() if name.startswith("calls_")}
    terms |= {"updates": counts["layers"] * states, "update_calls": counts["operators"] * states, "start": 1.0}
    return {
        "device_sms": job.hardware.sms,
        LOADED: float(job.framework == "torch" and (job.framework_version or "2").startswith("1.")),
        "share:keras": compiled,
        **{f"compile:{name}": compiled * count * MIB for name, count in terms.items()},
    }


def memory_inputs(jobs: Sequence[TrainingJob], settings: Sequence[Setting] | None = None) -> pd.DataFrame:
    """Columns of `interpolated_features` (equal simulations run once) and of `memory_covariates`, a row a job."""
    graphs, positions = distinct_graphs(list(jobs))
    settings = [memory_setting(job) for job in jobs] if settings is None else list(settings)
    batches = [one_pass(job).batch_size for job in jobs]
    runs = pd.DataFrame({"graph": positions, "setting": settings, "batch": batches})
    parts = [
        interpolated_features(graphs[graph], rows["batch"], setting).set_axis(rows.index)
        for (graph, setting), rows in runs.groupby(["graph", "setting"], sort=False)
    ]
    keys = [
        (graph, job.optimizer, job.device, job.framework_version) for graph, job in zip(positions, jobs, strict=True)
    ]
    covariates = {key: memory_covariates(job) for key, job in dict(zip(keys, jobs, strict=True)).items()}
    return pd.concat([pd.concat(parts).sort_index(), pd.DataFrame([covariates[key] for key in keys])], axis=1)


_HALF_BYTES = 2.0
#: GiB of driver and libraries in a breakdown, and of a limit that is below what several GPUs take to communicate.
_CONTEXT_GIB, _NO_ROOM = 0.5, 1e-6


class _TracedNetworks:
    """Predictions for traced networks, as `LargeModelPredictor` makes them; `effect`: of training scripts on GPUs."""

    def __init__(self, model_of: Callable[[str, str], Any], effect: ScriptEffect | None = None) -> None:
        self._model_of, self._effect = model_of, effect

    def predict(self, jobs: list[TrainingJob], levels: Sequence[float]) -> pd.DataFrame:
        """Step time and memory with intervals, a row a job."""
        table = pd.DataFrame(index=range(len(jobs)), columns=interval_columns(TARGETS, levels), dtype=float)
        simple = list(map(one_pass, jobs))
        for kind, rows in rows_by_kind(jobs).items():
            for target in TARGETS:
                given = simple if target == "step_time_s" else jobs
                found = self._predict(kind, target, [given[row] for row in rows], levels)
                table.loc[rows, interval_columns([target], levels)] = found
        times = interval_columns(["step_time_s"], levels)
        for row, job in enumerate(jobs):
            if job.parallel is not None or simple[row] is not job:
                alone = [replace(simple[row], n_gpus=1, parallel=None)]
                single = float(self._predict(job.hardware.kind, "step_time_s", alone, levels)[0, 0])
                first = float(table.loc[row, "step_time_s"])
                table.loc[row, times] *= accumulated_seconds(job, first, single) / first
        scripts = [job.mode == "training" and job.hardware.kind == "gpu" for job in jobs]
        if self._effect is not None and any(scripts):
            table.loc[scripts, times] = self._effect.apply(table.loc[scripts, times].to_numpy(), levels)
        for row, job in enumerate(jobs):
            if job.graph.error_scale > 1.0:
                for target, least in (("step_time_s", 0.0), ("memory_gib", _resident_gib(job))):
                    low, high = (interval_columns([target], levels)[place::2] for place in (1, 2))
                    table.loc[row, low] = least + (table.loc[row, low] - least) / job.graph.error_scale
                    table.loc[row, high] = least + (table.loc[row, high] - least) * job.graph.error_scale
        communicators = np.array([[_communicators_gib(job)] for job in jobs])
        table[interval_columns(["memory_gib"], levels)] += communicators
        return table

    def _predict(self, kind: str, target: str, jobs: list[TrainingJob], levels: Sequence[float]) -> FloatArray:
        model, X = self._model_of(kind, target), _INPUTS[target](jobs)
        found = np.asarray(model.predict_all(X, levels))
        if target == "step_time_s":
            rows = np.flatnonzero((X["precision"] == "tf32").to_numpy() & ~model.is_measured(X))
            # Libraries that may compute in TF32 keep their kernels of single precision, and take the faster ones.
            single = [replace(jobs[row], model=jobs[row].graph, precision="fp32") for row in rows]
            if single:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", FarFromTrainingWarning)  # that of TF32 has been said
                    found[rows] = np.minimum(found[rows], model.predict_all(step_time_inputs(single), levels))
        return found

    def fits(self, jobs: list[TrainingJob]) -> FloatArray:
        """Probability that each job fits into the memory of its device."""
        models = [self._model_of(job.hardware.kind, "memory_gib") for job in jobs]
        pairs = [(memory_inputs([job]), _narrowed_limit(job)) for job in jobs]
        return np.concatenate([model.probability_below(*pair) for model, pair in zip(models, pairs, strict=True)])

    def max_batch_size(self, job: TrainingJob, probability: float) -> int:
        """Largest batch that fits with a probability."""
        model, limit = self._model_of(job.hardware.kind, "memory_gib"), _narrowed_limit(job)
        covariates = memory_covariates(job)
        return max_batch_size(model, job.graph, limit, memory_setting(job), level=probability, device=covariates)

    def breakdown(self, job: TrainingJob) -> MemoryBreakdown:
        """Simulated memory by purpose."""
        own, precision = memory_setting(job), job.compute_precision
        setting = replace(own, device="cuda", mixed_precision=precision in ("fp16", "bf16"))
        context = _CONTEXT_GIB + _communicators_gib(job)
        return memory_breakdown(job.graph, one_pass(job).batch_size, setting, precision, context_gib=context)


def _resident_gib(job: TrainingJob) -> float:
    return float(memory_inputs([job])[BOUND].iloc[0]) / GIB


def _communicators_gib(job: TrainingJob) -> float:
    """GiB that the communicators of several GPUs take, as of jobs from a configuration; none in the training data."""
    return MEMORY_MEANS["communicators"] if job.n_gpus > 1 else 0.0


def _narrowed_limit(job: TrainingJob) -> float:
    """GiB that a job may take: less than its device has if the trace may lack work, but of what must be resident."""
    limit, error_scale = job.hardware.usable_memory_gib, job.graph.error_scale
    limit = max(limit - _communicators_gib(job), _NO_ROOM)
    if error_scale <= 1.0:
        return limit
    least = _resident_gib(job)
    return least + (limit - least) / error_scale


def one_pass(job: TrainingJob) -> TrainingJob:
    """The job without accumulation."""
    if job.accumulate is None and job.micro_batch is None:
        return job
    # By its graph: the model may have been changed since the job was traced.
    batch = job.batch_size // (job.accumulate or 1)
    return replace(job, model=job.graph, batch_size=batch, micro_batch=None, accumulate=None)


def accumulated_seconds(job: TrainingJob, first: float, single: float) -> float:
    """Seconds of a step from those of a pass with reduction, `first`, and of one without, `single`."""
    times = job.accumulate or 1
    if job.parallel is None or not job.parallel.shards_parameters:
        return first + (times - 1) * single
    parameters = job.graph.n_parameters * (
        _HALF_BYTES if job.precision in ("fp16", "bf16") else job.graph.parameter_width
    )
    # Gathered for the forward and the backward pass, as far as these do not hide it.
    size = job.parallel.shard_size(job.n_gpus, job.hardware.node_gpus)
    gather = 2.0 * ring_seconds(job.hardware, parameters, size, passes=1.0)
    return first + (times - 1) * single + times * gather**2 / (gather + single)


#: File of a stored model that lists the others.
MANIFEST = "model.json"
#: Version of the stored files.
_FORMAT = 8
Models = dict[tuple[str, str], Any]
#: What numpy and zipfile raise of a file that is none of theirs.
_DAMAGED = (
    *(OSError, ValueError, TypeError, LookupError, EOFError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)


def load_models(folder: Path) -> tuple[dict[str, Any], Models]:
    """Manifest and models of a folder that `CostModel.save` wrote."""
    if not (folder / MANIFEST).is_file():
        raise InputError(f"there is no {MANIFEST} in {str(folder)!r}; give the folder that CostModel.save wrote.")
    manifest = read_manifest(folder, MANIFEST, _FORMAT)
    fitted_on = manifest.get("fitted_on")
    kinds = fitted_on if isinstance(fitted_on, dict) else {}
    files = {(kind, target): _file(kind, target) for kind in kinds for target in TARGETS}
    about = all(isinstance(data, dict) and isinstance(data.get("jobs"), int) for data in kinds.values())
    about = about and isinstance(manifest.get("random_state"), int | None)
    if not kinds or not about or set(files.values()) != set(manifest["files"]):
        raise InputError(f"{MANIFEST} and the files beside it disagree; copy or save the folder again.")
    return manifest, {key: _restore(TARGETS[key[1]], folder / file) for key, file in files.items()}


def _file(kind: str, target: str) -> str:
    return f"{kind}_{target}.npz"


def _restore(estimator: Any, path: Path) -> Any:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return estimator.from_arrays(arrays)
    except _DAMAGED as error:
        raise InputError(f"{path.name} does not hold a model that this version knows: {error}") from error


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
    >>> from gpudemand.cost import networks
    >>> net = networks.build("resnet18", input_shape=(3, 32, 32))
    >>> model, job = CostModel.load(), TrainingJob(net, (3, 32, 32), batch_size=16, device="AMD EPYC")
    >>> model.predict(job).columns.tolist()[:3]
    ['step_time_s', 'step_time_s-lo-90', 'step_time_s-hi-90']
    >>> round(model.fits(job), 3)
    1.0
    """

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    @classmethod
    @told("Loading the cost model")
    def load(cls, folder: str | os.PathLike[str] | None = None, *, host: float | str | None = None) -> CostModel:
        """Load a fitted model; its files hold arrays and JSON, no code (and no pickle).

        Parameters
        ----------
        folder : path-like, optional
            Where `save` wrote it; the bundled one by default.
        host : float or str, optional
            The machine that launches kernels on a GPU: seconds a launch (two virtual machines took 2.1e-5 and 3.3e-5,
            ``python -m benchmarks.cost.h200``), or a GPU whose measured hosts it is like, such as ``"H200"``. By
            default those of the GPU of each job, uncertain where none was measured; `calibrate` finds it.

        Raises
        ------
        InputError
            If there is no model, it has another format, or a file is missing, damaged or edited.

        Returns
        -------
        CostModel
        """
        source = bundled_path(f"cost/model/{MANIFEST}").parent if folder is None else Path(folder)
        manifest, models = load_models(source)
        model = cls(manifest.get("random_state", 0))
        model.fitted_on_, model.models_ = manifest["fitted_on"], models
        return model if host is None else model.on_one_host(host)

    def on_one_host(self, host: float | str | None = None) -> CostModel:
        """Return a model with the same host for all GPUs, by which these compare; this one is left as it is.

        Parameters
        ----------
        host : float or str, optional
            As of `load`. By default that of the machines that were calibrated, each for its GPU and their mean for
            others, or else the mean of all measured hosts.

        Returns
        -------
        CostModel

        Examples
        --------
        A measured H200 was in a slow machine, which bounds small steps.

        >>> from gpudemand.cost import TrainingJob, networks
        >>> job = TrainingJob(networks.build("resnet18", input_shape=(3, 64, 64)), (3, 64, 64), batch_size=8)
        >>> jobs = [replace(job, device=name) for name in ("A100", "H200")]
        >>> a100, h200 = CostModel.load().on_one_host().predict(jobs)["step_time_s"]
        >>> bool(h200 < 1.05 * a100)
        True
        """
        found, step_time = copy.copy(self), copy.copy(self._model("gpu", "step_time_s"))
        step_time.hosts_ = step_time.hosts_.alike() if host is None else step_time.hosts_.told(host)
        found.models_ = {**self.models_, ("gpu", "step_time_s"): step_time}
        return found

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
        models, about = self._fitted(), {"random_state": self.random_state, "fitted_on": self.fitted_on_}
        with replace_folder(folder, MANIFEST, {"format": _FORMAT, **about}) as new:
            for (kind, target), model in models.items():
                np.savez_compressed(new / _file(kind, target), **model.to_arrays())
        return Path(folder)

    @told("Fitting {}")
    def fit(self, jobs: Sequence[TrainingJob], costs: pd.DataFrame, groups: Any = None) -> CostModel:
        """Fit to measurements; kinds of device (CPU or GPU) without any keep their models.

        Parameters
        ----------
        jobs : sequence of TrainingJob
            Measured jobs.
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
        listed, costs = listed_jobs(jobs), check_columns(costs, tuple(TARGETS), "costs")
        check_length("costs", costs, len(listed))
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
        if target == "memory_gib":
            y = y - np.array([_communicators_gib(job) for job in jobs])
        known = np.isfinite(y) & (y > 0)
        X = _INPUTS[target](jobs)
        return TARGETS[target](random_state=self.random_state).fit(X[known], y[known], groups=groups[known])

    @told("Predicting costs")
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
        levels = check_levels(level)
        parts = self._by_predictor(jobs, ScriptEffect.load() if training_script else None)
        return pd.concat([one.predict(given, levels).set_axis(rows) for one, rows, given in parts]).sort_index()

    def _by_predictor(self, jobs: Jobs, effect: ScriptEffect | None = None) -> list[tuple[Any, list[int], list[Any]]]:
        """Who predicts which of the jobs: the predictor, their positions, and what it takes of each."""
        listed = listed_jobs(jobs)
        large = [row for row, job in enumerate(listed) if job.run is not None]
        traced: dict[float | str | None, list[int]] = {}
        for row, job in enumerate(listed):
            if job.run is None:
                traced.setdefault(job.host, []).append(row)
        own: list[tuple[Any, list[int], list[Any]]] = []
        for host, rows in traced.items():
            model = self if host is None else self.on_one_host(host)
            own.append((_TracedNetworks(model._model, effect), rows, [listed[row] for row in rows]))
        return [*own, *([(self.large_models, large, [listed[row].run for row in large])] if large else [])]

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
        ((predictor, _, given),) = self._by_predictor(_only(job))
        (probability,) = predictor.fits(given)
        return float(probability)

    def max_batch_size(self, job: TrainingJob, probability: float = 0.95) -> int:
        """Largest batch that fits with a given probability, whatever the batch size of the job.

        Parameters
        ----------
        job : TrainingJob
        probability : float, default=0.95
            Above 0 and below 1: no batch is certain to fit, and any might.

        Returns
        -------
        int
            Samples on each GPU at once, of a `Transformer` on each replica; 0 if not even one fits.

        Raises
        ------
        InputError
            For a probability out of range.
        """
        share = check_number("probability", probability, 0, 1, open_low=True, open_high=True)
        ((predictor, _, (only,)),) = self._by_predictor(_only(job))
        return int(predictor.max_batch_size(only, share))

    def breakdown(self, job: TrainingJob) -> MemoryBreakdown:
        """Simulated memory of a job by purpose, as a table that prints.

        Of a job from a configuration that leaves options open, in the likeliest way to fill them in, which the title
        names; `predict` is a mean over all ways.

        Parameters
        ----------
        job : TrainingJob
        """
        ((predictor, _, (only,)),) = self._by_predictor(_only(job))
        breakdown: MemoryBreakdown = predictor.breakdown(only)
        return breakdown

    def calibrate(self, jobs: Jobs, step_time_s: Any, memory_gib: Any = None) -> CostModel:
        """Calibrate step times with one or more measured jobs on a device.

        Predictions for other jobs on the device follow those alike (five take a fifth off the median error on GPUs held
        out); a measured job has factors of its own, for what does not depend on the batch, for the rest and for the
        exchange between GPUs, which apply at other batch sizes and on other numbers of GPUs (best from two or more,
        told at once or in several calls; of what is told again the last counts). At up to four times the largest
        measured batch, half of held-out jobs are predicted within 10 %, nine of ten within 33 %.

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

        Warns
        -----
        UnlikelyCostWarning
            If a time or memory is over 100 times off what is predicted, as of milliseconds.
        """
        listed, seconds = listed_jobs(jobs), as_numbers(pd.Series(np.ravel(step_time_s)), "step_time_s")
        if memory_gib is not None or any(job.run is not None for job in listed):
            self.large_models.calibrate([job.run for job in listed], seconds, memory_gib)
            return self
        seconds = check_costs(seconds, len(listed), "are no times", "step_time_s")
        for kind, rows in rows_by_kind(listed).items():
            inputs = step_time_inputs([listed[row] for row in rows])
            model = self._model(kind, "step_time_s").calibrate(inputs, seconds[rows])
            warn_unlikely("step_time_s", seconds[rows], model.uncalibrated(inputs))
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


def _only(job: Jobs) -> TrainingJob:
    """The one job of what takes no more."""
    listed = listed_jobs(job)
    if len(listed) > 1:
        raise InputError(f"one TrainingJob is needed; got {len(listed)}: call it for each.")
    return listed[0]


_INPUTS = {"step_time_s": step_time_inputs, "memory_gib": memory_inputs}
