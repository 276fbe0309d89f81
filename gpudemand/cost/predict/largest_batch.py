"""The largest batch that fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpudemand._validation import check_number
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.graph.structural_matrix import check_graph
from gpudemand.cost.memory.liveness import Setting, step_events
from gpudemand.cost.memory.simulation import allocated_bytes, interpolated_features
from gpudemand.cost.predict.memory_model import MemoryModel

_GIB = 2.0**30
#: No batch is larger.
_LARGEST = 2**24


def largest_that(fits: Callable[[int], bool], guess: int = 1) -> int:
    """Return the largest whole number that fits, if every smaller one fits too; 0 if 1 does not.

    Parameters
    ----------
    fits : callable
        Whether a number fits.
    guess : int, default=1
        Where to begin: a good guess saves calls.

    Examples
    --------
    >>> largest_that(lambda n: n * n <= 150), largest_that(lambda n: n < 1), largest_that(lambda n: n <= 7, guess=100)
    (12, 0, 7)
    """
    low, high = 0, max(int(guess), 1)
    while high <= _LARGEST and fits(high):
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
        A fitted one.
    graph : OpGraph
        The network.
    limit_gib : float
        Memory that there is.
    setting : Setting, optional
        As for `gpudemand.cost.simulate_memory`.
    level : float, default=0.95
        Probability wanted.
    device : mapping of str to float, optional
        Columns about the device that the model was fitted with, such as ``device_sms``.

    Returns
    -------
    int
        0 if not even a batch of one fits.

    Raises
    ------
    InputError
        If the limit or the level is no legal number.
    """
    limit = check_number("limit_gib", limit_gib, 0, open_low=True)
    wanted = check_number("level", level, 0, 1)

    def fits(batch: int) -> bool:
        table = interpolated_features(graph, [batch], setting).assign(**dict(device or {}))
        return bool(model.probability_below(table, limit)[0] >= wanted)

    return largest_that(fits, _guess(check_graph(graph), limit, setting))


def _guess(graph: OpGraph, limit_gib: float, setting: Setting | None) -> int:
    """Batch at which the tensors alone would take half of the memory."""
    one, many = allocated_bytes(step_events(graph, setting or Setting()), [1, 65])
    return max(int((limit_gib * _GIB / 2 - one) // max((many - one) / 64, 1.0)), 1)
