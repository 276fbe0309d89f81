from __future__ import annotations

import dataclasses
import functools
import os
from pathlib import Path

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402
from keras import layers, ops  # noqa: E402

from gpudemand._validation import InputError  # noqa: E402
from gpudemand.cost.graph import IncompleteTraceWarning, OpGraph, UnknownOperatorWarning  # noqa: E402
from gpudemand.cost.graph_features import step_kernels  # noqa: E402
from gpudemand.cost.job import TrainingJob  # noqa: E402
from gpudemand.cost.liveness import Setting  # noqa: E402
from gpudemand.cost.memory import conv_workspace, simulate_memory  # noqa: E402


def types(graph: OpGraph) -> list[str]:
    return (graph.nodes["type"] + " " + graph.nodes["kind"]).str.strip().tolist()


class Net(keras.Model):
    """Convolutions, a skip connection, plain TensorFlow, Keras operations, and a weight of its own."""

    def __init__(self) -> None:
        super().__init__(name="net")
        self.stem = layers.Conv2D(8, 1, name="stem")
        self.conv = layers.Conv2D(8, 3, padding="same", groups=2, use_bias=False, name="conv")
        self.norm = layers.BatchNormalization(name="norm")
        self.head = layers.Dense(10, name="head")

    def build(self, input_shape):
        self.scale = self.add_weight(shape=(10,), name="scale")
        super().build(input_shape)

    def call(self, x, training=False):
        x = self.stem(x)
        x = ops.gelu(x + self.norm(self.conv(x), training=training))
        return self.scale * self.head(tf.reduce_mean(x, axis=[1, 2]))


def test_small_network_by_hand():
    model = keras.Sequential(
        [keras.Input((8, 8, 1)), layers.Conv2D(4, 3, activation="relu"), layers.Flatten(), layers.Dense(10)]
    )
    graph = OpGraph.from_keras(model)
    assert types(graph) == ["Conv 3x3", "Relu", "Gemm"]
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.nodes["flops"].tolist() == [2 * 36 * 36, 0, 2 * 144 * 10]
    assert graph.nodes["parameters"].tolist() == [40, 0, 1450]
    assert graph.nodes["output_shape"].tolist() == [(1, 6, 6, 4), (1, 6, 6, 4), (1, 10)]
    assert graph.nodes["saved_bytes"].tolist() == [256, 576, 0]
    assert graph.nodes["weight_bytes"].tolist() == [160, 0, 5800]


def test_subclassed_model_with_plain_tensorflow():
    graph = OpGraph.from_keras(Net(), (16, 16, 3))
    expected = ["Conv 1x1", "Conv grouped", "BatchNormalization", "Add", "Gelu", "GlobalAveragePool", "Gemm", "Mul"]
    assert types(graph) == expected
    assert graph.edges.tolist() == [[0, 1], [0, 3], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7]]
    assert graph.n_parameters == graph.nodes["parameters"].sum() == 32 + 8 * 4 * 9 + 16 + 90 + 10
    assert graph.nodes["name"].tolist()[:3] == ["stem", "conv", "norm"]


def test_repr_matches_the_golden_text():
    golden = Path(__file__).parent / "golden" / "keras.txt"
    assert repr(OpGraph.from_keras(Net(), (16, 16, 3))) + "\n" == golden.read_text(encoding="utf-8")


