"""Network structural matrix: edges of an operator graph, counted by the types of producer and consumer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_choice
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.operators.vocabulary import OTHER, VOCABULARY, check_vocabulary

#: Weight of an edge -> column of `OpGraph.nodes`.
WEIGHTS = {"flops": "flops", "bytes": "bytes_written", "parameters": "parameters"}


def structural_matrix(
    graph: OpGraph, weight: str | None = None, vocabulary: Sequence[str] | None = None
) -> pd.DataFrame:
    """Count the edges of a graph by the types of the operators at their ends.

    Parameters
    ----------
    graph : OpGraph
        The network.
    weight : {None, "flops", "bytes", "parameters"}, default=None
        Weight of an edge; None counts edges. ``"bytes"``: data that flows along the edge, per sample. ``"flops"``,
        ``"parameters"``: those of the consumer, divided evenly among its incoming edges, so that the matrix sums to the
        total of the graph without the operators that have no producer.
    vocabulary : sequence of str, optional
        Types of the rows and columns; default: the types that occur, in the order of
        `gpudemand.cost.operators.vocabulary.VOCABULARY`. Operators of other types count as ``Other`` if it is listed.

    Returns
    -------
    DataFrame of shape (n_types, n_types)
        Row: producer, column: consumer; integers without `weight`.

    Raises
    ------
    InputError
        If `weight` or a type is unknown, or `vocabulary` lacks the type of an operator and ``Other``.

    References
    ----------
    Bai et al., "DNNAbacus: Toward Accurate Computational Cost Prediction for Deep Neural Networks",
    arXiv:2205.12095, 2022. The paper counts edges; weights are an addition, because counts do not depend on the size of
    the input.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> relu = Operator("Relu", "", "act", "relu", (1, 10), 0.0, 0, 0.0, 40.0, 40.0, 40.0)
    >>> structural_matrix(OpGraph.from_operators([dense, relu], [(0, 1)]))
          Gemm  Relu
    Gemm     0     1
    Relu     0     0
    """
    graph = check_graph(graph)
    types = check_vocabulary(vocabulary) if vocabulary is not None else _types_of([graph])
    matrix = np.zeros((len(types), len(types)))
    codes = _codes(graph, types)
    np.add.at(matrix, (codes[graph.edges[:, 0]], codes[graph.edges[:, 1]]), edge_weights(graph, weight))
    return pd.DataFrame(matrix if weight else matrix.astype(np.int64), index=types, columns=types)


def edge_weights(graph: OpGraph, weight: str | None = None) -> FloatArray:
    """Weight of each edge of a graph, shape (n_edges,); see `structural_matrix`."""
    if weight is None:
        return np.ones(len(graph.edges))
    column = WEIGHTS[check_choice("weight", weight, WEIGHTS)]
    amounts = graph.nodes[column].to_numpy(dtype=float)
    producers, consumers = graph.edges[:, 0], graph.edges[:, 1]
    if weight == "bytes":
        return amounts[producers]
    return amounts[consumers] / np.bincount(consumers, minlength=len(amounts))[consumers]


def check_graph(graph: object) -> OpGraph:
    """Return `graph` if it is an `OpGraph`; raise `InputError` otherwise."""
    if not isinstance(graph, OpGraph):
        raise InputError(f"a graph must be an OpGraph (OpGraph.from_torch makes one); got {type(graph).__name__}.")
    return graph


def check_graphs(graphs: object) -> list[OpGraph]:
    """Return `graphs` as a list of at least one `OpGraph`; raise `InputError` otherwise."""
    if isinstance(graphs, OpGraph) or not isinstance(graphs, Iterable):
        raise InputError(f"graphs must be a list of OpGraph; got {type(graphs).__name__}.")
    checked = [check_graph(graph) for graph in graphs]
    if not checked:
        raise InputError("graphs is empty; pass at least one OpGraph.")
    return checked


def _types_of(graphs: Sequence[OpGraph]) -> tuple[str, ...]:
    present = {name for graph in graphs for name in graph.nodes["type"]}
    return tuple(name for name in VOCABULARY if name in present)


def _codes(graph: OpGraph, types: Sequence[str]) -> IntArray:
    """Position of each operator's type in `types`, or else that of ``Other``."""
    position = {name: code for code, name in enumerate(types)}
    codes = np.array([position.get(name, position.get(OTHER, -1)) for name in graph.nodes["type"]], dtype=np.int64)
    if (codes < 0).any():
        missing = graph.nodes["type"].to_numpy()[codes < 0][0]
        raise InputError(
            f"{graph.name} has operators of type {missing!r}, which the vocabulary lacks; add it or 'Other'."
        )
    return codes


