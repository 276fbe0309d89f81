"""What every tracer writes into: operator calls, linked by the data they share."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from gpudemand.cost.operators.operator import Operator


class Costs(NamedTuple):
    """What a tracer knows of one operator call, for the whole traced batch."""

    flops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    weight_bytes: float = 0.0


def looked_up(found: str, costs: Costs) -> Costs:
    """Return the costs of a call, where a table is looked up: only the rows found are read, as many as are written."""
    if found != "Gather" or not costs.weight_bytes:
        return costs
    return costs._replace(bytes_read=costs.bytes_read + costs.bytes_written, weight_bytes=0.0)


class Label(NamedTuple):
    """How one operator call is called; see `Operator`. The output shape is that of the traced batch."""

    type: str
    kind: str
    name: str
    operator: str
    output_shape: tuple[int, ...]


class Traced(NamedTuple):
    """A traced network: its operator calls, the edges between their positions, and further fields of `OpGraph`."""

    operators: list[Operator]
    edges: set[tuple[int, int]]
    attributes: dict[str, Any]


class Recorder:
    """Collects operator calls of a trace and links them by the data they share.

    Data is known by a hashable key, such as the identity of a tensor's storage: whatever shares the key of a producer's
    output depends on that producer, through however many views.

    Parameters
    ----------
    batch : int
        Samples in the traced batch; amounts are divided by it.
    """

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._rows: list[Operator] = []
        self._edges: set[tuple[int, int]] = set()
        self._producer: dict[Hashable, int | None] = {}
        self._batched: set[Hashable] = set()
        self._saved: set[Hashable] = set()
        self._seen_parameters: set[Hashable] = set()

    def feed(self, key: Hashable, *, batched: bool) -> None:
        """Declare data that comes from outside: an input of the network, which is a batch, or a parameter."""
        self._producer[key] = None
        if batched:
            self._batched.add(key)

    def is_live(self, key: Hashable) -> bool:
        """Whether data depends on inputs or parameters; everything else is a constant."""
        return key in self._producer

    def alias(self, key: Hashable, of: Hashable) -> None:
        """Declare that `key` holds the same data as `of`."""
        if of in self._producer:
            self._producer[key] = self._producer[of]
        if of in self._batched:
            self._batched.add(key)

    def producer(self, key: Hashable) -> Operator | None:
        """Return the operator whose output `key` is, if it is one's."""
        position = self._producer.get(key)
        return None if position is None else self._rows[position]

    def absorb(self, key: Hashable, into: Hashable, parameters: dict[Hashable, int], weight_bytes: float) -> None:
        """Make a follow-up step, such as adding a bias, part of the operator whose output is `into`."""
        position = self._producer[into]
        if position is None:
            raise ValueError("nothing has produced this data")
        row = self._rows[position]
        self._rows[position] = row._replace(
            parameters=row.parameters + self._new_parameters(parameters), weight_bytes=row.weight_bytes + weight_bytes
        )
        self.alias(key, of=into)

    def _new_parameters(self, parameters: dict[Hashable, int]) -> int:
        fresh = {key: count for key, count in parameters.items() if key not in self._seen_parameters}
        self._seen_parameters.update(fresh)
        return sum(fresh.values())

    def add(
        self,
        label: Label,
        costs: Costs,
        *,
        reads: Iterable[Hashable],
        writes: Iterable[Hashable],
        parameters: dict[Hashable, int],
    ) -> None:
        """Append one operator call.

        Parameters
        ----------
        label, costs : Label, Costs
            The call itself.
        reads, writes : iterable of keys
            Data that flows in and out.
        parameters : dict of key -> number of elements
            Parameters that the call uses.
        """
        position, sources, results = len(self._rows), list(reads), list(writes)
        if self._batched.intersection(sources):
            label = label._replace(output_shape=single_sample(label.output_shape, self._batch))
            self._batched.update(results)
        producers = (self._producer.get(key) for key in sources)
        self._edges.update((producer, position) for producer in producers if producer is not None)
        self._producer.update(dict.fromkeys(results, position))
        self._rows.append(
            Operator(
                *label,
                flops=costs.flops / self._batch,
                parameters=self._new_parameters(parameters),
                weight_bytes=costs.weight_bytes,
                bytes_read=costs.bytes_read / self._batch,
                bytes_written=costs.bytes_written / self._batch,
                saved_bytes=0.0,
            )
        )

    def save(self, key: Hashable, n_bytes: float) -> None:
        """Note that the latest operator keeps data for the backward pass, unless it is kept already."""
        if key not in self._saved and self._rows:
            self._saved.add(key)
            row = self._rows[-1]
            self._rows[-1] = row._replace(saved_bytes=row.saved_bytes + n_bytes / self._batch)

    def traced(self, **attributes: Any) -> Traced:
        """Return what was recorded; `attributes` are the fields of `OpGraph` that a tracer knows."""
        return Traced(self._rows, self._edges, attributes)


def single_sample(shape: Sequence[int], batch: int) -> tuple[int, ...]:
    """Return a traced shape with a batch of one.

    The batch is the first axis as long as the batch, or else folded into the first axis that is a multiple of it.

    Examples
    --------
    >>> single_sample((2, 64, 32, 32), 2), single_sample((10, 2, 16), 2), single_sample((8, 5, 5), 2)
    ((1, 64, 32, 32), (10, 1, 16), (4, 5, 5))
    """
    extents = list(shape)
    whole = [axis for axis, extent in enumerate(extents) if extent == batch]
    folded = [axis for axis, extent in enumerate(extents) if extent and extent % batch == 0]
    for axis in (whole or folded)[:1]:
        extents[axis] //= batch
    return tuple(extents)
