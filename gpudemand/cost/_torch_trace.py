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
import math
import os
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from gpudemand._validation import InputError
from gpudemand.cost import _torch_operators as calls
from gpudemand.cost._surroundings import check_gone, left_as_found, replaced
from gpudemand.cost._torch_kernels import GROWS, PAIRS, Launch, caveat_on_pairs, growth_of, kernels_of
from gpudemand.cost._torch_listener import (
    MAX_CONSTANT,
    AgainError,
    KernelListener,
    Listener,
    UnseenError,
    ValueNeededError,
    intercepted,
)
from gpudemand.cost.operators import HALF, Kernel
from gpudemand.cost.tracing import (
    Caveat,
    InputSpec,
    Recorder,
    Traced,
    batch_of,
    call_error,
    first_line,
    import_without_triton,
    input_caveats,
    input_fields,
    most_common_type,
    read_inputs,
    user_line,
    value_error,
    with_batch,
    with_fixed,
)


class _Request(NamedTuple):
    """What is traced, and how: `train` is as of `OpGraph.from_torch`, `seed` that of random numbers.

    `saves`: whether autograd says what it saves. `is_settled`: whether the results have no say in what the batch is.
    """

    module: Any
    specs: list[InputSpec]
    train: bool | None
    seed: int = 0
    saves: bool = True
    is_settled: bool = False

    def settled(self, specs: list[InputSpec]) -> _Request:
        """The same with other inputs, whose batch is as they say."""
        return self._replace(specs=specs, is_settled=True)

    def doubled(self) -> _Request:
        """The same with twice as many samples."""
        batch = batch_of(self.specs)
        return self.settled([spec.grown(batch) for spec in self.specs])

    def typed(self, position: int, dtype: str) -> _Request:
        """The same with another type of the input at a position."""
        specs = [spec._replace(dtype=dtype) if place == position else spec for place, spec in enumerate(self.specs)]
        return self._replace(specs=specs)

    def turned(self, first: int) -> _Request:
        """The same with the batch as the second axis of all inputs that have one, of the first as axis `first`."""
        axes = [first, *[1] * (len(self.specs) - 1)]
        along = [spec.along(min(axis, len(spec.shape) - 1)) for spec, axis in zip(self.specs, axes, strict=True)]
        batch = batch_of([turned for turned, spec in zip(along, self.specs, strict=True) if spec.axis is not None])
        return self.settled([spec.aligned(batch, [spec.axis]) for spec in along])

    def with_other_batches(self) -> list[_Request]:
        """The same with each other extent of the first two axes of several examples as the batch.

        Those that most examples begin with are first. Where several begin with 1, that is the batch.
        """
        firsts = Counter(extent for spec in self.specs for extent in spec.shape[:1])
        if self.is_settled or firsts[1] > 1 or all(spec.axis is not None for spec in self.specs):
            return []
        extents = Counter(extent for spec in self.specs for extent in dict.fromkeys(spec.shape[:2]))
        found = [extent for extent, count in extents.items() if count > 1 < extent != batch_of(self.specs)]
        found.sort(key=lambda extent: (firsts[extent], extents[extent]), reverse=True)
        return [self.settled(with_batch(self.specs, batch, (0, 1))) for batch in found]

    def with_batch_anywhere(self) -> _Request:
        """The same with the batch as any axis of examples that is as long."""
        axes = range(max(len(spec.shape) for spec in self.specs))
        return self._replace(specs=with_batch(self.specs, batch_of(self.specs), axes))


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
    check_gone(type(module).__name__, made)
    return traced


def _on_any_axis(request: _Request, made: list[Any]) -> Traced:
    """Operators and kernels with the batch as the first axis, or another if only then all work grows as the batch."""
    first: Traced | InputError
    axes = [1]
    try:
        first = _traced(request, made)
        axes = axes if {GROWS, PAIRS}.intersection(first.caveats) else []
        others = request.with_other_batches() if first.rows == 0 and _fixed_flops(first) else []
    except InputError as error:
        # A recurrent layer may have samples first in its input, and second in its state.
        first, axes, others = error, [1, 0] if len(request.specs) > 1 else [], []
    is_first = True
    for other in [*map(request.turned, axes), *others]:
        try:
            _operators(other.doubled(), made)  # an axis that cannot be longer holds no samples
            found, is_first = _traced(other, made), False
        except InputError:
            continue
        if found.kernels and not _fixed_flops(found) and not {GROWS, PAIRS}.intersection(found.caveats):
            shapes = ", ".join(str(spec.shape) for spec in other.specs if spec.axis is not None)
            said = Caveat(f"inputs of shape {shapes} are taken to hold {batch_of(other.specs)} samples")
            return found._replace(caveats=[said, *found.caveats])
    if isinstance(first, InputError):
        raise first
    specs = with_batch(request.specs, first.rows)
    if not request.is_settled and batch_of(request.specs) != batch_of(specs) == first.rows > 1:
        raise AgainError(lambda request: request.settled(with_batch(request.specs, first.rows)))
    return _on_pairs(request.specs, first, is_first=is_first) if PAIRS in first.caveats else first


