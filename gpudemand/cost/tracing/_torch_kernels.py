"""Recorder of the kernels that PyTorch dispatches in the forward and the backward pass of a module.

The module runs on fake tensors under an emulation of ``torch.autocast`` for CUDA; every operator that reaches ATen and
is no view is one kernel.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gpudemand.cost.operators.arithmetic import weighted_flops
from gpudemand.cost.operators.kernel import ATEN_KINDS, Kernel
from gpudemand.cost.operators.precision import runs_in_half, runs_in_single
from gpudemand.cost.operators.vocabulary import convolution_kind, torch_type
from gpudemand.cost.tracing._torch_calls import tensors_in
from gpudemand.cost.tracing._torch_listener import RECURRENT, Listener, recurrent_result
from gpudemand.cost.tracing.recorder import Recorder

#: Operators that allocate or describe data, or are views in all but name.
_FREE = frozenset({
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "_unsafe_view"),
    *("_reshape_alias", "alias", "lift_fresh", "is_same_size", "sym_size", "expand", "view_as"),
})  # fmt: skip
#: Operators that read of their first argument only as much as they write.
_LOOKUPS = frozenset({"embedding", "_embedding_bag", "index", "index_select", "gather", "_unsafe_index", "take"})
_SINGLE_BYTES = 4


class KernelRecorder:
    """Collects the kernels of one forward and backward pass, in context of `mode`.

    Parameters
    ----------
    batch : int
        Samples in the traced batch.
    parameters : iterable of tensors
        A tensor of the shape of one of them, transposed or not, does not depend on the batch: it is one, its copy in
        another precision, or its gradient.
    """

    def __init__(self, batch: int, parameters: Iterable[Any]) -> None:
        self.backward = False
        self.is_casting = False
        self._batch = batch
        self._fixed = {_extents(parameter) for parameter in parameters}
        self._calls: Counter[Kernel] = Counter()

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
        if func.is_view or func.namespace == "prim" or name in _FREE:
            return
        inputs, outputs = [*tensors_in(args), *tensors_in(kwargs)], list(tensors_in(result))
        read = inputs[1:] if name in _LOOKUPS else inputs
        moved = self._bytes([*read, *outputs, *(outputs if name in _LOOKUPS else ())])
        if not any(moved.values()):
            return
        is_cast = name == "_to_copy" and inputs[0].is_floating_point() and outputs[0].is_floating_point()
        kind = "cast" if is_cast else _kind(name, args, inputs)
        is_autocast = is_cast and (self.is_casting or self.backward)
        flops = _flops(func, args, kwargs, result) / self._batch
        extents = self._shape(name, inputs, outputs)
        self._calls[Kernel(kind, self.backward, is_autocast, *extents, flops)._replace(**moved)] += 1

    def _bytes(self, tensors: Iterable[Any]) -> dict[str, float]:
        """Bytes with floats in single precision and as they are, per sample and fixed."""
        moved = dict.fromkeys(("bytes", "half_bytes", "fixed_bytes", "fixed_half_bytes"), 0.0)
        for tensor in tensors:
            width, is_fixed = tensor.element_size(), _extents(tensor) in self._fixed
            prefix, elements = ("fixed_", _distinct(tensor)) if is_fixed else ("", _distinct(tensor) / self._batch)
            moved[f"{prefix}bytes"] += elements * (max(width, _SINGLE_BYTES) if tensor.is_floating_point() else width)
            moved[f"{prefix}half_bytes"] += elements * width
        return moved

    def _shape(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[int, int, int]:
        """Channels, inner extent and number of weights of a product; see `Kernel`."""
        if "convolution" in name:
            weight = inputs[2] if "backward" in name else inputs[1]
            return weight.shape[0], weight.shape[1], weight.numel()
        if ATEN_KINDS.get(name) not in ("gemm", "matmul") or outputs[0].dim() < 2:
            return 0, 0, 0
        matrices = [tensor for tensor in inputs if tensor.dim() > 1]
        fixed = [tensor.shape for tensor in (*matrices, outputs[0]) if _extents(tensor) in self._fixed]
        inner = matrices[-2].shape[-1] if len(matrices) > 1 else 1
        first, second, *_ = sorted(fixed[0][-2:] if fixed else (*outputs[0].shape[-2:], inner))
        return first, second, 0


class KernelListener(Listener):
    """Executes the calls of a forward pass as ``torch.autocast`` on CUDA would, for a `KernelRecorder`.

    Casts of parameters are cached for the pass, as autocast does.
    """

    def __init__(self, recorder: Recorder, fake: Any, kernels: KernelRecorder) -> None:
        super().__init__(recorder, fake)
        self._kernels = kernels
        self._casts: dict[int, tuple[Any, Any]] = {}

    def _check_values(self, name: str, tensors: Sequence[Any]) -> None:
        """Accept every call: the values that a module reads were checked when its operators were traced."""

    def _note(self, name: str, args: Any, kwargs: Any, tensors: list[Any], result: Any) -> None:
        """Keep the results alive; kernels are recorded where they are dispatched."""
        self._alive.append(result)

    def _compute(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        import torch

        plain = name.strip("_")
        type_ = torch_type(plain)
        dtype = torch.float16 if runs_in_half(type_) else torch.float32 if runs_in_single(type_, plain) else None
        if dtype is not None:
            args = tuple(self._cast(value, dtype) for value in args)
            kwargs = {key: self._cast(value, dtype) for key, value in kwargs.items()}
        if plain == "scaled_dot_product_attention":
            return fused_attention(*args, **kwargs)
        if name in RECURRENT and isinstance(args[2], (list, tuple)):
            return self._recurrent(name, args)
        return super()._compute(func, name, args, kwargs)

    def _recurrent(self, name: str, args: Any) -> Any:
        """Record a recurrent layer as cuDNN runs it: the input's products at once, the state's step by step."""
        source, weights, batch_first = args[0], args[2], args[8]
        steps = source.shape[1 if batch_first else 0] if source.dim() == 3 else source.shape[0]
        samples = source.numel() // source.shape[-1]
        matrices = [weight for weight in weights if weight.dim() == 2]
        passes = (False, True) if self._kernels_of_gradient(source, weights) else (False,)
        for matrix, is_state in zip(matrices, itertools.cycle((False, True)), strict=False):
            for backward in passes:
                launches, rows = (steps, samples // steps) if is_state else (1, samples)
                self._kernels.add_products(matrix, rows, launches, backward=backward)
                if backward:  # gradients of the weights, over all steps
                    self._kernels.add_products(matrix, samples, 1, backward=True)
        return opaque(recurrent_result(name, args), [source, *weights])

    @staticmethod
    def _kernels_of_gradient(source: Any, weights: Sequence[Any]) -> bool:
        import torch

        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (source, *weights))

    def _cast(self, value: Any, dtype: Any) -> Any:
        """Cast tensors, also in lists; doubles and integers stay as they are."""
        import torch

        if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
            return type(value)(self._cast(item, dtype) for item in value)
        if not isinstance(value, torch.Tensor) or value.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            return value
        if value.dtype == dtype:
            return value
        key = id(value) if value.is_leaf and value.requires_grad else None
        if key not in self._casts:
            self._kernels.is_casting = True
            found = value.to(dtype)
            self._kernels.is_casting = False
            if key is None:
                return found
            self._casts[key] = (value, found)
        return self._casts[key][1]


def opaque(results: Any, sources: Sequence[Any]) -> Any:
    """Return `results` as outputs of one differentiable call on `sources` that dispatches nothing."""
    import torch

    class Opaque(torch.autograd.Function):
        """Function whose gradients have the shapes of its inputs."""

        @staticmethod
        def forward(context: Any, *tensors: Any) -> Any:
            context.save_for_backward(*tensors)
            return tuple(torch.empty_like(result) for result in results)

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            return tuple(torch.empty_like(tensor) for tensor in context.saved_tensors)

    return Opaque.apply(*sources)  # type: ignore[no-untyped-call]


def fused_attention(query: Any, key: Any, value: Any, mask: Any = None, dropout: float = 0.0, causal: bool = False,
                    *, scale: float | None = None, enable_gqa: bool = False, **_: Any) -> Any:  # fmt: skip
    """Scaled dot-product attention as the one kernel that it is on a GPU."""
    import torch

    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (tensor.repeat_interleave(groups, -3) for tensor in (key, value))
    if mask is not None:
        mask = mask.to(query.dtype).expand(*query.shape[:-1], key.shape[-2])
    attend = torch.ops.aten._scaled_dot_product_efficient_attention
    return attend(query, key, value, mask, True, dropout, causal, scale=scale)[0]


def _kind(name: str, args: Any, inputs: Sequence[Any]) -> str:
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


def _distinct(tensor: Any) -> int:
    """Elements of a tensor without those that broadcasting repeats."""
    return math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)


def _flops(func: Any, args: Any, kwargs: Any, result: Any) -> float:
    from torch.utils.flop_counter import flop_registry

    if "convolution" in func.__name__:
        return _convolution_flops(func.__name__, args, list(tensors_in(args)), list(tensors_in(result)))
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
