"""Tracer of PyTorch modules: the forward pass on fake tensors, with every operator call recorded.

Calls are intercepted where Python enters ATen (`torch.overrides.TorchFunctionMode`), where operators have the names of
the source code: ``linear``, ``batch_norm``, ``lstm``, ``scaled_dot_product_attention``. Python functions of PyTorch,
such as ``multi_head_attention_forward``, are traced into. Bytes saved for the backward pass come from autograd's hooks.

Data is identified by storage: a result in the storage of an argument is a view, and an operator that writes into a
storage in place is its producer from then on. What depends on neither inputs nor parameters is a constant; it is
computed unless it is large, so that code may branch on it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from gpudemand._validation import InputError
from gpudemand.cost.operators.kernel import Kernel
from gpudemand.cost.tracing._torch_autocast import KernelListener
from gpudemand.cost.tracing._torch_calls import is_sparse, tensors_in
from gpudemand.cost.tracing._torch_contexts import (
    autocast_flag,
    fake_tensor_log_disabled,
    flex_attention_on_cpu,
    random_state_restored,
)
from gpudemand.cost.tracing._torch_kernels import KernelRecorder, Launch, kernels_of
from gpudemand.cost.tracing._torch_listener import (
    MAX_CONSTANT,
    IntegersNeededError,
    Listener,
    ValueNeededError,
    intercepted,
)
from gpudemand.cost.tracing.inputs import (
    InputSpec,
    batch_of,
    call_error,
    first_line,
    read_inputs,
    user_line,
    value_error,
)
from gpudemand.cost.tracing.recorder import Recorder, Traced, with_fixed


def trace(module: Any, input_shape: Any, *, input_dtype: Any = None, train: bool | None = None) -> Traced:
    """Trace `module`; see `OpGraph.from_torch`."""
    module = _check_module(module)
    specs = read_inputs(input_shape, input_dtype)
    while True:
        try:
            return _operators(module, specs, train)._replace(kernels=_kernels(module, specs, train))
        except IntegersNeededError as error:
            specs[error.position] = specs[error.position]._replace(dtype="int64")


def _operators(module: Any, specs: Sequence[InputSpec], train: bool | None) -> Traced:
    """Record operators on meta tensors, or, where constants with values or attention need it, on fake ones of the CPU.

    Fake tensors take several times as long; the two agree but for attention, which the meta device takes apart.
    """
    with contextlib.suppress(InputError):
        return _operators_on("meta", module, specs, train)
    return _operators_on("cpu", module, specs, train)


def _operators_on(place: str, module: Any, specs: Sequence[InputSpec], train: bool | None) -> Traced:
    """Record operators; with twice as many samples, too, if some read parameters alone, as what they make may grow."""
    trace = _Trace(module, specs, train, place)
    traced = trace.run()
    if trace.has_fixed:
        with contextlib.suppress(InputError):
            twice = _Trace(module, _doubled(specs), train, place).run()
            return traced._replace(operators=with_fixed(traced.operators, twice.operators, batch_of(specs)))
    return traced


def _kernels(module: Any, specs: Sequence[InputSpec], train: bool | None) -> Sequence[Kernel]:
    """Record kernels on meta tensors, or, where constants with values are mixed in, on fake ones, which are slow.

    Empty where the backward pass runs on neither, as that of `flex_attention`.
    """
    twice: Sequence[Launch] = ()
    for place in ("meta", "cpu"):
        with contextlib.suppress(InputError):
            once = _KernelTrace(module, specs, train, place).launches()
            with contextlib.suppress(InputError):
                twice = _KernelTrace(module, _doubled(specs), train, place).launches()
            return kernels_of(once, twice, batch_of(specs))
    return ()


def _doubled(specs: Sequence[InputSpec]) -> list[InputSpec]:
    """Inputs of twice as many samples."""
    batch = batch_of(specs)
    return [spec._replace(shape=(2 * batch, *spec.shape[1:])) if spec.shape[:1] == (batch,) else spec for spec in specs]


def _check_module(module: Any) -> Any:
    try:
        import torch
    except ImportError as error:
        raise InputError("PyTorch is not installed; install it with pip install 'gpudemand[torch]'.") from error
    if isinstance(module, torch.nn.Module):
        return getattr(module, "_orig_mod", module)
    if isinstance(module, type):
        raise InputError(f"module must be an instance of torch.nn.Module; got the class {module.__name__}: call it.")
    hint = " Use OpGraph.from_keras for Keras models." if _is_keras(module) else ""
    raise InputError(f"module must be a torch.nn.Module; got {type(module).__name__}.{hint}")


def _is_keras(value: Any) -> bool:
    return any(parent.__module__.startswith("keras.") for parent in type(value).__mro__)


class _Trace:
    """One forward pass of a copy of a module, on fake tensors of the CPU or on tensors of the meta device."""

    def __init__(self, module: Any, specs: Sequence[InputSpec], train: bool | None, place: str = "cpu") -> None:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        self._original, self._specs, self._train, self._place = module, specs, train, place
        self._fake: Any = FakeTensorMode(allow_non_fake_inputs=True) if place == "cpu" else torch.device(place)
        self._recorder = Recorder(batch_of(specs))
        self._listener = Listener(self._recorder, self._fake, place)

    @property
    def has_fixed(self) -> bool:
        """Whether an operator reads parameters alone."""
        return self._recorder.has_fixed

    def run(self) -> Traced:
        """Trace a forward pass on fake tensors; raises `InputError`, or `IntegersNeededError` for an index input."""
        with warnings.catch_warnings(), random_state_restored(), fake_tensor_log_disabled():
            warnings.simplefilter("ignore")
            module = self._copy()
            args, kwargs = self._arguments(module)
            try:
                self._forward(module, args, kwargs)
            except IntegersNeededError:
                raise
            except Exception as error:
                self._raise_input_error(error)
        return self._traced()

    def _copy(self) -> Any:
        """Copy the module, with fake parameters and hooks that report the running submodule to the listener."""
        self._check_no_script()
        memo: dict[int, Any] = {id(parameter): self._fake_parameter(parameter) for parameter in self._parameters()}
        memo |= {id(buffer): self._constant(buffer) for buffer in self._original.buffers()}
        try:
            with intercepted(self._copy_tensor):
                module = copy.deepcopy(self._original, memo)
        except Exception as error:
            raise InputError(
                f"{self._name()} cannot be copied for the trace ({first_line(error)}); "
                "take what cannot be copied out of its attributes."
            ) from error
        for path, part in module.named_modules():
            part.register_forward_pre_hook(functools.partial(self._enter, path))
            part.register_forward_hook(self._leave, always_call=True)
        return module if self._train is None else module.train(self._train)

    def _check_no_script(self) -> None:
        import torch

        if any(isinstance(part, torch.jit.ScriptModule) for part in self._original.modules()):
            raise InputError(f"{self._name()} is or contains TorchScript; pass the Python module behind it.")

    def _copy_tensor(self, func: Any, args: Any, kwargs: Any) -> Any:
        return self._constant(args[0]) if func.__name__ == "__deepcopy__" else func(*args, **kwargs)

    def _fake_parameter(self, parameter: Any) -> Any:
        import torch

        if isinstance(parameter, torch.nn.UninitializedParameter):
            raise InputError(
                f"{self._name()} has lazy layers without weights yet; call it once on data, then trace it."
            )
        fake = torch.nn.Parameter(self._empty(parameter), requires_grad=parameter.requires_grad)
        self._listener.feed_parameter(fake)
        return fake

    def _constant(self, tensor: Any) -> Any:
        if tensor.device.type == self._place == "cpu" and (is_sparse(tensor) or tensor.numel() <= MAX_CONSTANT):
            return tensor.detach().clone()
        return self._empty(tensor)

    def _empty(self, like: Any) -> Any:
        import torch

        if is_sparse(like):
            raise InputError(
                f"{self._name()} holds a sparse tensor on {like.device}, which cannot be traced; put it on the CPU."
            )
        with self._fake:
            return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=self._place)

    def _enter(self, path: str, *_: Any) -> None:
        self._listener.path.append(path)

    def _leave(self, *_: Any) -> None:
        self._listener.path.pop()

    def _arguments(self, module: Any) -> tuple[list[Any], dict[str, Any]]:
        tensors = [self._input(spec) for spec in self._specs]
        for position, (spec, tensor) in enumerate(zip(self._specs, tensors, strict=True)):
            is_declared = spec.dtype is not None or spec.example is not None
            self._listener.feed(tensor, undeclared=None if is_declared else position)
        pairs = [(spec.name, tensor) for spec, tensor in zip(self._specs, tensors, strict=True)]
        return [tensor for name, tensor in pairs if name is None], {name: tensor for name, tensor in pairs if name}

    def _input(self, spec: InputSpec) -> Any:
        import torch

        default = next((p.dtype for p in self._parameters() if p.is_floating_point()), torch.float32)
        declared = getattr(torch, spec.dtype) if spec.dtype else None
        example = spec.example.dtype if isinstance(spec.example, torch.Tensor) else None
        with self._fake:
            return torch.empty(spec.shape, dtype=declared or example or default, device=self._place)

    def _forward(self, module: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        import torch

        hooks = torch.autograd.graph.saved_tensors_hooks(self._listener.save, lambda tensor: tensor)
        # What the module compiles is traced as it is written.
        eager = torch.compiler.set_stance("force_eager")
        gradients = torch.set_grad_enabled(self._train is not False)
        with gradients, hooks, eager, flex_attention_on_cpu(), self._listener.mode:
            module(*args, **kwargs)
        self._listener.attribute_saved()

    def _raise_input_error(self, error: Exception) -> NoReturn:
        import torch
        from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

        place = user_line(error, __file__, torch.__file__)
        if isinstance(error, (ValueNeededError, DataDependentOutputException, DynamicOutputShapeException)):
            raise value_error(f"the forward pass of {self._name()}", place, "torch.where") from error
        raise call_error(f"the forward pass of {self._name()}", self._specs, place, first_line(error)) from error

    def _traced(self) -> Traced:
        parameters = self._parameters()
        return self._recorder.traced(
            name=self._name(),
            framework="pytorch",
            input_shapes=tuple(spec.shape[1:] for spec in self._specs),
            n_parameters=sum(p.numel() for p in parameters),
            n_trainable=sum(p.numel() for p in parameters if p.requires_grad),
            parameter_bytes=float(sum(p.numel() * p.element_size() for p in parameters)),
            n_sparse=self._sparse(),
        )

    def _sparse(self) -> int:
        """Trainable parameters of embeddings with sparse gradients."""
        import torch

        tables = [
            part for part in self._original.modules() if isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag))
        ]
        weights = {id(table.weight): table.weight for table in tables if table.sparse}
        return sum(weight.numel() for weight in weights.values() if weight.requires_grad)

    def _parameters(self) -> list[Any]:
        return list(self._original.parameters())

    def _name(self) -> str:
        return type(self._original).__name__


class _KernelTrace(_Trace):
    """A forward and a backward pass of a copy of a module whose kernels are recorded."""

    def __init__(self, module: Any, specs: Sequence[InputSpec], train: bool | None, place: str) -> None:
        super().__init__(module, specs, train, place)
        self._kernels = KernelRecorder()
        self._listener = KernelListener(self._recorder, self._fake, place, self._kernels)

    def launches(self) -> list[Launch]:
        """Launches of the two passes."""
        self.run()
        return self._kernels.launches

    def _forward(self, module: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        import torch

        with autocast_flag(), torch.set_grad_enabled(self._train is not False), self._kernels.mode():
            with self._listener.mode:
                results = [result for result in tensors_in(module(*args, **kwargs)) if result.requires_grad]
            self._kernels.backward = True
            if results:
                torch.autograd.backward(results, [torch.empty_like(result) for result in results])
