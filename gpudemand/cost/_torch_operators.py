"""Operators of calls to PyTorch: their names, types, operations and bytes, and the results of those that do not run."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import random
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from gpudemand.cost._surroundings import replaced
from gpudemand.cost.operators import (
    HALF_TYPES,
    RECURRENT_STATE,
    attention_flops,
    convolution_kind,
    product_flops,
    torch_type,
)

#: Calls that use only the shape, type or device of a tensor; they return constants.
_TEMPLATES = ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like")
_IN_PLACE = ("__setitem__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__")
#: A property of a tensor that is set, not its data.
_SETTERS = ("requires_grad_",)
#: Copies in the same order and casts to the same type are aliases.
_COPIES = ("contiguous", "reshape", "flatten", "clone", "view", "unflatten", "to", "float", "type", "type_as", "detach")


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors in nested lists, tuples and dicts of arguments."""
    import torch
    from torch.utils._pytree import tree_iter

    return (_whole(leaf) for leaf in tree_iter(value) if isinstance(leaf, torch.Tensor))


def _whole(tensor: Any) -> Any:
    """The tensor with all samples, of one inside ``torch.vmap`` or another transform."""
    from torch._C import _functorch

    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def results_in(value: Any) -> Iterator[Any]:
    """Yield the tensors of what a module returns: in containers and fields of objects, and those of an iterator."""
    return _reached(value, _contents)