def test_the_three_ways_to_write_a_model_are_one_graph():
    def stack():
        return [layers.Conv2D(4, 3, name="a"), layers.BatchNormalization(name="b"), layers.ReLU(name="c")]

    class Sub(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.parts = stack()

        def call(self, x):
            for part in self.parts:
                x = part(x)
            return x

    inputs = x = keras.Input((8, 8, 3))
    for layer in stack():
        x = layer(x)
    subclassed = Sub()
    subclassed(np.zeros((1, 8, 8, 3), "float32"))
    graphs = [
        OpGraph.from_keras(keras.Model(inputs, x)),
        OpGraph.from_keras(keras.Sequential([keras.Input((8, 8, 3)), *stack()])),
        OpGraph.from_keras(subclassed),  # it knows its shape from its first call
    ]
    for graph in graphs[1:]:
        assert graph.nodes.equals(graphs[0].nodes)
        assert graph.edges.tolist() == graphs[0].edges.tolist()


def test_attention_is_expanded():
    inputs = keras.Input((10, 32))
    model = keras.Model(inputs, layers.MultiHeadAttention(4, 8)(inputs, inputs))
    graph = OpGraph.from_keras(model)
    assert types(graph) == ["Gemm", "Gemm", "Gemm", "MatMul", "Mul", "Softmax", "MatMul", "Gemm"]
    assert graph.flops == 2 * 10 * 32 * 32 * 4 + 2 * 2 * 4 * 10 * 10 * 8
    assert graph.n_parameters == model.count_params() == graph.nodes["parameters"].sum()


@pytest.mark.parametrize(
    ("layer", "type_", "gates"), [(layers.LSTM, "LSTM", 4), (layers.GRU, "GRU", 3), (layers.SimpleRNN, "RNN", 1)]
)
def test_recurrent_layers_are_one_operator(layer, type_, gates):
    model = keras.Sequential([keras.Input((10, 8)), layers.Bidirectional(layer(16, return_sequences=True))])
    graph = OpGraph.from_keras(model)
    assert types(graph)[:2] == [type_, type_]
    assert graph.flops == 2 * 2 * 10 * gates * 16 * (8 + 16)
    assert graph.nodes["parameters"].sum() == model.count_params()


@pytest.mark.parametrize(
    ("layer", "flops"),
    [
        (layers.RNN([layers.LSTMCell(6), layers.LSTMCell(4)]), 2 * 10 * 4 * (6 * (8 + 6) + 4 * (6 + 4))),
        (layers.RNN(layers.GRUCell(6)), 2 * 10 * 3 * 6 * (8 + 6)),
    ],
)
def test_recurrent_layers_of_cells_are_one_operator_too(layer, flops):
    graph = OpGraph.from_keras(keras.Sequential([keras.Input((10, 8)), layer]))
    assert len(graph.nodes) == 1
    assert graph.flops == flops


def test_tf_functions_are_traced_into():
    class Inside(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(4)

        @tf.function
        def double(self, x):
            return 2 * tf.nn.gelu(x)

        def call(self, x):
            return self.double(self.dense(x))

    assert types(OpGraph.from_keras(Inside(), (8,))) == ["Gemm", "Gelu", "Mul"]
    assert not tf.config.functions_run_eagerly()


def test_channels_may_come_first():
    graphs = [
        OpGraph.from_keras(keras.Sequential([keras.Input(shape), layers.Conv2D(4, 3, data_format=layout)]))
        for shape, layout in (((8, 8, 6), "channels_last"), ((6, 8, 8), "channels_first"))
    ]
    assert types(graphs[0]) == types(graphs[1]) == ["Conv 3x3"]
    assert graphs[0].flops == graphs[1].flops


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((1, 256, 192), "channels_last"), ((256, 1, 192), "channels_last"), ((192, 16, 16), "channels_first")],
)
def test_products_are_as_large_as_their_weights_wherever_the_channels_are(shape, layout):
    options = {"padding": "same", "use_bias": False, "data_format": layout}
    inside = [layers.Conv2D(256, 3, **options), layers.Conv2D(64, 3, groups=2, **options)]
    norm = layers.BatchNormalization(axis=1 if layout == "channels_first" else -1)
    graph = OpGraph.from_keras(keras.Sequential([keras.Input(shape), *inside, norm]))
    assert graph.channels.tolist() == [256, 64, 64]
    kernels = step_kernels(graph).query("channels > 0")
    assert kernels[["channels", "inner"]].drop_duplicates().to_numpy().tolist() == [[256, 192], [64, 128]]
    assert conv_workspace(graph)["columns"][1].tolist() == [256 * 192 * 9 * 4, 256 * 128 * 9 * 4, 0]


def test_products_of_tokens_are_as_large_as_their_weights():
    graph = OpGraph.from_keras(keras.Sequential([keras.Input((5, 7, 128)), layers.Dense(256)]))
    assert (step_kernels(graph)[["channels", "inner"]] == [256, 128]).all(axis=None)


