"""Type, kind and cost of ATen calls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpudemand.cost.operators.arithmetic import (
    attention_flops,
    einsum_flops,
    fourier_flops,
    matmul_flops,
    weighted_flops,
)
from gpudemand.cost.operators.vocabulary import RECURRENT_STATE, convolution_kind, torch_type

#: Calls that use only the shape, type or device of a tensor; they return constants.
_TEMPLATES = ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like")
_IN_PLACE = ("__setitem__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__")
#: A property of a tensor that is set, not its data.
_SETTERS = ("requires_grad_",)
#: Copies in the same order and casts to the same type are aliases.
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
    """Floating-point tensors that a call uses as indices."""
    if torch_type(name) != "Gather":
        return []
    return [tensor for tensor in (tensors if name == "one_hot" else tensors[1:]) if tensor.is_floating_point()]


def is_template(name: str) -> bool:
    """Whether a call uses only the shape, type or device of its argument, as ``zeros_like``."""
    return name in _TEMPLATES or name.startswith("new_")


def is_in_place(name: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether a call writes into its first argument (or into ``out=``)."""
    is_named = name in _IN_PLACE or (name.endswith("_") and not name.startswith("__") and name not in _SETTERS)
    return is_named or kwargs.get("out") is not None


def is_plain_copy(name: str, source: Any, result: Any) -> bool:
    """Whether a call copies its argument without change of order or type."""
    same_order = source.is_contiguous() or source.stride() == result.stride()
    return name in _COPIES and source.dtype == result.dtype and source.numel() == result.numel() and same_order


def call_type(name: str, tensors: Sequence[Any], result: Any, has_weight: bool) -> str:
    """Canonical type of a call of ATen `name` on `tensors`; a product with a weight is a dense layer."""
    type_ = torch_type(name)
    if type_ == "MatMul" and has_weight:
        return "Gemm"
    source = tensors[0]
    pools_all = math.prod(result.shape[2:]) == 1 < math.prod(source.shape[2:])
    if pools_all and (type_ == "AveragePool" or name.startswith("adaptive_max")):
        return f"Global{type_}"
    averages_all = source.dim() > 3 and result.numel() == math.prod(source.shape[:2])
    return "GlobalAveragePool" if name == "mean" and averages_all else type_


def call_kind(type_: str, tensors: Sequence[Any]) -> str:
    """Class of a convolution, from the shapes of its input and its weight; otherwise empty."""
    if type_ not in ("Conv", "ConvTranspose") or len(tensors) < 2:
        return ""
    source, weight = tensors[:2]
    channels = source.shape[1 - weight.dim()]
    groups = channels // weight.shape[1] if type_ == "Conv" else 1
    return convolution_kind(weight.shape[2:], groups, channels)


def call_flops(
    type_: str, name: str, tensors: Sequence[Any], result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> float:
    """Floating-point operations of a call for the whole batch; zero if it multiplies no matrices or the like."""
    if type_ == "Conv":
        return weighted_flops(result.numel() / tensors[1].shape[0], tensors[1].numel())
    if type_ == "ConvTranspose":
        return weighted_flops(tensors[0].numel() / tensors[1].shape[0], tensors[1].numel())
    if type_ == "Attention":
        return attention_flops(*(tensor.shape for tensor in tensors[:3]))
    if type_ == "DFT":
        return _transform_flops(name, tensors[0], result, args, kwargs)
    if type_ in RECURRENT_STATE:
        weights = sum(tensor.numel() for tensor in tensors[1:] if tensor.dim() == 2)
        return weighted_flops(tensors[0].numel() / tensors[0].shape[-1], weights)
    # A product of complex numbers is four of real ones.
    factor = (4.0 if result.is_complex() else 1.0) * _density(tensors)
    return factor * product_flops(name, tensors, result, args) if type_ in ("Gemm", "MatMul") else 0.0


def sparse_bytes(flops: float, tensors: Sequence[Any]) -> float:
    """Bytes that a product with sparse matrices reads, a row of the dense one for each nonzero; 0 if none is sparse."""
    return flops / 2.0 * tensors[-1].element_size() if _density(tensors) < 1.0 else 0.0


def is_sparse(tensor: Any) -> bool:
    """Whether a tensor is stored sparsely, in any layout."""
    return str(tensor.layout) != "torch.strided"


def _density(tensors: Sequence[Any]) -> float:
    """Nonzeros of sparse operands as a share of their elements; 1 for dense ones."""
    return math.prod(tensor._nnz() / max(tensor.numel(), 1) for tensor in tensors if is_sparse(tensor))


def product_flops(name: str, tensors: Sequence[Any], result: Any, args: Sequence[Any]) -> float:
    """Operations of a matrix product from the shapes of its operands and result."""
    shapes = [tuple(tensor.shape) for tensor in tensors]
    if name == "einsum":
        return einsum_flops(args[0], shapes)
    if name == "bilinear":
        return weighted_flops(result.numel() / shapes[2][0], math.prod(shapes[2]))
    if name == "tensordot":
        return matmul_flops(result.numel(), math.prod(shapes[0][axis] for axis in args[2]))
    if "grouped_mm" in name:
        # Of two matrices, groups share the summed axis.
        groups = result.shape[0] if len(shapes[0]) == len(shapes[1]) == 2 else 1
        return matmul_flops(result.numel() / groups, shapes[0][-1])
    first = shapes[1] if name.rstrip("_") in ("addmm", "baddbmm", "addbmm", "addmv") else shapes[0]
    return matmul_flops(result.numel(), first[-1]) * (first[0] if name == "addbmm" else 1)


def _transform_flops(name: str, source: Any, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """Operations of Fourier transforms; their signal is the real side, if there is one."""
    if name.endswith("stft"):
        size = int(args[1] if len(args) > 1 else kwargs["n_fft"])
        spectrum = result if name == "stft" else source
        return fourier_flops(
            size * spectrum.numel() / spectrum.shape[-2 if spectrum.is_complex() else -3], size, real=True
        )
    signal = next((tensor for tensor in (source, result) if not tensor.is_complex()), result)
    default = {"2": (-2, -1), "n": tuple(range(signal.dim()))}.get(name[-1], -1)
    axes = kwargs.get("dim", args[2] if len(args) > 2 else None)
    axes = default if axes is None else axes
    length = math.prod(signal.shape[axis] for axis in ([axes] if isinstance(axes, int) else axes))
    return fourier_flops(signal.numel(), length, real=not signal.is_complex())