class NetworkStructuralMatrix(TransformerMixin, BaseEstimator):
    """Structural matrices of graphs as feature vectors, one feature a pair of operator types.

    Parameters
    ----------
    weight : {None, "flops", "bytes", "parameters"}, default=None
        Weight of an edge; see `structural_matrix`.
    handle_unknown : {"other", "error"}, default="other"
        Types not seen in `fit` count as ``Other`` or raise an error.
    sparse_output : bool, default=False
        Whether to return a SciPy CSR matrix.

    Attributes
    ----------
    operators_ : tuple of str
        Types seen in `fit`, and ``Other``.
    n_features_in_ : int
        Always 1: the column of graphs.

    See Also
    --------
    GraphFeatures : Features that do not depend on the edges.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> relu = Operator("Relu", "", "act", "relu", (1, 10), 0.0, 0, 0.0, 40.0, 40.0, 40.0)
    >>> graphs = [OpGraph.from_operators([dense, relu], [(0, 1)])]
    >>> nsm = NetworkStructuralMatrix().fit(graphs)
    >>> dict(zip(nsm.get_feature_names_out(), nsm.transform(graphs)[0].tolist()))["Gemm->Relu"]
    1.0
    """

    def __init__(self, weight: str | None = None, handle_unknown: str = "other", sparse_output: bool = False) -> None:
        self.weight = weight
        self.handle_unknown = handle_unknown
        self.sparse_output = sparse_output

    def fit(self, X: Iterable[OpGraph], y: object = None) -> NetworkStructuralMatrix:
        """Collect the operator types of some graphs.

        Parameters
        ----------
        X : iterable of OpGraph
            The networks.
        y : ignored

        Returns
        -------
        NetworkStructuralMatrix
        """
        check_choice("handle_unknown", self.handle_unknown, ("error", "other"))
        if self.weight is not None:
            check_choice("weight", self.weight, WEIGHTS)
        self.operators_ = tuple(dict.fromkeys([*_types_of(check_graphs(X)), OTHER]))
        self.n_features_in_ = 1
        return self

    def transform(self, X: Iterable[OpGraph]) -> Any:
        """Compute the structural matrix of each graph, flattened.

        Parameters
        ----------
        X : iterable of OpGraph
            The networks.

        Returns
        -------
        ndarray or sparse matrix of shape (n_graphs, n_types ** 2)

        Raises
        ------
        InputError
            If a graph has a type not seen in `fit` and ``handle_unknown="error"``.
        """
        check_is_fitted(self)
        graphs = check_graphs(X)
        if self.handle_unknown == "error":
            self._check_known(graphs)
        rows = [structural_matrix(graph, self.weight, self.operators_).to_numpy(float).ravel() for graph in graphs]
        return sparse.csr_matrix(np.array(rows)) if self.sparse_output else np.array(rows)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray[Any, Any]:
        """Names of the features, such as ``"Conv->Relu"`` for edges from a convolution to a ReLU.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str objects
        """
        check_is_fitted(self)
        pairs = [f"{producer}->{consumer}" for producer in self.operators_ for consumer in self.operators_]
        return np.array(pairs, dtype=object)

    def _check_known(self, graphs: Sequence[OpGraph]) -> None:
        for graph in graphs:
            unknown = sorted(set(graph.nodes["type"]) - set(self.operators_))
            if unknown:
                raise InputError(
                    f"{graph.name} has operators of type {', '.join(unknown)}, which were not seen in fit; "
                    "fit on more networks or set handle_unknown='other'."
                )
