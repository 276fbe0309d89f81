"""Execution of a forward pass as ``torch.autocast`` on CUDA would run it, for a `KernelRecorder`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from gpudemand.cost.operators.precision import runs_in_half, runs_in_single
from gpudemand.cost.operators.vocabulary import torch_type
from gpudemand.cost.tracing._torch_kernels import KernelRecorder
from gpudemand.cost.tracing._torch_listener import Listener
from gpudemand.cost.tracing._torch_recurrent import RECURRENT, is_packed, recurrent_result
from gpudemand.cost.tracing.recorder import Recorder


class KernelListener(Listener):
    """Executes the calls of a forward pass as ``torch.autocast`` on CUDA would, for a `KernelRecorder`.

    Casts of parameters are cached for the pass, as autocast does.
    """

    def __init__(self, recorder: Recorder, fake: Any, place: str, kernels: KernelRecorder) -> None:
        super().__init__(recorder, fake, place)
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
        dtype = torch.bfloat16 if plain == "grouped_mm" else dtype
        if dtype is not None:
            args = tuple(self._cast(value, dtype) for value in args)
            kwargs = {key: self._cast(value, dtype) for key, value in kwargs.items()}
        if plain == "scaled_dot_product_attention":
            return fused_attention(*args, **kwargs)
        if name in RECURRENT and isinstance(args[2], (list, tuple)) and not is_packed(name, args):
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
    if attn_mask is not None:
        attn_mask = attn_mask.to(query.dtype).expand(*query.shape[:-1], key.shape[-2])
    attend = torch.ops.aten._scaled_dot_product_efficient_attention
    return attend(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]