def test_convolutions_of_every_kind():
    inputs = keras.Input((16, 16, 8))
    x = layers.SeparableConv2D(8, 3)(inputs)
    x = layers.DepthwiseConv2D(5, padding="same")(x)
    x = layers.Conv2DTranspose(4, 2, strides=2)(layers.Conv2D(8, 7)(x))
    volume = layers.Conv3D(2, 3)(layers.Reshape((16, 16, 4, 1))(x))
    graph = OpGraph.from_keras(keras.Model(inputs, volume))
    assert types(graph) == [
        "Conv depthwise",
        "Conv 1x1",
        "Conv depthwise",
        "Conv large",
        "ConvTranspose 3x3",
        "Conv 3x3",
    ]
    assert graph.nodes["flops"].tolist() == [
        2 * 14 * 14 * 8 * 9,
        2 * 14 * 14 * 64,
        2 * 14 * 14 * 8 * 25,
        2 * 8 * 8 * 64 * 49,
        2 * 8 * 8 * 8 * 4 * 4,
        2 * 14 * 14 * 2 * 2 * 27,
    ]


class Scores(layers.Layer):
    """Scores every token with the table of an embedding layer."""

    def __init__(self, embedding: layers.Embedding) -> None:
        super().__init__()
        self.embedding = embedding

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.embedding.embeddings))


def test_shared_layers_and_tied_weights_count_their_parameters_once():
    inputs = keras.Input((12,), dtype="int32")
    embedding, dense = layers.Embedding(50, 16), layers.Dense(16, activation="tanh")
    graph = OpGraph.from_keras(keras.Model(inputs, Scores(embedding)(dense(dense(embedding(inputs))))))
    assert types(graph) == ["Gather", "Gemm", "Tanh", "Gemm", "Tanh", "Gemm"]
    assert graph.nodes["parameters"].tolist() == [800, 272, 0, 0, 0, 0]
    assert graph.nodes["flops"].tolist() == [0, 2 * 12 * 256, 0, 2 * 12 * 256, 0, 2 * 12 * 16 * 50]
    assert graph.n_parameters == 1072


class Projected(layers.LayerNormalization):
    """Normalises and multiplies."""

    def build(self, shape):
        super().build(shape)
        self.matrix = self.add_weight(shape=(shape[-1], 5))

    def call(self, x):
        return ops.matmul(super().call(x), self.matrix)


class Scoring(layers.Embedding):
    """Looks tokens up, and scores others with its table."""

    def call(self, x, reverse=False):
        return ops.matmul(x, ops.transpose(self.embeddings)) if reverse else super().call(x)


class Tied(keras.Model):
    def __init__(self, table):
        super().__init__()
        self.table = table

    def call(self, x):
        return self.table(self.table(x), reverse=True)


@pytest.mark.parametrize("kind", [Scoring, getattr(layers, "ReversibleEmbedding", Scoring)])
def test_layers_that_do_more_than_their_kind_count_their_products(kind):
    graph = OpGraph.from_keras(Tied(kind(50, 16)), (12,), input_dtype="int32")
    assert types(graph) == ["Gather", "Gemm"]
    assert graph.nodes["flops"].tolist() == [0, 2 * 12 * 16 * 50]
    assert graph.nodes["parameters"].tolist() == [800, 0]
    assert OpGraph.from_keras(keras.Sequential([keras.Input((12, 16)), Projected()])).flops == 2 * 12 * 16 * 5


def test_inputs_in_a_list_and_by_name():
    def build(first, second, inputs):
        x = layers.Concatenate()([layers.Dense(4)(first), layers.Dense(4)(second)])
        return keras.Model(inputs, x)

    a, b = keras.Input((3,), name="a"), keras.Input((5,), name="b")
    for model in (build(a, b, [a, b]), build(a, b, {"a": a, "b": b})):
        graph = OpGraph.from_keras(model)
        assert types(graph) == ["Gemm", "Gemm", "Concat"]
        assert graph.input_shapes == ((3,), (5,))
        assert graph.edges.tolist() == [[0, 2], [1, 2]]


def test_an_example_input_without_the_batch_counts_once():
    class Mixing(keras.Model):
        def __init__(self):
            super().__init__()
            self.fc = layers.Dense(8, use_bias=False)

        def call(self, x, matrix):
            return self.fc(x @ (matrix @ matrix))

    for zeros in (np.zeros, tf.zeros):
        with pytest.warns(IncompleteTraceWarning, match=r"shape \(20, 20\) does not grow with the batch"):
            graph = OpGraph.from_keras(Mixing(), [zeros((6, 20), "float32"), zeros((20, 20), "float32")])
        assert (graph.input_shapes, graph.fixed_input_bytes) == (((20,),), 4 * 20 * 20)
        assert (graph.flops, graph.nodes["fixed_flops"].sum()) == (2 * 20 * (20 + 8), 2 * 20**3)


