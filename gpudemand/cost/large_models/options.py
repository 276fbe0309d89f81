"""Options of jobs that go with a configuration, or with a traced network, and one sentence for those that do not."""

from __future__ import annotations

from typing import Any

from gpudemand._validation import InputError, check_number
from gpudemand.cost.architectures.architecture import Transformer
from gpudemand.cost.large_models.parallel import LoRA, Parallel
from gpudemand.cost.large_models.run import TrainingRun, checked_checkpointing

#: Samples a step of a traced network, if nobody names them.
_DEFAULT_BATCH = 32


def check_transformer(job: Any) -> dict[str, Any]:
    """Options of a job with a `Transformer`, as they are stored.

    Raises
    ------
    InputError
        For inference, a CPU, a precision that the device lacks, or what `TrainingRun` refuses.
    """
    if job.mode != "training":
        raise InputError("serving is not predicted from a configuration; trace the module for one forward pass.")
    if job.device.kind == "cpu":
        raise InputError(f"{job.device.name} is a CPU; jobs from a configuration run on GPUs.")
    seq_len, source_len = sample_lengths(job.input_shape)
    _check_types(job)
    job.device.peak(job.precision)  # raises for a precision that the device lacks
    fused = "flash" if "bf16" in job.device.precisions else "eager"
    micro, times = split_batch(job.batch_size, job.micro_batch, job.accumulate)
    level = checked_checkpointing(job.checkpointing)
    options: dict[str, Any] = {"attention": job.attention or fused, "checkpointing": level}
    names = ["n_gpus", "parallel", "global_batch", "precision", "optimizer", "adapter", "offload"]
    names += ["cross_entropy", "kernels", "experts"]
    given = {name: getattr(job, name) for name in names}
    batch: dict[str, Any] = {"micro_batch": micro, "accumulate": times, "source_len": source_len}
    TrainingRun(job.model, job.device, seq_len, **batch, **given, **options)
    return {**options, "layout": "contiguous", "execution": job.execution or "eager"}


def sample_lengths(shape: Any) -> tuple[int, int | None]:
    """Tokens of a sample, and of its source if an encoder takes it, from ``(seq_len,)`` or ``(source, target)``.

    Raises
    ------
    InputError
        For anything else.
    """
    if not isinstance(shape, tuple) or len(shape) not in (1, 2):
        raise InputError(
            f"the input of a transformer is (seq_len,), or (source, target) with an encoder; got {shape!r}."
        )
    return shape[-1], shape[0] if len(shape) == 2 else None


def sample_shape(model: Transformer, seq_len: Any) -> tuple[int, ...]:
    """Input of a job with a model, whose own tokens count where none are given.

    Raises
    ------
    InputError
        If the model does not fix them.
    """
    if seq_len is not None:
        return tuple(seq_len) if isinstance(seq_len, (tuple, list)) else (seq_len,)
    fixed = model.tokens or (model.positions if model.source_share and model.parts[0].tokens else 0)
    if not fixed:
        raise InputError(f"give seq_len (in the shell --seq), the tokens of a sample of {model.name}.")
    return (fixed,)


def _check_types(job: Any) -> None:
    if job.parallel is not None and not isinstance(job.parallel, Parallel):
        raise InputError(f"parallel must be a Parallel; got {type(job.parallel).__name__}.")
    if job.adapter is not None and not isinstance(job.adapter, LoRA):
        raise InputError(f"adapter must be a LoRA; got {type(job.adapter).__name__}.")


def split_batch(batch: int | None, micro: int | None, times: int | None) -> tuple[int | None, int | None]:
    """Samples at once and how often before a step, from the samples a step on a replica where these were named.

    Raises
    ------
    InputError
        For what is no whole number of at least 1, or if they do not multiply.
    """
    for name, value in (("batch_size", batch), ("micro_batch", micro), ("accumulate", times)):
        if value is not None:
            check_number(name, value, 1, integer=True)
    if batch is not None:
        times = times or (1 if micro is None else max(batch // micro, 1))
        micro = micro or batch // times
        if micro * times != batch:
            shown = f"micro_batch={micro} x accumulate={times}" if micro else f"a multiple of accumulate={times}"
            raise InputError(f"batch_size={batch} is not {shown}; change one of them, or leave one out.")
    return micro, times


def check_traced(job: Any) -> dict[str, Any]:
    """Options of a job with a traced network, as they are stored.

    Raises
    ------
    InputError
        For options that only jobs from a configuration have, or samples that do not divide.
    """
    _check_types(job)
    for name in ("adapter", "offload", "attention", "cross_entropy", "kernels", "experts"):
        if getattr(job, name) is not None:
            raise InputError(f"{name} is for jobs made by TrainingJob.from_config; leave it out for a traced network.")
    level = checked_checkpointing(job.checkpointing)
    if level == "selective":
        raise InputError("a traced network is recomputed as a whole or not; checkpointing is 'full' or False.")
    if job.global_batch is not None:
        raise InputError("global_batch is for jobs made by TrainingJob.from_config; give batch_size, of one GPU.")
    if job.parallel is not None:
        _check_data_parallel(job.parallel.resolved(job.n_gpus))
    options = {"checkpointing": level == "full"}
    if job.micro_batch is None and job.accumulate is None:
        return {**options, "batch_size": _DEFAULT_BATCH if job.batch_size is None else job.batch_size}
    if job.mode == "inference":
        raise InputError("inference takes a batch at once; leave out micro_batch and accumulate.")
    batch = _DEFAULT_BATCH if job.batch_size is None and job.micro_batch is None else job.batch_size
    micro, times = split_batch(batch, job.micro_batch, job.accumulate)
    assert micro is not None
    return {**options, "accumulate": times or 1, "batch_size": micro * (times or 1)}


def _check_data_parallel(layout: Parallel) -> None:
    if layout.sharding is None:
        raise InputError("the sharding of a traced network has to be known; give Parallel(sharding=...).")
    if layout.model * layout.expert > 1:
        raise InputError(
            "a traced network can be sharded and accumulated, but not split by tensor, pipeline, context or expert; "
            "make the job with TrainingJob.from_config."
        )
