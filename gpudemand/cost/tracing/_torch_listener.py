"""Listen to a PyTorch forward pass and write down its operator calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any

from gpudemand.cost.operators.vocabulary import RECURRENT_STATE
from gpudemand.cost.tracing import _torch_calls as calls
from gpudemand.cost.tracing.recorder import Costs, Label, Recorder, looked_up

#: Calls that turn the value of a tensor into a Python object.
_READERS = ("__bool__", "__int__", "__float__", "__index__", "item", "tolist", "numpy", "__array__", "__contains__")
#: Calls that make tensors from nothing.
_FACTORIES = ("zeros", "ones", "empty", "full", "rand", "randn", "randint", "arange", "linspace", "eye")
#: Constants of up to so many elements have values, which a forward pass may look at; larger ones are fake.
SMALL = 2**22
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


class ValueNeededError(Exception):
    """The forward pass asks for the value of a tensor that has none."""


class IntegersNeededError(Exception):
    """An input whose type was left open is used as an index; `position` says which."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def listening(handler: Callable[[Any, Any, Any], Any]) -> AbstractContextManager[Any]:
    """Return a context in which `handler` (function, args, kwargs) answers every call of PyTorch's Python interface."""
    from torch.overrides import TorchFunctionMode

    class Listener(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return handler(func, args, kwargs or {})

    return Listener()


def key_of(tensor: Any) -> Hashable:
    """Identify the memory of a tensor: views of it have the same key."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # sparse tensors have no storage
        return id(tensor)


class Listener:
    """Answers the calls of one forward pass, on fake tensors, and records them.

    Parameters
    ----------
    recorder : Recorder
        Receives the operators.
    fake : FakeTensorMode
        The mode whose tensors are traced.
    """

    def __init__(self, recorder: Recorder, fake: Any) -> None:
        self.mode = listening(self._answer)
        self.path = [""]
        self._recorder, self._fake = recorder, fake
        self._parameters: dict[Hashable, Any] = {}
        self._undecided: dict[Hashable, int] = {}
        self._open: list[Callable[..., Any]] = []
        self._kept: list[Any] = []
        # Keys are addresses: nothing that was seen may be freed before the trace ends.
        self._alive: list[Any] = []

    def feed(self, tensor: Any, *, undecided: int | None = None) -> None:
        """Declare an input; `undecided` is its position if its type was left open."""
        self._recorder.feed(key_of(tensor), batched=True)
        self._alive.append(tensor)
        if undecided is not None:
            self._undecided[key_of(tensor)] = undecided

    def feed_parameter(self, parameter: Any) -> None:
        """Declare a parameter."""
        self._recorder.feed(key_of(parameter), batched=False)
        self._parameters[key_of(parameter)] = parameter

    def keep(self, tensor: Any) -> Any:
        """Note that autograd saves `tensor`: a pack hook of ``saved_tensors_hooks``."""
        self._kept.append(tensor)
        return tensor

    def finish(self) -> None:
        """Attribute what autograd saved after the last call."""
        self._attribute()

    def _answer(self, func: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(func, FunctionType) and func not in self._open:
            return self._look_through(func, args, kwargs)
        name = func.__name__.partition(".")[0]
        tensors = [*calls.tensors_in(args), *calls.tensors_in(kwargs)]
        self._refuse(name, tensors)
        if name == "cuda":
            return args[0]
        result = self._compute(func, name, args, kwargs)
        if not calls.is_template(name):
            self._note(name, args, kwargs, tensors, result)
        return result

    def _compute(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name in _RECURRENT and isinstance(args[2], (list, tuple)):
            return _recurrent_result(name, args)
        if name in ("to", "_to_copy") or "device" in kwargs:
            args = [_at_home(value) for value in args]
            kwargs = {key: _at_home(value) for key, value in kwargs.items()}
        if name in _FACTORIES:
            with self._fake:
                constant = func(*args, **kwargs)
            if constant.numel() > SMALL:
                return constant
        return func(*args, **kwargs)

    def _look_through(self, func: FunctionType, args: Any, kwargs: Any) -> Any:
        """Run a Python function of PyTorch with the listener on, so that the calls inside it are heard."""
        self._open.append(func)
        try:
            with self.mode:
                return _body(func)(*args, **kwargs)
        finally:
            self._open.pop()

    def _refuse(self, name: str, tensors: Sequence[Any]) -> None:
        if name in _READERS and any(self._recorder.is_live(key_of(tensor)) for tensor in tensors):
            raise ValueNeededError
        for index in calls.indices(name, tensors):
            position = self._undecided.get(key_of(index))
            if position is not None:
                raise IntegersNeededError(position)

    def _note(self, name: str, args: Any, kwargs: Any, tensors: list[Any], result: Any) -> None:
        """Record a call, unless it is a constant, a view or a copy."""
        live = [tensor for tensor in tensors if self._recorder.is_live(key_of(tensor))]
        if not live:
            return
        keys = {key_of(tensor) for tensor in tensors}
        results = [tensor for tensor in calls.tensors_in(result) if key_of(tensor) not in keys]
        if calls.is_in_place(name, kwargs):
            results = [kwargs.get("out", args[0])]
        self._alive += [tensors, results]
        if not results:
            return
        if calls.is_plain_copy(name, live[0], results[0]):
            self._recorder.alias(key_of(results[0]), of=key_of(live[0]))
        else:
            self._record(name, args, tensors, live, results)

    def _record(self, name: str, args: Any, tensors: list[Any], live: list[Any], results: list[Any]) -> None:
        weights = {key_of(t): self._parameters[key_of(t)] for t in live if key_of(t) in self._parameters}
        found = calls.call_type(name, tensors, results[0], bool(weights))
        plain = name.strip("_")
        kind, shape = calls.call_kind(found, tensors), tuple(results[0].shape)
        # An operator in place keeps its underscore: it makes no new tensor, which matters for memory.
        called = name if name == f"{plain}_" else plain
        label = Label(found, kind, self.path[-1] or plain, called, shape)
        costs = looked_up(
            found,
            Costs(
                flops=calls.call_flops(found, name, tensors, results[0], args),
                bytes_read=sum(_sizes(t for t in live if key_of(t) not in weights).values()),
                bytes_written=sum(_sizes(results).values()),
                weight_bytes=float(sum(weight.numel() * weight.element_size() for weight in weights.values())),
            ),
        )
        counts = {key: weight.numel() for key, weight in weights.items()}
        reads = [key_of(tensor) for tensor in live]
        self._recorder.add(label, costs, reads=reads, writes=[key_of(t) for t in results], parameters=counts)
        if found in RECURRENT_STATE and results[0].requires_grad:
            self._kept.append(tensors[0])
            self._recorder.save(object(), _recurrent_state(found, name, args, results[0]))
        self._attribute()

    def _attribute(self) -> None:
        """Hand what autograd saved since the last operator to the latest one."""
        for tensor in self._kept:
            if key_of(tensor) not in self._parameters:
                self._recorder.save(key_of(tensor), _storage_bytes(tensor))
        self._alive.append(self._kept)
        self._kept = []


def _body(func: FunctionType) -> FunctionType:
    """Return a function without its own hand-over to listeners, which would call the listener again for ever."""
    checks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    scope = {**func.__globals__, **dict.fromkeys(checks, lambda *_: False)}
    body = FunctionType(func.__code__, scope, func.__name__, func.__defaults__, func.__closure__)
    body.__kwdefaults__ = func.__kwdefaults__
    return body


def _at_home(value: Any) -> Any:
    """Replace any device by the one of the trace, so that ``.to("cuda")`` in a forward pass does no harm."""
    import torch

    names = ("cuda", "meta", "cpu", "mps", "xpu")
    is_device = isinstance(value, torch.device) or (isinstance(value, str) and value.split(":")[0] in names)
    return torch.device("cpu") if is_device else value


def _recurrent_result(name: str, args: Any) -> Any:
    """Return what a recurrent layer returns, without its thousands of steps."""
    import torch

    source, state, weights, bidirectional = args[0], args[1], args[2], args[7]
    states = state if name == "lstm" else [state]
    outputs = (*source.shape[:-1], states[0].shape[-1] * (2 if bidirectional else 1))
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (source, *weights))
    shapes = [outputs, *(one.shape for one in states)]
    return tuple(source.new_empty(shape).requires_grad_(needs_gradient) for shape in shapes)


def _recurrent_state(found: str, name: str, args: Any, result: Any) -> float:
    """Bytes that the cells of a recurrent layer keep, and its inner layers' outputs."""
    layers = next((value for value in args[4:6] if type(value) is int), 1) if name in _RECURRENT else 1
    per_output = layers * RECURRENT_STATE[found] + layers - 1
    return result.numel() * result.element_size() * per_output


def _sizes(tensors: Iterable[Any]) -> dict[Hashable, float]:
    """Bytes of each distinct piece of memory, broadcast elements not counted."""
    sizes: dict[Hashable, float] = {}
    for tensor in tensors:
        size = min(tensor.numel() * tensor.element_size(), _storage_bytes(tensor))
        sizes[key_of(tensor)] = max(size, sizes.get(key_of(tensor), 0.0))
    return sizes


def _storage_bytes(tensor: Any) -> float:
    try:
        return float(tensor.untyped_storage().nbytes())
    except (NotImplementedError, RuntimeError):
        return float(tensor.numel() * tensor.element_size())
