"""Operators and kernels of calls to PyTorch.

The module runs on fake tensors under an emulation of ``torch.autocast`` for CUDA; every operator that reaches ATen and
is no view is one kernel. It runs with a batch and with twice as many samples, and what does not grow is fixed.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from gpudemand.cost.operators import (
    ATEN_KINDS,
    RECURRENT_STATE,
    Kernel,
    attention_flops,
    convolution_kind,
    fourier_flops,
    matmul_flops,
    runs_in_half,
    torch_type,
    weighted_flops,
)
from gpudemand.cost.tracing import Caveat

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
    from torch.utils._pytree import tree_iter

    return (_whole(leaf) for leaf in tree_iter(value) if isinstance(leaf, torch.Tensor))


def _whole(tensor: Any) -> Any:
    """The tensor with all samples, of one inside ``torch.vmap`` or another transform."""
    from torch._C import _functorch

    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def results_in(value: Any) -> Iterator[Any]:
    """Yield the tensors of what a module returns: in containers and fields of objects, and those of an iterator."""
    return _reached(value, _contents)


def _reached(value: Any, contents: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    """Yield the tensors in an object, given what an object holds, which may hold itself again."""
    import torch

    waiting, seen = [value], dict[int, Any]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or one is None or isinstance(one, (str, bytes, int, float, type)):
            continue
        seen[id(one)] = one
        if isinstance(one, torch.Tensor):
            yield one
        else:
            waiting += contents(one)


def _contents(one: Any) -> list[Any]:
    found = [getattr(one, name, None) for name in getattr(one, "__slots__", ()) if isinstance(name, str)]
    found += vars(one).values() if hasattr(one, "__dict__") else ()
    if isinstance(one, Mapping):
        found += one.values()
    elif isinstance(one, Iterable) and not hasattr(one, "parameters"):
        found += one
    return found


def _items(one: Any) -> Iterable[Any]:
    """What a list, tuple or dict holds; other objects may be of another network, or iterators, which this would use."""
    return one.values() if isinstance(one, dict) else one if isinstance(one, (list, tuple)) else ()


def state_bytes(module: Any) -> float:
    """Bytes of the tensors that a module keeps beside its parameters: buffers, attributes, packed weights."""
    import torch

    parts = list(module.modules())
    # The statistics of normalisations are a few numbers a channel, which what was measured has in its constant.
    plain = [part for part in parts if not isinstance(part, torch.nn.modules.batchnorm._NormBase)]
    kept = [value for part in plain for value in (*vars(part).values(), *_packed(part))]
    sizes = {storage_key(tensor): storage_bytes(tensor) for tensor in _reached(kept, _items)}
    for parameter in module.parameters():
        sizes.pop(storage_key(parameter), None)
    return float(sum(sizes.values()))


def _packed(part: Any) -> list[Any]:
    """What a quantized layer saves: its weights are in an object of their own."""
    import torch

    packed = [value for value in vars(part).values() if isinstance(value, torch.ScriptObject)]
    return [list(one.__getstate__()) for one in packed if hasattr(one, "__getstate__")]  # type: ignore[call-overload]


def storage_key(tensor: Any) -> Hashable:
    """Identity of the storage of a tensor, which its views share."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # sparse tensors have no storage
        return id(tensor)


def storage_bytes(tensor: Any) -> float:
    """Bytes of the storage of a tensor."""
    if is_sparse(tensor):
        return float(sum(part.numel() * part.element_size() for part in _parts(tensor)))
    try:
        return float(tensor.untyped_storage().nbytes())
    except (NotImplementedError, RuntimeError):
        return float(tensor.numel() * tensor.element_size())


def _parts(sparse: Any) -> Sequence[Any]:
    """Values of a sparse tensor, and where they are."""
    layout = str(sparse.layout)
    if layout == "torch.sparse_coo":
        return sparse._values(), sparse._indices()
    if layout in ("torch.sparse_csr", "torch.sparse_bsr"):
        return sparse.values(), sparse.crow_indices(), sparse.col_indices()
    return sparse.values(), sparse.ccol_indices(), sparse.row_indices()


