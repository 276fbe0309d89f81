"""Jobs of large models from the options of the shell."""

from __future__ import annotations

from typing import Any

from gpudemand._validation import InputError
from gpudemand.cli.source import load_model, parse_shape
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_models.parallel import LoRA, Parallel

#: Level of ZeRO -> sharding.
_ZERO = {0: "none", 1: "zero1", 2: "zero2", 3: "zero3"}


def is_configuration(network: str) -> bool:
    """Whether the argument of the shell is a published name or a configuration, rather than ``file.py:name``.

    Examples
    --------
    >>> is_configuration("llama-3-8b"), is_configuration("hf:config.json"), is_configuration("model.py:build")
    (True, True, False)
    """
    return network.startswith(("hf:", "timm:")) or ":" not in network


def large_job(network: str, seq: int | None, gpus: int, degrees: dict[str, int | None], **options: Any) -> TrainingJob:
    """Job of a configuration; what is None was not said.

    Parameters
    ----------
    network : str
        Published name or path.
    seq : int
        Tokens of a sample.
    gpus : int
    degrees : dict of str to int
        Fields of `Parallel`.
    **options
        Fields of `TrainingJob`, and ``zero``, ``sharding``, ``lora`` and ``bits``.

    Returns
    -------
    TrainingJob

    Raises
    ------
    InputError
        Without `seq`, and as `TrainingJob` raises it.
    """
    if seq is None:
        raise InputError(f"{network} is a configuration; give --seq, the tokens of a sample (file.py:name is code).")
    sharding, rank, bits = (
        _sharding(options.pop("zero"), options.pop("sharding")),
        options.pop("lora"),
        options.pop("bits"),
    )
    given: dict[str, Any] = {name: size for name, size in degrees.items() if size is not None}
    if sharding is not None or given:
        options["parallel"] = Parallel(**given, sharding=sharding or "none")
    if rank is not None:
        options["adapter"] = LoRA(rank, bits=bits)
    return TrainingJob.from_config(
        network, seq, n_gpus=gpus, **{name: value for name, value in options.items() if value is not None}
    )


def _sharding(zero: int | None, sharding: str | None) -> str | None:
    if zero is None:
        return sharding
    if zero not in _ZERO or (sharding is not None and sharding != _ZERO[zero]):
        raise InputError(f"--zero {zero} is no level of ZeRO (0 to 3), or --sharding says otherwise; give one of them.")
    return _ZERO[zero]


def traced_job(network: str, shape: str | None, zero: int | None, sharding: str | None, **options: Any) -> TrainingJob:
    """Job of a network that a Python file builds.

    Parameters
    ----------
    network : str
        ``file.py:name``.
    shape : str
        Of one sample.
    zero, sharding : optional
        Level of ZeRO or name of the sharding.
    **options
        Fields of `TrainingJob`.

    Returns
    -------
    TrainingJob

    Raises
    ------
    InputError
        Without `shape`, and as `TrainingJob` raises it.
    """
    if shape is None:
        raise InputError("give --input, the shape of one sample: 3x224x224, or 128 for tokens.")
    divided = _sharding(zero, sharding)
    layout = None if divided is None else Parallel(sharding=divided)
    return TrainingJob(load_model(network), parse_shape(shape), parallel=layout, **options)
