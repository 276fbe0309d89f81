"""Kernels of calls to PyTorch.

The module runs on fake tensors under an emulation of ``torch.autocast`` for CUDA; every operator that reaches ATen and
is no view is one kernel. It runs with a batch and with twice as many samples, and what does not grow is fixed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from gpudemand.cost._torch_operators import density, is_sparse, stored_parts, tensors_in
from gpudemand.cost.operators import (
    ATEN_KINDS,
    Kernel,
    convolution_kind,
    fourier_flops,
    product_flops,
)
from gpudemand.cost.tracing import BATCH, Caveat

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
    is_double: bool = False


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
        width, is_double = matrix.element_size(), _is_double([matrix])
        amounts = product_flops(rows, matrix.numel()), max(_SINGLE_BYTES, width) * elements, width * elements
        about = ("mm", "gemm", backward, False, shapes, _NO_EXTENTS)
        self.launches.append(Launch(*about, *amounts, calls, is_double=is_double))

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
        launch = Launch(name, kind, self.backward, is_autocast, *shapes, flops, *moved, is_causal=is_causal)
        return launch._replace(is_double=_is_double([*inputs, *outputs]))


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


_OTHER_AXIS = "the batch may not be its first axis; set batch_first=True or transpose in a module around it"
#: Said of launches that grow with the samples.
GROWS = Caveat(f"its work grows otherwise than the batch: {_OTHER_AXIS}", math.inf)


def caveat_on_pairs(samples: int, *, is_whole: bool) -> Caveat:
    """What is said of work that grows as the square of the samples: of how many it is, perhaps of a whole batch."""
    text = f"its work grows as the square of the batch, as of a loss over pairs of samples, and is that of {samples:,}"
    if is_whole:
        return Caveat(f"{text} samples a batch; for other batches, pass example tensors of as many samples")
    return Caveat(f"{text} samples; pass example tensors of a whole batch, or {_OTHER_AXIS}", math.inf)


#: The same of the traced batch, before other axes are tried.
PAIRS = caveat_on_pairs(BATCH, is_whole=False)


def growth_of(first: Sequence[Launch], second: Sequence[Launch]) -> list[Caveat]:
    """What is odd about launches with a batch and with twice as many samples."""
    once, twice = (
        [
            sum(launch.calls * launch.flops for launch in launches),
            sum(launch.calls for launch in launches if launch.calls > 1),
        ]
        for launches in (first, second)
    )
    if not second or (twice[0] <= 2.001 * once[0] and twice[1] <= once[1]):
        return []
    return [PAIRS] if twice[1] <= once[1] else [GROWS]


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
    about = (launch.kind, launch.backward, launch.is_autocast, channels, inner)
    return Kernel(*about, *filters, **amounts, is_double=launch.is_double)


def _is_double(tensors: Iterable[Any]) -> bool:
    import torch

    return any(tensor.dtype in (torch.float64, torch.complex128) for tensor in tensors)


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
        return int(stored_parts(tensor)[0].numel())
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
    return flops * density(tensors) * (4.0 if tensors[-1].is_complex() else 1.0) if flops else 0.0


def _grouped_flops(first: Any, second: Any, *rest: Any) -> float:
    """Operations of products in groups; of two matrices, groups share the summed axis."""
    result = rest[-1]
    groups = result.shape[0] if first.dim() == second.dim() == 2 else 1
    return product_flops(result.numel() / groups, first.shape[-1])


def _convolution_gradient_flops(output: Any, source: Any, weight: Any, *rest: Any) -> float:
    """Operations of the gradients of a convolution's input and weight; PyTorch's formula takes groups for one."""
    *_, is_transposed, _padding, _groups, wanted, _result = rest
    used = source if is_transposed else output
    return float(sum(wanted[:2]) * product_flops(used.numel() / used.shape[1], weight.numel()))


_DISTANCES = ("_euclidean_dist", "_cdist_forward")
#: Operations of products that PyTorch has no formula for, or another, from arguments and result.
_PRODUCTS: dict[str, Callable[..., float]] = {
    "convolution_backward": _convolution_gradient_flops,
    **dict.fromkeys(("mv", "dot", "vdot"), lambda first, *_: 2.0 * first.numel()),
    **dict.fromkeys(
        # of quantized layers, integers, sparse matrices and distances
        ("linear", "linear_dynamic", "linear_relu", "linear_relu_dynamic", "_int_mm", "_sparse_mm", *_DISTANCES),
        lambda first, *rest: product_flops(rest[-1].numel(), first.shape[-1]),
    ),
    "addmv": lambda _, matrix, *rest: 2.0 * matrix.numel(),
    "addbmm": lambda _, first, second, *rest: 2.0 * first.numel() * second.shape[-1],
    "_sparse_addmm": lambda _, first, *rest: product_flops(rest[-1].numel(), first.shape[-1]),
    "_grouped_mm": _grouped_flops,
    "_trilinear": lambda _, weight, *rest: 2.0 * rest[-1].numel() * weight[0].numel(),  # of ``bilinear``
    "_cdist_backward": lambda gradient, first, *_: product_flops(gradient.numel(), first.shape[-1]),
}


def _fourier_flops(source: Any, axes: Sequence[int], result: Any) -> float:
    """Operations of a Fourier transform; its signal is the real side, if there is one."""
    signal = next((tensor for tensor in (source, result) if not tensor.is_complex()), result)
    return fourier_flops(signal.numel(), math.prod(signal.shape[axis] for axis in axes), real=not signal.is_complex())
