"""`Operator`: one call of one operator in a network, with its cost per sample."""

from __future__ import annotations

from typing import NamedTuple


class UnknownOperatorWarning(UserWarning):
    """A network holds operators outside the vocabulary; they count as ``Other``, with no operations."""


class Operator(NamedTuple):
    """One call of one operator: a row of `OpGraph.nodes`. Amounts are per sample.

    Attributes
    ----------
    type : str
        Canonical type, an ONNX operator name (`gpudemand.cost.operators.vocabulary.VOCABULARY`).
    kind : str
        For convolutions one of `CONVOLUTION_KINDS`; otherwise empty.
    name : str
        Path of the module or layer that made the call.
    operator : str
        What the framework calls it.
    output_shape : tuple of int
        With a batch of one.
    flops : float
        Operations of the forward pass; a multiply-add counts as 2.
    parameters : int
        Parameters that this call uses and no earlier one did, so that shared ones count once.
    weight_bytes : float
        Bytes of all parameters that this call reads, which do not grow with the batch. Of a table that is looked up,
        the rows found are in `bytes_read` instead.
    bytes_read, bytes_written : float
        Bytes of activations.
    saved_bytes : float
        Bytes of activations kept for the backward pass, each tensor at the first operator that keeps it.
    """

    type: str
    kind: str
    name: str
    operator: str
    output_shape: tuple[int, ...]
    flops: float
    parameters: int
    weight_bytes: float
    bytes_read: float
    bytes_written: float
    saved_bytes: float
