"""Modules whose networks are measured by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

from gpudemand._validation import InputError
from gpudemand.cost.networks import run_file

#: Where plans find their networks unless another place is named.
ZOO = "benchmarks.zoo"


class Networks(Protocol):
    """What a module offers whose networks are measured, as ``benchmarks.zoo`` does."""

    def names(self) -> list[str]:
        """Names that a plan may hold."""
        ...

    def kind(self, name: str) -> str:
        """``image`` or ``tokens``."""
        ...

    def build(
        self,
        name: str,
        framework: str,
        input_shape: Sequence[int] | None,
        n_classes: int,
        *,
        width: float,
        depth: float,
        vocabulary: int,
    ) -> Any:
        """Build an untrained ``torch.nn.Module`` or ``keras.Model`` whose outputs are logits."""
        ...


@cache
def load_networks(place: str = ZOO) -> Networks:
    """Import the module that builds networks: its name, or the path of a ``.py`` file, which is run."""
    try:
        module = run_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except ImportError as error:
        raise InputError(f"networks={place!r} cannot be imported ({error}); name a module or a file.py.") from error
    lacking = [name for name in ("names", "kind", "build") if not hasattr(module, name)]
    if lacking:
        raise InputError(f"networks={place!r} builds no networks: it lacks {', '.join(lacking)}.")
    return cast("Networks", module)
