"""`OpGraph`: the operator graph of a network, and its structural matrix."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from gpudemand._array import STRING, FloatArray, IntArray
from gpudemand._tables import aligned, format_amount, titled_html
from gpudemand._validation import InputError, check_choice, check_columns, stack_level, told
from gpudemand.cost.operators import (
    BATCHED,
    OTHER,
    VOCABULARY,
    IncompleteTraceWarning,
    Kernel,
    Operator,
    UnknownOperatorWarning,
    channels_of,
    check_vocabulary,
)
from gpudemand.cost.tracing import Traced
from gpudemand.units import format_number_of

#: Beyond a factor of so much, a trace says nothing.
_MOST_SCALE = 10.0
#: First and last rows of a printed graph.
_HEAD, _TAIL = 16, 6
_TEXT = ("type", "kind", "name", "operator")
_AMOUNTS = ("weight_bytes", "frozen", *BATCHED, *(f"fixed_{name}" for name in BATCHED))
_DTYPES = {
    **dict.fromkeys(_TEXT, STRING),
    **dict.fromkeys(_AMOUNTS, "float64"),
    **dict.fromkeys(("parameters", "channels", "inner"), "int64"),
}


@dataclass(frozen=True, eq=False, repr=False)
class OpGraph:
    """Operator graph of a network: operator calls and the data flow between them.

    Views, indexing, shape arithmetic and constants are contracted away. A module that is called twice has two nodes;
    its parameters count once. Amounts are per sample (the graph is traced on a batch of two, because batch
    normalisation cannot train on one value), and fixed of what is computed from parameters alone.

    Parameters
    ----------
    nodes : DataFrame
        One row an operator call, in order of execution; the columns are the fields of `Operator`.
    edges : ndarray of shape (n_edges, 2)
        Positions in `nodes`: producer, consumer.
    name : str
        Class name of the network.
    framework : {"pytorch", "keras"}
        Origin of the network.
    input_shapes : tuple of shapes
        Without the batch, of the inputs that have one.
    n_parameters, n_trainable : int
        Of the whole network, shared ones once; running statistics of batch normalisation are no parameters.
    parameter_bytes : float
        Memory of the parameters as stored.
    state_bytes : float
        Memory of what the network keeps beside parameters: buffers, banks, packed weights.
    fixed_input_bytes : float
        Memory of example inputs without a batch, such as the edges of a graph.
    n_tensors : int
        Tensors that the trainable parameters come in, of which the host updates each.
    n_sparse : int
        Trainable parameters of embeddings with sparse gradients: a step touches the rows that are looked up, no others.
    kernels : DataFrame, optional
        Kernels of a training step, where the framework's own were recorded (PyTorch); the columns are the fields of
        `Kernel`.
    caveats : tuple of str
        What the trace may lack, as it was warned of.
    compute_dtype : {"float32", "float16", "bfloat16", "float64"}
        Type that most of its parameters are stored in, or, of Keras, are computed in by the policies of their layers.
    error_scale : float
        Factor by which the work may be more or less than it is here, for what the trace lacks; 1 if nothing.

    Notes
    -----
    An architecture has the same graph in PyTorch and in Keras, except:

    * PyTorch's ``scaled_dot_product_attention`` is one ``Attention``; Keras on TensorFlow computes MatMul, Mul, Where
      (under a mask), Softmax and MatMul, as PyTorch does if the attention weights are returned.
    * ``ZeroPadding2D`` is a ``Pad``; PyTorch's convolutions pad internally.
    * ``Bidirectional`` is two recurrent operators, in PyTorch one; a PyTorch LSTM has a second bias.
    * `saved_bytes` is measured from autograd in PyTorch and follows rules (`operators.SAVES`) in Keras: a dropout mask
      takes 4 bytes an element on PyTorch's CPU, 1 in TensorFlow; max pooling saves indices in PyTorch, its output in
      TensorFlow.
    * A transpose is an operator where it moves data: in PyTorch if the result is made contiguous, in TensorFlow always.

    See Also
    --------
    gpudemand.structural_matrix : Count the edges by operator types.

    Examples
    --------
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> relu = Operator("Relu", "", "act", "relu", (1, 10), 0.0, 0, 0.0, 40.0, 40.0, 40.0)
    >>> graph = OpGraph.from_operators([dense, relu], [(0, 1)])
    >>> graph.flops, graph.saved_bytes, graph.depth
    (1280.0, 296.0, 2)
    """

    nodes: pd.DataFrame
    edges: IntArray
    name: str = "network"
    framework: str = ""
    input_shapes: tuple[tuple[int, ...], ...] = ()
    n_parameters: int = 0
    n_trainable: int = 0
    parameter_bytes: float = 0.0
    n_sparse: int = 0
    n_tensors: int = 0
    kernels: pd.DataFrame | None = None
    caveats: tuple[str, ...] = ()
    error_scale: float = 1.0
    state_bytes: float = 0.0
    fixed_input_bytes: float = 0.0
    compute_dtype: str = "float32"

    @classmethod
    def from_operators(
        cls, operators: Sequence[Operator], edges: Iterable[tuple[int, int]], **attributes: Any
    ) -> OpGraph:
        """Build a graph from operators and edges.

        Parameters
        ----------
        operators : sequence of Operator
            In order of execution.
        edges : iterable of (int, int)
            Positions in `operators`: producer, consumer.
        **attributes : Any
            Further fields of the class, such as `n_parameters`.

        Returns
        -------
        OpGraph
        """
        nodes = pd.DataFrame(list(operators), columns=list(Operator._fields)).astype(_DTYPES)
        pairs = np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)
        return cls(nodes=nodes, edges=pairs, **attributes)

    @classmethod
    @told("Tracing the network")
    def from_torch(
        cls, module: Any, input_shape: Any, *, input_dtype: Any = None, train: bool | None = None
    ) -> OpGraph:
        """Trace a PyTorch module symbolically: without arithmetic, memory for activations, or a GPU.

        The forward pass of a copy of the module runs on fake tensors. Packed sequences count as long as the longest;
        of sparse matrices that the module holds, a product counts the nonzeros.

        Parameters
        ----------
        module : torch.nn.Module
            On any device, including meta. Not modified.
        input_shape : tuple of int, or a list or dict of such tuples, or example tensors
            Without the batch: ``(3, 224, 224)``. A list is several positional inputs, a dict inputs by name. Example
            tensors include the batch. It is the first axis, or the second (as of attention and recurrent layers by
            default) where work grows as the batch only there. Its size is the number of rows of the results if an
            example has as many, otherwise that of the first example. Examples without it, such as edges, count once
            whatever the batch, with a warning: for a graph, pass an example of the size to be trained, and the number
            of its nodes as `batch_size`.
        input_dtype : str, or a list or dict of str, default=None
            ``"float32"``, ``"int64"``, ...; None is the type of the parameters, or int64 for inputs used as indices.
        train : bool, optional
            True traces a training step, all layers in training mode; False a forward pass in evaluation mode, which
            saves no activations; None a training step in which each layer keeps its mode, such as frozen normalisation.

        Returns
        -------
        OpGraph

        Raises
        ------
        InputError
            If `module` is no PyTorch module, or its forward pass fails on that shape or branches on values of tensors
            (the message names the line).

        Warns
        -----
        UnknownOperatorWarning
            If operators are not in the vocabulary.
        """
        from gpudemand.cost._torch_trace import trace

        return cls._from_trace(trace(module, input_shape, input_dtype=input_dtype, train=train))

    @classmethod
    @told("Tracing the network")
    def from_keras(cls, model: Any, input_shape: Any = None, *, input_dtype: Any = None, train: bool = True) -> OpGraph:
        """Trace a Keras 3 model symbolically: functional, sequential or subclassed.

        Composite layers, such as ``MultiHeadAttention``, are traced down to their operators. Bodies of loops count as
        often as they run; where values of tensors decide, the largest branch and the most runs count, with a warning.

        Parameters
        ----------
        model : keras.Model or keras.Layer
            A subclassed model without weights is built by this call.
        input_shape : tuple of int, or a list or dict of such tuples, default=None
            Without the batch; None is the shapes that the model was defined or built with.
        input_dtype : str, or a list or dict of str, default=None
            None is the type that the model declares, or else its compute type.
        train : bool, default=True
            Training mode or evaluation mode.

        Returns
        -------
        OpGraph

        Raises
        ------
        InputError
            If `model` is no Keras model, its input shape is not known, or its call fails.

        Warns
        -----
        IncompleteTraceWarning
            If how much runs depends on values of tensors.
        UnknownOperatorWarning
            If operators are not in the vocabulary.
        """
        from gpudemand.cost._keras_trace import trace

        return cls._from_trace(trace(model, input_shape, input_dtype=input_dtype, train=train))

    @classmethod
    def _from_trace(cls, traced: Traced) -> OpGraph:
        kernels = pd.DataFrame(traced.kernels, columns=list(Kernel._fields)) if traced.kernels else None
        said = tuple(caveat.text for caveat in traced.caveats)
        error_scale = min(math.prod((caveat.error_scale for caveat in traced.caveats), start=1.0), _MOST_SCALE)
        about = traced.attributes | {"kernels": kernels, "caveats": said, "error_scale": error_scale}
        graph = cls.from_operators(traced.operators, traced.edges, **about)
        for caveat in graph.caveats:
            warnings.warn(f"{graph.name}: {caveat}.", IncompleteTraceWarning, stacklevel=stack_level())
        if graph.other_:
            warnings.warn(
                f"{graph.name} has operators that are not in the vocabulary and count as 'Other', without "
                f"operations: {', '.join(graph.other_)}.",
                UnknownOperatorWarning,
                stacklevel=stack_level(),
            )
        return graph

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        fields = vars(self) | {"edges": self.edges.tolist(), "nodes": self.nodes.to_dict("list")}
        return fields | ({} if self.kernels is None else {"kernels": self.kernels.to_dict("list")})

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> OpGraph:
        """Restore what `to_dict` returned, in which names of calls may be left out of ``nodes``."""
        nodes = pd.DataFrame({"name": "", "operator": "", **fields["nodes"]}).to_dict("records")
        operators = [Operator(**{**one, "output_shape": tuple(one["output_shape"])}) for one in nodes]
        kernels = None if fields["kernels"] is None else pd.DataFrame(fields["kernels"])
        shapes = tuple(tuple(map(int, shape)) for shape in fields["input_shapes"])
        about = {**fields, "kernels": kernels, "input_shapes": shapes, "caveats": tuple(fields.get("caveats", ()))}
        del about["nodes"]
        return cls.from_operators(operators, map(tuple, about.pop("edges")), **about)

    @property
    def flops(self) -> float:
        """Operations of the forward pass of one sample; a multiply-add counts as 2."""
        return float(self.nodes["flops"].sum())

    @property
    def saved_bytes(self) -> float:
        """Bytes of activations saved for the backward pass, per sample."""
        return float(self.nodes["saved_bytes"].sum())

    @property
    def is_single(self) -> bool:
        """Whether it computes in single precision, which automatic mixed precision casts to half."""
        return self.compute_dtype == "float32"

    @property
    def parameter_width(self) -> float:
        """Mean bytes of a parameter as stored; 4 where they are not known."""
        return self.parameter_bytes / max(self.n_parameters, 1) or 4.0

    @property
    def n_layers(self) -> int:
        """Number of operators with parameters; a layer that is called twice counts once."""
        return int((self.nodes["parameters"] > 0).sum())

    @property
    def producers(self) -> list[list[int]]:
        """Positions of the producers of each operator."""
        found: list[list[int]] = [[] for _ in range(len(self.nodes))]
        for producer, consumer in self.edges.tolist():
            found[consumer].append(producer)
        return found

    @property
    def depth(self) -> int:
        """Number of operators on the longest path."""
        longest = np.ones(len(self.nodes), dtype=np.int64)
        # Edges are sorted by producer, and no producer comes after its consumer.
        for producer, consumer in self.edges:
            longest[consumer] = max(longest[consumer], longest[producer] + 1)
        return int(longest.max(initial=0))

    @property
    def channels(self) -> FloatArray:
        """Channels of the output of each operator."""
        return np.array([channels_of(call) for call in self.nodes.itertuples()], dtype=float)

    @property
    def other_(self) -> tuple[str, ...]:
        """Names of the operators that are not in the vocabulary."""
        return tuple(dict.fromkeys(self.nodes.loc[self.nodes["type"] == OTHER, "operator"]))

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of `nodes`."""
        return self.nodes.copy()

    def __repr__(self) -> str:
        return f"{self._summary()}\n\n{aligned(self._table())}"

    def _repr_html_(self) -> str:
        return titled_html(self._summary(), self._table())

    def _summary(self) -> str:
        shapes = ", ".join("x".join(map(str, shape)) or "scalar" for shape in self.input_shapes)
        origin = f" ({self.framework})" if self.framework else ""
        unknown = f"\nnot in the vocabulary: {', '.join(self.other_)}" if self.other_ else ""
        return (
            f"{self.name}{origin} on {shapes or 'no input'}: {format_number_of('operator', len(self.nodes))}, "
            f"{format_number_of('edge', len(self.edges))}, depth {self.depth}\n"
            f"{self.n_parameters:,} parameters ({self.n_trainable:,} trainable); per sample "
            f"{format_amount(self.flops, 'FLOP')}, {format_amount(self.saved_bytes, 'B')} saved for the backward pass"
            f"{unknown}"
        )

    def _table(self) -> pd.DataFrame:
        table = pd.DataFrame(
            {
                "operator": (self.nodes["type"] + " " + self.nodes["kind"]).str.strip(),
                "name": self.nodes["name"].map(lambda name: name if len(name) <= 36 else "..." + name[-33:]),
                "output": ["x".join(map(str, shape)) for shape in self.nodes["output_shape"]],
                "FLOP": [format_amount(value) for value in self.nodes["flops"]],
                "parameters": [f"{value:,}" if value else "" for value in self.nodes["parameters"]],
                "saved": [format_amount(value, "B") for value in self.nodes["saved_bytes"]],
            }
        ).astype(str)
        if len(table) <= _HEAD + _TAIL:
            return table
        omitted = pd.DataFrame([dict.fromkeys(table.columns, "") | {"operator": "..."}])
        return pd.concat([table.iloc[:_HEAD], omitted, table.iloc[-_TAIL:]], ignore_index=True)