def _reached(value: Any, contents: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    """Yield the tensors in an object, given what an object holds, which may hold itself again."""
    import torch

    waiting, seen = [value], dict[int, Any]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or one is None or isinstance(one, (str, bytes, int, float, type)):
            continue
        seen[id(one)] = one
        if isinstance(one, torch.Tensor):
            yield one
        else:
            waiting += contents(one)


def _contents(one: Any) -> list[Any]:
    found = [getattr(one, name, None) for name in getattr(one, "__slots__", ()) if isinstance(name, str)]
    found += vars(one).values() if hasattr(one, "__dict__") else ()
    if isinstance(one, Mapping):
        found += one.values()
    elif isinstance(one, Iterable) and not hasattr(one, "parameters"):
        found += one
    return found


def _items(one: Any) -> Iterable[Any]:
    """What a list, tuple or dict holds; other objects may be of another network, or iterators, which this would use."""
    return one.values() if isinstance(one, dict) else one if isinstance(one, (list, tuple)) else ()


def state_of(module: Any) -> dict[Hashable, Any]:
    """What a module keeps beside its parameters, a tensor for each storage: buffers, attributes, packed weights."""
    import torch

    parts = list(module.modules())
    # The statistics of normalisations are a few numbers a channel, which what was measured has in its constant.
    plain = [part for part in parts if not isinstance(part, torch.nn.modules.batchnorm._NormBase)]
    kept = [value for part in plain for value in (*vars(part).values(), *_packed(part))]
    found = {storage_key(tensor): tensor for tensor in _reached(kept, _items)}
    for parameter in module.parameters():
        found.pop(storage_key(parameter), None)
    return found


def _packed(part: Any) -> list[Any]:
    """What a quantized layer saves: its weights are in an object of their own."""
    import torch

    packed = [value for value in vars(part).values() if isinstance(value, torch.ScriptObject)]
    return [list(one.__getstate__()) for one in packed if hasattr(one, "__getstate__")]  # type: ignore[call-overload]


def storage_key(tensor: Any) -> Hashable:
    """Identity of the storage of a tensor, which its views share."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # sparse tensors have no storage
        return id(tensor)


def storage_bytes(tensor: Any) -> float:
    """Bytes of the storage of a tensor."""
    if is_sparse(tensor):
        return float(sum(part.numel() * part.element_size() for part in stored_parts(tensor)))
    try:
        return float(tensor.untyped_storage().nbytes())
    except (NotImplementedError, RuntimeError):
        return float(tensor.numel() * tensor.element_size())


def stored_parts(sparse: Any) -> Sequence[Any]:
    """Values of a sparse tensor, and where they are."""
    layout = str(sparse.layout)
    if layout == "torch.sparse_coo":
        return sparse._values(), sparse._indices()
    if layout in ("torch.sparse_csr", "torch.sparse_bsr"):
        return sparse.values(), sparse.crow_indices(), sparse.col_indices()
    return sparse.values(), sparse.ccol_indices(), sparse.row_indices()


def name_of(func: Any) -> str:
    """Name of what is called, with its library unless that is PyTorch's: the ``mm`` of another may do anything."""
    import torch

    name = str(func.__name__).partition(".")[0]
    is_operator = isinstance(func, (torch._ops.OpOverload, torch._ops.OpOverloadPacket))
    library = str(func).partition(".")[0] if is_operator else "aten"
    return name if library in ("aten", "prims", "quantized") else f"{library}::{name}"


def in_order(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Arguments in the order of the operator's signature, in whatever order keywords were written."""
    import torch

    if kwargs:
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet else ():
            names = [argument.name for argument in getattr(packet, overload)._schema.arguments]
            given = {"self" if key == "input" and "self" in names else key: value for key, value in kwargs.items()}
            if set(given) <= set(names[len(args) :]):
                return [*args, *(given[key] for key in names if key in given)]
    return [*args, *kwargs.values()]


def mistyped(name: str, tensors: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """The type that a call wants of some tensors, and these: real indices, and real factors of complex ones."""
    type_ = torch_type(name)
    if type_ == "Gather":
        used = tensors if name == "one_hot" else tensors[1:]
        return "int64", [tensor for tensor in used if tensor.is_floating_point()]
    complex_ = next((tensor.dtype for tensor in tensors if tensor.is_complex()), None)
    if complex_ is None or type_ not in HALF_TYPES:
        return "", []
    return str(complex_).removeprefix("torch."), [tensor for tensor in tensors if not tensor.is_complex()]


def is_template(name: str) -> bool:
    """Whether a call uses only the shape, type or device of its argument, as ``zeros_like``."""
    return name in _TEMPLATES or name.startswith("new_")


def is_in_place(name: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether a call writes into its first argument (or into ``out=``)."""
    is_named = name in _IN_PLACE or (name.endswith("_") and not name.startswith("__") and name not in _SETTERS)
    return is_named or kwargs.get("out") is not None


def is_plain_copy(name: str, source: Any, result: Any) -> bool:
    """Whether a call copies its argument without change of order or type."""
    same_order = source.is_contiguous() or source.stride() == result.stride()
    return name in _COPIES and source.dtype == result.dtype and source.numel() == result.numel() and same_order


def call_type(name: str, tensors: Sequence[Any], result: Any, has_weight: bool) -> str:
    """Canonical type of a call of ATen `name` on `tensors`; a product with a weight is a dense layer."""
    type_ = torch_type(name)
    if type_ == "MatMul" and has_weight:
        return "Gemm"
    source = tensors[0]
    pools_all = math.prod(result.shape[2:]) == 1 < math.prod(source.shape[2:])
    if pools_all and (type_ == "AveragePool" or name.startswith("adaptive_max")):
        return f"Global{type_}"
    averages_all = source.dim() > 3 and result.numel() == math.prod(source.shape[:2])
    return "GlobalAveragePool" if name == "mean" and averages_all else type_


def call_kind(type_: str, tensors: Sequence[Any]) -> str:
    """Class of a convolution, from the shapes of its input and its weight; otherwise empty."""
    if type_ not in ("Conv", "ConvTranspose") or len(tensors) < 2:
        return ""
    source, weight = tensors[:2]
    channels = source.shape[1 - weight.dim()]
    groups = channels // weight.shape[1] if type_ == "Conv" else 1
    return convolution_kind(weight.shape[2:], groups, channels)


def ruled_flops(type_: str, name: str, tensors: Sequence[Any], result: Any) -> float:
    """Operations of a call for the whole batch that does not dispatch them in the trace; 0 for other calls."""
    if type_ == "Attention":
        query, key, value = (tensor.shape for tensor in tensors[:3])
        return attention_flops((*result.shape[:-1], query[-1]), key, value)
    if name in RECURRENT:
        weights = sum(tensor.numel() for tensor in tensors[1:] if tensor.dim() == 2)
        return product_flops(tensors[0].numel() / tensors[0].shape[-1], weights)
    return 0.0


def sparse_bytes(flops: float, tensors: Sequence[Any]) -> float:
    """Bytes that a product with sparse matrices reads, a row of the dense one for each nonzero; 0 if none is sparse."""
    return flops / 2.0 * tensors[-1].element_size() if density(tensors) < 1.0 else 0.0


def is_sparse(tensor: Any) -> bool:
    """Whether a tensor is stored sparsely, in any layout."""
    return str(tensor.layout) != "torch.strided"


def density(tensors: Sequence[Any]) -> float:
    """Nonzeros of sparse operands as a share of their elements; 1 for dense ones."""
    return math.prod(
        stored_parts(tensor)[0].numel() / max(tensor.numel(), 1) for tensor in tensors if is_sparse(tensor)
    )


def common_type(name: str, args: Any, kwargs: Any) -> Any:
    """Type for the operands of a call that takes one type only, as scatters; None if they have one already.

    They had before autocast, which promotes the operands of some such calls, too.
    """
    import torch

    types = [tensor.dtype for tensor in tensors_in(in_order(name, args, kwargs)) if tensor.is_floating_point()]
    if len(set(types)) < 2:
        return None
    return types[0] if is_in_place(name, kwargs) else functools.reduce(torch.promote_types, types)


def known_size(value: Any) -> Any:
    """A size that is a tensor with a value, as the batch of packed sequences, as an integer."""
    import torch

    is_known = type(value) is torch.Tensor and value.dim() == 0 and value.device.type == "cpu"
    return int(value) if is_known and not value.is_floating_point() else value


def fused_arguments(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *rest: Any, **options: Any
) -> Any:
    """Arguments of attention that a CPU has one kernel for, as a GPU has for others, too.

    With a gradient of the mask, or with dropout, a CPU saves scores, and copies its result.
    """
    mask = attn_mask.detach() if hasattr(attn_mask, "detach") else attn_mask
    return (query, key, value, mask, 0.0, *rest), options


def grouped_product(func: Any, args: Any, kwargs: Any) -> Any:
    """A grouped product, which runs without data in bf16 only, as if in the type of its first operand."""
    import torch

    tensors = (
        value.bfloat16() if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in args
    )
    return func(*tensors, **kwargs).to(args[0].dtype)


def sizes(tensors: Iterable[Any]) -> dict[Hashable, float]:
    """Bytes of each distinct storage, broadcast elements not counted."""
    sizes: dict[Hashable, float] = {}
    for tensor in tensors:
        size = min(tensor.numel() * tensor.element_size(), storage_bytes(tensor))
        sizes[storage_key(tensor)] = max(size, sizes.get(storage_key(tensor), 0.0))
    return sizes


RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def is_packed(name: str, args: Any) -> bool:
    """Whether a recurrent layer is called on packed sequences: with their batch sizes before its state."""
    return name in RECURRENT and isinstance(args[3], (list, tuple))


def _pack(padded: Any, _lengths: Any, batch_first: bool) -> Any:
    """Data and batch sizes of packed sequences that are as long as the longest: lengths have no values in a trace."""
    import torch

    by_step = padded.transpose(0, 1) if batch_first else padded
    data = by_step.clone(memory_format=torch.contiguous_format).flatten(0, 1)
    return data, torch.full((by_step.shape[0],), by_step.shape[1])


def _pad(data: Any, sizes: Any, batch_first: bool, *_: Any) -> Any:
    """Padded sequences of packed ones that are all of one length, and the lengths."""
    import torch

    by_step = data.unflatten(0, (len(sizes), -1))
    lengths = torch.full((by_step.shape[1],), len(sizes))
    padded = by_step.transpose(0, 1) if batch_first else by_step
    return padded.clone(memory_format=torch.contiguous_format), lengths


#: Calls that pack and pad sequences. Their first result is data, the other constant.
PACKING: dict[str, Callable[..., Any]] = {"_pack_padded_sequence": _pack, "_pad_packed_sequence": _pad}


def recurrent_result(name: str, args: Any) -> Any:
    """Result of a recurrent layer, without running its steps."""
    source, state, weights, bidirectional = args[0], args[1], args[2], args[7]
    states = state if name == "lstm" else [state]
    outputs = (*source.shape[:-1], states[0].shape[-1] * (2 if bidirectional else 1))
    is_tracked = needs_gradient(source, *weights)
    shapes = [outputs, *(one.shape for one in states)]
    return tuple(source.new_empty(shape).requires_grad_(is_tracked) for shape in shapes)


def recurrent_state(type_: str, args: Any, result: Any) -> float:
    """Bytes that a recurrent layer saves: the state of its cells, and the outputs of its inner layers."""
    layers = next((value for value in args[4:6] if type(value) is int), 1)
    per_output = layers * RECURRENT_STATE[type_] + layers - 1
    return result.numel() * result.element_size() * per_output


def ctc_states(log_probs: Any, targets: Any) -> Any:
    """Indices of the labels that an alignment may be at, each step, with a blank around each: steps first."""
    import torch

    samples = log_probs.shape[1:-1]
    length = targets.shape[-1] if targets.dim() > 1 else targets.numel() // math.prod(samples)
    return targets.new_zeros((*log_probs.shape[:-1], 2 * length + 1), dtype=torch.long)


def ctc_losses(log_probs: Any, targets: Any) -> tuple[Any, Any]:
    """Loss of each sample, and the probabilities of alignments up to each step, without computing them."""
    is_tracked = needs_gradient(log_probs)
    losses = log_probs.new_empty(log_probs.shape[1:-1]).requires_grad_(is_tracked)
    return losses, log_probs.new_empty(ctc_states(log_probs, targets).shape)


def reduced(losses: Any, _inputs: Any, _targets: Any, _blank: int = 0, reduction: int = 1, *_: Any) -> Any:
    """A loss from those of samples: 0 is none of a reduction, 1 their mean, 2 their sum."""
    return losses.mean() if reduction == 1 else losses.sum() if reduction == 2 else losses


def needs_gradient(*tensors: Any) -> bool:
    """Whether autograd follows a call on some tensors."""
    import torch

    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


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
    shapes = (tensor.shape[:-2] for tensor in (query, key, value))
    outer = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    if len(outer) != 2 or any(tensor.shape[:-2] != outer for tensor in (query, key, value)):
        query, key, value = (_with_heads(tensor, outer) for tensor in (query, key, value))
        attn_mask = attn_mask if attn_mask is None else _with_heads(attn_mask, outer)
        out = fused_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
        return out.reshape(*outer, *out.shape[-2:])
    if attn_mask is not None:
        attn_mask = attn_mask.to(query.dtype).expand(*query.shape[:-1], key.shape[-2])
    attend = torch.ops.aten._scaled_dot_product_efficient_attention
    return attend(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]


def _with_heads(tensor: Any, outer: Sequence[int]) -> Any:
    """A tensor with two axes before its last two, samples and heads, broadcast to `outer`."""
    whole = tensor.expand(*outer, *tensor.shape[-2:])
    return whole.reshape(-1, outer[-1] if len(outer) > 1 else 1, *tensor.shape[-2:])


@contextlib.contextmanager
def autocast_flag() -> Iterator[None]:
    """Say that autocast is on, which modules ask; the listener does the casts."""
    import torch

    before = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[Callable[[], bool]]:
    """Seed the generators of random numbers, and leave them as they were; yields whether numbers were drawn."""
    import torch

    def states() -> tuple[Any, ...]:
        """State of each generator, of plain numbers, so that they compare."""
        state: Any = np.random.get_state()  # noqa: NPY002 (the user's)
        name, keys, *rest = state
        return random.getstate(), (name, keys.tolist(), *rest), torch.get_rng_state().tolist()

    before, of_torch = states(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    start = states()
    try:
        yield lambda: states() != start
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(of_torch)


def flex_attention_on_cpu() -> AbstractContextManager[None]:
    """Let `flex_attention`, if it was imported, pass its check that there is no gradient on a CPU; none is computed."""
    return replaced(sys.modules.get("torch.nn.attention.flex_attention"), "_validate_device", lambda *_: None)


def fake_tensor_log_disabled() -> AbstractContextManager[None]:
    """Suppress the stack that PyTorch logs for an error that is raised again as `InputError`."""
    return replaced(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)
