"""Liveness of tensors: a training step as allocations and frees, in the order of PyTorch's autograd engine.

Forward, an output lives until its last reader is done, and a saved tensor until the gradient of the operator that saved
it first has been computed. Backward, operators run in reverse; the gradient of an output lives until it has been used,
gradients of several readers are accumulated in place where nothing else refers to them, and additions and
concatenations pass their gradient on without a copy. Which tensors an operator saves follows from the bytes saved in
the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpudemand._validation import check_choice
from gpudemand.cost.graph.features import OPTIMIZER_STATES
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.memory.checkpointing import checkpoint_blocks
from gpudemand.cost.memory.events import AllocationEvents, Size, Tape
from gpudemand.cost.memory.tensors import Layer, read_layers
from gpudemand.cost.operators.precision import HALF_WIDTH

#: Types whose backward pass passes the gradient on, whole or as views, without allocating a new one.
_GRADIENT_PASSES = ("Add", "Sub", "Concat", "Cast")
#: Operators whose parameters are whole at a time where they are sharded: the one in use and the next.
_GATHERED = 2


@dataclass(frozen=True)
class Setting:
    """Options of a training step that its memory depends on.

    Parameters
    ----------
    optimizer : str
        One of `gpudemand.cost.graph.features.OPTIMIZER_STATES`.
    mixed_precision : bool
        Autocast: products in half precision, weights in single.
    checkpointing : bool
        Blocks of layers save only their inputs and are recomputed in the backward pass.
    device : {"cuda", "cpu"}
        On a CPU, convolutions copy into oneDNN's layouts, and optimizers update one weight at a time.
    inference : bool
        A forward pass that saves nothing, without loss, gradients or optimizer.
    shards : tuple of three int
        GPUs that optimizer states, gradients and parameters are each divided over (ZeRO, FSDP). Gradients are whole,
        operator by operator, until they are reduced; so are the parameters of the operator in use and of the next one.
    """

    optimizer: str = "sgd"
    mixed_precision: bool = False
    checkpointing: bool = False
    device: str = "cuda"
    inference: bool = False
    shards: tuple[int, int, int] = (1, 1, 1)

    @property
    def states(self) -> int:
        """State tensors of the optimizer per parameter."""
        if self.inference:
            return 0
        return OPTIMIZER_STATES[check_choice("optimizer", self.optimizer, OPTIMIZER_STATES)]

    def optimizer_workspace(self, weights: Sequence[float]) -> float:
        """Scratch bytes of the optimizer: a copy of all weights on a GPU (multi-tensor kernels), of one on a CPU."""
        if self.device == "cuda":
            return float(sum(weights))
        return 2.0 * max(weights, default=0.0) if self.optimizer.startswith("adam") else 0.0


_DEFAULT = Setting()


class _Step:
    """Records the allocation events of one training step."""

    def __init__(self, layers: Sequence[Layer], blocks: Sequence[int], setting: Setting) -> None:
        self._layers, self._setting = layers, setting
        self._block = list(blocks) if setting.checkpointing else [-1] * len(layers)
        self._tape = Tape()
        self._alive: dict[int, int] = {}  # storage owner -> tensor, while the forward pass may still read it
        self._saved: list[list[int]] = [[] for _ in layers]  # tensors that live until a layer's backward pass is done
        self._gradient: dict[int, int] = {}  # layer -> tensor
        self._weight_gradients: list[int] = []
        self._cached_casts: list[int] = []
        self._outputs = _outputs(layers)
        self._last_reader = _last_readers(layers, self._outputs)

    def run(self, stored: Sequence[float], batch: Size) -> AllocationEvents:
        """Allocate parameters (`stored`, bytes), optimizer state and batch, then run a step."""
        tape, (for_states, _, for_parameters) = self._tape, self._setting.shards
        trained = [layer.weights / for_states for layer in self._layers if layer.weights]
        for size in stored:
            tape.allocate("parameters", (size / for_parameters, 0.0))
        for size in trained * self._setting.states:
            tape.allocate("optimizer_state", (size, 0.0))
        tape.allocate("input", batch)
        start = len(tape)
        for size in sorted(stored)[-_GATHERED:] if for_parameters > 1 else []:
            tape.allocate("parameters", (size, 0.0))
        for position in range(len(self._layers)):
            self._forward(position, recomputed=self._block[position] >= 0)
        if self._setting.inference:
            self._release([*self._alive.values(), *self._cached_casts])
        else:
            self._update(trained)
        return tape.events(start)

    def _update(self, trained: Sequence[float]) -> None:
        """Loss, backward pass and optimizer."""
        self._loss()
        self._backward()
        self._tape.allocate_and_free("transient", (self._setting.optimizer_workspace(trained), 0.0))
        self._release(self._weight_gradients)

    def _release(self, tensors: Sequence[int]) -> None:
        for tensor in tensors:
            self._tape.release(tensor)

    def _forward(self, position: int, *, recomputed: bool) -> None:
        layer, tape = self._layers[position], self._tape
        if layer.storage_owner == position:
            self._alive[position] = tape.allocate("activations", layer.output)
        if self._setting.inference:
            self._without_saving(layer)
        else:
            tape.allocate_and_free("workspace", layer.workspace)
            save = self._save_block_inputs if recomputed else self._save
            save(position, layer)
        self._free_unread(layer, position)

    def _save(self, position: int, layer: Layer) -> None:
        saved = self._saved[position]
        saved += [self._tape.retain(self._alive[owner]) for owner in layer.saves if owner in self._alive]
        extras = (layer.saved_extra, self._kept_copies(layer))
        saved += [self._tape.allocate("activations", size) for size in extras if any(size)]

    def _kept_copies(self, layer: Layer) -> Size:
        """Copies to half precision that the backward pass finds; those of sharded parameters are gathered anew."""
        fixed, per_sample = layer.half_copies
        return (max(fixed - HALF_WIDTH * layer.weights, 0.0) if self._setting.shards[2] > 1 else fixed), per_sample

    def _without_saving(self, layer: Layer) -> None:
        """Scratch memory of inference: the output in another layout, and copies to half precision.

        Autocast caches its copies of weights, not those of activations.
        """
        fixed, per_sample = layer.workspace
        self._tape.allocate_and_free("workspace", (fixed, min(per_sample, layer.output[1])))
        fixed, per_sample = layer.half_copies
        if fixed:
            self._cached_casts.append(self._tape.allocate("transient", (fixed, 0.0)))
        self._tape.allocate_and_free("transient", (0.0, per_sample))

    def _save_block_inputs(self, position: int, layer: Layer) -> None:
        """Save what a block reads from outside until the backward pass of its first layer is done."""
        block = self._block[position]
        outside = [self._layers[j].storage_owner for j in layer.inputs if self._block[j] != block]
        self._saved[self._block.index(block)] += [
            self._tape.retain(self._alive[o]) for o in outside if o in self._alive
        ]

    def _free_unread(self, layer: Layer, position: int) -> None:
        """Release outputs after their last reader."""
        for owner in dict.fromkeys(_storage_touched(layer, self._layers)):
            if self._last_reader[owner] <= position and owner in self._alive:
                self._tape.release(self._alive.pop(owner))

    def _loss(self) -> None:
        """Cross-entropy of each output: save the log-softmax, then compute the gradient of the output from its own."""
        log_softmax = [self._tape.allocate("activations", self._layers[i].output) for i in self._outputs]
        for position, saved in zip(self._outputs[::-1], log_softmax[::-1], strict=True):
            inner = self._tape.allocate("transient", self._layers[position].output)
            self._gradient[position] = self._tape.allocate("transient", self._layers[position].output)
            self._release([inner, saved])

    def _backward(self) -> None:
        recomputed = None
        for position in range(len(self._layers) - 1, -1, -1):
            block = self._block[position]
            if block >= 0 and block != recomputed:
                recomputed = block
                self._recompute(block)
            self._backward_of(position, self._layers[position])
        self._release(list(self._alive.values()))

    def _recompute(self, block: int) -> None:
        outer, self._alive = self._alive, {}
        for position, own in enumerate(self._block):
            owner = self._layers[position].storage_owner
            if own == block and (owner in self._alive or owner == position):
                self._forward(position, recomputed=False)
        self._release(list(self._alive.values()))
        self._alive = outer

    def _backward_of(self, position: int, layer: Layer) -> None:
        gradient = self._gradient.pop(position, None)
        made: list[tuple[int, int]] = []
        if gradient is not None:
            made = self._input_gradients(layer, gradient)
            if layer.weights:
                shards = self._setting.shards[1]
                self._tape.allocate_and_free("gradients", (layer.weights * (shards > 1), 0.0))
                self._weight_gradients.append(self._tape.allocate("gradients", (layer.weights / shards, 0.0)))
            self._tape.allocate_and_free("workspace", layer.workspace)
            self._tape.release(gradient)
        self._release(self._saved[position])
        for producer, tensor in made:
            self._accumulate(producer, tensor)

    def _input_gradients(self, layer: Layer, gradient: int) -> list[tuple[int, int]]:
        made = []
        for producer in layer.inputs:
            if self._layers[producer].requires_grad:
                size = self._layers[producer].output
                passed = layer.type in _GRADIENT_PASSES and (layer.type == "Concat" or size == layer.output)
                tensor = self._tape.retain(gradient) if passed else self._tape.allocate("transient", size)
                made.append((producer, tensor))
        return made

    def _accumulate(self, producer: int, tensor: int) -> None:
        before = self._gradient.get(producer)
        if before is None:
            self._gradient[producer] = tensor
            return
        if self._tape.references[before] > 1:
            self._gradient[producer] = self._tape.allocate("transient", self._layers[producer].output)
            self._tape.release(before)
        self._tape.release(tensor)


def _storage_touched(layer: Layer, layers: Sequence[Layer]) -> list[int]:
    """Owners of the storage that a layer reads or writes."""
    return [*(layers[j].storage_owner for j in layer.inputs), layer.storage_owner]


def _outputs(layers: Sequence[Layer]) -> list[int]:
    """Outputs of the network: what is trained and no layer reads, as auxiliary heads; else the last layer."""
    read = {j for layer in layers for j in layer.inputs}
    found = [position for position, layer in enumerate(layers) if layer.requires_grad and position not in read]
    return found or list(range(len(layers)))[-1:]


def _last_readers(layers: Sequence[Layer], outputs: Sequence[int]) -> list[int]:
    last = list(range(len(layers)))
    for position, layer in enumerate(layers):
        for owner in _storage_touched(layer, layers):
            last[owner] = max(last[owner], position)
    for position in outputs:  # the loss reads them, and variables refer to them until the end
        last[layers[position].storage_owner] = len(layers)
    return last


def step_events(graph: OpGraph, setting: Setting = _DEFAULT) -> AllocationEvents:
    """Allocation events of one training step (forward, loss, backward, optimizer), or of a forward pass.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> relu = Operator("Relu", "", "act", "relu", (1, 10), 0.0, 0, 0.0, 40.0, 40.0, 40.0)
    >>> sizes = {"n_parameters": 650, "n_trainable": 650, "parameter_bytes": 2600.0, "input_shapes": ((4, 16),)}
    >>> events = step_events(OpGraph.from_operators([dense, relu], [(0, 1)], **sizes), Setting("adam"))
    >>> int(events.allocated(32).max()), int(events.allocated(64).max())  # with weights, two states and the batch
    (21192, 34424)
    """
    layers = read_layers(graph, mixed_precision=setting.mixed_precision, cpu=setting.device == "cpu")
    item = graph.parameter_bytes / graph.n_parameters if graph.n_parameters else 4.0
    stored = [count * item for count in graph.nodes["parameters"].tolist() if count]
    unused = graph.parameter_bytes - sum(stored)
    # Token ids take 8 bytes, numbers 4.
    batch = float(sum(np.prod(shape) * (8.0 if len(shape) == 1 else 4.0) for shape in graph.input_shapes))
    blocks = checkpoint_blocks(graph.nodes["name"].tolist()) if setting.checkpointing else []
    return _Step(layers, blocks, setting).run([*stored, unused] if unused > 0 else stored, (0.0, batch))