def _fixed_flops(traced: Traced) -> float:
    return sum(kernel.fixed_flops for kernel in traced.kernels)


def _on_pairs(specs: Sequence[InputSpec], traced: Traced, *, is_first: bool) -> Traced:
    """Say of how many samples the work on pairs of samples is: of a whole batch where examples hold one."""
    is_whole = is_first and all(spec.example is not None for spec in specs)
    said = caveat_on_pairs(batch_of(specs), is_whole=is_whole)
    return traced._replace(caveats=[said if caveat == PAIRS else caveat for caveat in traced.caveats])


def _traced(request: _Request, made: list[Any]) -> Traced:
    """Operators and kernels; of a network whose graph depends on random numbers, those with the most operations."""
    traced, is_random = _operators(request, made)
    found = [traced]
    if is_random:
        found += [_operators(request._replace(seed=seed), made)[0] for seed in _SEEDS[1:]]
    batch = batch_of(request.specs)
    flops = [one.flops_at(batch) for one in found]
    seed = max(range(len(found)), key=flops.__getitem__)
    caveats = []
    if any(other.operators != traced.operators for other in found):
        least, most = min(flops), flops[seed]
        text = f"its operators depend on random numbers, {least:.3g} to {most:.3g} operations a sample"
        caveats.append(Caveat(f"{text} in {len(found)} passes; the largest counts", _ratio(most, least)))
    kernels, said = _kernels(request._replace(seed=seed), made)
    caveats += [*found[seed].caveats, *said]
    caveats += _missing_kernels(found[seed], kernels, batch)
    return found[seed]._replace(kernels=kernels, caveats=caveats)


def _ratio(one: float, other: float) -> float:
    """The larger of two amounts as a multiple of the smaller one."""
    return max(one, other) / min(one, other) if min(one, other) > 0.0 else math.inf


def _missing_kernels(traced: Traced, kernels: Sequence[Kernel], batch: int) -> list[Caveat]:
    """What of the operators is not in the kernels, or grows otherwise with the batch."""
    if not kernels:
        return []
    spared = sum(0.5 * call.flops for call in traced.operators if call.type == "Attention")  # by a causal mask
    forward = [kernel for kernel in kernels if not kernel.backward]
    grown, fixed = (sum(k.calls * getattr(k, name) for k in forward) for name in ("flops", "fixed_flops"))
    flops, done = traced.flops_at(batch), grown + fixed / batch
    known = sum(call.fixed_flops for call in traced.operators)
    if flops - spared <= done * _ENOUGH and done <= flops * _ENOUGH:
        # Of a product of three factors the batch decides which two come first.
        is_odd = grown > 0.0 and abs(fixed - known) > (_ENOUGH - 1.0) * batch * done
        return [Caveat("in which order it multiplies depends on the batch", _ratio(done, grown))] if is_odd else []
    text = f"its operators have {flops:.3g} operations a sample, the kernels of its forward pass {done:.3g}"
    return [Caveat(text, _ratio(flops, done))]


#: Ratio of operations from which on they differ.
_ENOUGH = 1.02


def _operators(request: _Request, made: list[Any]) -> tuple[Traced, bool]:
    """Record operators on meta tensors, or, where constants with values or attention need it, on fake ones of the CPU.

    Fake tensors are several times slower, but keep attention whole. Also whether random numbers may decide on them.
    """
    with contextlib.suppress(InputError):
        return _operators_on("meta", request, made)
    return _operators_on("cpu", request, made)


def _operators_on(place: str, request: _Request, made: list[Any]) -> tuple[Traced, bool]:
    """Record operators; with twice as many samples, too, where some may be as large for every batch."""
    trace, doubled = _Trace(request, place, made), request.doubled()
    traced = trace.run()
    if trace.has_fixed or any(one.shape == two.shape for one, two in zip(request.specs, doubled.specs, strict=True)):
        try:
            twice = _Trace(doubled, place, made).run()
            operators = with_fixed(traced.operators, twice.operators, batch_of(request.specs))
            traced = traced._replace(operators=operators)
        except InputError:
            anywhere = request.with_batch_anywhere()
            if not any(spec.axis for spec in request.specs) and any(spec.axis for spec in anywhere.specs):
                raise AgainError(_Request.with_batch_anywhere) from None
    return traced, trace.is_random


