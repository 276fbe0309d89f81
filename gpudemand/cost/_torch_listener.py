"""Listen to the calls of a forward pass of a PyTorch module: execute them without data, and record them."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from operator import methodcaller
from types import FunctionType
from typing import Any

from gpudemand.cost import _torch_operators as calls
from gpudemand.cost._surroundings import replaced
from gpudemand.cost._torch_kernels import KernelRecorder
from gpudemand.cost.operators import HALF_TYPES, Operator, runs_in_single, torch_type
from gpudemand.cost.tracing import Recorder

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

    def __init__(self, change: Callable[[Any], Any]) -> None:
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
        self.kernels = KernelRecorder()
        #: ... and operations of recorded calls and of constants; what is left was made by calls that were not seen.
        self.counted = 0.0
        self._recorder, self._fake, self._place = recorder, fake, place
        self._parameters: dict[Hashable, Any] = {}
        self._undeclared: dict[Hashable, int] = {}
        self._state: dict[Hashable, Any] = {}
        self._running: list[Callable[..., Any]] = []
        self._saved: list[Any] = []
        self._kept: list[Any] = []
        # Keys are addresses: no tensor of the trace may be freed before its end.
        self._alive: list[Any] = []
        self._results: list[Any] = []
        self._casts: dict[int, tuple[Any, Any]] = {}
        #: Identities of the parameters and buffers of the copy, which live as long as it.
        self.given: set[int] = set()
        #: Whether what is saved waits in the memory of the host.
        self.is_offloading = False

    def feed(self, tensor: Any, *, batched: bool, undeclared: int | None = None) -> None:
        """Declare an input; `undeclared` is its position if its type is not declared."""
        self._recorder.feed(calls.storage_key(tensor), batched=batched)
        self._results.append(tensor)
        if undeclared is not None:
            self._undeclared[calls.storage_key(tensor)] = undeclared

    def feed_parameter(self, parameter: Any) -> None:
        """Declare a parameter."""
        self._recorder.feed(calls.storage_key(parameter), batched=False)
        self._parameters[calls.storage_key(parameter)] = parameter

    def feed_state(self, module: Any) -> None:
        """Declare what the module keeps beside its parameters, which is not saved once more."""
        self._state = calls.state_of(module)
        for buffer in module.buffers():  # those of normalisations are not counted as state
            self._recorder.declare_fixed(calls.storage_key(buffer))

    def save(self, tensor: Any) -> int:
        """Note that autograd saves `tensor`: a pack hook of ``saved_tensors_hooks``."""
        self._saved.append(tensor)
        return self._keep(tensor)

    def _keep(self, tensor: Any) -> int:
        self._kept.append(tensor)
        return len(self._kept) - 1  # a result that its own operator refers to would never be freed

    def saved(self, number: int) -> Any:
        """Return what `save` noted: an unpack hook."""
        return self._kept[number]

    def network_hooks(self) -> AbstractContextManager[None]:
        """Context in which hooks of the network, which take the place of these ones, say what they keep."""
        from torch.autograd import graph

        set_hooks: Callable[..., None] = graph.saved_tensors_hooks.__init__

        def init(hooks: Any, pack: Any, unpack: Any) -> None:
            if isinstance(hooks, graph.save_on_cpu):
                self.is_offloading = True
                pack, unpack = self._keep, self.saved
            elif pack != self.save:
                pack = functools.partial(self._pack, pack)
            set_hooks(hooks, pack, unpack)

        return replaced(graph.saved_tensors_hooks, "__init__", init)

    def _pack(self, pack: Callable[[Any], Any], tensor: Any) -> Any:
        """Note what a hook of the network keeps of a tensor."""
        packed, key = pack(tensor), calls.storage_key(tensor)
        kept = list(calls.tensors_in(packed))
        self._saved += kept
        for one in kept if key in self._parameters or key in self._state else []:
            self._recorder.declare_fixed(calls.storage_key(one))
        return packed

    def attribute_saved(self) -> None:
        """Attribute the tensors saved since the last operator to it."""
        for tensor in self._saved:
            key = calls.storage_key(tensor)
            if key not in self._parameters and key not in self._state:
                self._recorder.save(key, calls.storage_bytes(tensor))
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
        if name in ("flex_attention", "ctc_loss"):
            return getattr(self, f"_{name}")(*calls.in_order(name, args, kwargs))
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

    def _flex_attention(self, query: Any, key: Any, value: Any, *_: Any) -> Any:
        """Result of attention with a mask or a change of scores by a function: output, log sums, maxima."""
        import torch

        is_tracked = calls.needs_gradient(query, key, value)
        out = query.new_empty((*query.shape[:-1], value.shape[-1])).requires_grad_(is_tracked)
        sums, maxima = (query.new_empty(query.shape[:-1], dtype=torch.float32) for _ in range(2))
        self._saved += [query, key, value, out, sums] if is_tracked else []
        return out, sums, maxima

    def _ctc_loss(self, log_probs: Any, targets: Any, *options: Any) -> Any:
        """Loss over all alignments of a text, whose lengths have no values in a trace: as long as they can be."""
        losses, forward = calls.ctc_losses(log_probs, targets)
        self._saved += [log_probs, targets, forward, losses] if losses.requires_grad else []
        return calls.reduced(losses, *options)

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
                raise AgainError(methodcaller("typed", position=position, dtype=dtype))

    def is_live(self, tensor: Any) -> bool:
        """Whether a tensor depends on inputs or parameters, by calls that were seen."""
        return self._recorder.is_live(calls.storage_key(tensor))

    def made(self) -> list[Any]:
        """Weak references to the inputs and other tensors without data that the pass made, which are let go."""
        import torch

        tensors = (tensor for tensor in calls.tensors_in(self._results) if id(tensor) not in self.given)
        made = [weakref.ref(tensor) for tensor in tensors if tensor.is_meta or type(tensor) is not torch.Tensor]
        for kept in (self._alive, self._results, self._saved, self._kept, self._parameters, self._casts, self._state):
            kept.clear()
        return made

    def _note(self, name: str, args: Any, kwargs: Any, tensors: list[Any], result: Any, flops: float) -> None:
        """Record a call, unless it is a constant, a view or a copy."""
        live = [tensor for tensor in tensors if self.is_live(tensor)]
        self._alive.append(tensors)
        self._results.append(result)
        if not live:
            return
        for tensor in tensors:
            self._recorder.declare_constant(calls.storage_key(tensor))  # unless it is live
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
        if name in calls.RECURRENT and results[0].requires_grad:  # what a single cell saves, autograd says
            self._saved.append(tensors[0])
            self._recorder.save(object(), calls.recurrent_state(type_, args, results[0]))
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

    Casts of parameters are cached, as autocast does. A network in half precision (`is_half`) runs as it is.
    """

    is_half = False

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

        is_past = self.kernels.backward and not torch.is_grad_enabled()  # not within a checkpoint, which computes anew
        if is_past or name == "grad":  # a backward pass of its own, which runs as its forward pass did
            return super()._compute(func, name, args, kwargs)
        plain = name.strip("_")
        type_ = torch_type(plain)
        dtype = torch.float16 if type_ in HALF_TYPES else torch.float32 if runs_in_single(type_, plain) else None
        dtype = None if self.is_half else dtype
        dtype = torch.bfloat16 if plain == "grouped_mm" else torch.float32 if type_ == "DFT" else dtype
        is_complex = any(tensor.is_complex() for tensor in calls.tensors_in((args, kwargs)))
        if dtype is not None and not is_complex:
            args = tuple(self._cast(value, dtype) for value in args)
            kwargs = {key: self._cast(value, dtype) for key, value in kwargs.items()}
        if plain == "scaled_dot_product_attention":
            return calls.fused_attention(*args, **kwargs)
        if name in calls.RECURRENT and isinstance(args[2], (list, tuple)) and not calls.is_packed(name, args):
            return self._recurrent(name, args)
        try:
            return super()._compute(func, name, args, kwargs)
        except RuntimeError:
            dtype = calls.common_type(name, args, kwargs)
            if dtype is None:
                raise
        args, kwargs = (
            [self._cast(value, dtype) for value in args],
            {k: self._cast(v, dtype) for k, v in kwargs.items()},
        )
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

    def _flex_attention(self, query: Any, key: Any, value: Any, *_: Any) -> Any:
        """Attention as its one kernel, whatever function changes its scores."""
        _, *statistics = super()._flex_attention(query, key, value)
        return calls.fused_attention(query, key, value, enable_gqa=True), *statistics

    def _ctc_loss(self, log_probs: Any, targets: Any, *options: Any) -> Any:
        """The loss as a look-up of the labels at each step, which moves about as much."""
        found = log_probs.gather(-1, calls.ctc_states(log_probs, targets))
        return calls.reduced(found.sum((0, -1)), *options)

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
