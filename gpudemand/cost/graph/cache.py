"""Remember what was worked out about a graph, for as long as the graph lives."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

from gpudemand.cost.graph.op_graph import OpGraph

P = ParamSpec("P")
R = TypeVar("R")


def per_graph(function: Callable[Concatenate[OpGraph, P], R]) -> Callable[Concatenate[OpGraph, P], R]:
    """Work a function of a graph, and of hashable arguments, out once.

    Results are shared by all callers: none of them may change what it got.

    Examples
    --------
    >>> @per_graph
    ... def slow(graph, factor):
    ...     return [factor]
    >>> graph = OpGraph.from_operators([], [])
    >>> slow(graph, 2) is slow(graph, 2), slow(graph, 2) is slow(graph, 3)
    (True, False)
    """
    known: WeakKeyDictionary[OpGraph, dict[Hashable, Any]] = WeakKeyDictionary()

    @wraps(function)
    def remembered(graph: OpGraph, *args: P.args, **kwargs: P.kwargs) -> R:
        results = known.setdefault(graph, {})
        key = (args, *kwargs.items())
        if key not in results:
            results[key] = function(graph, *args, **kwargs)
        result: R = results[key]
        return result

    return cast("Callable[Concatenate[OpGraph, P], R]", remembered)
