"""Features of a graph that do not depend on its edges, and baselines computed from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin

from gpudemand._typing import FloatArray
from gpudemand._validation import check_choice, check_number
from gpudemand.cost.graph.cache import per_graph
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.graph.structural_matrix import check_graph, check_graphs
from gpudemand.cost.operators.vocabulary import CONVOLUTION_KINDS

#: Operator class -> canonical types. Convolutions are split by `CONVOLUTION_KINDS`.
_CLASSES = {
    "conv_transpose": "ConvTranspose",
    "gemm": "Gemm",
    "matmul": "MatMul DFT",
    "attention": "Attention",
    "recurrent": "LSTM GRU RNN",
    "batch_norm": "BatchNormalization InstanceNormalization",
    "layer_norm": "LayerNormalization GroupNormalization RMSNormalization LpNormalization LRN",
    "activation": "Relu LeakyRelu PRelu Elu Gelu Swish HardSwish HardSigmoid Mish Softplus Sigmoid Tanh Clip",
    "softmax": "Softmax LogSoftmax Loss",
    "dropout": "Dropout",
    "pool": "MaxPool AveragePool GlobalAveragePool GlobalMaxPool",
    "elementwise": "Add Sub Mul Div Pow Sqrt Exp Log Erf Sin Abs Max Where Cast",
    "reduce": "ReduceMean ReduceSum ReduceMax TopK",
    "move": "Concat Pad Tile Transpose Gather Scatter Resize",
    "other": "Other",
}
_CLASS_OF = {name: group for group, names in _CLASSES.items() for name in names.split()}
OPERATOR_CLASSES: tuple[str, ...] = (*(f"conv_{kind}" for kind in CONVOLUTION_KINDS), *_CLASSES)

#: Optimizer -> state tensors per parameter.
OPTIMIZER_STATES = {"sgd": 0, "momentum": 1, "rmsprop": 1, "adagrad": 1, "adam": 2, "adamw": 2}


def operator_classes(nodes: pd.DataFrame) -> pd.Series:
    """Class of each operator (of `OPERATOR_CLASSES`) in a table with the columns ``type`` and ``kind``."""
    groups = [
        f"conv_{kind or CONVOLUTION_KINDS[1]}" if name == "Conv" else _CLASS_OF[name]
        for name, kind in zip(nodes["type"], nodes["kind"], strict=True)
    ]
    return pd.Series(groups, index=nodes.index, dtype=object)


def graph_features(graph: OpGraph) -> pd.Series:
    """Totals of a graph, and amounts by operator class, per sample.

    Parameters
    ----------
    graph : OpGraph
        The network.

    Returns
    -------
    Series of float
        Totals (``flops``, ``bytes``, ``saved_bytes``, ``parameters``, ``depth``, ...), then ``flops_<class>``,
        ``bytes_<class>``, ``saved_bytes_<class>`` and ``calls_<class>`` for each of `OPERATOR_CLASSES`.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> features = graph_features(OpGraph.from_operators([dense], [], n_parameters=650))
    >>> features[["flops_gemm", "bytes", "calls_attention"]].tolist()
    [1280.0, 296.0, 0.0]
    """
    nodes = check_graph(graph).nodes
    table = pd.DataFrame(
        {
            "flops": nodes["flops"],
            "bytes": nodes["bytes_read"] + nodes["bytes_written"],
            "saved_bytes": nodes["saved_bytes"],
            "calls": 1.0,
        }
    )
    by_class = table.groupby(operator_classes(nodes)).sum().reindex(list(OPERATOR_CLASSES), fill_value=0.0)
    parts = {f"{amount}_{group}": by_class.loc[group, amount] for amount in table.columns for group in OPERATOR_CLASSES}
    return pd.Series({**_totals(graph, table), **parts}, dtype=float)


@per_graph
def features_by_name(graph: OpGraph) -> dict[str, float]:
    """Memoized `graph_features` as a dict; not to be modified."""
    return {str(name): float(value) for name, value in graph_features(graph).items()}


def _totals(graph: OpGraph, table: pd.DataFrame) -> dict[str, float]:
    totals = table.sum()
    return {
        "flops": totals["flops"],
        "bytes": totals["bytes"],
        "weight_bytes": graph.nodes["weight_bytes"].sum(),
        "saved_bytes": totals["saved_bytes"],
        "largest_output_bytes": graph.nodes["bytes_written"].max() if len(graph.nodes) else 0.0,
        "parameters": graph.n_parameters,
        "trainable_parameters": graph.n_trainable,
        "parameter_bytes": graph.parameter_bytes,
        "operators": len(graph.nodes),
        "edges": len(graph.edges),
        "depth": graph.depth,
        "layers": graph.n_layers,
    }


class GraphFeatures(TransformerMixin, BaseEstimator):
    """`graph_features` as a transformer; `fit` learns nothing.

    Attributes
    ----------
    n_features_in_ : int
        Always 1: the column of graphs.

    See Also
    --------
    NetworkStructuralMatrix : Features of the edges.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> relu = Operator("Relu", "", "act", "relu", (1, 10), 0.0, 0, 0.0, 40.0, 40.0, 40.0)
    >>> GraphFeatures().fit_transform([OpGraph.from_operators([relu], [])]).shape
    (1, 92)
    """

    def fit(self, X: Iterable[OpGraph], y: object = None) -> GraphFeatures:
        """Validate the input.

        Parameters
        ----------
        X : iterable of OpGraph
            The networks.
        y : ignored

        Returns
        -------
        GraphFeatures
        """
        check_graphs(X)
        self.n_features_in_ = 1
        return self

    def transform(self, X: Iterable[OpGraph]) -> FloatArray:
        """Compute `graph_features` of each graph.

        Parameters
        ----------
        X : iterable of OpGraph
            The networks.

        Returns
        -------
        ndarray of shape (n_graphs, n_features)
        """
        return np.array([graph_features(graph).to_numpy() for graph in check_graphs(X)])

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray[Any, Any]:
        """Names of the features.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str objects
        """
        return np.array(graph_features(OpGraph.from_operators([], [])).index, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True


class MemoryEstimate(NamedTuple):
    """Memory of a training step by shape inference, bytes."""

    weights: float
    gradients: float
    optimizer_state: float
    activations: float

    @property
    def total(self) -> float:
        """Sum of the parts, bytes."""
        return float(sum(self))


def shape_inference_memory(
    graph: OpGraph, batch_size: int, optimizer: str = "sgd", dtype_bytes: float | None = None
) -> MemoryEstimate:
    """Baseline estimate of the memory of a training step: weights, gradients, optimizer state and saved activations.

    Transient tensors, workspaces, allocator rounding and the framework's own memory are not included.

    Parameters
    ----------
    graph : OpGraph
        The network.
    batch_size : int
        Samples in a batch.
    optimizer : {"sgd", "momentum", "rmsprop", "adagrad", "adam", "adamw"}, default="sgd"
        ``"momentum"`` is SGD with momentum.
    dtype_bytes : float, optional
        Bytes per element; None: as in the traced network.

    Returns
    -------
    MemoryEstimate

    Raises
    ------
    InputError
        If the batch size is not a positive whole number, or the optimizer is unknown.

    References
    ----------
    Gao et al., "Estimating GPU Memory Consumption of Deep Learning Models" (DNNMem), ESEC/FSE 2020.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> graph = OpGraph.from_operators([dense], [], n_parameters=650, n_trainable=650, parameter_bytes=2600.0)
    >>> shape_inference_memory(graph, 32, "adam")
    MemoryEstimate(weights=2600.0, gradients=2600.0, optimizer_state=5200.0, activations=8192.0)
    """
    samples = check_number("batch_size", batch_size, 1, integer=True)
    states = OPTIMIZER_STATES[check_choice("optimizer", optimizer, OPTIMIZER_STATES)]
    stored = check_graph(graph).parameter_bytes / graph.n_parameters if graph.n_parameters else 4.0
    scale = 1.0 if dtype_bytes is None else check_number("dtype_bytes", dtype_bytes, 0, open_low=True) / stored
    trained = graph.n_trainable * stored * scale
    return MemoryEstimate(
        weights=graph.parameter_bytes * scale,
        gradients=trained,
        optimizer_state=states * trained,
        activations=graph.saved_bytes * samples * scale,
    )


def training_flops(graph: OpGraph, batch_size: int) -> float:
    """Operations of a training step: three times the forward pass, as each product has two in the backward pass.

    Parameters
    ----------
    graph : OpGraph
        The network.
    batch_size : int
        Samples in a batch.

    Raises
    ------
    InputError
        If the batch size is not a positive whole number.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> training_flops(OpGraph.from_operators([dense], []), 32)
    122880.0
    """
    return 3.0 * check_graph(graph).flops * check_number("batch_size", batch_size, 1, integer=True)
