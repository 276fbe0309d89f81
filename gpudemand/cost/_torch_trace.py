"""Trace a PyTorch module on shapes alone.

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
import itertools
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any, NoReturn

from gpudemand._validation import InputError
from gpudemand.cost import _torch_operators as calls
from gpudemand.cost.operators import RECURRENT_STATE, Kernel, Operator, runs_in_half, runs_in_single, torch_type
from gpudemand.cost.tracing import (
    InputSpec,
    Recorder,
    Traced,
    batch_of,
    call_error,
    first_line,
    read_inputs,
    user_line,
    value_error,
    with_fixed,
)

#: Calls that turn the value of a tensor into a Python object.
_READERS = ("__bool__", "__int__", "__float__", "__index__", "item", "tolist", "numpy", "__array__", "__contains__")
#: Calls that create tensors.
_FACTORIES = ("zeros", "ones", "empty", "full", "rand", "randn", "randint", "arange", "linspace", "eye")
#: Constants of at most so many elements have values, which a forward pass may read; larger ones are fake.
MAX_CONSTANT = 2**22


class ValueNeededError(Exception):
    """The forward pass reads the value of a tensor that has none."""


class IntegersNeededError(Exception):
    """An input of undeclared type is used as an index; `position` is that of the input."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def intercepted(handler: Callable[[Any, Any, Any], Any]) -> AbstractContextManager[Any]:
    """Context in which `handler` (function, args, kwargs) answers every call of PyTorch's Python interface."""
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        """Mode in which `handler` answers every overridable PyTorch function."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return handler(func, args, kwargs or {})

    return Mode()


def storage_key(tensor: Any) -> Hashable:
    """Identity of the storage of a tensor, which its views share."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # sparse tensors have no storage
        return id(tensor)


