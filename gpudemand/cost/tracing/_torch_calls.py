"""What one ATen call is and computes, read off its arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpudemand.cost.operators.arithmetic import attention_flops, einsum_flops, matmul_flops, weighted_flops
from gpudemand.cost.operators.vocabulary import RECURRENT_STATE, convolution_kind, torch_type

#: Calls that take a tensor for its shape, type or device only: what they return is a constant.
_TEMPLATES = ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like")
_IN_PLACE = ("__setitem__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__")
#: Copies in the same order, and casts to the same type, are the same data once more.
_COPIES = ("contiguous", "reshape", "flatten", "clone", "view", "unflatten", "to", "float", "type", "type_as", "detach")


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors in nested lists, tuples and dicts of arguments."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def indices(name: str, tensors: Sequence[Any]) -> Sequence[Any]:
    """Return the tensors that a call uses as indices although they are no integers yet."""
    if torch_type(name) != "Gather":
        return []
    return [tensor for tensor in (tensors if name == "one_hot" else tensors[1:]) if tensor.is_floating_point()]


def is_template(name: str) -> bool:
    """Whether a call looks at the shape of its argument only, as ``zeros_like`` does."""
    return name in _TEMPLATES or name.startswith("new_")


def is_in_place(name: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether a call writes into its first argument (or into ``out=``)."""
    return name in _IN_PLACE or (name.endswith("_") and not name.startswith("__")) or kwargs.get("out") is not None


def is_plain_copy(name: str, source: Any, result: Any) -> bool:
    """Whether a call only repeats its argument: nothing is reordered and no type changes."""
    same_order = source.is_contiguous() or source.stride() == result.stride()
    return name in _COPIES and source.dtype == result.dtype and source.numel() == result.numel() and same_order


def call_type(name: str, tensors: Sequence[Any], result: Any, has_weight: bool) -> str:
    """Return the canonical type of a call.

    Parameters
    ----------
    name : str
        ATen name.
    tensors : sequence of Tensor
        The tensors among the arguments, in order.
    result : Tensor
        The first result.
    has_weight : bool
        Whether a parameter is among the arguments: a product with a weight is a dense layer.
    """
    found = torch_type(name)
    if found == "MatMul" and has_weight:
        return "Gemm"
    if _pools_all(tensors[0], result) and (found == "AveragePool" or name.startswith("adaptive_max")):
        return f"Global{found}"
    return "GlobalAveragePool" if name == "mean" and _averages_map(tensors[0], result) else found


def _pools_all(source: Any, result: Any) -> bool:
    return math.prod(result.shape[2:]) == 1 < math.prod(source.shape[2:])


def _averages_map(source: Any, result: Any) -> bool:
    """Whether the mean is over all places of an image or a volume, so that channels are left."""
    return source.dim() > 3 and result.numel() == math.prod(source.shape[:2])


def call_kind(found: str, tensors: Sequence[Any]) -> str:
    """Return the class of a convolution, read off the shapes of its input and its weight; otherwise nothing."""
    if found not in ("Conv", "ConvTranspose") or len(tensors) < 2:
        return ""
    source, weight = tensors[:2]
    channels = source.shape[1 - weight.dim()]
    groups = channels // weight.shape[1] if found == "Conv" else 1
    return convolution_kind(weight.shape[2:], groups, channels)


def call_flops(found: str, name: str, tensors: Sequence[Any], result: Any, args: Sequence[Any]) -> float:
    """Return the operations of a call, for the whole batch; zero for what does not multiply and add matrices."""
    if found == "Conv":
        return weighted_flops(result.numel() / tensors[1].shape[0], tensors[1].numel())
    if found == "ConvTranspose":
        return weighted_flops(tensors[0].numel() / tensors[1].shape[0], tensors[1].numel())
    if found == "Attention":
        return attention_flops(*(tensor.shape for tensor in tensors[:3]))
    if found in RECURRENT_STATE:
        weights = sum(tensor.numel() for tensor in tensors[1:] if tensor.dim() == 2)
        return weighted_flops(tensors[0].numel() / tensors[0].shape[-1], weights)
    return _product_flops(name, tensors, result, args) if found in ("Gemm", "MatMul") else 0.0


def _product_flops(name: str, tensors: Sequence[Any], result: Any, args: Sequence[Any]) -> float:
    shapes = [tuple(tensor.shape) for tensor in tensors]
    if name == "einsum":
        return einsum_flops(args[0], shapes)
    if name == "bilinear":
        return weighted_flops(result.numel() / shapes[2][0], math.prod(shapes[2]))
    if name == "tensordot":
        return matmul_flops(result.numel(), math.prod(shapes[0][axis] for axis in args[2]))
    first = shapes[1] if name.rstrip("_") in ("addmm", "baddbmm", "addbmm", "addmv") else shapes[0]
    return matmul_flops(result.numel(), first[-1]) * (first[0] if name == "addbmm" else 1)
