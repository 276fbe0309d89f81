"""Largest batch that fits into memory, by bisection."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpudemand._validation import check_number
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.graph.structural_matrix import check_graph
from gpudemand.cost.memory.liveness import Setting, step_events
from gpudemand.cost.memory.simulation import allocated_bytes, interpolated_features
from gpudemand.cost.predict.memory_model import MemoryModel
from gpudemand.units import GIB

#: Upper limit of the search.
_MAX_BATCH = 2**24


def largest_that(fits: Callable[[int], bool], guess: int = 1) -> int:
    """Largest positive integer for which a monotone predicate holds, 0 if none, searched from a guess.

    Examples
    --------
    >>> largest_that(lambda n: n * n <= 150), largest_that(lambda n: n < 1), largest_that(lambda n: n <= 7, guess=100)
    (12, 0, 7)
    """
    low, high = 0, max(int(guess), 1)
    while high <= _MAX_BATCH and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def max_batch_size(
    model: MemoryModel,
    graph: OpGraph,
    limit_gib: float,
    setting: Setting | None = None,
    *,
    level: float = 0.95,
    device: Mapping[str, float] | None = None,
) -> int:
    """Return the largest batch that fits with a probability of at least `level`.

    Parameters
    ----------
    model : MemoryModel
        Fitted.
    graph : OpGraph
        The network.
    limit_gib : float
        Available memory.
    setting : Setting, optional
        As for `gpudemand.cost.simulate_memory`.
    level : float, default=0.95
        Required probability.
    device : mapping of str to float, optional
        Columns about the device that the model was fitted with, such as ``device_sms``.

    Returns
    -------
    int
        0 if not even a batch of one fits.

    Raises
    ------
    InputError
        If the limit or the level is out of range.
    """
    limit = check_number("limit_gib", limit_gib, 0, open_low=True)
    required = check_number("level", level, 0, 1)

    def fits(batch: int) -> bool:
        """Whether a batch takes at most the limit with the required probability."""
        table = interpolated_features(graph, [batch], setting).assign(**dict(device or {}))
        return bool(model.probability_below(table, limit)[0] >= required)

    return largest_that(fits, _guess(check_graph(graph), limit, setting))


def _guess(graph: OpGraph, limit_gib: float, setting: Setting | None) -> int:
    """Batch at which the tensors alone take half of the memory."""
    one, many = allocated_bytes(step_events(graph, setting or Setting()), [1, 65])
    return max(int((limit_gib * GIB / 2 - one) // max((many - one) / 64, 1.0)), 1)