P = ParamSpec("P")
R = TypeVar("R")


def per_graph(function: Callable[Concatenate[OpGraph, P], R]) -> Callable[Concatenate[OpGraph, P], R]:
    """Memoize a function of a graph and of hashable arguments.

    Results are shared by all callers and must not be modified.

    >>> @per_graph
    ... def slow(graph, factor):
    ...     return [factor]
    >>> graph = OpGraph.from_operators([], [])
    >>> slow(graph, 2) is slow(graph, 2), slow(graph, 2) is slow(graph, 3)
    (True, False)
    """
    cache: WeakKeyDictionary[OpGraph, dict[Hashable, Any]] = WeakKeyDictionary()

    @wraps(function)
    def memoized(graph: OpGraph, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result for the graph and the arguments, computed at their first call only."""
        results = cache.setdefault(graph, {})
        key = (args, *kwargs.items())
        if key not in results:
            results[key] = function(graph, *args, **kwargs)
        result: R = results[key]
        return result

    return cast("Callable[Concatenate[OpGraph, P], R]", memoized)


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
        `gpudemand.cost.operators.VOCABULARY`. Operators of other types count as ``Other`` if it is listed.

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
    >>> from gpudemand.cost.graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> relu = Operator("Relu", "", "act", "relu", (1, 10), 0.0, 0, 0.0, 40.0, 40.0, 40.0)
    >>> structural_matrix(OpGraph.from_operators([dense, relu], [(0, 1)]))
          Gemm  Relu
    Gemm     0     1
    Relu     0     0
    """
    graph = check_graph(graph)
    types = check_vocabulary(vocabulary) if vocabulary is not None else _types_of(graph)
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
    """Return `graph` if it is an `OpGraph` with operators and edges; raise `InputError` otherwise."""
    if not isinstance(graph, OpGraph):
        raise InputError(f"a graph must be an OpGraph (OpGraph.from_torch makes one); got {type(graph).__name__}.")
    check_columns(graph.nodes, ("type",), "the nodes of a graph")
    if np.shape(graph.edges) != (len(graph.edges), 2):
        raise InputError("the edges of a graph must be pairs of positions; OpGraph.from_operators makes them.")
    return graph


def _types_of(graph: OpGraph) -> tuple[str, ...]:
    present = set(graph.nodes["type"])
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
