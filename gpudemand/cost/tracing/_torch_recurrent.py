"""Recurrent layers of a traced forward pass: their results, what they save, and packed sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudemand.cost.operators.vocabulary import RECURRENT_STATE

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


def recurrent_state(type_: str, name: str, args: Any, result: Any) -> float:
    """Bytes that a recurrent layer saves: the state of its cells, and the outputs of its inner layers."""
    layers = next((value for value in args[4:6] if type(value) is int), 1) if name in RECURRENT else 1
    per_output = layers * RECURRENT_STATE[type_] + layers - 1
    return result.numel() * result.element_size() * per_output


def needs_gradient(*tensors: Any) -> bool:
    """Whether autograd follows a call on some tensors."""
    import torch

    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
