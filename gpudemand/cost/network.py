"""What a network is made of: its framework, and a fingerprint that changes when its layers do."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from gpudemand._validation import InputError
from gpudemand.cost.graph.op_graph import OpGraph


def framework_of(model: Any) -> str:
    """Either ``torch`` or ``keras``.

    Raises
    ------
    InputError
        For what is no model.
    """
    if isinstance(model, OpGraph):
        return "keras" if model.framework == "keras" else "torch"
    if isinstance(model, type):
        raise InputError(f"model must be an instance; got the class {model.__name__}: call it.")
    # By name, so that neither framework is imported.
    roots = {parent.__module__.split(".")[0] for parent in type(model).__mro__ if parent is not object}
    if "keras" in roots:
        return "keras"
    if any(
        (parent.__module__, parent.__name__) == ("torch.nn.modules.module", "Module") for parent in type(model).__mro__
    ):
        return "torch"
    raise InputError(f"model must be a torch.nn.Module, a keras.Model or an OpGraph; got {type(model).__name__}.")


def fingerprint(model: Any, framework: str) -> Hashable:
    """Types, modes and shapes of the layers, which may be frozen, added or replaced after a first trace."""
    if framework == "keras":
        return tuple((tuple(weight.shape), weight.trainable) for weight in model.weights)
    parts = tuple((type(part), part.training) for part in model.modules())
    # A lazy parameter has no shape yet.
    shapes = (None if hasattr(weight, "materialize") else tuple(weight.shape) for weight in model.parameters())
    return parts, tuple(zip(shapes, (weight.requires_grad for weight in model.parameters()), strict=True))