def test_open_input_shapes_are_refused():
    inputs = keras.Input((None, None, 3))
    model = keras.Model(inputs, layers.Conv2D(4, 3)(inputs))
    with pytest.raises(InputError, match="which is open; pass input_shape"):
        OpGraph.from_keras(model)
    assert OpGraph.from_keras(model, (10, 10, 3)).flops == 2 * 64 * 4 * 27


def test_running_statistics_are_no_parameters_and_frozen_layers_are_not_trainable():
    norm = layers.BatchNormalization()
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8), norm, layers.Dense(2)])
    model.layers[0].trainable = False
    graph = OpGraph.from_keras(model)
    assert (graph.n_parameters, graph.n_trainable) == (72 + 16 + 18, 16 + 18)
    assert graph.nodes["saved_bytes"].tolist() == [0, 32, 32]


@pytest.mark.parametrize(("n_frozen", "products"), [(0, 1 + 2 + 2), (1, 1 + 2), (2, 1), (3, 0)])
def test_frozen_layers_before_the_first_trained_one_have_no_backward_pass(n_frozen: int, products: int):
    model = keras.Sequential([keras.Input((8,)), *(layers.Dense(8, activation="relu") for _ in range(3))])
    for layer in model.layers[:n_frozen]:
        layer.trainable = False
    backward = step_kernels(OpGraph.from_keras(model)).query("backward and not is_autocast")
    gemm = backward[backward["kind"] == "gemm"]
    assert (gemm["flops"] * gemm["calls"]).sum() == products * 2 * 8 * 8
    assert (backward["kind"] == "pointwise").sum() == 3 - n_frozen


def test_gradients_pass_frozen_layers_behind_trained_ones_and_end_where_they_are_stopped():
    model = keras.Sequential([keras.Input((8,)), *(layers.Dense(8) for _ in range(3))])
    model.layers[1].trainable = False
    assert OpGraph.from_keras(model).nodes["frozen"].tolist() == [0.5, 0.5, 0.0]
    stopped = keras.Sequential([keras.Input((8,)), layers.Dense(8), layers.Lambda(ops.stop_gradient), layers.Dense(8)])
    assert OpGraph.from_keras(stopped).nodes["frozen"].tolist() == [0.5, 0.5]


class Recomputed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(8)

    def call(self, x):
        return keras.remat(self.dense)(x)


def test_recomputation_is_said_not_to_count():
    with keras.RematScope(mode="full"):
        scoped = keras.Sequential([keras.Input((4,)), layers.Dense(8)])
    before = tf.recompute_grad
    for model, shape in ((Recomputed(), (4,)), (scoped, None)):
        with pytest.warns(IncompleteTraceWarning, match="recomputes activations"):
            graph = OpGraph.from_keras(model, shape)
        assert (graph.flops, graph.error_scale) == (2 * 4 * 8, pytest.approx(4 / 3))
    assert tf.recompute_grad is before


def test_evaluation_mode_and_mixed_precision():
    model = keras.Sequential([keras.Input((8,)), layers.Dropout(0.5), layers.Dense(4, dtype="mixed_float16")])
    assert types(OpGraph.from_keras(model)) == ["Dropout", "Cast", "Gemm"]
    evaluated = OpGraph.from_keras(model, train=False)
    assert types(evaluated) == ["Cast", "Gemm"]
    assert evaluated.nodes["bytes_written"].tolist() == [16, 8]


def test_model_is_not_modified():
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.5)])
    before = [weight.numpy().copy() for weight in model.weights]
    calls = [layer.call for layer in model.layers]
    OpGraph.from_keras(model)
    assert all((old == new.numpy()).all() for old, new in zip(before, model.weights, strict=True))
    assert [layer.call for layer in model.layers] == calls
    assert all("call" not in vars(layer) or layer.call is old for layer, old in zip(model.layers, calls, strict=True))
    assert keras.src.backend.nn.gelu.__name__ == "gelu"


