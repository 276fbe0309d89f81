"""Networks and jobs as arguments of a command, and predictions as text."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand._tables import aligned
from gpudemand._validation import InputError
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_candidates import assumptions
from gpudemand.cost.model import CostModel
from gpudemand.cost.networks import built, run_file
from gpudemand.cost.parallel import LoRA, Parallel
from gpudemand.cost.step_time_model import FarFromTrainingWarning
from gpudemand.units import format_gib, format_seconds


def format_prediction(model: CostModel, job: TrainingJob) -> str:
    """Table of step time, memory, whether a job fits, and the largest batch; a note far from the training data."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FarFromTrainingWarning)
        row, probability, largest = model.predict(job).iloc[0], model.fits(job), model.max_batch_size(job)
        has_script = job.run is None and job.mode != "inference" and job.hardware.kind != "cpu"
        script = [model.predict(job, training_script=True).iloc[0]] if has_script else []
    samples = job.samples_per_step / float(row["step_time_s"])
    rows = [_time("step time", row), *(_time("in a training script", other) for other in script)]
    if job.run is None:
        rows += [("samples a second", f"{samples:,.4g}", ""), _memory("memory", row)]
    else:
        each, what = job.run.units / job.run.samples, "tokens" if job.run.length else "samples"
        # An unknown batch has no step of its own: its time is that of as many samples as the shortest step has.
        pace = "at the pace of usual steps" if job.run.global_batch is None else "a step"
        rows += [(f"{what} a second", f"{samples * each:,.4g}", f"{job.samples_per_step:,} samples {pace}")]
        rows += [_memory("memory", row)]
        for name in ("allocated", "reserved"):  # what PyTorch counts
            rows += [_memory(f"of it {name}", model.large_models.predict([job.run], reading=name).iloc[0])]
    rows += [
        (f"fits into {format_gib(job.hardware.usable_memory_gib)}", f"{100 * probability:.0f} %", ""),
        ("largest batch that fits" if job.run is None else "most samples at once", f"{largest:,}", "with 95 %"),
    ]
    unsaid = _unsaid(job)
    about = f"not said, so that the intervals are over all that is usual: {', '.join(unsaid)}"
    lines = [
        repr(job),
        *([about] if unsaid else []),
        *(f"assumed: {one}" for one in _assumed(job)),
        "",
        aligned(pd.DataFrame(rows, columns=["", "predicted", "90 % interval"])),
    ]
    far = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, FarFromTrainingWarning))
    lines += ["", *far] if far else []
    return "\n".join(lines)


