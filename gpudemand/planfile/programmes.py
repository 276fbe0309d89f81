"""Work to come in a plan file: runs of known length, or trainings of a large model whose time is predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpudemand._validation import InputError
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_models.parallel import LoRA, Parallel
from gpudemand.planfile.values import Value, require, whole
from gpudemand.planning.scenarios.programme import Programme

_Keys = Mapping[str, Callable[[Value], Any]]


def read_programmes(value: Value) -> tuple[Programme, ...]:
    """Programmes of the blocks ``[[programmes]]``; no time is predicted yet.

    Raises
    ------
    InputError
        Names the block, or the key within.
    """
    return tuple(_programme(row) for row in value.tables())


def _programme(value: Value) -> Programme:
    given = value.table(_PROGRAMME)
    require(given, ("name", "runs", "start", "end"), value.key)
    tokens = given.pop("tokens", None)
    with value.place():
        if "job" not in given:
            require(given, ("hours", "gpus"), value.key)
        elif "gpus" in given or "hours" in given or ("steps" in given) == (tokens is not None):
            raise InputError("a programme with a job has either tokens or steps of a run, and neither hours nor gpus.")
        elif "steps" in given and given["job"].run.global_batch is None:
            raise InputError("steps need the samples of one: add global_batch to the job, or state tokens instead.")
        if tokens is not None:
            require(given, ("job",), value.key)
            given["steps"] = tokens / given["job"].run.tokens
        return Programme(**given)


def _job(value: Value) -> TrainingJob:
    given = value.table(_JOB)
    require(given, ("model", "seq_len", "device", "n_gpus"), value.key)
    adapter = {"adapter": given.pop("lora")} if "lora" in given else {}
    with value.place():
        return TrainingJob.from_config(given.pop("model"), given.pop("seq_len"), **given, **adapter)


def _model(value: Value) -> str:
    """Published name, or path of a configuration, relative to the file."""
    path = value.path()
    return str(path) if path.suffix == ".json" or path.exists() else value.text()


def _parallel(value: Value) -> Parallel:
    with value.place():
        return Parallel(**value.table(_PARALLEL))


def _lora(value: Value) -> LoRA:
    given = value.table({"rank": whole, "targets": _targets, "bits": whole, "quantizer": Value.text})
    with value.place():
        return LoRA(**given)


def _targets(value: Value) -> str | tuple[str, ...]:
    return value.texts() if isinstance(value.raw, list) else value.text()


def _checkpointing(value: Value) -> bool | str:
    return value.flag() if isinstance(value.raw, bool) else value.text()


_PARALLEL: _Keys = {
    **dict.fromkeys(("data", "tensor", "pipeline", "virtual_pipeline", "context", "expert"), whole),
    "sharding": Value.text,
    "sequence": Value.flag,
}
_JOB: _Keys = {
    "model": _model,
    **dict.fromkeys(("seq_len", "n_gpus", "global_batch", "micro_batch", "accumulate"), whole),
    **dict.fromkeys(("device", "precision", "optimizer", "offload", "attention", "cross_entropy"), Value.text),
    **dict.fromkeys(("execution", "kernels", "experts"), Value.text),
    "checkpointing": _checkpointing,
    "parallel": _parallel,
    "lora": _lora,
}
_PROGRAMME: _Keys = {
    **dict.fromkeys(("name", "user", "group", "gpu_type"), Value.text),
    "runs": whole,
    **dict.fromkeys(("start", "end"), Value.time),
    **dict.fromkeys(("hours", "gpus", "tokens", "steps"), Value.number),
    "job": _job,
}
