"""`Operator`: one operator call of a network and its cost."""

from __future__ import annotations

from typing import NamedTuple


class UnknownOperatorWarning(UserWarning):
    """A network has operators outside the vocabulary; they count as ``Other``, with no operations."""


class Operator(NamedTuple):
    """One operator call: a row of `OpGraph.nodes`. Amounts are per sample.

    Attributes
    ----------
    type : str
        Canonical type, an ONNX operator name (`gpudemand.cost.operators.vocabulary.VOCABULARY`).
    kind : str
        Of a convolution, one of `CONVOLUTION_KINDS`; otherwise empty.
    name : str
        Path of the module or layer that made the call.
    operator : str
        What the framework calls it.
    output_shape : tuple of int
        With a batch of one.
    flops : float
        Operations of the forward pass; a multiply-add counts as 2.
    parameters : int
        Parameters that this call is the first to use; shared ones count once.
    weight_bytes : float
        Bytes of all parameters that this call reads, independent of the batch. The rows read from a lookup table are in
        `bytes_read` instead.
    bytes_read, bytes_written : float
        Bytes of activations.
    saved_bytes : float
        Bytes of activations saved for the backward pass, each tensor at the first operator that saves it.
    fixed_flops, fixed_bytes_read, fixed_bytes_written, fixed_saved_bytes : float
        Independent of the batch: of what is computed from parameters alone, such as generated weights.
    """

    type: str
    kind: str
    name: str
    operator: str
    output_shape: tuple[int, ...]
    flops: float = 0.0
    parameters: int = 0
    weight_bytes: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    saved_bytes: float = 0.0
    fixed_flops: float = 0.0
    fixed_bytes_read: float = 0.0
    fixed_bytes_written: float = 0.0
    fixed_saved_bytes: float = 0.0


#: Fields that may grow with the batch; what does not is in ``fixed_<field>``.
BATCHED = ("flops", "bytes_read", "bytes_written", "saved_bytes")
