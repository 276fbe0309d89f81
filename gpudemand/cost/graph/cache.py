"""Memoization of functions of a graph, for the lifetime of the graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

from gpudemand.cost.graph.op_graph import OpGraph

P = ParamSpec("P")
R = TypeVar("R")


def per_graph(function: Callable[Concatenate[OpGraph, P], R]) -> Callable[Concatenate[OpGraph, P], R]:
    """Memoize a function of a graph and of hashable arguments.

    Results are shared by all callers and must not be modified.

    Examples
    --------
    >>> @per_graph
    ... def slow(graph, factor):
    ...     return [factor]
    >>> graph = OpGraph.from_operators([], [])
    >>> slow(graph, 2) is slow(graph, 2), slow(graph, 2) is slow(graph, 3)
    (True, False)
    """
    cache: WeakKeyDictionary[OpGraph, dict[Hashable, Any]] = WeakKeyDictionary()

    @wraps(function)
    def memoized(graph: OpGraph, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result for the graph and the arguments, computed at their first call only."""
        results = cache.setdefault(graph, {})
        key = (args, *kwargs.items())
        if key not in results:
            results[key] = function(graph, *args, **kwargs)
        result: R = results[key]
        return result

    return cast("Callable[Concatenate[OpGraph, P], R]", memoized)
