"""Precision of operators under automatic mixed precision: the rules of ``torch.autocast`` on CUDA.

Products run in half precision, operators that need range or accumulate in single precision, and every other operator in
the widest type among its inputs and parameters; parameters are stored in single precision.

References
----------
PyTorch, "Automatic Mixed Precision package", CUDA op-specific behavior, and ``ATen/autocast_mode.h`` (version 2.13).
"""

from __future__ import annotations

from collections.abc import Sequence

#: Width of half precision, as a share of single precision.
HALF_WIDTH = 0.5

#: Canonical types that autocast runs in half precision ...
HALF_TYPES = frozenset(["Conv", "ConvTranspose", "Gemm", "MatMul", "Attention", "LSTM", "GRU", "RNN", "PRelu"])
#: ... and those that it runs in single precision,
SINGLE_TYPES = frozenset(
    [
        *("LayerNormalization", "GroupNormalization", "RMSNormalization", "LpNormalization", "LRN"),
        *("Softmax", "LogSoftmax", "Softplus", "Loss", "Pow", "Exp", "Log", "ReduceSum", "Resize"),
    ]
)
#: together with these operators; others of their types take the widest type.
_SINGLE_OPERATORS = frozenset(["rsqrt", "reciprocal", "cumsum", "erfinv", "tan", "acos", "asin", "cosh", "sinh"])
#: Operators that take the widest type although others of their type run in single precision.
_WIDEST_OPERATORS = frozenset(["exp2", "log_sigmoid", "logsigmoid"])
#: Canonical types whose single-precision parameters leave the output in the type of the input.
_MIXED_INPUT_TYPES = frozenset(["BatchNormalization", "InstanceNormalization"])


def autocast_width(type_: str, operator: str, inputs: Sequence[float], has_parameters: bool) -> float:
    """Width of the output of an operator under autocast, as a share of single precision.

    Parameters
    ----------
    type_ : str
        Canonical type.
    operator : str
        What the framework calls it; ``rsqrt`` and ``sqrt`` have one type and different precisions.
    inputs : sequence of float
        Widths of the operators that it reads; an input of the network counts as single precision.
    has_parameters : bool
        Whether it reads parameters.

    Returns
    -------
    {0.5, 1.0}

    Examples
    --------
    >>> autocast_width("Gemm", "linear", [1.0], True), autocast_width("Relu", "relu", [0.5], False)
    (0.5, 0.5)
    >>> autocast_width("Add", "add", [0.5], True), autocast_width("BatchNormalization", "batch_norm", [0.5], True)
    (1.0, 0.5)
    """
    if type_ in HALF_TYPES:
        return HALF_WIDTH
    if runs_in_single(type_, operator.lower()) or (has_parameters and type_ not in _MIXED_INPUT_TYPES):
        return 1.0
    return max(inputs, default=1.0)


def runs_in_half(type_: str) -> bool:
    """Whether autocast runs a canonical type in half precision."""
    return type_ in HALF_TYPES


def runs_in_single(type_: str, operator: str) -> bool:
    """Whether autocast runs an operator of a canonical type in single precision."""
    return operator in _SINGLE_OPERATORS or (type_ in SINGLE_TYPES and operator not in _WIDEST_OPERATORS)
