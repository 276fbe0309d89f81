"""Which tensors are alive when: a training step as the order in which its tensors come and go.

Forward, an operator's output lives until its last reader is done, and what autograd keeps lives until the gradient of
the operator that kept it first has been computed. Backward, operators come in reverse; the gradient of an output lives
until it has been used, gradients that meet are added in place where nobody else holds them, and additions and
concatenations hand the gradient they get on without a copy. This is how PyTorch's engine does it; which tensors an
operator keeps is read off the bytes that the trace saw it keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpudemand._validation import check_choice
from gpudemand.cost.graph.features import OPTIMIZER_STATES
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.memory.checkpointing import blocks_of
from gpudemand.cost.memory.events import Events, Tape
from gpudemand.cost.memory.tensors import Layer, Size, read_layers

#: Operators whose backward pass hands on the gradient it gets, whole or in views, instead of making a new one.
_HAND_ON = ("Add", "Sub", "Concat", "Cast")


@dataclass(frozen=True)
class Setting:
    """How a network is trained, as far as memory is concerned.

    Parameters
    ----------
    optimizer : str
        One of `gpudemand.cost.graph.features.OPTIMIZER_STATES`.
    half : bool
        Mixed precision: products in 16 bits, weights in 32.
    checkpointing : bool
        Blocks of layers keep only what they read, and are computed again in the backward pass.
    device : {"cuda", "cpu"}
        On a CPU, convolutions copy into oneDNN's layouts, and optimizers go through the weights one by one.
    """

    optimizer: str = "sgd"
    half: bool = False
    checkpointing: bool = False
    device: str = "cuda"

    @property
    def states(self) -> int:
        """Copies of the weights that the optimizer keeps."""
        return OPTIMIZER_STATES[check_choice("optimizer", self.optimizer, OPTIMIZER_STATES)]

    def scratch(self, weights: Sequence[float]) -> float:
        """Bytes that the optimizer's step needs for a moment: a copy of all weights on a GPU, of few on a CPU."""
        if self.device == "cuda":
            return float(sum(weights))
        return 2.0 * max(weights, default=0.0) if self.optimizer.startswith("adam") else 0.0


_DEFAULT = Setting()


