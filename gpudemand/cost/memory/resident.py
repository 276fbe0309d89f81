"""Least memory of a training step: what must be resident at once in any implementation."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.cost.graph.cache import per_graph
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.graph.structural_matrix import check_graph
from gpudemand.cost.memory.liveness import Setting
from gpudemand.cost.memory.tensors import Layer, read_layers

_DEFAULT = Setting()
#: Bytes of an element of the batch; token ids may take twice as many.
_ITEM = 4.0


def resident_bytes(graph: OpGraph, batch_sizes: Iterable[float], setting: Setting = _DEFAULT) -> FloatArray:
    """Lower bound on the memory of a training step, bytes.

    Weights, optimizer state and the batch, and beside them the largest of: all gradients, which the optimizer reads;
    inputs and outputs of one operator; the gradients of the weights of an operator and of those after it, with the
    gradient of its output. Recomputed activations, allocators and libraries are left out. In inference, only weights,
    batch, and inputs and outputs of one operator. On a CPU without weights and batch, which memory before the step
    includes.

    Parameters
    ----------
    graph : OpGraph
        The network.
    batch_sizes : iterable of float
        Samples in a batch.
    setting : Setting, optional
        As for `gpudemand.cost.memory.simulation.simulate_memory`.

    Returns
    -------
    ndarray of shape (n_batch_sizes,)

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> sizes = {"n_parameters": 650, "n_trainable": 650, "parameter_bytes": 2600.0, "input_shapes": ((64,),)}
    >>> graph = OpGraph.from_operators([dense], [], **sizes)
    >>> resident_bytes(graph, [1, 1000], Setting("adam")).tolist()  # 2600 x (weights, two states, gradients) + batch
    [10696.0, 306400.0]
    """
    fixed, per_sample = _candidates(check_graph(graph), setting)
    return np.array([(fixed + per_sample * batch).max() for batch in batch_sizes])


@per_graph
def _candidates(graph: OpGraph, setting: Setting) -> FloatArray:
    """What may be the least memory, bytes (fixed, per sample), shape (2, n_candidates)."""
    layers = read_layers(graph, mixed_precision=setting.mixed_precision, cpu=setting.device == "cpu")
    for_states, for_gradients, for_parameters = setting.shards
    trained = np.array([0.0 if setting.inference else layer.weights for layer in layers])
    always = np.array([trained.sum() / for_states * setting.states, 0.0])
    if setting.device != "cpu":
        always += (
            graph.parameter_bytes / for_parameters,
            sum(_ITEM * math.prod(shape) for shape in graph.input_shapes),
        )
    trained = trained / for_gradients
    at_once = [(float(trained.sum()), 0.0), *(_read_and_written(layer, layers) for layer in layers)]
    later = np.cumsum(trained[::-1])[::-1]
    at_once += [
        (later[i] + layer.output[0], layer.output[1]) for i, layer in enumerate(layers) if layer.weights and later[i]
    ]
    return np.array(at_once).T + always[:, None]


def _read_and_written(layer: Layer, layers: list[Layer]) -> tuple[float, float]:
    """Bytes (fixed, per sample) of the tensors that an operator reads and writes, each storage once."""
    owners = {layer.storage_owner, *(layers[j].storage_owner for j in layer.inputs)}
    fixed, per_sample = np.sum([layers[owner].output for owner in owners], axis=0).tolist()
    return fixed, per_sample
