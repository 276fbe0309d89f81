"""Recorder of the kernels that PyTorch dispatches in the forward and the backward pass of a module.

The module runs on fake tensors under an emulation of ``torch.autocast`` for CUDA; every operator that reaches ATen and
is no view is one kernel.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from gpudemand.cost.operators.arithmetic import weighted_flops
from gpudemand.cost.operators.kernel import ATEN_KINDS, KINDS, Kernel
from gpudemand.cost.operators.vocabulary import convolution_kind
from gpudemand.cost.tracing._torch_calls import product_flops, tensors_in
from gpudemand.cost.tracing._torch_listener import storage_key

#: Operators that allocate or describe data, or are views in all but name.
_FREE = frozenset({
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "_unsafe_view"),
    *("_reshape_alias", "alias", "lift_fresh", "is_same_size", "sym_size", "expand", "view_as"),
})  # fmt: skip
#: Operators that read of their first argument only as much as they write.
_LOOKUPS = frozenset({"embedding", "_embedding_bag", "index", "index_select", "gather", "_unsafe_index", "take"})
_SINGLE_BYTES = 4
#: Kinds that compute gradients of parameters: from the gradient of the output and the input, ...
_PRODUCTS = frozenset({"gemm", "matmul"})
#: ... beside the gradient of the input, which comes first, ...
_FUSED_GRADIENTS = frozenset({"batch_norm", "layer_norm", "group_norm", *(kind for kind in KINDS if "conv" in kind)})
#: ... or by summation, into zeros where it is into a part of them.
_GRADIENTS = _PRODUCTS | _FUSED_GRADIENTS | {"reduce", "gather", "zeros"}


class KernelRecorder:
    """Collects the kernels of one forward and backward pass, in context of `mode`.

    Parameters
    ----------
    batch : int
        Samples in the traced batch.
    parameters : iterable of tensors
        Their gradients do not depend on the batch, nor do those of what is computed from them alone.
    """

    def __init__(self, batch: int, parameters: Iterable[Any]) -> None:
        self.backward = False
        self.is_casting = False
        self._batch = batch
        self._parameters = {_extents(parameter) for parameter in parameters}
        self._batched: set[Hashable] = set()
        # Keys are addresses: no tensor of the trace may be freed before its end.
        self._alive: list[Any] = []
        self._calls: Counter[Kernel] = Counter()

    def feed(self, tensor: Any) -> None:
        """Declare an input: what is computed from it depends on the batch."""
        self._batched.add(storage_key(tensor))
        self._alive.append(tensor)

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels so far, equal ones merged."""
        return [kernel._replace(calls=calls) for kernel, calls in self._calls.items()]

    def mode(self) -> Any:
        """Context in which every operator that is dispatched is recorded."""
        from torch.utils._python_dispatch import TorchDispatchMode

        record = self._record

        class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
            """Mode that records ATen operators."""

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                record(func, args, kwargs or {}, result)
                return result

        return Mode()  # type: ignore[no-untyped-call]

    def add_products(self, matrix: Any, rows: int, calls: int, *, backward: bool) -> None:
        """Record equal products of `rows` rows with a matrix, which are not dispatched to ATen."""
        width, moved = matrix.element_size(), rows * sum(matrix.shape) / self._batch
        channels, inner = sorted(matrix.shape)
        kernel = Kernel(
            "gemm", backward, False, channels, inner,
            flops=weighted_flops(rows, matrix.numel()) / self._batch,
            bytes=_SINGLE_BYTES * moved, fixed_bytes=_SINGLE_BYTES * matrix.numel(),
            half_bytes=width * moved, fixed_half_bytes=width * matrix.numel(),
        )  # fmt: skip
        self._calls[kernel] += calls

    def _record(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        name = func._overloadpacket.__name__
        inputs, outputs = [*tensors_in(args), *tensors_in(kwargs)], list(tensors_in(result))
        kind = _kind(name, args, inputs, outputs)
        self._follow("zeros" if name == "new_zeros" else kind, inputs, result if isinstance(result, tuple) else outputs)
        if func.is_view or func.namespace == "prim" or name in _FREE or self._is_handed_over(name, inputs):
            return
        read = inputs[1:] if name in _LOOKUPS else inputs
        moved = self._bytes([*read, *outputs, *(outputs if name in _LOOKUPS else ())])
        if not any(moved):
            return
        is_autocast = kind == "cast" and (self.is_casting or self.backward)
        flops = _flops(func, args, kwargs, result) / self._batch
        channels, inner, weights = self._shape(name, inputs, outputs)
        self._calls[Kernel(kind, self.backward, is_autocast, channels, inner, weights, flops, *moved)] += 1

    def _follow(self, kind: str, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Note which results depend on the batch: those of such inputs, but for the gradients of parameters."""
        self._alive.append(results)
        depends = [self._is_batched(tensor) for tensor in inputs]
        if not any(depends):
            if not self.backward:
                self._follow_fixed(list(tensors_in(results)), is_made=not inputs)
            return
        numbers = [self._is_batched(tensor) for tensor in inputs if _holds_numbers(tensor)]
        for position, part in enumerate(results):
            for output in tensors_in(part):
                if not self._is_gradient(kind, position, output, numbers):
                    self._batched.add(storage_key(output))

    def _follow_fixed(self, results: Sequence[Any], *, is_made: bool) -> None:
        """Note what is made for each sample, as the state that a loop starts from, and what has gradients like it."""
        if is_made:
            samples = [tensor for tensor in results if tensor.dim() > 1 and tensor.shape[0] == self._batch]
            self._batched |= set(map(storage_key, samples))
            return
        shapes = {_extents(tensor) for tensor in results if _holds_numbers(tensor)}
        self._parameters |= {extents for extents in shapes if self._batch not in extents}

    def _is_gradient(self, kind: str, position: int, output: Any, depends: Sequence[bool]) -> bool:
        """Whether the result at a position is the gradient of a parameter."""
        if not self.backward or kind not in _GRADIENTS or _extents(output) not in self._parameters:
            return False
        return all(depends) if kind in _PRODUCTS else position > 0 or kind not in _FUSED_GRADIENTS

    def _is_handed_over(self, name: str, inputs: Sequence[Any]) -> bool:
        # Autograd copies the gradient of a parameter only if somebody else holds it, which the recorder does.
        return self.backward and name in ("clone", "copy_") and not any(map(self._is_batched, inputs))

    def _is_batched(self, tensor: Any) -> bool:
        return storage_key(tensor) in self._batched

    def _bytes(self, tensors: Iterable[Any]) -> tuple[float, float, float, float]:
        """Bytes with floats in single precision and as they are, per sample and fixed."""
        moved = dict.fromkeys(("bytes", "half_bytes", "fixed_bytes", "fixed_half_bytes"), 0.0)
        for tensor in tensors:
            width, elements = tensor.element_size(), float(_distinct(tensor))
            prefix, elements = ("", elements / self._batch) if self._is_batched(tensor) else ("fixed_", elements)
            moved[f"{prefix}bytes"] += elements * (max(width, _SINGLE_BYTES) if tensor.is_floating_point() else width)
            moved[f"{prefix}half_bytes"] += elements * width
        return moved["bytes"], moved["half_bytes"], moved["fixed_bytes"], moved["fixed_half_bytes"]

    def _shape(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[int, int, int]:
        """Channels, inner extent and number of weights of a product; see `Kernel`."""
        if "convolution" in name:
            weight = inputs[2] if "backward" in name else inputs[1]
            return weight.shape[0], weight.shape[1], weight.numel()
        if ATEN_KINDS.get(name) not in ("gemm", "matmul") or outputs[0].dim() < 2:
            return 0, 0, 0
        matrices = [tensor for tensor in inputs if tensor.dim() > 1]
        fixed = [tensor.shape for tensor in (*matrices, outputs[0]) if not self._is_batched(tensor)]
        inner = matrices[-2].shape[-1] if len(matrices) > 1 else 1
        first, second, *_ = sorted(fixed[0][-2:] if fixed else (*outputs[0].shape[-2:], inner))
        return first, second, 0


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


def _extents(tensor: Any) -> tuple[int, ...]:
    return tuple(sorted(size for size in tensor.shape if size > 1))


def _holds_numbers(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _distinct(tensor: Any) -> int:
    """Elements of a tensor without those that broadcasting repeats."""
    return math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)


def _flops(func: Any, args: Any, kwargs: Any, result: Any) -> float:
    from torch.utils.flop_counter import flop_registry

    if "convolution" in func.__name__:
        return _convolution_flops(func.__name__, args, list(tensors_in(args)), list(tensors_in(result)))
    if func._overloadpacket.__name__ == "_grouped_mm":
        return product_flops("_grouped_mm", args[:2], result, args)
    count = flop_registry.get(func._overloadpacket)
    if count is None:
        return 0.0
    names = [argument.name for argument in func._schema.arguments]
    causal = dict(zip(names, args, strict=False)).get("is_causal", False)
    return float(count(*args, **kwargs, out_val=result)) * (0.5 if causal else 1.0)


def _convolution_flops(name: str, args: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> float:
    """Operations of a convolution; backward, of its gradients of input and weight."""
    if "backward" not in name:
        source, weight, output, passes, is_transposed = inputs[0], inputs[1], outputs[0], 1, args[6]
    else:
        output, source, weight, passes, is_transposed = *inputs[:3], sum(args[-1][:2]), args[7]
    used = source if is_transposed else output
    return passes * weighted_flops(used.numel() / used.shape[1], weight.numel())