def name_of(func: Any) -> str:
    """Name of what is called, with its library unless that is PyTorch's: the ``mm`` of another may do anything."""
    import torch

    name = str(func.__name__).partition(".")[0]
    is_operator = isinstance(func, (torch._ops.OpOverload, torch._ops.OpOverloadPacket))
    library = str(func).partition(".")[0] if is_operator else "aten"
    return name if library in ("aten", "prims", "quantized") else f"{library}::{name}"


def in_order(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Arguments in the order of the operator's signature, in whatever order keywords were written."""
    import torch

    if kwargs:
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet else ():
            names = [argument.name for argument in getattr(packet, overload)._schema.arguments]
            given = {"self" if key == "input" and "self" in names else key: value for key, value in kwargs.items()}
            if set(given) <= set(names[len(args) :]):
                return [*args, *(given[key] for key in names if key in given)]
    return [*args, *kwargs.values()]


def mistyped(name: str, tensors: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """The type that a call wants of some tensors, and these: real indices, and real factors of complex ones."""
    type_ = torch_type(name)
    if type_ == "Gather":
        used = tensors if name == "one_hot" else tensors[1:]
        return "int64", [tensor for tensor in used if tensor.is_floating_point()]
    complex_ = next((tensor.dtype for tensor in tensors if tensor.is_complex()), None)
    if complex_ is None or not runs_in_half(type_):
        return "", []
    return str(complex_).removeprefix("torch."), [tensor for tensor in tensors if not tensor.is_complex()]


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


def ruled_flops(type_: str, name: str, tensors: Sequence[Any], result: Any) -> float:
    """Operations of a call for the whole batch that does not dispatch them in the trace; 0 for other calls."""
    if type_ == "Attention":
        query, key, value = (tensor.shape for tensor in tensors[:3])
        return attention_flops((*result.shape[:-1], query[-1]), key, value)
    if name in RECURRENT:
        weights = sum(tensor.numel() for tensor in tensors[1:] if tensor.dim() == 2)
        return weighted_flops(tensors[0].numel() / tensors[0].shape[-1], weights)
    return 0.0


def sparse_bytes(flops: float, tensors: Sequence[Any]) -> float:
    """Bytes that a product with sparse matrices reads, a row of the dense one for each nonzero; 0 if none is sparse."""
    return flops / 2.0 * tensors[-1].element_size() if _density(tensors) < 1.0 else 0.0


def is_sparse(tensor: Any) -> bool:
    """Whether a tensor is stored sparsely, in any layout."""
    return str(tensor.layout) != "torch.strided"


def _density(tensors: Sequence[Any]) -> float:
    """Nonzeros of sparse operands as a share of their elements; 1 for dense ones."""
    return math.prod(_parts(tensor)[0].numel() / max(tensor.numel(), 1) for tensor in tensors if is_sparse(tensor))


#: Operators that allocate or describe data, or are views in all but name.
_FREE = frozenset({
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "_unsafe_view"),
    *("_reshape_alias", "alias", "lift_fresh", "is_same_size", "sym_size", "expand", "view_as"),
})  # fmt: skip
#: Operators that read of their first argument only as much as they write.
_LOOKUPS = frozenset({"embedding", "_embedding_bag", "index", "index_select", "gather", "_unsafe_index", "take"})
_SINGLE_BYTES = 4
#: What of a kernel may grow with the batch.
_AMOUNTS = ("flops", "bytes", "half_bytes")
_NO_EXTENTS = (0, 0, 0, 0, False)
#: What is not part of a signature.
_UNKNOWN = "unknown"


class Launch(NamedTuple):
    """Equal launches of a kernel in the traced batch: fields as of `Kernel`, amounts of the whole batch.

    `operands`: shapes of the factors of a product and of its result. `extents`: ``channels, inner, weights, width,
    is_direct`` of a convolution; of other products the smaller ones if none is fixed.
    """

    name: str
    kind: str
    backward: bool
    is_autocast: bool
    operands: tuple[tuple[int, ...], ...]
    extents: tuple[int, int, int, int, bool]
    flops: float
    bytes: float
    half_bytes: float
    calls: int = 1
    is_causal: bool = False


class KernelRecorder:
    """Collects the kernels of one forward and backward pass, in context of `mode`."""

    def __init__(self) -> None:
        self.backward = False
        self.is_casting = False
        #: Operations so far, with those that causal masks save.
        self.flops = 0.0
        self.launches: list[Launch] = []
        self._known: dict[Hashable, tuple[list[Any], Launch | None]] = {}

    def mode(self) -> Any:
        """Context in which every operator that is dispatched is recorded."""
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        dispatch = self._dispatch

        class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
            """Mode that records ATen operators."""

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if torch.is_inference_mode_enabled():  # operators arrive whole
                    with self:
                        parts = func.decompose(*args, **kwargs or {})
                    if parts is not NotImplemented:
                        return parts
                # Below an operator are functions of shapes, which in the backward pass would count as the network's.
                with torch._C.DisableTorchFunction():
                    return dispatch(func, args, kwargs or {})

        return Mode()  # type: ignore[no-untyped-call]

    def add_products(self, matrix: Any, rows: int, calls: int, *, backward: bool) -> None:
        """Record equal products of `rows` rows with a matrix, which are not dispatched to ATen."""
        shapes = tuple(matrix.shape), (rows, matrix.shape[0]), (rows, matrix.shape[1])
        elements = sum(map(math.prod, shapes))
        amounts = weighted_flops(rows, matrix.numel()), _SINGLE_BYTES * elements, matrix.element_size() * elements
        self.launches.append(Launch("mm", "gemm", backward, False, shapes, _NO_EXTENTS, *amounts, calls))

    def _dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator; one equal to an earlier one, of which unrolled loops have thousands, is not run again."""
        import torch

        call = _signature(func, args, kwargs)
        key = call and (call, self.backward, self.is_casting)
        if key in self._known:
            layouts, launch = self._known[key]
            made = [layout and torch.empty_strided(*layout[:2], dtype=layout[2], device="meta") for layout in layouts]
            result = made[0] if len(made) == 1 else tuple(made)
        else:
            result = func(*args, **kwargs)
            launch = self._launch(func, args, kwargs, result)
            if key and (layouts := _layouts(result)):
                self._known[key] = layouts, launch
        if launch:
            self.launches.append(launch)
            self.flops += launch.flops * (2.0 if launch.is_causal else 1.0)
        return result

    def _launch(self, func: Any, args: Any, kwargs: Any, result: Any) -> Launch | None:
        name = func._overloadpacket.__name__
        inputs, outputs = [*tensors_in(args), *tensors_in(kwargs)], list(tensors_in(result))
        if func.is_view or func.namespace == "prim" or name in _FREE:
            return None
        kind, read = _kind(name, args, inputs, outputs), inputs[1:] if name in _LOOKUPS else inputs
        moved = _bytes([*read, *outputs, *(outputs if name in _LOOKUPS else ())])
        if not any(moved):
            return None
        is_autocast = kind == "cast" and (self.is_casting or self.backward)
        shapes, flops = _shapes(name, args, inputs, outputs), _flops(func, args, kwargs, result)
        is_causal = _is_causal(func, args)
        flops *= 0.5 if is_causal else 1.0
        return Launch(name, kind, self.backward, is_autocast, *shapes, flops, *moved, is_causal=is_causal)


def _signature(func: Any, args: Any, kwargs: Any) -> Hashable:
    """What determines the new tensors that an operator gives on the meta device; None for other operators."""
    schema = func._schema
    is_new = not (schema.is_mutable or func.is_view or func._overloadpacket.__name__ in _FREE)
    if not is_new or {str(result.type) for result in schema.returns} != {"Tensor"}:
        return None
    parts = [_part(value) for value in (*args, *kwargs.values())]
    return None if _UNKNOWN in parts else (func, tuple(kwargs), *parts)


def _layouts(result: Any) -> list[Any]:
    """Shape, strides and type of each result, None where it is None; empty if one is not plainly on the meta device."""
    import torch

    results = result if isinstance(result, tuple) else (result,)
    if any(one is not None and not (type(one) is torch.Tensor and one.is_meta) for one in results):
        return []  # a fake tensor has a device besides
    return [one if one is None else (one.shape, one.stride(), one.dtype) for one in results]


def _part(value: Any) -> Hashable:
    """A tensor on the meta device by its layout, a number, type or list of numbers as it is."""
    import torch

    if isinstance(value, torch.Tensor):
        is_plain = (
            type(value) in (torch.Tensor, torch.nn.Parameter)
            and value.is_meta
            and value.layout is torch.strided
            and not value.is_complex()
        )
        return (value.shape, value.stride(), value.dtype) if is_plain else _UNKNOWN
    if isinstance(value, (list, tuple)):
        return tuple(value) if all(isinstance(item, (int, float)) for item in value) else _UNKNOWN
    # 1, 1.0 and True are equal, but give results of different types.
    return type(value), value


def kernels_of(first: Sequence[Launch], second: Sequence[Launch], batch: int) -> list[Kernel]:
    """Kernels of a network from its launches with a batch and with twice as many samples, equal ones merged.

    What grows with the batch is per sample, the rest fixed. If the two do not correspond, as those of a loop over the
    samples, kinds of kernels are compared as a whole; without the second, all is per sample.
    """
    calls: Counter[Kernel] = Counter()
    for launch, other in zip(first, _corresponding(first, second), strict=True):
        kernel = _kernel(launch, other, batch)
        # Autograd copies the gradient of a parameter only if somebody else holds it, which the recorder does.
        is_handed_over = launch.backward and launch.name in ("clone", "copy_") and not kernel.bytes
        if not is_handed_over:
            calls[kernel] += launch.calls
    return [kernel._replace(calls=number) for kernel, number in calls.items()]


#: Said of work that grows with the square of the samples, or launches with them.
GROWS = Caveat(
    "its work grows otherwise than the batch, so that the batch may not be its first axis; set batch_first=True or "
    "transpose in a module around it",
    math.inf,
)


def growth_of(first: Sequence[Launch], second: Sequence[Launch]) -> list[Caveat]:
    """What is odd about launches with a batch and with twice as many samples."""
    once, twice = (
        [
            sum(launch.calls * launch.flops for launch in launches),
            sum(launch.calls for launch in launches if launch.calls > 1),
        ]
        for launches in (first, second)
    )
    return [] if not second or (twice[0] <= 2.001 * once[0] and twice[1] <= once[1]) else [GROWS]


def _corresponding(first: Sequence[Launch], second: Sequence[Launch]) -> Sequence[Launch]:
    if [launch[:4] for launch in first] == [launch[:4] for launch in second]:
        return second
    before, after = ({part: _totals(launches, part) for part in _AMOUNTS} for launches in (first, second))
    scaled = []
    for launch in first:
        growth = {part: after[part][launch[1:4]] / max(before[part][launch[1:4]], 1.0) for part in _AMOUNTS}
        amounts = {part: getattr(launch, part) * (factor or 2.0) for part, factor in growth.items()}
        scaled.append(launch._replace(operands=tuple(() for _ in launch.operands), **amounts))
    return scaled


def _totals(launches: Sequence[Launch], part: str) -> Counter[Any]:
    """Sums over the launches of each kind."""
    sums: Counter[Any] = Counter()
    for launch in launches:
        sums[launch[1:4]] += launch.calls * getattr(launch, part)
    return sums


def _kernel(launch: Launch, other: Launch, batch: int) -> Kernel:
    """One of the launches with `batch` samples, given the same with twice as many."""
    amounts: dict[str, Any] = {}
    for part in _AMOUNTS:
        once, twice = getattr(launch, part), getattr(other, part)
        fixed = min(max(2 * once - twice, 0.0), once)
        amounts |= {part: (once - fixed) / batch, f"fixed_{part}": fixed}
    channels, inner, weights, width, is_direct = launch.extents
    fixed_shapes = [shape for shape, same in zip(launch.operands, other.operands, strict=True) if shape == same]
    if fixed_shapes:
        channels, inner = sorted(fixed_shapes[0][-2:])
    filters = weights, width, is_direct
    return Kernel(launch.kind, launch.backward, launch.is_autocast, channels, inner, *filters, **amounts)


def _bytes(tensors: Iterable[Any]) -> tuple[float, float]:
    """Bytes with floats in single precision, and as they are."""
    single = half = 0.0
    for tensor in tensors:
        width, elements = tensor.element_size(), float(_distinct(tensor))
        single += elements * (max(width, _SINGLE_BYTES) if tensor.is_floating_point() else width)
        half += elements * width
    return single, half


def _shapes(name: str, args: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, Any]:
    """Operands and extents of a product; see `Launch`."""
    if "convolution" in name:
        weight, dilation = (inputs[2], args[6]) if "backward" in name else (inputs[1], args[5])
        is_direct = weight.dim() != 4 or max(dilation) > 1
        return (), (weight.shape[0], weight.shape[1], weight.numel(), max(weight.shape[2:]), is_direct)
    if ATEN_KINDS.get(name) not in ("gemm", "matmul") or outputs[0].dim() < 2:
        return (), _NO_EXTENTS
    matrices = [tuple(tensor.shape) for tensor in inputs if tensor.dim() > 1]
    inner = matrices[-2][-1] if len(matrices) > 1 else 1
    channels, smaller, *_ = sorted((*outputs[0].shape[-2:], inner))
    return (*matrices, tuple(outputs[0].shape)), (channels, smaller, *_NO_EXTENTS[2:])


def _kind(name: str, args: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> str:
    if name == "_to_copy" and inputs[0].is_floating_point() and outputs[0].is_floating_point():
        return "cast"
    if "convolution" not in name:
        return ATEN_KINDS.get(name, "pool" if "pool" in name else "move" if "upsample" in name else "pointwise")
    if args[7 if "backward" in name else 6]:
        return "conv_transpose"
    weight = inputs[2] if "backward" in name else inputs[1]
    source = inputs[1] if "backward" in name else inputs[0]
    channels = source.shape[1]
    return f"conv_{convolution_kind(weight.shape[2:], channels // weight.shape[1], channels)}"


def _distinct(tensor: Any) -> int:
    """Elements of a tensor without those that broadcasting repeats, or nonzeros of a sparse one."""
    if is_sparse(tensor):
        return int(_parts(tensor)[0].numel())
    return math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)


def _is_causal(func: Any, args: Any) -> bool:
    """Whether attention leaves out half of its products."""
    given = zip((argument.name for argument in func._schema.arguments), args, strict=False)
    return bool(dict(given).get("is_causal", False))


def _flops(func: Any, args: Any, kwargs: Any, result: Any) -> float:
    """Operations of a dispatched operator: by one of `_PRODUCTS`, or else PyTorch's own formula."""
    from torch.utils.flop_counter import flop_registry

    name, tensors = func._overloadpacket.__name__, list(tensors_in(args))
    if name.startswith("_fft_"):
        return _fourier_flops(args[0], args[1], result)
    if name in _PRODUCTS:
        flops = float(_PRODUCTS[name](*args, result))
    else:
        count = flop_registry.get(func._overloadpacket)
        flops = float(count(*args, **kwargs, out_val=result)) if count else 0.0
    # A product of complex numbers is four of real ones.
    return flops * _density(tensors) * (4.0 if tensors[-1].is_complex() else 1.0) if flops else 0.0


def _grouped_flops(first: Any, second: Any, *rest: Any) -> float:
    """Operations of products in groups; of two matrices, groups share the summed axis."""
    result = rest[-1]
    groups = result.shape[0] if first.dim() == second.dim() == 2 else 1
    return matmul_flops(result.numel() / groups, first.shape[-1])


def _convolution_gradient_flops(output: Any, source: Any, weight: Any, *rest: Any) -> float:
    """Operations of the gradients of a convolution's input and weight; PyTorch's formula takes groups for one."""
    *_, is_transposed, _padding, _groups, wanted, _result = rest
    used = source if is_transposed else output
    return float(sum(wanted[:2]) * weighted_flops(used.numel() / used.shape[1], weight.numel()))


_DISTANCES = ("_euclidean_dist", "_cdist_forward")
#: Operations of products that PyTorch has no formula for, or another, from arguments and result.
_PRODUCTS: dict[str, Callable[..., float]] = {
    "convolution_backward": _convolution_gradient_flops,
    **dict.fromkeys(("mv", "dot", "vdot"), lambda first, *_: 2.0 * first.numel()),
    **dict.fromkeys(
        # of quantized layers, integers, sparse matrices and distances
        ("linear", "linear_dynamic", "linear_relu", "linear_relu_dynamic", "_int_mm", "_sparse_mm", *_DISTANCES),
        lambda first, *rest: matmul_flops(rest[-1].numel(), first.shape[-1]),
    ),
    "addmv": lambda _, matrix, *rest: 2.0 * matrix.numel(),
    "addbmm": lambda _, first, second, *rest: 2.0 * first.numel() * second.shape[-1],
    "_sparse_addmm": lambda _, first, *rest: matmul_flops(rest[-1].numel(), first.shape[-1]),
    "_grouped_mm": _grouped_flops,
    "_trilinear": lambda _, weight, *rest: 2.0 * rest[-1].numel() * weight[0].numel(),  # of ``bilinear``
    "_cdist_backward": lambda gradient, first, *_: matmul_flops(gradient.numel(), first.shape[-1]),
}


def _fourier_flops(source: Any, axes: Sequence[int], result: Any) -> float:
    """Operations of a Fourier transform; its signal is the real side, if there is one."""
    signal = next((tensor for tensor in (source, result) if not tensor.is_complex()), result)
    return fourier_flops(signal.numel(), math.prod(signal.shape[axis] for axis in axes), real=not signal.is_complex())


def known_size(value: Any) -> Any:
    """A size that is a tensor with a value, as the batch of packed sequences, as an integer."""
    import torch

    is_known = type(value) is torch.Tensor and value.dim() == 0 and value.device.type == "cpu"
    return int(value) if is_known and not value.is_floating_point() else value


def fused_arguments(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *rest: Any, **options: Any
) -> Any:
    """Arguments of attention that a CPU has one kernel for, as a GPU has for others, too.

    With a gradient of the mask, or with dropout, a CPU saves scores, and copies its result.
    """
    mask = attn_mask.detach() if hasattr(attn_mask, "detach") else attn_mask
    return (query, key, value, mask, 0.0, *rest), options


def grouped_product(func: Any, args: Any, kwargs: Any) -> Any:
    """A grouped product, which runs without data in bf16 only, as if in the type of its first operand."""
    import torch

    tensors = (
        value.bfloat16() if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in args
    )
    return func(*tensors, **kwargs).to(args[0].dtype)


def sizes(tensors: Iterable[Any]) -> dict[Hashable, float]:
    """Bytes of each distinct storage, broadcast elements not counted."""
    sizes: dict[Hashable, float] = {}
    for tensor in tensors:
        size = min(tensor.numel() * tensor.element_size(), storage_bytes(tensor))
        sizes[storage_key(tensor)] = max(size, sizes.get(storage_key(tensor), 0.0))
    return sizes


RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def is_packed(name: str, args: Any) -> bool:
    """Whether a recurrent layer is called on packed sequences: with their batch sizes before its state."""
    return name in RECURRENT and isinstance(args[3], (list, tuple))


def _pack(padded: Any, _lengths: Any, batch_first: bool) -> Any:
    """Data and batch sizes of packed sequences that are as long as the longest: lengths have no values in a trace."""
    import torch

    by_step = padded.transpose(0, 1) if batch_first else padded
    data = by_step.clone(memory_format=torch.contiguous_format).flatten(0, 1)
    return data, torch.full((by_step.shape[0],), by_step.shape[1])


def _pad(data: Any, sizes: Any, batch_first: bool, *_: Any) -> Any:
    """Padded sequences of packed ones that are all of one length, and the lengths."""
    import torch

    by_step = data.unflatten(0, (len(sizes), -1))
    lengths = torch.full((by_step.shape[1],), len(sizes))
    padded = by_step.transpose(0, 1) if batch_first else by_step
    return padded.clone(memory_format=torch.contiguous_format), lengths


#: Calls that pack and pad sequences. Their first result is data, the other constant.
PACKING: dict[str, Callable[..., Any]] = {"_pack_padded_sequence": _pack, "_pad_packed_sequence": _pad}


def recurrent_result(name: str, args: Any) -> Any:
    """Result of a recurrent layer, without running its steps."""
    source, state, weights, bidirectional = args[0], args[1], args[2], args[7]
    states = state if name == "lstm" else [state]
    outputs = (*source.shape[:-1], states[0].shape[-1] * (2 if bidirectional else 1))
    is_tracked = needs_gradient(source, *weights)
    shapes = [outputs, *(one.shape for one in states)]
    return tuple(source.new_empty(shape).requires_grad_(is_tracked) for shape in shapes)


def recurrent_state(type_: str, name: str, args: Any, result: Any) -> float:
    """Bytes that a recurrent layer saves: the state of its cells, and the outputs of its inner layers."""
    layers = next((value for value in args[4:6] if type(value) is int), 1) if name in RECURRENT else 1
    per_output = layers * RECURRENT_STATE[type_] + layers - 1
    return result.numel() * result.element_size() * per_output


def needs_gradient(*tensors: Any) -> bool:
    """Whether autograd follows a call on some tensors."""
    import torch

    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def opaque(results: Any, sources: Sequence[Any]) -> Any:
    """Return `results` as outputs of one differentiable call on `sources` that dispatches nothing."""
    import torch

    class Opaque(torch.autograd.Function):
        """Function whose gradients have the shapes of its inputs."""

        @staticmethod
        def forward(context: Any, *tensors: Any) -> Any:
            """Give results of the right shapes, and keep the inputs."""
            context.save_for_backward(*tensors)
            return tuple(torch.empty_like(result) for result in results)

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            """Give gradients of the shapes of the inputs."""
            return tuple(torch.empty_like(tensor) for tensor in context.saved_tensors)

    return Opaque.apply(*sources)  # type: ignore[no-untyped-call]


def fused_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
                    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Any:  # fmt: skip
    """Scaled dot-product attention as the one kernel that it is on a GPU."""
    import torch

    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (tensor.repeat_interleave(groups, -3) for tensor in (key, value))
    shapes = (tensor.shape[:-2] for tensor in (query, key, value))
    outer = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    if len(outer) != 2 or any(tensor.shape[:-2] != outer for tensor in (query, key, value)):
        query, key, value = (_with_heads(tensor, outer) for tensor in (query, key, value))
        attn_mask = attn_mask if attn_mask is None else _with_heads(attn_mask, outer)
        out = fused_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
        return out.reshape(*outer, *out.shape[-2:])
    if attn_mask is not None:
        attn_mask = attn_mask.to(query.dtype).expand(*query.shape[:-1], key.shape[-2])
    attend = torch.ops.aten._scaled_dot_product_efficient_attention
    return attend(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]


def _with_heads(tensor: Any, outer: Sequence[int]) -> Any:
    """A tensor with two axes before its last two, samples and heads, broadcast to `outer`."""
    whole = tensor.expand(*outer, *tensor.shape[-2:])
    return whole.reshape(-1, outer[-1] if len(outer) > 1 else 1, *tensor.shape[-2:])


@contextlib.contextmanager
def autocast_flag() -> Iterator[None]:
    """Say that autocast is on, which modules ask; the listener does the casts."""
    import torch

    before = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[Callable[[], bool]]:
    """Seed the generators of random numbers, and leave them as they were; yields whether numbers were drawn."""
    import torch

    def states() -> tuple[Any, ...]:
        """State of each generator, of plain numbers, so that they compare."""
        state: Any = np.random.get_state()  # noqa: NPY002 (the user's)
        name, keys, *rest = state
        return random.getstate(), (name, keys.tolist(), *rest), torch.get_rng_state().tolist()

    before, of_torch = states(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    start = states()
    try:
        yield lambda: states() != start
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(of_torch)


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an attribute, if there is one, another value for the block."""
    before = getattr(owner, name, None)
    if before is None:
        yield
        return
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def flex_attention_on_cpu() -> AbstractContextManager[None]:
    """Let `flex_attention`, if it was imported, pass its check that there is no gradient on a CPU; none is computed."""
    return replaced(sys.modules.get("torch.nn.attention.flex_attention"), "_validate_device", lambda *_: None)


def fake_tensor_log_disabled() -> AbstractContextManager[None]:
    """Suppress the stack that PyTorch logs for an error that is raised again as `InputError`."""
    return replaced(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)