def test_unknown_operations_are_warned_of():
    inputs = keras.Input((8, 8))
    model = keras.Model(inputs, ops.det(inputs))
    with pytest.warns(UnknownOperatorWarning, match="MatrixDeterminant"):
        graph = OpGraph.from_keras(model)
    assert graph.other_ == ("MatrixDeterminant",)
    with pytest.warns(UnknownOperatorWarning, match="PyFunc"):
        assert types(OpGraph.from_keras(Ensured(), (8,))) == ["Add", "Other", "Add"]


class Gan(keras.Model):
    def __init__(self) -> None:
        super().__init__(name="gan")
        self.generator, self.discriminator = layers.Dense(8), layers.Dense(1)


class Plain(keras.Model):
    def call(self, x):
        return tf.numpy_function(lambda y: 2 * y, [x + 1.0], tf.float32) + 1.0


class Ensured(keras.Model):
    def call(self, x):
        return tf.ensure_shape(tf.numpy_function(lambda y: 2 * y, [x + 1.0], tf.float32), (2, 8)) + 1.0


class Prefixes(keras.Model):
    def call(self, x):
        return ops.associative_scan(lambda a, b: a * b + b, ops.reshape(x + 1.0, (-1, 16, 32)), axis=1)


class Branches(keras.Model):
    def call(self, x):
        if tf.reduce_sum(x) > 0:
            return x
        return -x


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (Branches, (3,), r"values of a tensor at test_keras.py, line \d+ \(if tf.reduce_sum\(x\) > 0:\)"),
        (Gan, (8,), "gan has no call, .*trace its parts, such as generator and discriminator"),
        (Plain, (8,), r"of unknown shape.*tf\.ensure_shape"),
        (Prefixes, (512,), r"of unknown shape.*tf\.ensure_shape"),
        (Net, (16, 3), r"fails on input of shape \(2, 16, 3\) at test_keras.py.*expected min_ndim=4"),
        (Net, (16, 16, 0), "holds an extent below 1"),
        (Net, None, "has not been built; pass input_shape"),
        (lambda: Net, (16, 16, 3), "got the class Net: call it"),
        (lambda: "resnet", None, "must be a Keras 3 model or layer; got str"),
    ],
)
def test_invalid_input_is_reported(model, shape, message):
    with pytest.raises(InputError, match=message):
        OpGraph.from_keras(model(), shape)


