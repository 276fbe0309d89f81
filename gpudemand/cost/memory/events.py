"""Allocation events: the memory of a training step as a sequence of allocations and frees of tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudemand._typing import FloatArray, IntArray

#: Categories of memory.
PARTS = ("parameters", "gradients", "optimizer_state", "input", "activations", "transient", "workspace")
#: Bytes as (fixed, per sample).
Size = tuple[float, float]


@dataclass(frozen=True)
class AllocationEvents:
    """Allocations and frees of tensors, in order; a tensor takes ``fixed + per_sample * batch`` bytes."""

    #: Number of the tensor and +1 (allocated) or -1 (freed), shape (n_events,).
    tensor: IntArray
    sign: IntArray
    #: Bytes, and position in `PARTS`, shape (n_tensors,).
    fixed: FloatArray
    per_sample: FloatArray
    part: IntArray
    #: First event of the step; before it, weights, optimizer state and the batch are allocated.
    start: int

    def sizes(self, batch_size: float, block: int = 1) -> FloatArray:
        """Bytes of each tensor, rounded up to whole blocks."""
        return np.asarray(np.ceil((self.fixed + self.per_sample * batch_size) / block) * block)

    def allocated(self, batch_size: float, block: int = 1) -> FloatArray:
        """Bytes allocated after each event, shape (n_events,)."""
        return np.asarray(np.cumsum(self.sizes(batch_size, block)[self.tensor] * self.sign))

    def allocated_by_part(self, batch_size: float, position: int) -> FloatArray:
        """Bytes allocated for each of `PARTS` after the event at `position`."""
        alive = np.bincount(self.tensor[: position + 1], self.sign[: position + 1], minlength=self.fixed.size)
        return np.asarray(np.bincount(self.part, alive * self.sizes(batch_size), minlength=len(PARTS)), dtype=float)


class Tape:
    """Records allocation events of reference-counted tensors."""

    def __init__(self) -> None:
        self.references: list[int] = []
        self._tensor: list[int] = []
        self._sign: list[int] = []
        self._sizes: list[Size] = []
        self._part: list[int] = []

    def __len__(self) -> int:
        return len(self._tensor)

    def allocate(self, part: str, size: Size) -> int:
        """Allocate a tensor with one reference; return its number."""
        number = len(self._sizes)
        self._sizes.append(size)
        self._part.append(PARTS.index(part))
        self.references.append(1)
        self._record(number, 1)
        return number

    def retain(self, number: int) -> int:
        """Add a reference."""
        self.references[number] += 1
        return number

    def release(self, number: int) -> None:
        """Remove a reference; the last one frees the tensor."""
        self.references[number] -= 1
        if not self.references[number]:
            self._record(number, -1)

    def allocate_and_free(self, part: str, size: Size) -> None:
        """Allocate a tensor and free it at once; nothing if it is empty."""
        if any(size):
            self.release(self.allocate(part, size))

    def events(self, start: int) -> AllocationEvents:
        """Return what was recorded; `start` is the first event of the step."""
        sizes = np.array(self._sizes, dtype=float).reshape(-1, 2)
        tensor, sign, part = (np.array(values, dtype=np.int64) for values in (self._tensor, self._sign, self._part))
        return AllocationEvents(tensor, sign, sizes[:, 0], sizes[:, 1], part, start)

    def _record(self, number: int, sign: int) -> None:
        self._tensor.append(number)
        self._sign.append(sign)