def _kernels(request: _Request, made: list[Any]) -> tuple[Sequence[Kernel], list[Caveat]]:
    """Record kernels on meta tensors, or, if constants with values are mixed in, on fake ones, which are slow."""
    reason = ""
    twice: Sequence[Launch] = ()
    for place in ("meta", "cpu"):
        try:
            once = _KernelTrace(request, place, made).launches()
        except InputError as error:
            reason = first_line(error.__cause__ or error)
            continue
        with contextlib.suppress(InputError):
            twice = _KernelTrace(request.doubled(), place, made).launches()
        return kernels_of(once, twice, batch_of(request.specs)), growth_of(once, twice)
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
    """A forward pass of a copied module on fake (CPU) or meta tensors; `made` receives weak references to these."""

    listener_type: type[Listener] = Listener

    def __init__(self, request: _Request, place: str, made: list[Any]) -> None:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        self._original, self._specs, self._train, self._seed, self._saves, self._settled = request
        self._place, self._made = place, made
        self._fake: Any = FakeTensorMode(allow_non_fake_inputs=True) if place == "cpu" else torch.device(place)
        self._recorder = Recorder(batch_of(self._specs))
        self._listener = self.listener_type(self._recorder, self._fake, place)
        self.is_random = False
        self._rows = 0

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
            alone = replaced(torch.distributed, "is_initialized", lambda: False)
            ending = replaced(os, "_exit", sys.exit)
            # Distributions compute without reading values, but check their parameters by default.
            unchecked = replaced(torch.distributions.Distribution, "_validate_args", False)
            hooks = self._listener.network_hooks()
            gradients = torch.set_grad_enabled(self._train is not False)
            try:
                with gradients, eager, alone, ending, unchecked, hooks, calls.flex_attention_on_cpu():
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
        self._listener.feed_state(module)
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
            undeclared = None if is_declared else position
            self._listener.feed(tensor, batched=spec.axis is not None, undeclared=undeclared)
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
        rows, specs = {result.shape[0] for result in results if result.dim()}, self._specs
        self._rows = samples = rows.pop() if len(rows) == 1 else 0
        ragged = [len(spec.shape) == 1 < samples < spec.shape[0] for spec in specs if spec.shape[:1] != (samples,)]
        if not self._settled and len(specs) > 1 and samples != batch_of(specs) and ragged and all(ragged):
            bags = [spec._replace(axis=0, samples=samples) for spec in specs]
            raise AgainError(lambda request: request.settled(bags))

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
            **input_fields(self._specs),
            n_parameters=sum(p.numel() for p in parameters),
            n_trainable=sum(p.numel() for p in parameters if p.requires_grad),
            parameter_bytes=float(sum(p.numel() * p.element_size() for p in parameters)),
            n_sparse=self._sparse(),
            n_tensors=sum(p.requires_grad for p in parameters),
            state_bytes=float(sum(map(calls.storage_bytes, calls.state_of(self._original).values()))),
            compute_dtype=self._compute_dtype(),
        )._replace(caveats=[*self._caveats(), *input_caveats(self._specs)], rows=self._rows)

    def _compute_dtype(self) -> str:
        return most_common_type((str(p.dtype).removeprefix("torch."), p.numel()) for p in self._parameters())

    def _caveats(self) -> list[Caveat]:
        every, counted = self._listener.kernels.flops, self._listener.counted
        if not self._saves:
            return [Caveat("what is saved for the backward pass is not known, as torch.func takes gradients", math.inf)]
        if self._listener.is_offloading:
            return [
                Caveat("what it saves waits in the memory of the host, and the time of copies is left out", math.inf)
            ]
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

    def launches(self) -> list[Launch]:
        """Launches of the two passes."""
        self.run()
        return self._listener.kernels.launches

    def _forward(self, module: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        import torch

        kernels, self._listener.is_half = self._listener.kernels, self._compute_dtype() in HALF
        # In the backward pass, too, as checkpoints compute anew there.
        with calls.autocast_flag(), kernels.mode(), self._listener.mode:
            results = [result for result in calls.results_in(module(*args, **kwargs)) if result.requires_grad]
            self._listener.start_backward()
            if results:
                torch.autograd.backward(results, [torch.empty_like(result) for result in results])
        for parameter in module.parameters():
            parameter.grad = None
