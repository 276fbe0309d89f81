from __future__ import annotations

import copy
import functools
import itertools
import os
import random
import subprocess
import sys
import threading
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from gpudemand._validation import InputError  # noqa: E402
from gpudemand.cost import _torch_kernels  # noqa: E402
from gpudemand.cost._torch_listener import Listener  # noqa: E402
from gpudemand.cost._torch_trace import (  # noqa: E402
    _kernels,
    _operators,
    _operators_on,
    _Request,
)
from gpudemand.cost.graph import IncompleteTraceWarning, OpGraph, UnknownOperatorWarning  # noqa: E402
from gpudemand.cost.tracing import read_inputs  # noqa: E402
from tests.cost import networks  # noqa: E402
from tests.tiers import slow_beside  # noqa: E402

NETWORKS = {
    "resnet18": (lambda: networks.resnet18(), (3, 64, 64)),
    "inverted": (networks.Inverted, (3, 16, 16)),
    "decoder": (networks.Decoder, (16,)),
    "encoder": (networks.Encoder, (12, 32)),
    "gru": (lambda: networks.Recurrent(nn.GRU, num_layers=2, bidirectional=True), (64,)),
    "rnn": (lambda: networks.Recurrent(nn.RNN), (64,)),
    "volume": (networks.Volume, (1, 8, 8, 8)),
    "shuffle": (networks.Shuffle, (3, 16, 16)),
}


@functools.cache
def traced(name: str) -> tuple[nn.Module, OpGraph]:
    """One of the networks, and its graph."""
    make, shape = NETWORKS[name]
    module = make()
    return module, OpGraph.from_torch(module, shape)


def types(graph: OpGraph) -> list[str]:
    return (graph.nodes["type"] + " " + graph.nodes["kind"]).str.strip().tolist()


def example(shape: tuple[int, ...], batch: int = 2) -> torch.Tensor:
    is_tokens = len(shape) == 1
    return torch.randint(0, 10, (batch, *shape)) if is_tokens else torch.randn(batch, *shape)


