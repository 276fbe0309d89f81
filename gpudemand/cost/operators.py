"""Operators and kernels: their vocabulary, operations, and the precision they run in.

Types are ONNX operator names, so that a network has one graph in every framework. Views, slices, reshapes, transposes
that only change strides, expansions, detached copies and shape arithmetic are no operators; a transpose that moves data
is one.

A multiply-add counts as 2. Element-wise operators, normalisations and pools are bound by memory bandwidth: they count
bytes and no operations, as in ``torch.utils.flop_counter``. Biases and masks count nothing.

Products run in half precision, operators that need range or accumulate in single precision, and every other operator in
the widest type among its inputs and parameters; parameters are stored in single precision.

References
----------
PyTorch, "Automatic Mixed Precision package", CUDA op-specific behavior, and ``ATen/autocast_mode.h`` (version 2.13).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpudemand._tables import keyed_rows
from gpudemand._validation import InputError


class UnknownOperatorWarning(UserWarning):
    """A network has operators outside the vocabulary; they count as ``Other``, with no operations."""


class IncompleteTraceWarning(UserWarning):
    """The trace of a network may lack work, or its work depends on more than the shape of the input."""


class Operator(NamedTuple):
    """One operator call: a row of `OpGraph.nodes`. Amounts are per sample.

    `type`: canonical type, an ONNX operator name (`gpudemand.cost.operators.VOCABULARY`). `kind`: of a convolution,
    one of `CONVOLUTION_KINDS`; otherwise empty. `name`: path of the module or layer that made the call. `operator`:
    what the framework calls it. `output_shape`: with a batch of one. `flops`: operations of the forward pass; a
    multiply-add counts as 2. `parameters`: parameters that this call is the first to use; shared ones count once.
    `weight_bytes`: bytes of all parameters that this call reads, independent of the batch. The rows read from a
    lookup table are in `bytes_read` instead. `bytes_read`, `bytes_written`: bytes of activations. `saved_bytes`:
    bytes of activations saved for the backward pass, each tensor at the first operator that saves it. `fixed_flops`,
    `fixed_bytes_read`, `fixed_bytes_written`, `fixed_saved_bytes`: independent of the batch: of what is computed from
    parameters alone, such as generated weights. `channels`, `inner`: output channels, and of a convolution the input
    channels of a group; 0 where the channels are the axis after the batch, as in PyTorch. `frozen`: share of its
    backward pass that a step leaves out, as nothing before it, or none of its weights, is trained.
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
    channels: int = 0
    inner: int = 0
    frozen: float = 0.0


def channels_of(call: Any) -> int:
    """Channels of the output of an operator, a row of `OpGraph.nodes`."""
    return int(call.channels or (call.output_shape[:2] or (1,))[-1])


#: Fields that may grow with the batch; what does not is in ``fixed_<field>``.
BATCHED = ("flops", "bytes_read", "bytes_written", "saved_bytes")


OTHER = "Other"


def _by_name(rows: dict[str, dict[str, str]], column: str) -> dict[str, str]:
    """What each name in a column of names is a name of."""
    return {name: key for key, row in rows.items() for name in row[column].split()}


#: Canonical types: class among features, kernel if it has not the name of the class, width under autocast, what is
#: saved for the backward pass, and names in PyTorch (ATen, without the trailing ``_`` of in-place variants), in
#: TensorFlow (graph operations) and in Keras (layers and functions that are one operator but many graph operations).
_TYPES = keyed_rows(Path(__file__).with_name("operators.csv"))
#: Kinds of kernels: the units that do most of their work (``memory`` only moves data), operations, bytes and calls of
#: the backward pass as multiples of the forward pass, and operators of ATen; those not listed are ``pointwise``.
_KERNELS = keyed_rows(Path(__file__).with_name("kernels.csv"))
TORCH_TYPES, TENSORFLOW_TYPES, KERAS_TYPES = (_by_name(_TYPES, column) for column in ("torch", "tensorflow", "keras"))
ATEN_KINDS = _by_name(_KERNELS, "aten")
#: Every canonical type, in the order in which matrices and features list them.
VOCABULARY = tuple(_TYPES)
CLASS_OF, KERNEL_OF = ({name: row[column] for name, row in _TYPES.items()} for column in ("class", "kernel"))
KINDS = tuple(_KERNELS)
UNIT_OF = {kind: row["unit"] for kind, row in _KERNELS.items()}
MATRIX_KINDS = tuple(kind for kind, unit in UNIT_OF.items() if unit == "matrix")
#: Medians over the PyTorch networks of the zoo, by ``python -m scripts.derive_backward_kernels``. Of kinds that it
#: lacks: two products for the gradients of a product's operands, and the traffic of an activation.
BACKWARD = {
    kind: [float(row[f"backward_{name}"] or usual) for name, usual in (("flops", 2.0), ("bytes", 1.5), ("calls", 1.0))]
    for kind, row in _KERNELS.items()
}

