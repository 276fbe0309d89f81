"""Interception of the PyTorch calls of a forward pass, recorded as operator calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any

from gpudemand.cost.operators.operator import Operator
from gpudemand.cost.operators.vocabulary import RECURRENT_STATE
from gpudemand.cost.tracing import _torch_calls as calls
from gpudemand.cost.tracing._torch_recurrent import (
    PACKING,
    RECURRENT,
    is_packed,
    needs_gradient,
    recurrent_result,
    recurrent_state,
)
from gpudemand.cost.tracing.recorder import Recorder

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
        if is_packed(name, args):
            return self._packed(func, name, args)
        if name in PACKING:
            return PACKING[name](*args)
        if name in RECURRENT and isinstance(args[2], (list, tuple)):
            return recurrent_result(name, args)
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

        is_tracked = needs_gradient(query, key, value)
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
        results = results[:1] if name in PACKING else results
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
            self._recorder.save(object(), recurrent_state(type_, name, args, results[0]))
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
