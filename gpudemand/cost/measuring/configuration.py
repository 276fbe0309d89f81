"""Configuration of a training job to measure: the factors of the design, and a key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.cost import zoo

CHOICES: dict[str, tuple[str, ...]] = {
    "framework": ("torch", "keras"),
    "optimizer": ("sgd", "momentum", "adam", "adamw"),
    "precision": ("fp32", "tf32", "bf16"),
    "layout": ("contiguous", "channels_last"),
    "execution": ("eager", "compiled"),
    "device": ("cpu", "cuda"),
}
#: Smallest value of each integer.
MINIMUM = {"input_size": 1, "channels": 0, "n_classes": 1, "vocabulary": 0, "batch_size": 1, "threads": 0, "repeat": 0}


def check_keras(framework: str, layout: str | None, execution: str | None) -> None:
    """Raise `InputError` for a layout or an execution that Keras does not have."""
    if framework == "keras" and (layout, execution) != ("channels_last", "compiled"):
        raise InputError(
            f"keras trains with layout='channels_last' and execution='compiled'; got {layout!r} and {execution!r}."
        )


@dataclass(frozen=True)
class Configuration:
    """One row of a plan of measurements.

    Parameters
    ----------
    framework : {"torch", "keras"}
        Library.
    network : str
        Name in the zoo.
    input_size : int
        Pixels a side, or tokens.
    channels : int
        Of the image; 0 for tokens.
    n_classes : int
        Outputs of the classifier.
    vocabulary : int
        Distinct tokens; 0 for images.
    width, depth : float
        Factors on the channels, and on the blocks of a stage.
    batch_size : int
        Samples a step.
    optimizer : {"sgd", "momentum", "adam", "adamw"}
        ``momentum`` is SGD with momentum 0.9.
    precision : {"fp32", "tf32", "bf16"}
        ``tf32`` exists on CUDA only; ``bf16`` is mixed precision.
    layout : {"contiguous", "channels_last"}
        Memory order of images; Keras has the second only.
    execution : {"eager", "compiled"}
        ``compiled`` is ``torch.compile``, or the graph of ``keras.Model.fit``; Keras is always compiled.
    device : {"cpu", "cuda"}
        Kind of device.
    threads : int
        Threads of an operator on the CPU; 0 is the default of the framework.
    repeat : int
        Number of the repetition; configurations that differ only in it are the same job.
    seed : int
        Seed of weights and data.

    Raises
    ------
    InputError
        For an unknown name, a number out of range, or an unsupported combination.

    Examples
    --------
    >>> job = Configuration("torch", "lenet", input_size=28, channels=1)
    >>> job.input_shape, len(job.key)
    ((1, 28, 28), 16)
    """

    framework: str
    network: str
    input_size: int = 32
    channels: int = 3
    n_classes: int = 10
    vocabulary: int = 0
    width: float = 1.0
    depth: float = 1.0
    batch_size: int = 32
    optimizer: str = "sgd"
    precision: str = "fp32"
    layout: str = "contiguous"
    execution: str = "eager"
    device: str = "cpu"
    threads: int = 0
    repeat: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, options in CHOICES.items():
            check_choice(name, getattr(self, name), options)
        check_choice("network", self.network, zoo.names())
        for name, low in MINIMUM.items():
            check_number(name, getattr(self, name), low, integer=True)
        for name in ("width", "depth"):
            check_number(name, getattr(self, name), 0, open_low=True)
        self._check_combination()

    def _check_combination(self) -> None:
        tokens = zoo.kind(self.network) == "tokens"
        if tokens != (self.channels == 0) or tokens != (self.vocabulary > 0):
            expected = "channels=0 and vocabulary>0" if tokens else "channels>0 and vocabulary=0"
            raise InputError(
                f"{self.network} takes {zoo.kind(self.network)}, which needs {expected}; "
                f"got channels={self.channels}, vocabulary={self.vocabulary}."
            )
        check_keras(self.framework, self.layout, self.execution)
        if self.precision == "tf32" and self.device == "cpu":
            raise InputError("precision='tf32' exists on device='cuda' only; choose 'fp32' or 'bf16'.")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """``(channels, height, width)``, or ``(length,)``."""
        return (self.channels, self.input_size, self.input_size) if self.channels else (self.input_size,)

    def build(self) -> Any:
        """Build the network, untrained."""
        return zoo.build(
            self.network,
            self.framework,
            self.input_shape,
            self.n_classes,
            width=self.width,
            depth=self.depth,
            vocabulary=max(self.vocabulary, 1),
        )

    @property
    def key(self) -> str:
        """Hash of the configuration, sixteen hexadecimal digits."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


#: Columns of a plan.
COLUMNS = tuple(field.name for field in fields(Configuration))


def configuration_from_row(row: Mapping[str, Any]) -> Configuration:
    """Parse a configuration; missing columns take their defaults, others are ignored.

    Examples
    --------
    >>> configuration_from_row({"framework": "torch", "network": "lenet", "batch_size": "8"}).batch_size
    8
    """
    missing = {"framework", "network"} - set(row)
    if missing:
        raise InputError(f"a configuration needs {', '.join(sorted(missing))}; it has {', '.join(map(str, row))}.")
    types = {"str": str, "int": _integer, "float": float}
    known = [field for field in fields(Configuration) if field.name in row]
    return Configuration(**{field.name: _parse(types[str(field.type)], field.name, row[field.name]) for field in known})


def _parse(kind: Any, name: str, value: Any) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name}={value!r} cannot be read; it must be a number.") from error


def _integer(value: Any) -> int:
    number = float(value)
    if number != int(number):
        raise ValueError(value)
    return int(number)
