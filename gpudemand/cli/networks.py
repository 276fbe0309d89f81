"""Networks and jobs as arguments of a command, and predictions as text."""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand._tables import aligned
from gpudemand._validation import InputError, nearest
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.model import CostModel
from gpudemand.cost.parallel import LoRA, Parallel
from gpudemand.cost.step_time_model import FarFromTrainingWarning
from gpudemand.units import format_gib, format_seconds


def format_prediction(model: CostModel, job: TrainingJob) -> str:
    """Format step time, memory, the probability that a job fits, and the largest batch that does.

    Returns a small table; last lines if the job is far from the training data.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FarFromTrainingWarning)
        row, probability, largest = model.predict(job).iloc[0], model.fits(job), model.max_batch_size(job)
        script = _script(model, job)
    time, memory = _with_interval(row, "step_time_s", format_seconds), _with_interval(row, "memory_gib", format_gib)
    limit = format_gib(job.hardware.usable_memory_gib)
    rows = [("step time", *time), *script, *_speed(job, float(row["step_time_s"])), ("memory", *memory)]
    rows += _readings(model, job)
    rows += [
        (f"fits into {limit}", f"{100 * probability:.0f} %", ""),
        ("largest batch that fits" if job.run is None else "most samples at once", f"{largest:,}", "with 95 %"),
    ]
    lines = [repr(job), "", aligned(pd.DataFrame(rows, columns=["", "predicted", "90 % interval"]))]
    far = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, FarFromTrainingWarning))
    lines += ["", *far] if far else []
    return "\n".join(lines)


def _script(model: CostModel, job: TrainingJob) -> list[tuple[str, str, str]]:
    """The step in a training script, where that is another."""
    if job.run is not None or job.mode == "inference" or job.hardware.kind == "cpu":
        return []
    row = model.predict(job, training_script=True).iloc[0]
    return [("in a training script", *_with_interval(row, "step_time_s", format_seconds))]


def _speed(job: TrainingJob, seconds: float) -> list[tuple[str, str, str]]:
    samples = job.samples_per_step / seconds
    if job.run is None:
        return [("samples a second", f"{samples:,.4g}", "")]
    tokens = samples * job.run.tokens / job.run.samples
    return [("tokens a second", f"{tokens:,.4g}", f"{job.samples_per_step:,} samples a step")]


def _readings(model: CostModel, job: TrainingJob) -> list[tuple[str, str, str]]:
    """What PyTorch counts of the memory of a large model."""
    if job.run is None:
        return []
    found = {name: model.large_models.predict([job.run], reading=name).iloc[0] for name in ("allocated", "reserved")}
    return [(f"of it {name}", *_with_interval(row, "memory_gib", format_gib)) for name, row in found.items()]


def _with_interval(row: pd.Series, name: str, write: Callable[[float], str]) -> tuple[str, str]:
    return write(row[name]), f"{write(row[f'{name}-lo-90'])} to {write(row[f'{name}-hi-90'])}"


def load_model(place: str) -> Any:
    """Run a Python file, and load a network from it or call the function or class that builds one.

    The file is executed with all that it does, like ``python file.py`` under another name than ``__main__``.

    `place`: ``file.py:name``: a function without parameters, a class that needs none, or a model.
    """
    path, colon, name = place.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise InputError(
            f"{place!r} is not of the form file.py:name; write file.py:name, such as model.py:build_model."
        )
    module = _run_file(Path(path))
    if not hasattr(module, name):
        public = [word for word in vars(module) if not word.startswith("_")]
        raise InputError(f"{Path(path).name} has no {name!r}.{nearest(name, public)}")
    found = getattr(module, name)
    if not isinstance(found, type) and not _is_function(found):
        return found
    try:
        return found()
    except Exception as error:
        raise InputError(f"{name}() of {Path(path).name} failed: {type(error).__name__}: {error}.") from error


def _is_function(found: Any) -> bool:
    # Models are callable as well; functions and partials have code.
    return hasattr(found, "__code__") or hasattr(found, "func")


def _run_file(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}; give the path of the file that builds the network.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The file may import modules beside it.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{path.name} cannot be run: {type(error).__name__}: {error}.") from error
    finally:
        sys.path.pop(0)
    return module


def parse_shape(text: str) -> tuple[int, ...]:
    """Read the shape of one sample.

    `text`: numbers with ``x`` between them.

    Examples
    --------
    >>> parse_shape("3x224x224"), parse_shape("128")
    ((3, 224, 224), (128,))
    """
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text.strip().lower()):
        raise InputError(
            f"input {text!r} is not a shape; write the sizes of one sample with x between, such as 3x224x224."
        )
    return tuple(int(size) for size in text.strip().lower().split("x"))


#: Level of ZeRO -> sharding.
_ZERO = {0: "none", 1: "zero1", 2: "zero2", 3: "zero3"}


def is_configuration(network: str) -> bool:
    """Whether the argument of the shell is a published name or a configuration, rather than ``file.py:name``.

    Examples
    --------
    >>> is_configuration("llama-3-8b"), is_configuration("hf:config.json"), is_configuration("model.py:build")
    (True, True, False)
    """
    return network.startswith(("hf:", "timm:")) or not (":" in network or network.endswith(".py"))


def refuse(options: dict[str, object], whose: str) -> None:
    """Raise for an option that was given and would do nothing.

    Examples
    --------
    >>> refuse({"lora": 16, "global_batch": None}, "large models")
    Traceback (most recent call last):
    gpudemand._validation.InputError: --lora is for large models; leave it out.
    """
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
    """Job of a configuration; what is None was not said.

    `network`: published name or path. `seq`: tokens of a sample, or of source and target; None is what the model
    fixes. `degrees`: fields of `Parallel`. `**options`: fields of `TrainingJob`, and ``zero``, ``sharding``, ``lora``
    and ``bits``.
    """
    sharding = _sharding(options.pop("zero"), options.pop("sharding"))
    rank, bits = options.pop("lora"), options.pop("bits")
    given: dict[str, Any] = {name: size for name, size in degrees.items() if size is not None}
    if sharding is not None or given:
        options["parallel"] = Parallel(**given, sharding=sharding or "none")
    if rank is not None:
        options["adapter"] = LoRA(rank, bits=bits or 16)
    elif bits is not None:
        raise InputError("--bits is of the frozen weights below adapters; give --lora, too.")
    return TrainingJob.from_config(
        network, lengths_of(seq), n_gpus=gpus, **{name: value for name, value in options.items() if value is not None}
    )


def _sharding(zero: int | None, sharding: str | None) -> str | None:
    if zero is None:
        return sharding
    if zero not in _ZERO or (sharding is not None and sharding != _ZERO[zero]):
        raise InputError(f"--zero {zero} is no level of ZeRO (0 to 3), or --sharding says otherwise; give one of them.")
    return _ZERO[zero]


def traced_job(network: str, shape: str | None, zero: int | None, sharding: str | None, **options: Any) -> TrainingJob:
    """Job of a network that a Python file builds.

    `network`: ``file.py:name``. `shape`: of one sample. `zero`, `sharding`: level of ZeRO or name of the sharding.
    `**options`: fields of `TrainingJob`.
    """
    if shape is None:
        raise InputError("give --input, the shape of one sample: 3x224x224, or 128 for tokens.")
    divided = _sharding(zero, sharding)
    layout = None if divided is None else Parallel(sharding=divided)
    return TrainingJob(load_model(network), parse_shape(shape), parallel=layout, **options)
