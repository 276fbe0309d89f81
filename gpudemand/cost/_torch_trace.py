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
import gc
import itertools
import math
import os
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from types import CellType, FunctionType
from typing import Any, NamedTuple, NoReturn

from gpudemand._validation import InputError
from gpudemand.cost import _torch_operators as calls
from gpudemand.cost._surroundings import left_as_found
from gpudemand.cost.operators import RECURRENT_STATE, Kernel, Operator, runs_in_half, runs_in_single, torch_type
from gpudemand.cost.tracing import (
    BATCH,
    Caveat,
    InputSpec,
    Recorder,
    Traced,
    batch_of,
    call_error,
    first_line,
    import_without_triton,
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


class UnseenError(Exception):
    """The forward pass computes with tensors of operators that were not seen, as of another thread."""


class AgainError(Exception):
    """The trace starts anew, as `change` makes it of its request."""

    def __init__(self, change: Callable[[_Request], _Request]) -> None:
        super().__init__(change)
        self.change = change


def intercepted(handler: Callable[[Any, Any, Any], Any]) -> AbstractContextManager[Any]:
    """Context in which `handler` (function, args, kwargs) answers every call of PyTorch's Python interface."""
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        """Mode in which `handler` answers every overridable PyTorch function."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return handler(func, args, kwargs or {})

    return Mode()


class Listener:
    """Executes the calls of one forward pass on the tensors of a `FakeTensorMode` and records them.

    With the meta device as `place`, no tensor has values, and `fake` is the context of that device.
    """

    def __init__(self, recorder: Recorder, fake: Any, place: str = "cpu") -> None:
        self.mode = intercepted(self._call)
        self.path = [""]
        #: Every operator that reaches ATen, whose operations count where the call that made them is recorded, ...
        self.kernels = calls.KernelRecorder()
        #: ... and operations of recorded calls and of constants; what is left was made by calls that were not seen.
        self.counted = 0.0
        self._recorder, self._fake, self._place = recorder, fake, place
        self._parameters: dict[Hashable, Any] = {}
        self._undeclared: dict[Hashable, int] = {}
        self._running: list[Callable[..., Any]] = []
        self._saved: list[Any] = []
        self._kept: list[Any] = []
        # Keys are addresses: no tensor of the trace may be freed before its end.
        self._alive: list[Any] = []
        self._results: list[Any] = []
        self._casts: dict[int, tuple[Any, Any]] = {}
        #: Identities of the parameters and buffers of the copy, which live as long as it.
        self.given: set[int] = set()

    def feed(self, tensor: Any, *, undeclared: int | None = None) -> None:
        """Declare an input; `undeclared` is its position if its type is not declared."""
        self._recorder.feed(calls.storage_key(tensor), batched=True)
        self._results.append(tensor)
        if undeclared is not None:
            self._undeclared[calls.storage_key(tensor)] = undeclared

    def feed_parameter(self, parameter: Any) -> None:
        """Declare a parameter."""
        self._recorder.feed(calls.storage_key(parameter), batched=False)
        self._parameters[calls.storage_key(parameter)] = parameter

    def save(self, tensor: Any) -> int:
        """Note that autograd saves `tensor`: a pack hook of ``saved_tensors_hooks``."""
        self._saved.append(tensor)
        self._kept.append(tensor)
        return len(self._kept) - 1  # a result that its own operator refers to would never be freed

    def saved(self, number: int) -> Any:
        """Return what `save` noted: an unpack hook."""
        return self._kept[number]

    def attribute_saved(self) -> None:
        """Attribute the tensors saved since the last operator to it."""
        for tensor in self._saved:
            if calls.storage_key(tensor) not in self._parameters:
                self._recorder.save(calls.storage_key(tensor), calls.storage_bytes(tensor))
        self._saved = []

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = calls.name_of(func)
        if isinstance(func, FunctionType) and func not in self._running and name != "grad":
            return self._trace_into(func, args, kwargs)
        tensors = list(calls.tensors_in(calls.in_order(name, args, kwargs)))
        self._check_values(name, tensors)
        if name == "cuda":
            return args[0]
        before = self.kernels.flops
        result = self._compute(func, name, args, kwargs)
        flops = self.kernels.flops - before
        self.counted += flops
        if not calls.is_template(name):
            self._note(name, args, kwargs, tensors, result, flops)
        return result

    def _compute(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if calls.is_packed(name, args):
            return self._packed(func, name, args)
        if name in calls.PACKING:
            return calls.PACKING[name](*args)
        if name in calls.RECURRENT and isinstance(args[2], (list, tuple)):
            return calls.recurrent_result(name, args)
        if name == "scaled_dot_product_attention":
            args, kwargs = calls.fused_arguments(*args, **kwargs)
        if name == "flex_attention":
            return self._flex_attention(*args[:3])
        if name.strip("_") == "grouped_mm":
            return calls.grouped_product(func, args, kwargs)
        if name in ("to", "_to_copy") or "device" in kwargs:
            args = [self._moved(value) for value in args]
            kwargs = {key: self._moved(value) for key, value in kwargs.items()}
        if name in _FACTORIES:
            args = [calls.known_size(value) for value in args]
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
        if is_in_parts or (name in _READERS and any(self._recorder.is_live(calls.storage_key(t)) for t in tensors)):
            raise ValueNeededError
        if any(tensor.grad_fn is not None and not self.is_live(tensor) for tensor in tensors):
            raise UnseenError
        dtype, wrong = calls.mistyped(name, tensors)
        for tensor in wrong:
            position = self._undeclared.get(calls.storage_key(tensor))
            if position is not None:
                raise AgainError(functools.partial(_Request.typed, position=position, dtype=dtype))

    def is_live(self, tensor: Any) -> bool:
        """Whether a tensor depends on inputs or parameters, by calls that were seen."""
        return self._recorder.is_live(calls.storage_key(tensor))

    def made(self) -> list[Any]:
        """Weak references to the inputs and other tensors without data that the pass made, which are let go."""
        import torch

        tensors = (tensor for tensor in calls.tensors_in(self._results) if id(tensor) not in self.given)
        made = [weakref.ref(tensor) for tensor in tensors if tensor.is_meta or type(tensor) is not torch.Tensor]
        for kept in (self._alive, self._results, self._saved, self._kept, self._parameters, self._casts):
            kept.clear()
        return made

    def _note(self, name: str, args: Any, kwargs: Any, tensors: list[Any], result: Any, flops: float) -> None:
        """Record a call, unless it is a constant, a view or a copy."""
        live = [tensor for tensor in tensors if self.is_live(tensor)]
        self._alive.append(tensors)
        self._results.append(result)
        if not live:
            return
        keys = {calls.storage_key(tensor) for tensor in tensors}
        results = [tensor for tensor in calls.tensors_in(result) if calls.storage_key(tensor) not in keys]
        results = results[:1] if name in calls.PACKING else results
        if calls.is_in_place(name, kwargs):
            results = [kwargs.get("out", args[0])]
        if not results:
            return
        if calls.is_plain_copy(name, live[0], results[0]):
            self._recorder.alias(calls.storage_key(results[0]), of=calls.storage_key(live[0]))
        else:
            self._record(name, args, flops, tensors, live, results)

    def _record(
        self, name: str, args: Any, flops: float, tensors: list[Any], live: list[Any], results: list[Any]
    ) -> None:
        reads = [calls.storage_key(tensor) for tensor in live]
        weights = {key: self._parameters[key] for key in reads if key in self._parameters}
        type_ = calls.call_type(name, tensors, results[0], bool(weights))
        plain, flops = name.strip("_"), calls.ruled_flops(type_, name, tensors, results[0]) or flops
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
            or sum(calls.sizes(t for t in live if calls.storage_key(t) not in weights).values()),
            bytes_written=sum(calls.sizes(results).values()),
        )
        counts = {key: weight.numel() for key, weight in weights.items()}
        self._recorder.add(call, reads=reads, writes=[calls.storage_key(t) for t in results], parameters=counts)
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


class KernelListener(Listener):
    """Executes the calls of a forward pass as ``torch.autocast`` on CUDA would, for a `KernelRecorder`.

    Casts of parameters are cached for the pass, as autocast does.
    """

    def start_backward(self) -> None:
        """Record what follows as of the backward pass, where checkpoints cast anew."""
        self.kernels.backward = True
        self._casts.clear()

    def _check_values(self, name: str, tensors: Sequence[Any]) -> None:
        """Accept every call: the values that a module reads were checked when its operators were traced."""

    def _note(self, name: str, args: Any, kwargs: Any, tensors: list[Any], result: Any, flops: float) -> None:
        """Keep the results alive; kernels are recorded where they are dispatched."""
        self._results.append(result)

    def _compute(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        import torch

        if self.kernels.backward and not torch.is_grad_enabled():
            return super()._compute(func, name, args, kwargs)  # not within a checkpoint, which computes anew
        plain = name.strip("_")
        type_ = torch_type(plain)
        dtype = torch.float16 if runs_in_half(type_) else torch.float32 if runs_in_single(type_, plain) else None
        dtype = torch.bfloat16 if plain == "grouped_mm" else torch.float32 if type_ == "DFT" else dtype
        is_complex = any(tensor.is_complex() for tensor in calls.tensors_in((args, kwargs)))
        if dtype is not None and not is_complex:
            args = tuple(self._cast(value, dtype) for value in args)
            kwargs = {key: self._cast(value, dtype) for key, value in kwargs.items()}
        if plain == "scaled_dot_product_attention":
            return calls.fused_attention(*args, **kwargs)
        if name in calls.RECURRENT and isinstance(args[2], (list, tuple)) and not calls.is_packed(name, args):
            return self._recurrent(name, args)
        return super()._compute(func, name, args, kwargs)

    def _recurrent(self, name: str, args: Any) -> Any:
        """Record a recurrent layer as cuDNN runs it: the input's products at once, the state's step by step."""
        source, weights, batch_first = args[0], args[2], args[8]
        steps = source.shape[1 if batch_first else 0] if source.dim() == 3 else source.shape[0]
        samples = source.numel() // source.shape[-1]
        matrices = [weight for weight in weights if weight.dim() == 2]
        passes = (False, True) if calls.needs_gradient(source, *weights) else (False,)
        for matrix, is_state in zip(matrices, itertools.cycle((False, True)), strict=False):
            for backward in passes:
                launches, rows = (steps, samples // steps) if is_state else (1, samples)
                self.kernels.add_products(matrix, rows, launches, backward=backward)
                if backward:  # gradients of the weights, over all steps
                    self.kernels.add_products(matrix, samples, 1, backward=True)
        return calls.opaque(calls.recurrent_result(name, args), [source, *weights])

    def _flex_attention(self, query: Any, key: Any, value: Any) -> Any:
        """Attention as its one kernel, whatever function changes its scores."""
        _, *statistics = super()._flex_attention(query, key, value)
        return calls.fused_attention(query, key, value, enable_gqa=True), *statistics

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
            self.kernels.is_casting = True
            found = value.to(dtype)
            self.kernels.is_casting = False
            if key is None:
                return found
            self._casts[key] = (value, found)
        return self._casts[key][1]


class _Request(NamedTuple):
    """What is traced, and how: `train` is as of `OpGraph.from_torch`, `seed` that of random numbers.

    `saves`: whether autograd says what it saves.
    """

    module: Any
    specs: list[InputSpec]
    train: bool | None
    seed: int = 0
    saves: bool = True

    def doubled(self) -> _Request:
        """The same with twice as many samples."""
        batch = batch_of(self.specs)
        return self._replace(specs=[spec.grown(batch) for spec in self.specs])

    def typed(self, position: int, dtype: str) -> _Request:
        """The same with another type of the input at a position."""
        specs = [spec._replace(dtype=dtype) if place == position else spec for place, spec in enumerate(self.specs)]
        return self._replace(specs=specs)

    def turned(self, first: int) -> _Request:
        """The same with the batch as the second axis of all inputs that have one, of the first as axis `first`."""
        axes = [first, *[1] * (len(self.specs) - 1)]
        along = [spec.along(min(axis, len(spec.shape) - 1)) for spec, axis in zip(self.specs, axes, strict=True)]
        return self._replace(specs=along)


#: Seeds of random numbers that a network is traced with whose graph depends on them.
_SEEDS = range(4)


def trace(module: Any, input_shape: Any, *, input_dtype: Any = None, train: bool | None = None) -> Traced:
    """Trace `module`; see `OpGraph.from_torch`."""
    module = _check_module(module)
    request = _Request(module, read_inputs(input_shape, input_dtype), train)
    copied = {id(tensor) for tensor in itertools.chain(module.parameters(), module.buffers())}
    made: list[Any] = []
    with left_as_found(module, copied):
        while True:
            try:
                traced = _on_any_axis(request, made)
                break
            except AgainError as error:
                request = error.change(request)
    _check_gone(type(module).__name__, made)
    return traced


def _check_gone(name: str, made: list[Any]) -> None:
    """Raise `InputError` if something still refers to a tensor that was made in the trace."""
    if all(reference() is None for reference in made):
        return
    gc.collect()
    alive = [tensor for reference in made if (tensor := reference()) is not None]
    # PyTorch itself may hold some, where no code reaches them.
    holders = [found for found in gc.get_referrers(*alive) if found is not alive] if alive else []
    if any(isinstance(found, (dict, list, tuple, set, deque, CellType)) for found in holders):
        raise InputError(
            f"the forward pass of {name} keeps tensors outside of the module, where a trace cannot remove them; let it "
            "keep them in its attributes, and build the model anew."
        )


def _on_any_axis(request: _Request, made: list[Any]) -> Traced:
    """Operators and kernels with the batch as the first axis, or the second if only then work grows as the batch."""
    first: Traced | InputError
    axes = [1]
    try:
        first = _traced(request, made)
        axes = axes if calls.GROWS in first.caveats else []
    except InputError as error:
        # A recurrent layer may have samples first in its input, and second in its state.
        first, axes = error, [1, 0] if len(request.specs) > 1 else []
    for other in map(request.turned, axes):
        with contextlib.suppress(InputError):
            found = _traced(other, made)
            fixed = sum(kernel.fixed_flops for kernel in found.kernels)
            if found.kernels and not fixed and calls.GROWS not in found.caveats:
                shapes = ", ".join(str(spec.shape) for spec in other.specs)
                said = Caveat(f"inputs of shape {shapes} are taken to hold {batch_of(other.specs)} samples")
                return found._replace(caveats=[said, *found.caveats])
    if isinstance(first, InputError):
        raise first
    return first


def _traced(request: _Request, made: list[Any]) -> Traced:
    """Operators and kernels; of a network whose graph depends on random numbers, those with the most operations."""
    traced, is_random = _operators(request, made)
    found = [traced]
    if is_random:
        found += [_operators(request._replace(seed=seed), made)[0] for seed in _SEEDS[1:]]
    seed = max(range(len(found)), key=lambda number: found[number].flops)
    caveats = []
    if any(other.operators != traced.operators for other in found):
        least, most = min(one.flops for one in found), found[seed].flops
        text = f"its operators depend on random numbers, {least:.3g} to {most:.3g} operations a sample"
        caveats.append(Caveat(f"{text} in {len(found)} passes; the largest counts", _ratio(most, least)))
    kernels, said = _kernels(request._replace(seed=seed), made)
    caveats += [*found[seed].caveats, *said]
    caveats += _missing_kernels(found[seed], kernels)
    return found[seed]._replace(kernels=kernels, caveats=caveats)


def _ratio(one: float, other: float) -> float:
    """The larger of two amounts as a multiple of the smaller one."""
    return max(one, other) / min(one, other) if min(one, other) > 0.0 else math.inf


def _missing_kernels(traced: Traced, kernels: Sequence[Kernel]) -> list[Caveat]:
    """What of the operators is not in the kernels, or grows otherwise with the batch."""
    if not kernels:
        return []
    spared = sum(0.5 * call.flops for call in traced.operators if call.type == "Attention")  # by a causal mask
    forward = [kernel for kernel in kernels if not kernel.backward]
    grown, fixed = (sum(k.calls * getattr(k, name) for k in forward) for name in ("flops", "fixed_flops"))
    done, known = grown + fixed / BATCH, sum(call.fixed_flops for call in traced.operators)
    if traced.flops - spared <= done * _ENOUGH and done <= traced.flops * _ENOUGH:
        # Of a product of three factors the batch decides which two come first.
        is_odd = grown > 0.0 and abs(fixed - known) > (_ENOUGH - 1.0) * BATCH * done
        return [Caveat("in which order it multiplies depends on the batch", _ratio(done, grown))] if is_odd else []
    text = f"its operators have {traced.flops:.3g} operations a sample, the kernels of its forward pass {done:.3g}"
    return [Caveat(text, _ratio(traced.flops, done))]


#: Ratio of operations from which on they differ.
_ENOUGH = 1.02


def _operators(request: _Request, made: list[Any]) -> tuple[Traced, bool]:
    """Record operators on meta tensors, or, where constants with values or attention need it, on fake ones of the CPU.

    Fake tensors take several times as long; the two agree but for attention, which the meta device takes apart. Also
    whether random numbers may decide on them.
    """
    with contextlib.suppress(InputError):
        return _operators_on("meta", request, made)
    return _operators_on("cpu", request, made)


def _operators_on(place: str, request: _Request, made: list[Any]) -> tuple[Traced, bool]:
    """Record operators; with twice as many samples, too, if some read parameters alone, as what they make may grow."""
    trace = _Trace(request, place, made)
    traced = trace.run()
    if trace.has_fixed:
        with contextlib.suppress(InputError):
            twice = _Trace(request.doubled(), place, made).run()
            operators = with_fixed(traced.operators, twice.operators, batch_of(request.specs))
            traced = traced._replace(operators=operators)
    return traced, trace.is_random


def _kernels(request: _Request, made: list[Any]) -> tuple[Sequence[Kernel], list[Caveat]]:
    """Record kernels on meta tensors, or, where constants with values are mixed in, on fake ones, which are slow.

    Empty where a pass runs on neither; also what there is to say about them.
    """
    reason = ""
    twice: Sequence[calls.Launch] = ()
    for place in ("meta", "cpu"):
        try:
            once = _KernelTrace(request, place, made).launches()
        except InputError as error:
            reason = first_line(error.__cause__ or error)
            continue
        with contextlib.suppress(InputError):
            twice = _KernelTrace(request.doubled(), place, made).launches()
        return calls.kernels_of(once, twice, batch_of(request.specs)), calls.growth_of(once, twice)
    text = f"the kernels of a step could not be recorded ({reason}), and are derived from its operators"
    return (), [Caveat(text, _DERIVED)]


#: Largest error of seconds from operators where kernels were recorded, too: encoders on an A100 in single precision.
_DERIVED = 2.83


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
    """One forward pass of a copy of a module, on fake tensors of the CPU or on tensors of the meta device.

    `made` receives weak references to the tensors of the pass.
    """

    listener_type: type[Listener] = Listener

    def __init__(self, request: _Request, place: str, made: list[Any]) -> None:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        self._original, self._specs, self._train, self._seed, self._saves = request
        self._place, self._made = place, made
        self._fake: Any = FakeTensorMode(allow_non_fake_inputs=True) if place == "cpu" else torch.device(place)
        self._recorder = Recorder(batch_of(self._specs))
        self._listener = self.listener_type(self._recorder, self._fake, place)
        self.is_random = False

    @property
    def has_fixed(self) -> bool:
        """Whether an operator reads parameters alone."""
        return self._recorder.has_fixed

    def run(self) -> Traced:
        """Trace a forward pass on fake tensors; raises `InputError`, or what it takes to try again."""
        import torch

        with warnings.catch_warnings(), calls.seeded(self._seed) as has_drawn, calls.fake_tensor_log_disabled():
            warnings.simplefilter("ignore")
            module = self._copy()
            args, kwargs = self._arguments(module)
            # What the module compiles is traced as it is written, and what it synchronises as of one process.
            import_without_triton()
            eager = torch.compiler.set_stance("force_eager")
            alone = calls.replaced(torch.distributed, "is_initialized", lambda: False)
            ending = calls.replaced(os, "_exit", sys.exit)
            gradients = torch.set_grad_enabled(self._train is not False)
            try:
                with gradients, eager, alone, ending, calls.flex_attention_on_cpu():
                    self._forward(module, args, kwargs)
            except AgainError:
                raise
            except (Exception, SystemExit) as error:  # a forward that ends the process would end it in silence
                self._raise_input_error(error)
            finally:
                self._made += self._listener.made()
            self.is_random = has_drawn()
        return self._traced()

    def _copy(self) -> Any:
        """Copy the module, with fake parameters and hooks that report the running submodule to the listener."""
        import torch

        if any(isinstance(part, torch.jit.ScriptModule) for part in self._original.modules()):
            raise InputError(f"{self._name()} is or contains TorchScript; pass the Python module behind it.")
        memo: dict[int, Any] = {id(parameter): self._fake_parameter(parameter) for parameter in self._parameters()}
        memo |= {id(buffer): self._constant(buffer) for buffer in self._original.buffers()}
        try:
            with intercepted(self._copy_tensor):
                module = copy.deepcopy(self._original, memo)
        except Exception as error:
            raise InputError(
                f"{self._name()} cannot be copied for the trace ({first_line(error)}); "
                "take what cannot be copied out of its attributes, or pass the network before it is wrapped or sharded."
            ) from error
        self._listener.given = {id(tensor) for tensor in itertools.chain(module.parameters(), module.buffers())}
        for path, part in module.named_modules():
            part.register_forward_pre_hook(functools.partial(self._enter, path))
            part.register_forward_hook(self._leave, always_call=True)
        return module if self._train is None else module.train(self._train)

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

        hooks: Any = contextlib.nullcontext()
        if self._saves:
            hooks = torch.autograd.graph.saved_tensors_hooks(self._listener.save, self._listener.saved)
        with hooks, self._listener.kernels.mode(), self._listener.mode:
            results = list(calls.results_in(module(*args, **kwargs)))
        self._listener.attribute_saved()
        self._check_samples(results)
        if not any(map(self._listener.is_live, results)) and (results or self._parameters()):
            raise UnseenError

    def _check_samples(self, results: list[Any]) -> None:
        """Start anew if the rows of the results are the samples, and those of the examples are not."""
        rows = {result.shape[0] for result in results if result.dim()}
        samples = rows.pop() if len(rows) == 1 else 0
        ragged = [len(spec.shape) == 1 for spec in self._specs if spec.shape[:1] != (samples,)]
        if len(self._specs) > 1 < samples != batch_of(self._specs) and ragged and all(ragged):
            raise AgainError(
                lambda request: request._replace(specs=[spec._replace(samples=samples) for spec in request.specs])
            )

    def _raise_input_error(self, error: BaseException) -> NoReturn:
        import torch
        from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

        if self._saves and "saved tensor hooks" in str(error):
            raise AgainError(lambda request: request._replace(saves=False)) from error
        place = user_line(error, __file__, torch.__file__)
        if isinstance(error, UnseenError):
            raise InputError(
                f"the forward pass of {self._name()}{place} computes where a trace does not see it, as in a scripted "
                "function or another thread, or returns no tensor; run its parts as Python in one thread, and return "
                "what they compute."
            ) from error
        if isinstance(error, (ValueNeededError, DataDependentOutputException, DynamicOutputShapeException)):
            raise value_error(f"the forward pass of {self._name()}", place, "torch.where") from error
        what, reason = f"the forward pass of {self._name()}", first_line(error)
        raise call_error(what, self._specs, place, reason, error) from error

    def _traced(self) -> Traced:
        parameters = self._parameters()
        return self._recorder.traced(
            name=self._name(),
            framework="pytorch",
            input_shapes=tuple(spec.sample for spec in self._specs),
            n_parameters=sum(p.numel() for p in parameters),
            n_trainable=sum(p.numel() for p in parameters if p.requires_grad),
            parameter_bytes=float(sum(p.numel() * p.element_size() for p in parameters)),
            n_sparse=self._sparse(),
            n_tensors=sum(p.requires_grad for p in parameters),
            state_bytes=calls.state_bytes(self._original),
        )._replace(caveats=self._caveats())

    def _caveats(self) -> list[Caveat]:
        every, counted = self._listener.kernels.flops, self._listener.counted
        if not self._saves:
            return [Caveat("what is saved for the backward pass is not known, as torch.func takes gradients", math.inf)]
        if every <= _ENOUGH * counted:
            return []
        missing = (every - counted) / batch_of(self._specs)
        text = f"{missing:.3g} operations a sample are of no operator that was seen"
        return [Caveat(text, _ratio(every, counted))]

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

    listener_type = KernelListener
    _listener: KernelListener

    def launches(self) -> list[calls.Launch]:
        """Launches of the two passes."""
        self.run()
        return self._listener.kernels.launches

    def _forward(self, module: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        import torch

        kernels = self._listener.kernels
        # In the backward pass, too, as checkpoints compute anew there.
        with calls.autocast_flag(), kernels.mode(), self._listener.mode:
            results = [result for result in calls.results_in(module(*args, **kwargs)) if result.requires_grad]
            self._listener.start_backward()
            if results:
                torch.autograd.backward(results, [torch.empty_like(result) for result in results])
        for parameter in module.parameters():
            parameter.grad = None