#: TensorFlow operations that only rename, slice or describe data; they are no operators.
_VIEWS = """
    Identity IdentityN Reshape Squeeze ExpandDims StopGradient PreventGradient StridedSlice Slice Split SplitV Unpack
    Shape ShapeN Size Rank BroadcastTo EnsureShape CheckNumerics ReadVariableOp Bitcast Snapshot NoOp Assert ZerosLike
    OnesLike Fill Range BroadcastArgs BroadcastGradientArgs Placeholder Const VariableShape AssignVariableOp
    AssignAddVariableOp AssignSubVariableOp EmptyTensorList TensorListElementShape TensorListFromTensor
    TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack TensorListReserve TensorListSetItem
"""
TENSORFLOW_VIEWS = frozenset(_VIEWS.split())


def torch_type(name: str) -> str:
    """Canonical type of a PyTorch operator by its ATen or Python name: ``conv2d``, ``relu_``, ``__iadd__``."""
    plain = name.strip("_") if name.startswith("__") else name.rstrip("_")
    return TORCH_TYPES.get(plain, OTHER)


def tensorflow_type(name: str) -> str:
    """Canonical type of a TensorFlow graph operation."""
    return TENSORFLOW_TYPES.get(name, OTHER)


def convolution_kind(kernel: Sequence[int], groups: int, channels: int) -> str:
    """Class of a convolution, which its speed depends on; ``3x3`` is at most 3 along every axis."""
    if groups > 1:
        return "depthwise" if groups == channels else "grouped"
    extent = max(kernel, default=1)
    return "1x1" if extent == 1 else "3x3" if extent <= 3 else "large"


CONVOLUTION_KINDS = ("1x1", "3x3", "large", "grouped", "depthwise")


class Saved(NamedTuple):
    """What the gradient of an operator needs from the forward pass."""

    inputs: bool = False
    output: bool = False
    #: Further bytes per output element, such as a dropout mask or the index of a maximum.
    extra: float = 0.0


#: What each operator saves for the backward pass. A tensor saved by two operators counts once; weights never count.
#: The statistics of normalisations (one number a channel) are left out.
SAVES = {
    name: Saved("inputs" in row["saves"], "output" in row["saves"], float(row["saved_bytes"] or 0))
    for name, row in _TYPES.items()
}

#: Numbers that a recurrent cell saves per time step and hidden unit (gates and states, its output among them), beside
#: its input.
RECURRENT_STATE = {"LSTM": 7.0, "GRU": 7.0, "RNN": 1.0}


def check_vocabulary(types: Sequence[str]) -> tuple[str, ...]:
    """Return `types` as a tuple; raise `InputError` for one that is no canonical operator type."""
    unknown = [name for name in types if name not in VOCABULARY]
    if unknown:
        raise InputError(f"{unknown[0]!r} is no operator type; gpudemand.cost.operators.VOCABULARY lists them.")
    return tuple(types)


class Kernel(NamedTuple):
    """Kernel launches of one step that do the same work: a row of `OpGraph.kernels`.

    `kind`: one of `KINDS`. `backward`: whether it belongs to the backward pass. `is_autocast`: a cast that happens
    only under automatic mixed precision. `channels`, `inner`: of a product with parameters the two extents of these,
    of other products the two smaller ones, of convolutions the output channels and the input channels of a group; 0
    for other kinds. `weights`, `width`: weights of a convolution, and the longest side of its filters; 0 where
    unknown. `is_direct`: a convolution that libraries have no fast algorithm for: dilated, or over other than two
    spatial axes. `flops`, `bytes`, `half_bytes`: per sample: operations, and bytes read and written in single
    precision and under autocast. `fixed_bytes`, `fixed_half_bytes`, `fixed_flops`: independent of the batch: of
    parameters, their gradients, and what is computed from them alone. `calls`: number of such launches. `is_double`:
    whether it computes in double precision, which autocast leaves alone.
    """

    kind: str
    backward: bool = False
    is_autocast: bool = False
    channels: int = 0
    inner: int = 0
    weights: int = 0
    width: int = 0
    is_direct: bool = False
    flops: float = 0.0
    bytes: float = 0.0
    half_bytes: float = 0.0
    fixed_bytes: float = 0.0
    fixed_half_bytes: float = 0.0
    fixed_flops: float = 0.0
    calls: int = 1
    is_double: bool = False


