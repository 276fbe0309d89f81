"""Tensors that come and go: the memory of a training step as a sequence of events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudemand._typing import FloatArray, IntArray

#: What memory is for.
PARTS = ("parameters", "gradients", "optimizer_state", "input", "activations", "transient", "workspace")


@dataclass(frozen=True)
class Events:
    """Tensors that come and go, in order; sizes are ``fixed + per_sample * batch`` bytes.

    Parameters
    ----------
    tensor : ndarray of shape (n_events,)
        Which tensor.
    sign : ndarray of shape (n_events,)
        +1 where it comes, -1 where it goes.
    fixed, per_sample : ndarray of shape (n_tensors,)
        Bytes.
    part : ndarray of shape (n_tensors,)
        Position in `PARTS`.
    start : int
        Event at which a step begins; what comes before stays: weights, optimizer state, and the batch.
    forward : ndarray of shape (n_layers,)
        Event after which a layer computes.
    """

    tensor: IntArray
    sign: IntArray
    fixed: FloatArray
    per_sample: FloatArray
    part: IntArray
    start: int
    forward: IntArray

    def sizes(self, batch_size: float, block: int = 1) -> FloatArray:
        """Bytes of each tensor, rounded up to whole blocks."""
        return np.asarray(np.ceil((self.fixed + self.per_sample * batch_size) / block) * block)

    def held(self, batch_size: float, block: int = 1) -> FloatArray:
        """Bytes held after each event, shape (n_events,)."""
        return np.asarray(np.cumsum(self.sizes(batch_size, block)[self.tensor] * self.sign))

    def held_by_part(self, batch_size: float, position: int) -> FloatArray:
        """Bytes that each of `PARTS` holds after the event at `position`."""
        alive = np.bincount(self.tensor[: position + 1], self.sign[: position + 1], minlength=self.fixed.size)
        return np.asarray(np.bincount(self.part, alive * self.sizes(batch_size), minlength=len(PARTS)), dtype=float)


class Tape:
    """Writes events down, and counts who holds a tensor."""

    def __init__(self) -> None:
        self.tensor: list[int] = []
        self.sign: list[int] = []
        self.sizes: list[tuple[float, float]] = []
        self.part: list[int] = []
        self.holders: list[int] = []

    def new(self, part: str, size: tuple[float, float]) -> int:
        """Make a tensor with one holder."""
        number = len(self.sizes)
        self.sizes.append(size)
        self.part.append(PARTS.index(part))
        self.holders.append(1)
        self.tensor.append(number)
        self.sign.append(1)
        return number

    def hold(self, number: int) -> int:
        """Add a holder."""
        self.holders[number] += 1
        return number

    def drop(self, number: int) -> None:
        """Take a holder away; the last one takes the tensor with it."""
        self.holders[number] -= 1
        if not self.holders[number]:
            self.tensor.append(number)
            self.sign.append(-1)

    def pulse(self, part: str, size: tuple[float, float]) -> None:
        """Make a tensor and drop it at once."""
        if size[0] or size[1]:
            self.drop(self.new(part, size))

    def now(self) -> int:
        """Position of the latest event."""
        return len(self.tensor) - 1