class Listener:
    """Executes the calls of one forward pass on the tensors of a `FakeTensorMode` and records them.

    With the meta device as `place`, no tensor has values, and `fake` is the context of that device.
    """

    def __init__(self, recorder: Recorder, fake: Any, place: str = "cpu") -> None:
        self.mode = intercepted(self._call)
        self.path = [""]
        self._recorder, self._fake, self._place = recorder, fake, place
        self._parameters: dict[Hashable, Any] = {}
        self._undeclared: dict[Hashable, int] = {}
        self._running: list[Callable[..., Any]] = []
        self._saved: list[Any] = []
        # Keys are addresses: no tensor of the trace may be freed before its end.
        self._alive: list[Any] = []

    def feed(self, tensor: Any, *, undeclared: int | None = None) -> None:
        """Declare an input; `undeclared` is its position if its type is not declared."""
        self._recorder.feed(storage_key(tensor), batched=True)
        self._alive.append(tensor)
        if undeclared is not None:
            self._undeclared[storage_key(tensor)] = undeclared

    def feed_parameter(self, parameter: Any) -> None:
        """Declare a parameter."""
        self._recorder.feed(storage_key(parameter), batched=False)
        self._parameters[storage_key(parameter)] = parameter

    def save(self, tensor: Any) -> Any:
        """Note that autograd saves `tensor`: a pack hook of ``saved_tensors_hooks``."""
        self._saved.append(tensor)
        return tensor

    def attribute_saved(self) -> None:
        """Attribute the tensors saved since the last operator to it."""
        for tensor in self._saved:
            if storage_key(tensor) not in self._parameters:
                self._recorder.save(storage_key(tensor), _storage_bytes(tensor))
        self._alive.append(self._saved)
        self._saved = []

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(func, FunctionType) and func not in self._running:
            return self._trace_into(func, args, kwargs)
        name = func.__name__.partition(".")[0]
        tensors = [*calls.tensors_in(args), *calls.tensors_in(kwargs)]
        self._check_values(name, tensors)
        if name == "cuda":
            return args[0]
        result = self._compute(func, name, args, kwargs)
        if not calls.is_template(name):
            self._note(name, args, kwargs, tensors, result)
        return result

    def _compute(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if calls.is_packed(name, args):
            return self._packed(func, name, args)
        if name in calls.PACKING:
            return calls.PACKING[name](*args)
        if name in calls.RECURRENT and isinstance(args[2], (list, tuple)):
            return calls.recurrent_result(name, args)
        if name == "scaled_dot_product_attention":
            args, kwargs = _with_constant_mask(*args, **kwargs)
        if name == "flex_attention":
            return self._flex_attention(*args[:3])
        if name.strip("_") == "grouped_mm":
            return _grouped_product(func, args, kwargs)
        if name in ("to", "_to_copy") or "device" in kwargs:
            args = [self._moved(value) for value in args]
            kwargs = {key: self._moved(value) for key, value in kwargs.items()}
        if name in _FACTORIES:
            args = [_known_size(value) for value in args]
            with self._fake:
                constant = func(*args, **kwargs)
            if self._place != "cpu" or constant.numel() > MAX_CONSTANT:
                return constant
        return func(*args, **kwargs)

    def _packed(self, func: Any, name: str, args: Any) -> Any:
        """Result of a recurrent layer on packed sequences, from that on padded ones."""
        data, sizes, *options = args
        output, *states = self._compute(func, name, (data.unflatten(0, (len(sizes), -1)), *options, False), {})
        return output.flatten(0, 1), *states

    def _moved(self, value: Any) -> Any:
        """Replace any device by that of the trace, so that ``.to("cuda")`` in a forward pass works without a GPU."""
        import torch

        names = ("cuda", "meta", "cpu", "mps", "xpu")
        is_device = isinstance(value, torch.device) or (isinstance(value, str) and value.split(":")[0] in names)
        return torch.device(self._place) if is_device else value

    def _flex_attention(self, query: Any, key: Any, value: Any) -> Any:
        """Result of attention with a mask or a change of scores by a function: output, log sums, maxima."""
        import torch

        is_tracked = calls.needs_gradient(query, key, value)
        out = query.new_empty((*query.shape[:-1], value.shape[-1])).requires_grad_(is_tracked)
        sums, maxima = (query.new_empty(query.shape[:-1], dtype=torch.float32) for _ in range(2))
        self._saved += [query, key, value, out, sums] if is_tracked else []
        return out, sums, maxima

    def _trace_into(self, func: FunctionType, args: Any, kwargs: Any) -> Any:
        """Run a Python function of PyTorch with the mode on, so that the calls inside it are recorded."""
        self._running.append(func)
        try:
            with self.mode:
                return _without_override(func)(*args, **kwargs)
        finally:
            self._running.pop()

    def _check_values(self, name: str, tensors: Sequence[Any]) -> None:
        # The meta device takes attention apart, which then saves what its parts save, not what a kernel does.
        is_in_parts = name == "scaled_dot_product_attention" and self._place != "cpu"
        if is_in_parts or (name in _READERS and any(self._recorder.is_live(storage_key(t)) for t in tensors)):
            raise ValueNeededError
        for index in calls.indices(name, tensors):
            position = self._undeclared.get(storage_key(index))
            if position is not None:
                raise IntegersNeededError(position)

    def _note(self, name: str, args: Any, kwargs: Any, tensors: list[Any], result: Any) -> None:
        """Record a call, unless it is a constant, a view or a copy."""
        live = [tensor for tensor in tensors if self._recorder.is_live(storage_key(tensor))]
        if not live:
            return
        keys = {storage_key(tensor) for tensor in tensors}
        results = [tensor for tensor in calls.tensors_in(result) if storage_key(tensor) not in keys]
        results = results[:1] if name in calls.PACKING else results
        if calls.is_in_place(name, kwargs):
            results = [kwargs.get("out", args[0])]
        self._alive += [tensors, results]
        if not results:
            return
        if calls.is_plain_copy(name, live[0], results[0]):
            self._recorder.alias(storage_key(results[0]), of=storage_key(live[0]))
        else:
            self._record(name, args, kwargs, tensors, live, results)

    def _record(
        self, name: str, args: Any, kwargs: Any, tensors: list[Any], live: list[Any], results: list[Any]
    ) -> None:
        reads = [storage_key(tensor) for tensor in live]
        weights = {key: self._parameters[key] for key in reads if key in self._parameters}
        type_ = calls.call_type(name, tensors, results[0], bool(weights))
        plain, flops = name.strip("_"), calls.call_flops(type_, name, tensors, results[0], args, kwargs)
        call = Operator(
            type_,
            calls.call_kind(type_, tensors),
            self.path[-1] or plain,
            # The underscore of an in-place operator is kept: it allocates no tensor, which matters for memory.
            name if name == f"{plain}_" else plain,
            tuple(results[0].shape),
            flops=flops,
            weight_bytes=float(sum(weight.numel() * weight.element_size() for weight in weights.values())),
            bytes_read=calls.sparse_bytes(flops, tensors)
            or sum(_sizes(t for t in live if storage_key(t) not in weights).values()),
            bytes_written=sum(_sizes(results).values()),
        )
        counts = {key: weight.numel() for key, weight in weights.items()}
        self._recorder.add(call, reads=reads, writes=[storage_key(t) for t in results], parameters=counts)
        if type_ in RECURRENT_STATE and results[0].requires_grad:
            self._saved.append(tensors[0])
            self._recorder.save(object(), calls.recurrent_state(type_, name, args, results[0]))
        self.attribute_saved()


def _without_override(func: FunctionType) -> FunctionType:
    """Return a function without its dispatch to ``__torch_function__``, which would recurse for ever."""
    checks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    scope = {**func.__globals__, **dict.fromkeys(checks, lambda *_: False)}
    body = FunctionType(func.__code__, scope, func.__name__, func.__defaults__, func.__closure__)
    body.__kwdefaults__ = func.__kwdefaults__
    return body


def _known_size(value: Any) -> Any:
    """A size that is a tensor with a value, as the batch of packed sequences, as an integer."""
    import torch

    is_known = type(value) is torch.Tensor and value.dim() == 0 and value.device.type == "cpu"
    return int(value) if is_known and not value.is_floating_point() else value


def _with_constant_mask(query: Any, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **options: Any) -> Any:
    """Arguments of attention with a mask without gradient: of one with, only a GPU's kernels save no scores."""
    mask = attn_mask.detach() if hasattr(attn_mask, "detach") else attn_mask
    return (query, key, value, mask, *rest), options


def _sizes(tensors: Iterable[Any]) -> dict[Hashable, float]:
    """Bytes of each distinct storage, broadcast elements not counted."""
    sizes: dict[Hashable, float] = {}
    for tensor in tensors:
        size = min(tensor.numel() * tensor.element_size(), _storage_bytes(tensor))
        sizes[storage_key(tensor)] = max(size, sizes.get(storage_key(tensor), 0.0))
    return sizes


def _storage_bytes(tensor: Any) -> float:
    try:
        return float(tensor.untyped_storage().nbytes())
    except (NotImplementedError, RuntimeError):
        return float(tensor.numel() * tensor.element_size())


def _grouped_product(func: Any, args: Any, kwargs: Any) -> Any:
    """A grouped product, which runs without data in bf16 only, as if in the type of its first operand."""
    import torch

    tensors = (
        value.bfloat16() if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in args
    )
    return func(*tensors, **kwargs).to(args[0].dtype)


class KernelListener(Listener):
    """Executes the calls of a forward pass as ``torch.autocast`` on CUDA would, for a `KernelRecorder`.

    Casts of parameters are cached for the pass, as autocast does.
    """

    def __init__(self, recorder: Recorder, fake: Any, place: str, kernels: calls.KernelRecorder) -> None:
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
        if name in calls.RECURRENT and isinstance(args[2], (list, tuple)) and not calls.is_packed(name, args):
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
        return opaque(calls.recurrent_result(name, args), [source, *weights])

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
    twice: Sequence[calls.Launch] = ()
    for place in ("meta", "cpu"):
        with contextlib.suppress(InputError):
            once = _KernelTrace(module, specs, train, place).launches()
            with contextlib.suppress(InputError):
                twice = _KernelTrace(module, _doubled(specs), train, place).launches()
            return calls.kernels_of(once, twice, batch_of(specs))
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
        with warnings.catch_warnings(), calls.random_state_restored(), calls.fake_tensor_log_disabled():
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
        if tensor.device.type == self._place == "cpu" and (calls.is_sparse(tensor) or tensor.numel() <= MAX_CONSTANT):
            return tensor.detach().clone()
        return self._empty(tensor)

    def _empty(self, like: Any) -> Any:
        import torch

        if calls.is_sparse(like):
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
        with gradients, hooks, eager, calls.flex_attention_on_cpu(), self._listener.mode:
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
        self._kernels = calls.KernelRecorder()
        self._listener = KernelListener(self._recorder, self._fake, place, self._kernels)

    def launches(self) -> list[calls.Launch]:
        """Launches of the two passes."""
        self.run()
        return self._kernels.launches

    def _forward(self, module: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        import torch

        with calls.autocast_flag(), torch.set_grad_enabled(self._train is not False), self._kernels.mode():
            with self._listener.mode:
                results = [result for result in calls.tensors_in(module(*args, **kwargs)) if result.requires_grad]
            self._kernels.backward = True
            if results:
                torch.autograd.backward(results, [torch.empty_like(result) for result in results])