class Unbuilt(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.head = layers.LSTM(8, return_sequences=True), layers.Dense(3)

    def call(self, x):
        return self.head(self.recurrent(x))


def test_a_model_that_was_not_called_counts_as_it_does_afterwards():
    model = Unbuilt()
    first, second = (OpGraph.from_keras(model, (20, 16)).flops for _ in range(2))
    assert first == second == 20 * 2 * (4 * 8 * 24 + 8 * 3)


@pytest.mark.parametrize(
    ("options", "side"),
    [({}, 14), ({"strides": 4}, 4), ({"padding": "same"}, 16), ({"data_format": "channels_first"}, 14)],
)
@pytest.mark.parametrize("sequences", [False, True])
def test_recurrent_convolutions_count_where_their_state_is(options, side: int, sequences: bool):
    shape = (5, 3, 16, 16) if options.get("data_format") else (5, 16, 16, 3)
    layer = layers.ConvLSTM2D(8, 3, return_sequences=sequences, **options)
    graph = OpGraph.from_keras(keras.Sequential([keras.Input(shape), layer]))
    assert graph.flops == 5 * side * side * 2 * 4 * 8 * 9 * (3 + 8)


class Cell(layers.Layer):
    """A cell whose weights have other names than those of Keras."""

    state_size = output_size = 8

    def build(self, input_shape):
        self.a, self.b = self.add_weight(shape=(input_shape[-1], 8)), self.add_weight(shape=(8, 8))

    def call(self, x, states):
        state = ops.tanh(x @ self.a + states[0] @ self.b)
        return state, [state]


def test_a_cell_of_ones_own_counts_all_its_matrices():
    assert OpGraph.from_keras(keras.Sequential([keras.Input((10, 4)), layers.RNN(Cell())])).flops == 10 * 2 * 8 * 12


class Bank(layers.Layer):
    def build(self, input_shape):
        self.bank = self.add_weight(shape=(1000, input_shape[-1]), trainable=False, name="bank")

    def call(self, x):
        return ops.softmax(x @ ops.transpose(self.bank)) @ self.bank


def test_weights_that_are_not_trained_count_without_statistics():
    graph = OpGraph.from_keras(
        keras.Sequential([keras.Input((8,)), layers.Dense(8), layers.BatchNormalization(), Bank()])
    )
    assert (graph.n_parameters, graph.n_trainable, graph.parameter_bytes) == (8088, 88, 4.0 * 8088)


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # of Keras, with newer versions of NumPy
def test_quantized_weights_count_a_byte_each():
    model = keras.Sequential([keras.Input((64,)), layers.Dense(32)])
    model.layers[0].quantize("int8")
    graph = OpGraph.from_keras(model)
    assert (graph.n_parameters, graph.n_trainable) == (model.count_params(), 32)
    assert graph.parameter_bytes == 64 * 32 + 4 * (32 + 32)
    assert graph.flops == 2 * 64 * 32


class Outside(layers.Layer):
    """A layer with a variable and a constant of TensorFlow, which Keras does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mask = tf.Variable(tf.ones((8, 64))), tf.ones((64,))

    def call(self, x):
        return x @ self.table * self.mask


def test_variables_and_constants_of_tensorflow_are_state():
    graph = OpGraph.from_keras(keras.Sequential([keras.Input((8,)), layers.Dropout(0.5), Outside()]))
    assert (graph.n_parameters, graph.state_bytes, graph.flops) == (0, 4.0 * (512 + 64), 2 * 512)


class Rows(keras.Model):
    """A dense layer on each row; what TensorFlow makes to find out how is not run."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(8)
        self.dense.build((None, 8))

    def call(self, x):
        self.dense(x[:, 0])
        return ops.vectorized_map(self.dense, x)


def test_operations_that_no_result_depends_on_do_not_count():
    assert OpGraph.from_keras(Rows(), (5, 8)).flops == 5 * 2 * 64


class Keeps(keras.Model):
    kept: list = []  # noqa: RUF012 (of the class, as users write it)

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.offset = layers.Dense(4), None
        self.dense.build((None, 8))
        self.built = True

    def call(self, x):
        if self.offset is None:
            self.offset = ops.zeros_like(x[:1, :4])
        self.kept.append(x)
        return self.dense(x) + self.offset


def test_tensors_that_a_call_keeps_do_not_outlive_the_trace():
    model, recurrent = Keeps(), layers.LSTM(4, dropout=0.5)
    assert OpGraph.from_keras(model, (8,)).flops == 64
    assert model.offset is None
    assert not Keeps.kept
    assert model(np.ones((3, 8), "float32")).shape == (3, 4)
    network = keras.Sequential([keras.Input((5, 3)), recurrent])
    before = set(vars(recurrent.cell))
    OpGraph.from_keras(network)
    assert set(vars(recurrent.cell)) == before


def test_a_loop_over_tensors_is_refused_with_what_works():
    class Loop(Rows):
        @tf.function
        def call(self, x):
            for _ in tf.range(5):
                x = self.dense(x)
            return x

    with pytest.raises(InputError, match=r"range in place of tf\.range"):
        OpGraph.from_keras(Loop(), (8,))


class Repeats(keras.Model):
    """Repeats a step, as a function of the model and its input says."""

    def __init__(self, repeated) -> None:
        super().__init__()
        self.dense, self.norm, self.repeated = layers.Dense(8), layers.LayerNormalization(), repeated

    def step(self, x):
        return self.norm(self.dense(x))

    def call(self, x):
        return self.repeated(self, x)


LOOPS = {
    "unrolled": (lambda net, x: functools.reduce(lambda h, _: net.step(h), range(4), x), 4),
    "for": (lambda net, x: ops.fori_loop(0, 4, lambda i, h: net.step(h), x), 4),
    "down": (lambda net, x: tf.while_loop(lambda i, h: i > 0, lambda i, h: (i - 2, net.step(h)), (7, x))[1], 4),
    "scan": (lambda net, x: ops.scan(lambda h, _: (net.step(h), h), x, ops.zeros((4, 2, 8)))[0], 4),
    "rows": (lambda net, x: tf.map_fn(lambda row: net.step(row[None])[0], x), 1),
    "nested": (lambda net, x: ops.fori_loop(0, 2, lambda i, h: ops.fori_loop(0, 3, lambda j, g: net.step(g), h), x), 6),
    "long": (lambda net, x: ops.fori_loop(0, 100_000, lambda i, h: net.step(h), x), 100_000),
    "never": (lambda net, x: ops.fori_loop(0, 0, lambda i, h: net.step(h), net.step(x)), 1),
    "known": (lambda net, x: tf.cond(tf.constant(True), lambda: net.step(x), lambda: net.step(net.step(x))), 1),
}


@pytest.mark.parametrize("name", LOOPS)
def test_bodies_count_as_often_as_they_run(name: str):
    repeated, times = LOOPS[name]
    graph = OpGraph.from_keras(Repeats(repeated), (8,))
    assert graph.flops == times * 2 * 8 * 8
    assert graph.n_parameters == graph.nodes["parameters"].sum() == 72 + 16
    assert (graph.caveats, graph.error_scale) == ((), 1.0)
    if name in ("unrolled", "for", "down", "scan"):
        assert types(graph) == ["Gemm", "LayerNormalization"] * times
        assert graph.edges.tolist() == [[i, i + 1] for i in range(2 * times - 1)]
        assert graph.saved_bytes == times * 2 * 4 * 8


UNKNOWN = {
    "loop": (lambda net, x: tf.while_loop(lambda h: tf.reduce_sum(h) > 0, lambda h: (net.step(h),), (x,))[0], 1, 10),
    "at most": (
        lambda net, x: ops.while_loop(lambda h: ops.sum(h) > 0, net.step, net.step(x), maximum_iterations=4),
        5,
        5,
    ),
    "branch": (lambda net, x: ops.cond(ops.sum(x) > 0, lambda: net.step(net.step(x)), lambda: net.step(x)), 2, 2),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_runs_as_values_say_widens_the_interval(name: str):
    repeated, times, scale = UNKNOWN[name]
    with pytest.warns(IncompleteTraceWarning, match="values of tensors"):
        graph = OpGraph.from_keras(Repeats(repeated), (8,))
    assert graph.flops == times * 2 * 8 * 8
    assert graph.error_scale == scale


def test_layers_of_open_shape_are_refused_in_a_sentence():
    words = layers.TextVectorization(max_tokens=50, output_sequence_length=6)
    words.adapt(["a b c", "d e f"])
    inside = [keras.Input((1,), dtype="string"), words, layers.Embedding(50, 8), layers.Flatten(), layers.Dense(2)]
    with pytest.raises(InputError, match="open shape"):
        OpGraph.from_keras(keras.Sequential(inside))


class Two(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = layers.Dense(4), layers.Dense(4)

    def call(self, x, y=None, training=False):
        return self.a(x) + self.b(y)


def test_a_second_argument_may_be_optional():
    assert OpGraph.from_keras(Two(), [(8,), (4,)]).flops == 96


@pytest.mark.slow
def test_a_model_trains_after_a_trace_as_without():
    def trained(*, traced: bool) -> list[np.ndarray]:
        keras.utils.set_random_seed(3)
        inside = [layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.5), layers.LSTM(4, dropout=0.5)]
        model = keras.Sequential([keras.Input((5, 3)), *inside])
        if traced:
            OpGraph.from_keras(model)
        model.compile("sgd", "mse")
        model.train_on_batch(np.ones((4, 5, 3)), np.ones((4, 4)))
        return model.get_weights()

    assert all(map(np.array_equal, trained(traced=False), trained(traced=True)))


@pytest.mark.parametrize(
    ("policy", "precision", "width"),
    [("float32", "fp32", 4), ("mixed_float16", "fp16", 4), ("bfloat16", "bf16", 2), ("float64", "fp32", 8)],
)
def test_policies_of_layers_decide_on_the_precision(policy: str, precision: str, width: int) -> None:
    inputs = keras.Input((16,))
    model = keras.Model(inputs, keras.layers.Dense(64, dtype=policy)(inputs))
    job = TrainingJob(model, batch_size=8, device="A100")
    assert (job.compute_precision, job.graph.parameter_width) == (precision, width)
    kernels = step_kernels(job.graph)
    assert kernels["is_autocast"].any() == (policy == "float32")
    assert kernels["is_double"].all() == (policy == "float64")


@dataclasses.dataclass
class Heads:
    """Results in the fields of an object."""

    first: object
    second: object


@pytest.mark.parametrize(
    "pack",
    [
        lambda a, b: {"a": a, "b": [b]},
        lambda a, b: (a, {"b": b, "none": None}),
        Heads,
        lambda a, b: (a, Heads(b, None)),
        lambda a, b: [a, {"b": Heads(None, b)}],
        lambda a, b: (tf.RaggedTensor.from_tensor(a), b),
    ],
)
def test_results_count_wherever_they_are(pack):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.one, self.other = layers.Dense(16), layers.Dense(4)

        def call(self, x):
            return pack(self.one(x), self.other(x))

    assert OpGraph.from_keras(Model(), (8,)).flops == 2 * 8 * (16 + 4)


class Attending(keras.Model):
    """Queries (queries, samples, 16) attend to (samples, tokens, 16)."""

    def __init__(self):
        super().__init__()
        self.project = layers.Dense(16)

    def call(self, queries, x):
        scores = ops.softmax(ops.einsum("qbd,btd->bqt", self.project(queries), x))
        return ops.einsum("bqt,btd->bqd", scores, x)


@pytest.mark.parametrize("pack", [dict, lambda items: list(items.values())])
def test_arguments_go_by_their_names_and_results_say_which_axis_is_the_batch(pack):
    items = {"queries": np.zeros((5, 3, 16), "float32"), "x": np.zeros((3, 7, 16), "float32")}
    graph = OpGraph.from_keras(Attending(), pack(items))
    assert (graph.input_shapes, graph.fixed_input_bytes) == (((5, 16), (7, 16)), 0)
    assert graph.flops == 2 * 5 * 16 * 16 + 2 * 2 * 5 * 7 * 16


def test_a_mask_of_the_examples_is_an_argument():
    class Masked(keras.Model):
        def __init__(self):
            super().__init__()
            self.project = layers.Dense(4)

        def call(self, x, mask):
            return self.project(x) * mask

    items = {"x": np.zeros((3, 8), "float32"), "mask": np.zeros((3, 1), "float32")}
    assert OpGraph.from_keras(Masked(), items).flops == 2 * 8 * 4


def test_a_functional_model_may_nest_its_inputs():
    a, b = keras.Input((8,), name="a"), keras.Input((6,), name="b")
    model = keras.Model({"a": a, "rest": [b]}, {"out": [layers.Dense(3)(a), layers.Dense(2)(b)]})
    assert OpGraph.from_keras(model).flops == 2 * (8 * 3 + 6 * 2)


def test_what_takes_no_tensors_is_told_how_to_be_wrapped_in_keras():
    class Keyed(keras.Model):
        def call(self, inputs):
            return inputs["image"]

    with pytest.raises(InputError, match=r"wrap it in a keras\.Model whose call"):
        OpGraph.from_keras(Keyed(), (8,))


def _peak(model: keras.Model, batch: int, passes: int) -> float:
    """Bytes of tensors at the peak of training steps, the third and further ones."""
    steps = passes if passes > 1 else None
    model.compile(
        keras.optimizers.SGD(1e-3, gradient_accumulation_steps=steps),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    x, y = tf.zeros((batch, model.input_shape[1])), tf.zeros(batch, tf.int32)
    for step in range(4 * passes):
        if step == 2 * passes:
            tf.config.experimental.reset_memory_stats("CPU:0")
        model.train_on_batch(x, y)
    return tf.config.experimental.get_memory_info("CPU:0")["peak"]


def test_sums_of_accumulated_gradients_are_held_beside_those_of_a_pass():
    try:
        tf.config.experimental.get_memory_info("CPU:0")
    except ValueError:
        pytest.skip("TensorFlow's allocator does not count here")
    model = keras.Sequential([keras.Input((1024,)), *(layers.Dense(1024) for _ in range(6)), layers.Dense(10)])
    graph = OpGraph.from_keras(model)
    once, thrice = (simulate_memory(graph, 64, Setting(device="cpu", accumulate=n)).allocated for n in (1, 3))
    measured = -_peak(model, 64, 1) + _peak(model, 64, 3)
    assert measured > 0.7 * graph.parameter_bytes
    assert thrice - once == pytest.approx(measured, rel=0.5)