class _Step:
    """Plays one training step onto a tape."""

    def __init__(self, layers: Sequence[Layer], blocks: Sequence[int], setting: Setting) -> None:
        self._layers, self._setting = layers, setting
        self._block = list(blocks) if setting.checkpointing else [-1] * len(layers)
        self._tape = Tape()
        self._alive: dict[int, int] = {}  # home -> tensor, while the forward pass may still read it
        self._owned: list[list[int]] = [[] for _ in layers]  # tensors kept until a layer's backward pass is done
        self._gradient: dict[int, int] = {}  # layer -> tensor
        self._weights: list[int] = []
        self._last_reader = _last_readers(layers)
        self._forward_at = [-1] * len(layers)

    def play(self, stored: Sequence[float], batch: Size) -> Events:
        """Set up, then one step; `stored` are the bytes of parameters in pieces."""
        tape, trained = self._tape, [layer.weights for layer in self._layers if layer.weights]
        for size in stored:
            tape.new("parameters", (size, 0.0))
        for size in trained * self._setting.states:
            tape.new("optimizer_state", (size, 0.0))
        tape.new("input", batch)
        start = len(tape.tensor)
        for position in range(len(self._layers)):
            self._forward(position, keep=self._block[position] < 0)
        self._loss()
        self._backward()
        tape.pulse("transient", (self._setting.scratch(trained), 0.0))
        for tensor in self._weights:
            tape.drop(tensor)
        return self._events(start)

    def _events(self, start: int) -> Events:
        tape, sizes = self._tape, np.array(self._tape.sizes, dtype=float).reshape(-1, 2)
        integers = [tape.tensor, tape.sign, tape.part, self._forward_at]
        tensor, sign, part, forward = (np.array(values, dtype=np.int64) for values in integers)
        return Events(tensor, sign, sizes[:, 0], sizes[:, 1], part, start, forward)

    def _forward(self, position: int, *, keep: bool) -> None:
        layer, tape = self._layers[position], self._tape
        if layer.home == position:
            self._alive[position] = tape.new("activations", layer.output)
        self._forward_at[position] = tape.now()
        tape.pulse("workspace", layer.workspace)
        if keep:
            self._keep(position, layer)
        else:
            self._keep_inputs(position, layer)
        self._forget(layer, position)

    def _keep(self, position: int, layer: Layer) -> None:
        owned = self._owned[position]
        owned += [self._tape.hold(self._alive[home]) for home in layer.keeps if home in self._alive]
        owned += [self._tape.new("activations", size) for size in (layer.extra, layer.copies) if any(size)]

    def _keep_inputs(self, position: int, layer: Layer) -> None:
        """Keep what a block reads from outside until its first layer is done with."""
        block = self._block[position]
        outside = [self._layers[j].home for j in layer.inputs if self._block[j] != block]
        self._owned[self._block.index(block)] += [self._tape.hold(self._alive[h]) for h in outside if h in self._alive]

    def _forget(self, layer: Layer, position: int) -> None:
        """Let go of outputs that nobody will read any more."""
        for home in dict.fromkeys((*(self._layers[j].home for j in layer.inputs), layer.home)):
            if self._last_reader[home] <= position and home in self._alive:
                self._tape.drop(self._alive.pop(home))

    def _loss(self) -> None:
        """Keep the logarithm of the softmax, and make the gradient of the last output from its own."""
        if not self._layers:
            return
        last, size = len(self._layers) - 1, self._layers[-1].output
        kept = self._tape.new("activations", size)
        inner = self._tape.new("transient", size)
        self._gradient[last] = self._tape.new("transient", size)
        self._tape.drop(inner)
        self._tape.drop(kept)

    def _backward(self) -> None:
        again = None
        for position in range(len(self._layers) - 1, -1, -1):
            block = self._block[position]
            if block >= 0 and block != again:
                again = block
                self._compute_again(block)
            self._backward_of(position, self._layers[position])
        for tensor in self._alive.values():
            self._tape.drop(tensor)

    def _compute_again(self, block: int) -> None:
        members = [position for position, own in enumerate(self._block) if own == block]
        outer = self._alive
        self._alive = {}
        for position in members:
            if self._layers[position].home in self._alive or self._layers[position].home == position:
                self._forward(position, keep=True)
        for tensor in self._alive.values():
            self._tape.drop(tensor)
        self._alive = outer

    def _backward_of(self, position: int, layer: Layer) -> None:
        given = self._gradient.pop(position, None)
        made: list[tuple[int, int]] = []
        if given is not None:
            made = self._gradients_of_inputs(layer, given)
            if layer.weights:
                self._weights.append(self._tape.new("gradients", (layer.weights, 0.0)))
            self._tape.pulse("workspace", layer.workspace)
            self._tape.drop(given)
        for tensor in self._owned[position]:
            self._tape.drop(tensor)
        for producer, tensor in made:
            self._add_gradient(producer, tensor)

    def _gradients_of_inputs(self, layer: Layer, given: int) -> list[tuple[int, int]]:
        made = []
        for producer in layer.inputs:
            if self._layers[producer].trains:
                size = self._layers[producer].output
                passes = layer.type in _HAND_ON and (layer.type == "Concat" or size == layer.output)
                made.append((producer, self._tape.hold(given) if passes else self._tape.new("transient", size)))
        return made

    def _add_gradient(self, producer: int, tensor: int) -> None:
        before = self._gradient.get(producer)
        if before is None:
            self._gradient[producer] = tensor
        elif self._tape.holders[before] == 1:
            self._tape.drop(tensor)
        else:
            self._gradient[producer] = self._tape.new("transient", self._layers[producer].output)
            self._tape.drop(before)
            self._tape.drop(tensor)


def _last_readers(layers: Sequence[Layer]) -> list[int]:
    last = list(range(len(layers)))
    for position, layer in enumerate(layers):
        for home in (*(layers[j].home for j in layer.inputs), layer.home):
            last[home] = max(last[home], position)
    if layers:
        last[layers[-1].home] = len(layers)  # the loss reads it, and a variable holds it until the step ends
    return last


def step_events(graph: OpGraph, setting: Setting = _DEFAULT) -> Events:
    """Play one training step of a network: forward, loss, backward, optimizer.

    Parameters
    ----------
    graph : OpGraph
        The network.
    setting : Setting
        How it is trained; plain SGD in single precision on a GPU by default.

    Returns
    -------
    Events

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> relu = Operator("Relu", "", "act", "relu", (1, 10), 0.0, 0, 0.0, 40.0, 40.0, 40.0)
    >>> about = {"n_parameters": 650, "n_trainable": 650, "parameter_bytes": 2600.0, "input_shapes": ((4, 16),)}
    >>> events = step_events(OpGraph.from_operators([dense, relu], [(0, 1)], **about), Setting("adam"))
    >>> int(events.held(32).max()), int(events.held(64).max())  # weights, two states, gradients, scratch, the batch
    (21192, 34424)
    """
    layers = read_layers(graph, half=setting.half, cpu=setting.device == "cpu")
    item = graph.parameter_bytes / graph.n_parameters if graph.n_parameters else 4.0
    stored = [count * item for count in graph.nodes["parameters"].tolist() if count]
    unused = graph.parameter_bytes - sum(stored)
    batch = float(sum(np.prod(shape) * (8.0 if len(shape) == 1 else 4.0) for shape in graph.input_shapes))
    blocks = blocks_of(graph.nodes["name"].tolist()) if setting.checkpointing else []
    return _Step(layers, blocks, setting).play([*stored, unused] if unused > 0 else stored, (0.0, batch))
