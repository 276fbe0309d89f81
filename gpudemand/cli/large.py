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

    Raises
    ------
    InputError
        For text that is neither.

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

    Parameters
    ----------
    network : str
        Published name or path.
    seq : str
        Tokens of a sample, or of source and target; None is what the model fixes.
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
        As `TrainingJob` raises it.
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