def product_flops(outputs: float, inner: float) -> float:
    """Operations of `outputs` sums over `inner` products; of a layer, of its positions and the elements of its weights.

    >>> product_flops(10 * 10, 64)
    12800.0
    """
    return 2.0 * outputs * inner


def attention_flops(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> float:
    """Operations of scaled dot-product attention: two matrix products, without savings by a mask."""
    return 2.0 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def fourier_flops(elements: float, length: float, *, real: bool) -> float:
    """Operations of fast Fourier transforms along axes of `length` elements together: ``5 n log2(n)``, half if real.

    Van Loan, "Computational Frameworks for the Fast Fourier Transform", SIAM 1992.

    >>> fourier_flops(3 * 1024, 1024, real=False)
    153600.0
    """
    return (2.5 if real else 5.0) * elements * math.log2(max(length, 1.0))


def einsum_flops(equation: str, shapes: Sequence[Sequence[int]], outputs: float) -> float:
    """Operations of an Einstein sum of `outputs` elements over one or two operands; zero where no product is summed.

    The result is written out, as in the graphs of TensorFlow, and takes every axis under an ellipsis.

    >>> einsum_flops("...ij,...jk->...ik", [(7, 2, 3), (7, 3, 4)], 7 * 2 * 4)
    336.0
    """
    terms, _, result = equation.partition("->")
    extents: dict[str, int] = {}
    for term, shape in zip(terms.split(","), shapes, strict=True):
        before, _, after = term.partition("...")
        extents |= dict(zip(before, shape, strict=False)) | dict(zip(after[::-1], shape[::-1], strict=False))
    summed = [extent for name, extent in extents.items() if name not in result]
    return product_flops(outputs, math.prod(summed)) if summed and len(shapes) > 1 else 0.0


#: Width of half precision, as a share of single precision.
HALF_WIDTH = 0.5
#: Types of half precision -> precision of a job with such parameters.
HALF = {"float16": "fp16", "bfloat16": "bf16"}

#: Canonical types that autocast runs in half and in single precision, the latter
HALF_TYPES, SINGLE_TYPES = (
    frozenset(name for name, row in _TYPES.items() if row["autocast"] == width) for width in ("half", "single")
)
#: together with these operators; others of their types take the widest type.
_SINGLE_OPERATORS = frozenset(["rsqrt", "reciprocal", "cumsum", "erfinv", "tan", "acos", "asin", "cosh", "sinh"])
#: Operators that take the widest type although others of their type run in single precision.
_WIDEST_OPERATORS = frozenset(["exp2", "log_sigmoid", "logsigmoid"])
#: Canonical types whose single-precision parameters leave the output in the type of the input.
_MIXED_INPUT_TYPES = frozenset(["BatchNormalization", "InstanceNormalization"])


def autocast_width(type_: str, operator: str, inputs: Sequence[float], has_parameters: bool) -> float:
    """Width of the output of an operator under autocast, as a share of single precision, from those of what it reads.

    `operator`: what the framework calls it; ``rsqrt`` and ``sqrt`` have one type and different precisions.
    """
    if type_ in HALF_TYPES:
        return HALF_WIDTH
    if runs_in_single(type_, operator.lower()) or (has_parameters and type_ not in _MIXED_INPUT_TYPES):
        return 1.0
    return max(inputs, default=1.0)


def runs_in_single(type_: str, operator: str) -> bool:
    """Whether autocast runs an operator of a canonical type in single precision."""
    return operator in _SINGLE_OPERATORS or (type_ in SINGLE_TYPES and operator not in _WIDEST_OPERATORS)
