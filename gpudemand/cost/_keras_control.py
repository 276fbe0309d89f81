"""Control flow in graphs of TensorFlow: functions that operations call, how often loops run, which branch is taken."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

#: Operations that call functions -> attributes that name these.
_FUNCTIONS = {"While": "body", "If": "then_branch else_branch", "Case": "branches", "PartitionedCall": "f"}
#: Comparisons, and whether the first operand is the smaller one and whether both may be equal.
_COMPARISONS = {
    "Less": (True, False),
    "LessEqual": (True, True),
    "Greater": (False, False),
    "GreaterEqual": (False, True),
}


def called(op: Any) -> list[Any]:
    """Graphs of the functions that an operation calls: the body of a loop, branches, or a function; often none."""
    names = _FUNCTIONS.get(op.type.removeprefix("Stateless").removeprefix("Stateful"), "").split()
    given = [op.get_attr(name) for name in names]
    return [_graph(op, one) for value in given for one in (value if isinstance(value, list) else [value])]


def _graph(op: Any, function: Any) -> Any:
    return op.graph._get_function(function.name).graph


def static_value(tensor: Any) -> Any:
    """Value of a tensor that is the same in every call, or None."""
    import tensorflow as tf

    value = tf.get_static_value(tensor)
    if value is not None or not _is_constant(tensor.op):
        return value
    with tf.compat.v1.Session(graph=tensor.graph) as session:
        return np.asarray(session.run(tensor))


def _is_constant(op: Any) -> bool:
    """Whether an operation depends on no input and no state."""
    is_pure = op.type != "Placeholder" and not op.op_def.is_stateful and not called(op)
    return is_pure and all(_is_constant(tensor.op) for tensor in op.inputs)


def trips(op: Any) -> tuple[int | None, bool]:
    """Times that a loop runs at most, by its counters (None if nothing bounds them), and whether exactly so."""
    condition = _graph(op, op.get_attr("cond"))
    limits = [_limit(op, condition, test) for test in _conjuncts(condition.outputs[0])]
    known = [limit for limit in limits if limit is not None]
    return min(known, default=None), len(known) == len(limits)


def _source(tensor: Any) -> Any:
    """The tensor that others are copies of."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _conjuncts(tensor: Any) -> list[Any]:
    """Tests that a condition consists of."""
    op = _source(tensor).op
    return [test for part in op.inputs for test in _conjuncts(part)] if op.type == "LogicalAnd" else [op]


def _limit(loop: Any, condition: Any, test: Any) -> int | None:
    """Times until a counter passes its limit; None if a test does not compare numbers that grow evenly."""
    if test.type not in _COMPARISONS:
        return None
    in_order, may_be_equal = _COMPARISONS[test.type]
    first, second = (_progression(loop, condition, side) for side in test.inputs)
    if first is None or second is None:
        return None
    (low, rise), (high, other_rise) = (first, second) if in_order else (second, first)
    gap, closing = high - low, rise - other_rise
    if gap < 0 or (gap == 0 and not may_be_equal):
        return 0
    return None if closing <= 0 else math.floor(gap / closing) + 1 if may_be_equal else math.ceil(gap / closing)


def _progression(loop: Any, condition: Any, tensor: Any) -> tuple[float, float] | None:
    """First value of a number in the condition of a loop, and what each run of the body adds; None if unknown."""
    places = [place for place, given in enumerate(condition.inputs) if given.name == _source(tensor).name]
    start = static_value(loop.inputs[places[0]] if places else tensor)
    step = _step(_graph(loop, loop.get_attr("body")), places[0]) if places else 0.0
    return None if start is None or start.ndim or step is None else (float(start), step)


def _step(body: Any, place: int) -> float | None:
    """What the body of a loop adds to one of its variables; None if unknown."""
    before, after = body.inputs[place].name, _source(body.outputs[place])
    if after.name == before:
        return 0.0
    if after.op.type not in ("Add", "AddV2", "Sub"):
        return None
    first, second = map(_source, after.op.inputs)
    if second.name == before and after.op.type != "Sub":
        first, second = second, first
    step = static_value(second) if first.name == before else None
    sign = -1.0 if after.op.type == "Sub" else 1.0
    return None if step is None else sign * float(step)