def measured_saved_bytes(module: nn.Module, *inputs: torch.Tensor) -> float:
    """Bytes that autograd saves in a real forward pass, each storage once, without the parameters."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    saved: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in parameters:
            saved[address] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module.train()(*inputs)
    return float(sum(tensor.untyped_storage().nbytes() for tensor in saved.values()))


@pytest.mark.parametrize("name", NETWORKS)
def test_saved_bytes_are_those_of_autograd(name):
    (module, graph), shape = traced(name), NETWORKS[name][1]
    # Recurrent layers go by a rule, which leaves the first state out.
    tolerance = 0.04 if name in ("gru", "rnn") else 1e-6
    saved = graph.saved_bytes * 2 + graph.nodes["fixed_saved_bytes"].sum()
    assert saved == pytest.approx(measured_saved_bytes(module, example(shape)), rel=tolerance)


@pytest.mark.parametrize("name", NETWORKS)
def test_flops_are_those_of_the_flop_counter(name):
    (module, graph), shape = traced(name), NETWORKS[name][1]
    with FlopCounterMode(display=False) as counter:
        module.train()(example(shape))
    # The counter does not know the attention kernel of the CPU.
    attention = graph.nodes.loc[graph.nodes["type"] == "Attention", "flops"].sum()
    assert graph.flops - attention == pytest.approx(counter.get_total_flops() / 2, rel=0.01)


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_are_all_attributed_once(name):
    module, graph = traced(name)
    assert graph.n_parameters == sum(parameter.numel() for parameter in module.parameters())
    assert graph.nodes["parameters"].sum() == graph.n_parameters == graph.n_trainable
    assert graph.parameter_bytes == 4 * graph.n_parameters


def test_resnet18_has_the_published_size_and_flops():
    graph = OpGraph.from_torch(networks.resnet18(), (3, 224, 224))
    assert graph.n_parameters == 11_689_512
    assert graph.flops == pytest.approx(2 * 1.814e9, rel=0.005)
    assert types(graph).count("Conv 3x3") == 16
    assert types(graph).count("Add") == 8
    assert graph.n_layers == 41


def test_small_network_by_hand():
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 10))
    graph = OpGraph.from_torch(module, (1, 8, 8))
    assert types(graph) == ["Conv 3x3", "Relu", "Gemm"]
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.nodes["flops"].tolist() == [2 * 36 * 36, 0, 2 * 144 * 10]
    assert graph.nodes["parameters"].tolist() == [40, 0, 1450]
    assert graph.nodes["output_shape"].tolist() == [(1, 4, 6, 6), (1, 4, 6, 6), (1, 10)]
    assert graph.nodes["bytes_read"].tolist() == [256, 576, 576]
    assert graph.nodes["bytes_written"].tolist() == [576, 576, 40]
    assert graph.nodes["saved_bytes"].tolist() == [256, 576, 0]
    assert graph.nodes["weight_bytes"].tolist() == [160, 0, 5800]


def test_lstm_counts_every_gate_at_every_step():
    graph = OpGraph.from_torch(nn.LSTM(8, 16, 2, bidirectional=True, batch_first=True), (10, 8))
    first, second = 4 * 16 * (8 + 16), 4 * 16 * (32 + 16)
    assert types(graph) == ["LSTM"]
    assert graph.flops == 2 * 10 * 2 * (first + second)


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU])
def test_last_states_of_recurrent_layers_are_followed(cell):
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell(8, 16, batch_first=True)

        def forward(self, x):
            state = self.cell(x)[1]
            return torch.tanh(state[0] if isinstance(state, tuple) else state)

    graph = OpGraph.from_torch(Last(), (10, 8))
    assert graph.edges.tolist() == [[0, 1]]
    assert graph.nodes["saved_bytes"].iloc[1] == 16 * 4
    assert OpGraph.from_torch(Last(), (10, 8), train=False).saved_bytes == 0


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_in_a_loop_save_what_autograd_saves(cell):
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell(8, 16)

        def forward(self, x):
            state = None
            for step in range(x.shape[1]):
                state = self.cell(x[:, step], state)
            return state[0] if isinstance(state, tuple) else state

    module = Loop()
    first, second = (measured_saved_bytes(module, example((10, 8), batch)) for batch in (2, 3))
    assert OpGraph.from_torch(module, (10, 8)).saved_bytes == second - first


def test_aten_operators_have_their_names():
    class Aten(nn.Module):
        def forward(self, x):
            return torch.ops.aten.relu(torch.ops.aten.add.Tensor(x, x))

    assert types(OpGraph.from_torch(Aten(), (8,))) == ["Add", "Relu"]


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_lstm_saves_as_much_as_the_native_kernel():
    module = networks.Recurrent(nn.LSTM, num_layers=2, bidirectional=True)
    graph = OpGraph.from_torch(module, (64,))
    with torch.backends.mkldnn.flags(enabled=False):
        measured = measured_saved_bytes(module, example((64,)))
    assert graph.saved_bytes * 2 == pytest.approx(measured, rel=0.02)


def test_multihead_attention_is_traced_into():
    class Attention(nn.Module):
        def __init__(self, weights: bool) -> None:
            super().__init__()
            self.attention, self.weights = nn.MultiheadAttention(32, 4, batch_first=True), weights

        def forward(self, x):
            return self.attention(x, x, x, need_weights=self.weights)[0]

    written_out = OpGraph.from_torch(Attention(True), (10, 32))
    fused = OpGraph.from_torch(Attention(False), (10, 32))
    assert [name for name in types(written_out) if name in ("MatMul", "Softmax")] == ["MatMul", "Softmax", "MatMul"]
    assert types(fused).count("Attention") == 1
    # The scores in memory are averaged over the heads, which is no product: both count the same operations.
    assert fused.flops == written_out.flops == 2 * 10 * 32 * 32 * 4 + 2 * 2 * 4 * 10 * 10 * 8


def test_tied_weights_count_once():
    module = networks.Decoder()
    graph = OpGraph.from_torch(module, (16,))
    table, head = graph.nodes.iloc[0], graph.nodes.iloc[-1]
    assert (table["type"], head["type"]) == ("Gather", "Gemm")
    assert (table["parameters"], head["parameters"]) == (200 * 32, 0)
    assert head["weight_bytes"] == 200 * 32 * 4
    # Of the table, only the rows that are looked up are read, next to 16 tokens of 8 bytes.
    assert (table["weight_bytes"], table["bytes_read"]) == (0, 16 * 32 * 4 + 16 * 8)


def test_shared_module_costs_at_every_call():
    graph = OpGraph.from_torch(networks.Shuffle(), (3, 16, 16))
    grouped = graph.nodes[graph.nodes["kind"] == "grouped"]
    assert len(grouped) == 3
    assert grouped["flops"].nunique() == 1
    assert grouped["parameters"].tolist() == [8 * 4 * 9 + 8, 0, 0]
    assert types(graph).count("Transpose") == 3  # a shuffle moves data, a view does not


def test_several_inputs_and_tokens():
    expected = ["Gather", "ReduceMean", "Gemm", "Concat"]
    for shape in ([(7,), (3,)], {"tokens": (7,), "numbers": (3,)}):
        graph = OpGraph.from_torch(networks.Pair(), shape)
        assert types(graph) == expected
        assert graph.edges.tolist() == [[0, 1], [1, 3], [2, 3]]
        assert graph.input_shapes == ((7,), (3,))
    tensors = [torch.zeros(5, 7, dtype=torch.long), torch.zeros(5, 3)]
    assert OpGraph.from_torch(networks.Pair(), tensors).flops == graph.flops
    stated = OpGraph.from_torch(networks.Pair(), [(7,), (3,)], input_dtype=["int64", "float32"])
    assert types(stated) == expected


@pytest.mark.parametrize("look_up", ["embedding", "index", "one_hot"])
def test_inputs_used_as_indices_are_integers(look_up):
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Parameter(torch.zeros(10, 4))

        def forward(self, x):
            if look_up == "index":
                return self.rows[x]
            one = functional.one_hot(x, 10).float() @ self.rows
            return functional.embedding(x, self.rows) if look_up == "embedding" else one

    graph = OpGraph.from_torch(Table(), (7,))
    assert graph.nodes["type"].iloc[0] == "Gather"


def test_in_place_writes_are_followed():
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.Linear(8, 8)

        def forward(self, x):
            out = torch.zeros(x.shape[0], 2, 8)
            for step in range(2):
                out[:, step] = self.cell(x)
            return torch.sigmoid(out)

    graph = OpGraph.from_torch(Loop(), (8,))
    assert types(graph) == ["Gemm", "Scatter", "Gemm", "Scatter", "Sigmoid"]
    assert graph.edges.tolist() == [[0, 1], [1, 3], [2, 3], [3, 4]]


def test_constants_are_computed_and_may_be_branched_on():
    class Masked(nn.Module):
        def forward(self, x):
            mask = torch.ones(3, 3).tril()
            return x @ mask if bool((mask.sum() > 5).item()) else x

    graph = OpGraph.from_torch(Masked(), (4, 3))
    assert types(graph) == ["MatMul"]


def test_nothing_large_is_allocated():
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.empty(10**6, 10**6, device="meta"))

        def forward(self, x):
            return x + torch.ones(10**6, 10**6) * self.table

    # Four terabytes each.
    assert OpGraph.from_torch(Wide(), (10**6, 1)).nodes["type"].tolist() == ["Add"]


def test_custom_gradients_and_checkpoints_save_what_autograd_saves():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 8))

        def forward(self, x):
            return Double.apply(checkpoint(self.wide, x, use_reentrant=False))

    graph = OpGraph.from_torch(Net(), (8,))
    assert types(graph) == ["Gemm", "Relu", "Gemm", "Mul"]
    assert graph.saved_bytes == 8 * 4  # the input, from which the checkpoint starts again


def test_frozen_layers_save_nothing():
    module = nn.Sequential(nn.Linear(8, 64).requires_grad_(False), nn.ReLU(), nn.Linear(64, 2))
    graph = OpGraph.from_torch(module, (8,))
    assert graph.nodes["saved_bytes"].tolist() == [0, 0, 256]
    assert (graph.n_parameters, graph.n_trainable) == (64 * 9 + 130, 130)


def test_evaluation_mode_has_no_dropout_and_saves_nothing():
    graph = OpGraph.from_torch(networks.Inverted(), (3, 16, 16), train=False)
    assert "Dropout" not in types(graph)
    assert graph.saved_bytes == 0


def test_batch_norm_on_one_pixel_can_be_traced():
    assert types(OpGraph.from_torch(nn.BatchNorm1d(4), (4,))) == ["BatchNormalization"]


def test_meta_device_and_other_dtypes():
    big = OpGraph.from_torch(nn.Linear(100_000, 100_000, device="meta"), (100_000,))
    assert big.flops == 2e10
    half = OpGraph.from_torch(nn.Linear(8, 4, dtype=torch.bfloat16), (8,))
    assert half.nodes["bytes_read"].tolist() == [16]


def test_devices_in_the_forward_pass_are_ignored():
    class Moves(nn.Module):
        def forward(self, x):
            return x.cuda() + torch.ones(8, device="cuda:0") + x.to("cuda")

    assert types(OpGraph.from_torch(Moves(), (8,))) == ["Add", "Add"]


def test_unknown_operators_are_warned_of():
    class Spectrum(nn.Module):
        def forward(self, x):
            return torch.linalg.eigvalsh(x + torch.linalg.eigvalsh(x)[..., None])

    with pytest.warns(UnknownOperatorWarning, match="'Other', without operations: linalg_eigvalsh"):
        graph = OpGraph.from_torch(Spectrum(), (8, 8))
    assert graph.other_ == ("linalg_eigvalsh",)
    assert "not in the vocabulary: linalg_eigvalsh" in repr(graph)


def test_module_is_not_modified():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout()).eval()
    module[0].weight.grad = torch.ones(4, 4)
    before = copy.deepcopy(module.state_dict())
    attributes = {name: set(vars(part)) for name, part in module.named_modules()}
    random.seed(0)
    states = torch.get_rng_state(), random.getstate()
    OpGraph.from_torch(module, (4,))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert not any(part.training for part in module.modules())
    assert {name: set(vars(part)) for name, part in module.named_modules()} == attributes
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert torch.equal(module[0].weight.grad, torch.ones(4, 4))
    assert next(module.parameters()).device.type == "cpu"


class _Branches(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x


class _Selects(nn.Module):
    def forward(self, x):
        return x[x > 0]


class _Typo(nn.Module):
    def forward(self, x):
        return functional.relu(x).shapes


class _Leaves(nn.Module):
    def forward(self, x):
        sys.exit(0)


class _Locked(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("module", "shape", "message"),
    [
        (_Branches(), (3,), r"values of a tensor at test_torch.py, line \d+ \(if x.sum\(\) > 0:\)"),
        (_Selects(), (3,), r"values of a tensor at test_torch.py, line \d+ \(return x\[x > 0\]\)"),
        (_Leaves(), (3,), r"fails on input .*line \d+ \(sys.exit\(0\)\): SystemExit: 0"),
        (_Typo(), (3,), r"fails on input of shape \(2, 3\) at test_torch.py, line \d+ .*no attribute 'shapes'"),
        (nn.Linear(4, 2), (5,), r"fails on input of shape \(2, 5\).*check input_shape"),
        (nn.Linear(4, 2), (0,), "holds an extent below 1"),
        (nn.Linear(4, 2), (-1, 4), "holds an extent below 1.*without the batch"),
        (nn.Linear(4, 2), 4, "input_shape=4 is no shape"),
        (nn.Linear(4, 2), torch.zeros(0, 4), "pass at least one sample"),
        (nn.Linear, (4,), r"got the class Linear: call it"),
        ("resnet18", (3, 32, 32), "must be a torch.nn.Module; got str"),
        (nn.LazyLinear(2), (4,), "lazy layers without weights"),
        (_Locked(), (2,), "cannot be copied for the trace"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_invalid_input_is_reported(module, shape, message):
    with pytest.raises(InputError, match=message):
        OpGraph.from_torch(module, shape)


def test_unknown_dtype_is_refused():
    with pytest.raises(InputError, match="Did you mean 'float32'"):
        OpGraph.from_torch(nn.Linear(4, 2), (4,), input_dtype="flot32")


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize(("sparse", "trained"), [(True, True), (True, False), (False, True)])
def test_embeddings_with_sparse_gradients_are_counted(layer, sparse: bool, trained: bool) -> None:
    net = nn.Sequential(layer(1000, 8, sparse=sparse), nn.Linear(8, 2))
    net[0].weight.requires_grad_(trained)
    assert OpGraph.from_torch(net, (4,), input_dtype="int64").n_sparse == 8000 * (sparse and trained)


class Padded(nn.Module):
    """A recurrent layer and a linear one, with or without packing between them."""

    def __init__(self, layer, packed: bool, batch_first: bool) -> None:
        super().__init__()
        self.layer, self.packed = layer(16, 32, 2, batch_first=batch_first, bidirectional=True), packed
        self.head, self.batch_first = nn.Linear(64, 4), batch_first

    def forward(self, x, lengths):
        """Forward pass."""
        order = {"batch_first": self.batch_first}
        x = x if self.batch_first else x.transpose(0, 1)
        if self.packed:
            x = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), **order, enforce_sorted=False)
        y = self.layer(x)[0]
        return self.head(nn.utils.rnn.pad_packed_sequence(y, **order)[0] if self.packed else y)


@pytest.mark.parametrize(
    ("layer", "batch_first"),
    slow_beside([(nn.LSTM, True), (nn.GRU, False)], itertools.product([nn.LSTM, nn.GRU, nn.RNN], [True, False])),
)
def test_packed_sequences_are_as_long_as_the_longest(layer, batch_first: bool) -> None:
    inputs = {"input_shape": [(20, 16), ()], "input_dtype": ["float32", "int64"]}
    padded, packed = (OpGraph.from_torch(Padded(layer, part, batch_first), **inputs) for part in (False, True))
    assert packed.flops == padded.flops > 0
    assert {"LSTM", "GRU", "RNN"} & set(types(packed)) == {"LSTM", "GRU", "RNN"} & set(types(padded))
    work = [(graph.kernels["flops"] * graph.kernels["calls"]).sum() for graph in (padded, packed)]
    assert work[0] == work[1] > 0


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_products_with_sparse_matrices_count_their_nonzeros(layout) -> None:
    class Neighbours(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("edges", torch.eye(3000).to_sparse(layout=layout))
            self.weight = nn.Linear(8, 16)

        def forward(self, x):
            product = torch.sparse.mm if layout == torch.sparse_coo else torch.matmul
            return product(self.edges, self.weight(x).transpose(0, 1).flatten(1)).unflatten(1, (-1, 16)).transpose(0, 1)

    with pytest.warns(IncompleteTraceWarning, match="could not be recorded"):
        nodes = OpGraph.from_torch(Neighbours(), (3000, 8)).nodes
    (product,) = nodes[nodes["type"] == "MatMul"].to_dict("records")
    assert product["flops"] == 2 * 3000 * 16
    assert product["bytes_read"] == 4 * 3000 * 16


def test_distances_cumulative_products_and_normalised_weights_are_known() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the old way is deprecated
                self.layer = nn.utils.weight_norm(nn.Linear(3, 5))

        def forward(self, x):
            x = self.layer(x.requires_grad_(True))
            return torch.cdist(x, x).cumprod(-1)

    nodes = OpGraph.from_torch(Net(), (100, 3)).nodes
    assert nodes["type"].tolist() == ["LpNormalization", "Gemm", "MatMul", "Mul"]
    assert nodes["flops"].tolist()[2] == 2 * 100 * 100 * 5


@pytest.mark.parametrize("name", slow_beside(["gru", "shuffle"], ["resnet18", "gru", "shuffle"]))
def test_operators_on_the_meta_device_are_those_on_the_cpu(name):
    make, shape = NETWORKS[name]
    module, specs = make(), read_inputs(shape, "int64" if len(shape) == 1 else None)
    request = _Request(module, specs, None)
    assert _operators_on("meta", request, []) == _operators_on("cpu", request, [])


def test_attention_saves_for_the_backward_pass_what_its_kernel_does(monkeypatch):
    class Attention(nn.Module):
        """Attention, whose parts would save a matrix of scores."""

        def __init__(self):
            super().__init__()
            self.project = nn.Linear(8, 8)

        def forward(self, x):
            x = self.project(x)
            return functional.scaled_dot_product_attention(x, x, x)

    def saved(traced):
        return sum(call.saved_bytes for call in traced.operators)

    request, scores = _Request(Attention(), read_inputs((4, 512, 8), None), None), 4.0 * 4 * 512 * 512
    with pytest.raises(InputError):
        _operators_on("meta", request, [])
    assert saved(_operators(request, [])[0]) < scores / 4
    monkeypatch.setattr(Listener, "_check_values", lambda *_: None)
    assert saved(_operators_on("meta", request, [])[0]) > scores


@pytest.mark.parametrize("name", slow_beside(["decoder", "gru", "shuffle"], ["resnet18", "decoder", "gru", "shuffle"]))
def test_operators_that_are_not_run_again_are_recorded_alike(name, monkeypatch):
    make, shape = NETWORKS[name]
    module, specs = make(), read_inputs(shape, "int64" if len(shape) == 1 else None)
    request = _Request(module, specs, None)
    kernels = _kernels(request, [])
    monkeypatch.setattr(_torch_kernels, "_signature", lambda *_: None)
    assert kernels == _kernels(request, [])


@pytest.mark.slow
def test_beside_tensorflow_a_trace_does_not_import_triton(tmp_path):
    """Its library ends a process that has that of TensorFlow; here a module of its name does."""
    (tmp_path / "triton.py").write_text("import os\nos._exit(9)\n")
    code = """
import importlib.machinery, sys, types
import torch
import gpudemand as gd
sys.modules["tensorflow"] = types.ModuleType("tensorflow")
sys.modules["tensorflow"].__spec__ = importlib.machinery.ModuleSpec("tensorflow", None)
print(len(gd.OpGraph.from_torch(torch.nn.Linear(4, 2), (4,)).nodes), "triton" in sys.modules)
"""
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.split() == ["1", "False"]