def prediction_json(model: CostModel, job: TrainingJob) -> str:
    """What `format_prediction` formats, as one JSON object: what was assumed, times in seconds, memory in GiB."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FarFromTrainingWarning)
        row, probability, largest = model.predict(job).iloc[0], model.fits(job), model.max_batch_size(job)
    found: dict[str, Any] = {"job": repr(job), "not_said": _unsaid(job)}
    found["assumed"] = _assumed(job)
    found |= {str(name): float(value) for name, value in row.items()}
    said = list(dict.fromkeys(str(one.message) for one in caught))
    return json.dumps(found | {"fits": probability, "max_batch_size": largest, "warnings": said})


def format_ratios(table: pd.DataFrame) -> str:
    """Format what `costs_against_log` returns for a terminal, and what counts as a run time."""
    from gpudemand.planning.training_run_time import STARTUP_S

    shown = table.astype({"jobs": int}).assign(
        predicted=table["predicted_s"].map(format_seconds),
        taken=table["taken_s"].map(format_seconds),
        ratio=table["ratio"].map("{:.2f}".format),
        of_jobs=[f"{low:.2f} to {high:.2f}" for low, high in table[["ratio-lo-90", "ratio-hi-90"]].to_numpy()],
    )
    names = [name for name in ("network", "gpu_type", "cluster") if name in table]
    shown = shown.rename(columns={"of_jobs": "of 90 % of the jobs"})
    columns = [*names, "jobs", "predicted", "taken", "ratio", "of 90 % of the jobs"]
    found = aligned(shown[columns].astype(str).replace({"nan": "", "<NA>": ""}))
    start = f"{STARTUP_S:.0f} s before the first step of a job count neither as predicted nor as taken"
    return f"{found}\n\n{start}; jobs that took no longer are left out."


#: Options of a large model that time and memory depend on, as the shell names them.
_DECIDING = {
    "length": "--seq",
    "micro_batch": "--micro-batch",
    "global_batch": "--global-batch",
    "checkpointing": "--checkpointing",
    "parallel": "--tensor, --zero ...",
}


def _unsaid(job: TrainingJob) -> list[str]:
    """Options that were not given, and over which a prediction of a large model is."""
    if job.run is None:
        return []
    return [option for name, option in _DECIDING.items() if getattr(job.run, name) is None]


def _assumed(job: TrainingJob) -> list[str]:
    """What a prediction of a large model assumes."""
    return [] if job.run is None else assumptions(job.run)


def _time(label: str, row: pd.Series) -> tuple[str, str, str]:
    value, low, high = (format_seconds(row[f"step_time_s{bound}"]) for bound in ("", "-lo-90", "-hi-90"))
    return label, value, f"{low} to {high}"


def _memory(label: str, row: pd.Series) -> tuple[str, str, str]:
    value, low, high = (format_gib(row[f"memory_gib{bound}"]) for bound in ("", "-lo-90", "-hi-90"))
    return label, value, f"{low} to {high}"


def load_model(place: str) -> Any:
    """Run a Python file, and load a network from it or call the function or class that builds one.

    The file is executed with all that it does, like ``python file.py`` under another name than ``__main__``.

    `place`: ``file.py:name``: a function without parameters, a class that needs none, or a model.
    """
    path, colon, name = place.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise InputError(f"{place!r} is not of the form file.py:name; write it so, such as model.py:build_model.")
    return built(run_file(Path(path)), name, Path(path).name)


def parse_shape(text: str) -> tuple[int, ...]:
    """Read the shape of one sample: numbers with ``x`` between them."""
    sizes = text.strip().lower()
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", sizes):
        several = " Several inputs are for Python: OpGraph.from_torch(net, [(8,), (16,)])." if "," in sizes else ""
        raise InputError(
            f"input {text!r} is not a shape; write sizes of one sample with x between, such as 3x224x224.{several}"
        )
    return tuple(map(int, sizes.split("x")))


def is_configuration(network: str) -> bool:
    """Whether the argument of the shell is a published name or a configuration, rather than ``file.py:name``."""
    return network.startswith("hf:") or not (":" in network or network.endswith(".py"))


def refuse(options: dict[str, object], whose: str) -> None:
    """Raise for an option that was given and would do nothing."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if given:
        raise InputError(f"{', '.join(given)} {'is' if len(given) == 1 else 'are'} for {whose}; leave it out.")


def lengths_of(seq: str | None) -> int | tuple[int, ...] | None:
    """Tokens of a sample from text: one number, or those of source and target.

    Examples
    --------
    >>> lengths_of("4096"), lengths_of("512,128")
    (4096, (512, 128))
    """
    if seq is None:
        return None
    found = seq.split(",")
    if len(found) > 2 or not all(part.strip().isdigit() for part in found):
        raise InputError(f"--seq {seq!r} is no number of tokens, nor those of source and target, such as 512,128.")
    return int(seq) if len(found) == 1 else tuple(map(int, found))


def large_job(network: str, seq: str | None, gpus: int, degrees: dict[str, int | None], **options: Any) -> TrainingJob:
    """Job of a configuration (published name or path), of fields of `Parallel` and `TrainingJob`; None was not said."""
    sharding = _sharding(options.pop("zero"), options.pop("sharding"))
    rank, bits = options.pop("lora"), options.pop("bits")
    given: dict[str, Any] = {name: size for name, size in degrees.items() if size is not None}
    if sharding is not None or given:
        options["parallel"] = Parallel(**given, sharding=sharding or "none")
    if rank is not None:
        options["adapter"] = LoRA(rank, bits=bits or 16)
    elif bits is not None:
        raise InputError("--bits is of the frozen weights below adapters; give --lora, too.")
    said = {name: value for name, value in options.items() if value is not None}
    return TrainingJob.from_config(network, lengths_of(seq), n_gpus=gpus, **said)


def _sharding(zero: int | None, sharding: str | None) -> str | None:
    """Sharding of a level of ZeRO, or as it is named."""
    if zero is None:
        return sharding
    names = ("none", "zero1", "zero2", "zero3")
    if not 0 <= zero < len(names) or sharding not in (None, names[zero]):
        raise InputError(f"--zero {zero} is no level of ZeRO (0 to 3), or --sharding says otherwise; give one of them.")
    return names[zero]


def traced_job(network: str, shape: str | None, zero: int | None, sharding: str | None, **options: Any) -> TrainingJob:
    """Job of a network that a Python file builds, ``file.py:name``; the options are fields of `TrainingJob`."""
    if shape is None:
        raise InputError("give --input, the shape of one sample: 3x224x224, or 128 for tokens.")
    divided = _sharding(zero, sharding)
    layout = None if divided is None else Parallel(sharding=divided)
    return TrainingJob(load_model(network), parse_shape(shape), parallel=layout, **options)
