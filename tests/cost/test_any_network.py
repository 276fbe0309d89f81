"""Any network is counted right, or the trace says so, and no trace changes the network or what it uses."""

from __future__ import annotations

import functools
import gc
import os
import random
import threading
import time
import warnings
from collections import OrderedDict
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from gpudemand._validation import InputError  # noqa: E402
from gpudemand.cost._surroundings import _reachable  # noqa: E402
from gpudemand.cost.graph import IncompleteTraceWarning, OpGraph, UnknownOperatorWarning  # noqa: E402
from gpudemand.cost.job import TrainingJob  # noqa: E402
from gpudemand.cost.liveness import Setting  # noqa: E402
from gpudemand.cost.memory import resident_bytes  # noqa: E402
from gpudemand.cost.model import CostModel  # noqa: E402
from tests.tiers import slow_where  # noqa: E402

TABLE: dict[str, Any] = {}
POSITIONS = None


@functools.cache
def cached_mask(length, device):
    return torch.ones(length, length, device=device).tril()


@functools.lru_cache(maxsize=4)
def last_masks(length):
    return torch.ones(length, length).tril()


class Calls(nn.Module):
    """A function of a dense layer's output as a module."""

    def __init__(self, function, inside: int = 4, outside: int = 4) -> None:
        super().__init__()
        self.fc, self.function = nn.Linear(inside, outside, bias=False), function

    def forward(self, x):
        return self.function(self.fc(x))


def in_dict(y):
    if "mask" not in TABLE:
        TABLE["mask"] = (torch.eye(y.shape[1], device=y.device), torch.linspace(0, 1, y.shape[1]))
    return TABLE["mask"][0] @ y


def in_global(y):
    global POSITIONS
    if POSITIONS is None or len(POSITIONS) < y.shape[1]:
        POSITIONS = torch.arange(y.shape[1], dtype=torch.float32).unsqueeze(1).sin()
    return y + POSITIONS[: y.shape[1]]


class OfClass(nn.Module):
    """Keeps a constant in the class, and counts its calls there."""

    mask, calls = None, torch.zeros(())

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        cls = type(self)
        if cls.mask is None:
            cls.mask = torch.ones(x.shape[1], x.shape[1], device=x.device).tril()
        cls.calls.add_(1)
        return cls.mask @ self.fc(x)


def in_closure():
    mask = None

    def function(y):
        nonlocal mask
        if mask is None:
            mask = torch.ones(y.shape[1], y.shape[1]).tril()
        return mask @ y

    return function


def forget() -> None:
    global POSITIONS
    POSITIONS, OfClass.mask = None, None
    TABLE.clear()
    cached_mask.cache_clear()
    last_masks.cache_clear()
    OfClass.calls.zero_()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Calls(in_dict),
        lambda: Calls(in_global),
        lambda: Calls(in_closure()),
        lambda: Calls(lambda y: cached_mask(y.shape[1], y.device) @ y),
        lambda: Calls(lambda y: cached_mask(y.shape[1], "cpu") @ y),
        lambda: Calls(lambda y: last_masks(y.shape[1]) @ y),
        OfClass,
    ],
    ids=["dict", "global", "closure", "cache", "cache of the CPU", "bounded cache", "class"],
)
def test_what_a_network_keeps_elsewhere_is_as_before(make) -> None:
    forget()
    net, x = make(), torch.randn(2, 6, 4)
    OpGraph.from_torch(net, (6, 4))
    assert not TABLE
    assert POSITIONS is OfClass.mask is None
    assert OfClass.calls.item() == cached_mask.cache_info().currsize == 0
    after = net(x)
    forget()
    assert torch.equal(after, net(x))


@functools.lru_cache(maxsize=4)
def kept_by(name):
    return {"of": name}


def test_the_table_of_a_bounded_cache_is_left_alone_and_what_it_holds_is_not() -> None:
    kept_by.cache_clear()
    held = kept_by("x")
    tables = [
        one
        for one in gc.get_referents(kept_by)
        if type(one) is dict and len(one) == 1 and held not in (one, *one.values())
    ]
    found = {id(one) for one in _reachable(Calls(lambda y: y * len(kept_by("x"))), set())}
    assert len(tables) == 1
    assert {id(kept_by), id(held)} <= found
    assert id(tables[0]) not in found
    # Entries that are cleared and put back end the process at the next call.
    OpGraph.from_torch(Calls(lambda y: y * len(kept_by("y"))), (4,))
    assert [len(kept_by(name)) for name in "xyzuvwx"] == [1] * 7


def test_tensors_of_inference_are_as_before() -> None:
    with torch.inference_mode():
        counts = torch.zeros(3)

    def function(y):
        with torch.inference_mode():
            counts.add_(1)
        return y

    OpGraph.from_torch(Calls(function), (4,))
    assert not counts.any()


def test_a_forward_pass_that_is_wrapped_is_traced() -> None:
    net = Calls(torch.relu)
    net.forward = torch.inference_mode()(net.forward)
    assert OpGraph.from_torch(net, (4,)).flops == 32


def test_features_that_a_hook_captured_stay() -> None:
    seen: dict[str, Any] = {}
    log: list[Any] = []
    net = Calls(torch.relu)
    net.fc.register_forward_hook(lambda module, args, out: (seen.__setitem__("fc", out), log.append(out))[0])
    net(torch.randn(2, 6, 4))
    before = seen["fc"]
    OpGraph.from_torch(net, (6, 4))
    assert seen["fc"] is before
    assert [id(out) for out in log] == [id(before)]


class Lazy(OrderedDict[str, Any]):
    """A table that imports what it is asked for, and fails."""

    def refuse(self, *_: Any) -> Any:
        raise ValueError("it is not installed")

    keys = values = items = get = copy = __iter__ = __getitem__ = __contains__ = refuse  # type: ignore[assignment]


class Proxy:
    """An object that stands for another, which is not there."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("unbound")

    __class__ = property(lambda self: self.missing)  # type: ignore[assignment]


UNASKED = [Lazy(), Proxy()]


def test_what_a_network_reaches_is_asked_nothing() -> None:
    assert OpGraph.from_torch(Calls(lambda y: y * len(UNASKED)), (4,)).flops == 32


def test_what_a_trace_cannot_remove_is_refused() -> None:
    kept = threading.local()

    class Input(Calls):
        def forward(self, x):
            kept.__dict__["x"] = x
            return self.fc(x)

    for net in (Calls(lambda y: kept.__dict__.setdefault("y", y)), Input(None)):
        with pytest.raises(InputError, match="keeps tensors outside of the module"):
            OpGraph.from_torch(net, (4,))
        kept.__dict__.clear()


@pytest.mark.parametrize(
    ("function", "flops"),
    [
        (lambda w, x: functional.linear(weight=w.T, input=x), 2 * 8 * 64),
        (lambda w, x: torch.matmul(other=w, input=x), 2 * 8 * 64),
        (lambda w, x: torch.addmm(mat1=x, mat2=w, input=x.new_zeros(64)), 2 * 8 * 64),
        (lambda w, x: functional.conv1d(weight=w.T.unsqueeze(2), input=x.unsqueeze(2)), 2 * 8 * 64),
        (lambda w, x: torch.mv(w.T, x[0]), 8 * 64),  # once for the two samples
        (lambda w, x: x @ w[:, 0], 2 * 8),
        (lambda w, x: torch.addbmm(w, x.unsqueeze(2), (x @ w).unsqueeze(1)), 2 * 2 * 8 * 64),
        (lambda w, x: functional.bilinear(x, x, w.T.unsqueeze(1).expand(64, 8, 8)), 2 * 64 * 64),
        (lambda w, x: torch.einsum("bi,ij,kj->bk", x, w, w), 2 * 2 * 8 * 64),
        (lambda w, x: torch.vmap(lambda one: one @ w)(x), 2 * 8 * 64),
        (lambda w, x: torch.cdist(x.unsqueeze(1), w.T.unsqueeze(0).expand(2, -1, -1)), 2 * 8 * 64),
    ],
)
def test_every_way_to_multiply_counts(function, flops: float) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(8, 64))

        def forward(self, x):
            return function(self.w, x)

    graph = OpGraph.from_torch(Net(), (8,))
    assert graph.flops == flops
    assert _forward(graph) == flops


def _forward(graph: OpGraph, *, backward: bool = False) -> float:
    kernels = graph.kernels[graph.kernels["backward"].astype(bool) == backward]
    return float((kernels["calls"] * (kernels["flops"] + kernels["fixed_flops"] / 2)).sum())


def test_products_whose_order_the_batch_decides_are_said() -> None:
    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.ones(8, 16)), nn.Parameter(torch.ones(16, 4))

        def forward(self, x):
            return torch.linalg.multi_dot([x, self.a, self.b])

    with pytest.warns(IncompleteTraceWarning, match="in which order it multiplies"):
        OpGraph.from_torch(Three(), (8,))


def test_an_undeclared_input_of_complex_weights_is_complex() -> None:
    kernels = OpGraph.from_torch(nn.Linear(8, 4, dtype=torch.complex64), (8,)).kernels
    assert kernels.groupby("backward")["flops"].sum().tolist() == [4 * 64, 4 * 64]


@torch.library.custom_op("gpudemand_tests::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_an_operator_without_a_shape_is_refused_with_what_works() -> None:
    net = Calls(lambda y: double(y.detach()) + y)
    with pytest.raises(InputError, match="register_fake"):
        OpGraph.from_torch(net, (4,))
    torch.library.register_fake("gpudemand_tests::double", torch.empty_like)
    with pytest.warns(UnknownOperatorWarning, match="gpudemand_tests::double"):
        assert OpGraph.from_torch(net, (4,)).flops == 32


def test_a_forward_pass_that_ends_the_process_is_refused() -> None:
    with pytest.raises(InputError, match="SystemExit: 3"):
        OpGraph.from_torch(Calls(lambda y: os._exit(3)), (4,))


@dataclass
class Result:
    out: Any


@pytest.mark.parametrize(
    "wrap", [Result, lambda out: SimpleNamespace(a=[out]), lambda out: iter([out]), lambda out: {1: (out, None)}]
)
def test_a_result_has_its_backward_pass_whatever_holds_it(wrap) -> None:
    graph = OpGraph.from_torch(Calls(wrap), (4,))
    assert _forward(graph) == _forward(graph, backward=True) == 32


def test_a_result_that_is_made_when_it_is_asked_for_is_counted() -> None:
    class Lazy(Calls):
        def forward(self, x):
            for _ in range(3):
                yield self.fc(x)

    assert OpGraph.from_torch(Lazy(None), (4,)).flops == 3 * 32


@pytest.mark.parametrize("train", [None, False])
def test_work_of_another_thread_is_refused(train) -> None:
    class Threads(Calls):
        def forward(self, x):
            out: list[Any] = []
            thread = threading.Thread(target=lambda: out.append(self.fc(x)))
            thread.start()
            thread.join()
            return out[0] * 2

    with pytest.raises(InputError, match="in one thread"):
        OpGraph.from_torch(Threads(None), (4,), train=train)


@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_gradients_that_are_off_inside_change_no_forward_pass(context) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.back, self.head = nn.Linear(256, 256, bias=False), nn.Linear(256, 10, bias=False)

        def forward(self, x):
            with context():
                features = self.back(x)
            return self.head(features.clone())

    graph = OpGraph.from_torch(Net(), (256,))
    assert graph.flops == _forward(graph) == 2 * (65536 + 2560)
    assert _forward(graph, backward=True) == 5120 + (5120 + 131072) * (context is torch.enable_grad)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_compute_anew_in_the_backward_pass(reentrant: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))

        def forward(self, x):
            return checkpoint(self.inner, self.first(x), use_reentrant=reentrant).sum(1)

    graph = OpGraph.from_torch(Net(), (8,))
    assert graph.flops == 3 * 128
    # Gradients of three weights and of two inputs; recomputation, in the recommended form up to what is needed.
    assert _forward(graph, backward=True) in ((5 + 1) * 128, (5 + 2) * 128)


def test_gradients_in_the_forward_pass_count() -> None:
    class Force(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 16, bias=False), nn.Tanh(), nn.Linear(16, 1, bias=False))

        def forward(self, x):
            x = x.requires_grad_(True)
            return torch.autograd.grad(self.net(x).sum(), x, create_graph=True)[0]

    graph = OpGraph.from_torch(Force(), (3,))
    assert graph.flops == _forward(graph) == 2 * 2 * (48 + 16)


@pytest.mark.parametrize(
    "compute",
    [
        lambda net, x, zero: torch.autograd.grad(net(x + zero).sum(), zero, create_graph=True)[0],
        lambda net, x, zero: net(x).scatter_add(1, torch.zeros_like(x, dtype=torch.long), net(x).softmax(-1)),
        lambda net, x, zero: net(x).index_add_(0, torch.arange(len(x), device=x.device), net(x).softmax(-1)),
    ],
)
def test_kernels_are_recorded_where_casts_are_out_of_place(compute) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(16, 16)

        def forward(self, x):
            return self.net(compute(self.net, x, torch.zeros_like(x).requires_grad_()))

    graph = OpGraph.from_torch(Net(), (16,))
    assert _forward(graph) == graph.flops == 3 * 2 * 16 * 16
    assert graph.error_scale == 1


@pytest.mark.parametrize(
    "lengths", [lambda samples, length: (length,) * samples, lambda samples, length: torch.full((samples,), length)]
)
def test_the_loss_of_alignments_needs_no_lengths(lengths) -> None:
    class Aligned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(16, 20)

        def forward(self, x, y):
            log_probs = self.fc(x).log_softmax(-1).transpose(0, 1)
            return functional.ctc_loss(log_probs, y, *(lengths(len(y), one.shape[1]) for one in (x, y)))

    graph = OpGraph.from_torch(Aligned(), [(40, 16), (8,)], input_dtype=["float32", "int64"])
    assert graph.flops == _forward(graph) == 2 * 40 * 16 * 20
    assert graph.saved_bytes == pytest.approx(4 * 40 * (16 + 20 + 2 * 8 + 1) + 8 * 8, rel=0.01)
    assert graph.error_scale == 1


class Saver(nn.Module):
    """Saves what autograd needs by hooks of its own."""

    def __init__(self, hooks) -> None:
        super().__init__()
        self.hooks, self.net = hooks, nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x):
        with self.hooks():
            return self.net(x)


def test_hooks_of_a_network_say_what_they_keep() -> None:
    def compressed():
        return torch.autograd.graph.saved_tensors_hooks(lambda x: x.half(), lambda x: x.float())

    graph = OpGraph.from_torch(Saver(compressed), (64,))
    # Autograd hands the output of the activation over twice, and weights, too.
    assert graph.saved_bytes == 2 * (64 + 2 * 128)
    assert graph.nodes["fixed_saved_bytes"].sum() == 2 * 128 * 64
    assert graph.kernels is not None
    assert torch.autograd.graph.saved_tensors_hooks.__init__.__module__ == "torch.autograd.graph"


def test_what_waits_in_the_memory_of_the_host_is_not_saved_on_the_device() -> None:
    with pytest.warns(IncompleteTraceWarning, match="memory of the host"):
        graph = OpGraph.from_torch(Saver(torch.autograd.graph.save_on_cpu), (64,))
    assert graph.flops == _forward(graph) == 2 * 2 * 64 * 128
    assert graph.saved_bytes == 0


@pytest.mark.parametrize("draw", [random.random, lambda: torch.rand(()).item(), lambda: torch.rand([])])
def test_a_graph_of_random_depth_is_the_same_every_time_and_said(draw) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(12))

        def forward(self, x):
            for layer in self.layers:
                if draw() < 0.5:
                    x = layer(x)
            return self.layers[0](x)

    found = set()
    for seed in range(2):
        random.seed(seed)
        torch.manual_seed(seed)
        net = Net()
        before = random.getstate(), torch.get_rng_state().tolist()
        with pytest.warns(IncompleteTraceWarning, match="random numbers"):
            found.add(OpGraph.from_torch(net, (8,)).flops)
        assert before == (random.getstate(), torch.get_rng_state().tolist())
    assert len(found) == 1
    assert 7 * 128 <= found.pop() <= 13 * 128


class Steps(nn.Module):
    """A recurrent layer whose state is an input, which has its batch on the second axis."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 8, **options)

    def forward(self, x, h, c):
        return self.lstm(x, (h, c))[0]


def _attended(queries: int, keys: int, width: int) -> int:
    """Operations of the projections and products of attention."""
    return 2 * 2 * width * (width * (queries + keys) + queries * keys)


@pytest.mark.parametrize(
    ("layer", "shape", "flops"),
    [
        (nn.TransformerEncoderLayer(16, 2, 32), (50, 16), _attended(50, 50, 16) + 50 * 2 * 2 * 16 * 32),
        (nn.TransformerEncoderLayer(16, 2, 32), [torch.zeros(50, 3, 16)], _attended(50, 50, 16) + 50 * 2 * 2 * 16 * 32),
        (nn.LSTM(16, 8), (50, 16), 50 * 2 * 4 * 8 * (16 + 8)),
        (nn.GRU(16, 8, 2, bidirectional=True), (50, 16), 50 * 2 * 2 * 3 * 8 * (16 + 8 + 16 + 8)),
        (Steps(), [(50, 16), (1, 8), (1, 8)], 50 * 2 * 4 * 8 * (16 + 8)),
        (Steps(batch_first=True), [(50, 16), (1, 8), (1, 8)], 50 * 2 * 4 * 8 * (16 + 8)),
        (
            nn.TransformerDecoderLayer(16, 2, 32),
            [(20, 16), (30, 16)],
            _attended(20, 20, 16) + _attended(20, 30, 16) + 20 * 2 * 2 * 16 * 32,
        ),
    ],
    ids=["encoder", "example", "lstm", "gru", "state", "state of samples first", "decoder"],
)
def test_a_batch_on_the_second_axis_is_found(layer, shape, flops: float) -> None:
    with pytest.warns(IncompleteTraceWarning, match="are taken to hold"):
        graph = OpGraph.from_torch(layer, shape)
    assert graph.flops == _forward(graph) == flops
    assert graph.error_scale == 1
    if shape == (50, 16):
        assert graph.input_shapes == ((50, 16),)


class Contrast(nn.Module):
    """Compares every sample of one input with every one of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 8)

    def forward(self, x, y):
        return self.fc(x).mean(1) @ self.fc(y).mean(1).T


@pytest.mark.parametrize("shapes", [[(5, 16), (7, 16)], [(5, 16), (5, 16)]])
def test_work_on_pairs_of_samples_is_said(shapes) -> None:
    with pytest.warns(IncompleteTraceWarning, match="may not be its first axis"):
        graph = OpGraph.from_torch(Contrast(), shapes)
    assert graph.error_scale == 10


def test_work_on_pairs_is_that_of_an_example_of_a_whole_batch() -> None:
    class Alike(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(16, 8, bias=False)

        def forward(self, x, y):
            return (self.fc(x) @ self.fc(y).T).log_softmax(-1)

    samples, each = 64, 2 * 2 * 16 * 8
    with pytest.warns(IncompleteTraceWarning, match="square of the batch.* of 64 samples a batch"):
        graph = OpGraph.from_torch(Alike(), [torch.zeros(samples, 16)] * 2)
    assert graph.flops == _forward(graph) == each + 2 * 8 * samples
    assert graph.saved_bytes == 4 * (2 * (16 + 8) + samples)
    assert graph.error_scale == 1
    with pytest.warns(IncompleteTraceWarning, match="square of the batch.* of 2 samples; pass example tensors"):
        assert OpGraph.from_torch(Alike(), [(16,), (16,)]).flops == each + 2 * 8 * 2


@pytest.mark.parametrize("last", [False, True])
def test_samples_of_a_bag_are_its_bags(last: bool) -> None:
    class Bags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag, self.fc = nn.EmbeddingBag(100, 8, include_last_offset=last), nn.Linear(8, 2)

        def forward(self, numbers, offsets):
            return self.fc(self.bag(numbers, offsets))

    offsets = torch.tensor([0, 4, 8, 12][: 4 if last else 3])
    graph = OpGraph.from_torch(Bags(), [torch.arange(12), offsets])
    assert graph.flops == _forward(graph) == 2 * 8 * 2


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    ("layout", "stored"),
    [
        ("to_sparse", 64 * (4 + 16)),
        ("to_sparse_csr", 64 * (4 + 8) + 65 * 8),
        ("to_sparse_csc", 64 * (4 + 8) + 65 * 8),
        (lambda matrix: matrix.to_sparse_bsr((4, 4)), 16 * (16 * 4 + 8) + 17 * 8),
    ],
)
def test_sparse_matrices_count_what_they_store(layout, stored: int) -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            matrix, self.fc = torch.eye(64), nn.Linear(8, 8)
            self.register_buffer("a", getattr(matrix, layout)() if isinstance(layout, str) else layout(matrix))

        def forward(self, x):
            return torch.stack([self.a @ one for one in self.fc(x)])

    with pytest.warns(IncompleteTraceWarning, match="could not be recorded"):
        graph = OpGraph.from_torch(Graph(), (64, 8))
    assert graph.state_bytes == stored
    assert graph.flops == 64 * 2 * 8 * 8 + 2 * 8 * (64 if isinstance(layout, str) else 16 * 16)


def test_gradients_by_functions_count_without_what_they_save() -> None:
    class Force(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 16, bias=False), nn.Tanh(), nn.Linear(16, 1, bias=False))

        def forward(self, x):
            return torch.func.grad(lambda y: self.net(y).sum())(x)

    with pytest.warns(IncompleteTraceWarning, match="saved for the backward pass is not known"):
        graph = OpGraph.from_torch(Force(), (3,))
    assert graph.flops == _forward(graph) == 2 * 2 * (48 + 16)
    assert graph.error_scale == 10


@pytest.mark.filterwarnings("ignore")
def test_quantized_layers_count() -> None:
    net = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(64, 32)), {nn.Linear})
    graph = OpGraph.from_torch(net, (64,))
    assert graph.flops == 2 * 64 * 32
    assert graph.state_bytes >= 64 * 32


def test_what_a_trace_may_lack_widens_intervals() -> None:
    model = CostModel.load()
    graph = OpGraph.from_torch(nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 512)), (512,))
    sure = TrainingJob(graph, batch_size=1024, device="H100")
    unsure = replace(sure, model=replace(graph, error_scale=4.0))
    one, other = (model.predict(job).iloc[0] for job in (sure, unsure))
    for target, least in (("step_time_s", 0.0), ("memory_gib", resident_bytes(graph, [1024])[0] / 2**30)):
        low, high = f"{target}-lo-90", f"{target}-hi-90"
        assert other[target] == one[target]
        assert other[low] == pytest.approx(least + (one[low] - least) / 4)
        assert other[high] == pytest.approx(least + (one[high] - least) * 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        largest, doubted = model.max_batch_size(sure), model.max_batch_size(unsure)
        assert largest / 5 < doubted < largest / 3
        assert model.fits(replace(unsure, batch_size=doubted)) > 0.9 > model.fits(replace(unsure, batch_size=largest))


def test_kernels_that_cannot_be_recorded_are_said() -> None:
    def broken(y):
        y.register_hook(lambda gradient: gradient.new_zeros(int(gradient.sum())))
        return y * 2

    with pytest.warns(IncompleteTraceWarning, match="could not be recorded"):
        assert OpGraph.from_torch(Calls(broken), (4,)).kernels is None


def test_what_the_state_holds_is_resident() -> None:
    class Bank(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(64, 64)
            self.register_buffer("bank", torch.empty(2**22, 64, device="meta"), persistent=False)
            self.packed = [torch.empty(2**20, dtype=torch.int8, device="meta")]
            self.again = self.bank[:1]
            self.tree: dict[str, Any] = {"again": self.again}
            self.tree["root"] = self.tree

        def forward(self, x):
            return self.fc(x) + self.bank[:1]

    graph = OpGraph.from_torch(Bank(), (64,))
    assert graph.state_bytes == 2**30 + 2**20
    assert resident_bytes(graph, [1])[0] > 2**30 + 2**20
    assert resident_bytes(graph, [1], Setting(shards=(8, 8, 8)))[0] > 2**30
    assert OpGraph.from_torch(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), (4,)).state_bytes == 0


@pytest.mark.parametrize(
    ("second", "each", "fixed"),
    [
        (lambda net, x: net.bank, 0, 0),  # it is resident
        (lambda net, x: net.bank * 2, 0, 1),
        (lambda net, x: x.new_zeros(64, 512), 0, 1),
        (lambda net, x: torch.ones(len(x), 64, 512, device=x.device), 1, 0),
        (lambda net, x: torch.randn_like(x).mean(-1)[:, None, None].expand(-1, 64, 512).clone(), 1, 0),
    ],
)
def test_what_is_saved_and_not_computed_counts_once_a_batch(second, each: int, fixed: int) -> None:
    class Bank(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Dropout(0.5))
            self.register_buffer("bank", torch.zeros(64, 512))

        def forward(self, x):
            return self.fc(x)[:, None] @ second(self, x)

    graph, size, statistics = OpGraph.from_torch(Bank(), (16,)), 4 * 64 * 512, 4 * 64
    # Normalisation saves what it reads, and deviations of this and of earlier batches; dropout its mask.
    saved = 2 * graph.saved_bytes + graph.nodes["fixed_saved_bytes"].sum()
    assert saved == 2 * 4 * (16 + 64 + 64) + 4 * statistics + (2 * each + fixed) * size
    assert graph.nodes["fixed_saved_bytes"].sum() in [fixed * size + known * statistics for known in (2, 4)]
    assert graph.state_bytes == size


def test_the_gradient_of_a_sparse_table_is_of_the_rows_looked_up() -> None:
    def least(*, sparse: bool, optimizer: str = "sgd") -> float:
        net = nn.Sequential(nn.Embedding(10**6, 64, sparse=sparse, device="meta"), nn.Linear(64, 1, device="meta"))
        return float(resident_bytes(OpGraph.from_torch(net, (20,), input_dtype="int64"), [8], Setting(optimizer))[0])

    table = 4.0 * 64 * 10**6
    assert least(sparse=False) == pytest.approx(2 * table, rel=0.01)
    assert least(sparse=True) == pytest.approx(table, rel=0.01)
    assert least(sparse=True, optimizer="adam") == pytest.approx(3 * table, rel=0.01)


def test_the_largest_batch_of_the_smallest_network_is_a_number() -> None:
    model, job = CostModel.load(), TrainingJob(nn.Linear(8, 8), (8,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        largest = model.max_batch_size(job)
        assert largest > 2**26
        assert model.fits(TrainingJob(nn.Linear(8, 8), (8,), batch_size=2 * largest)) < 0.95


class Pyramid(nn.Module):
    """Takes one list."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 4), nn.Linear(16, 4)

    def forward(self, xs):
        return self.a(xs[0]) + self.b(xs[1])


class Wrapped(nn.Module):
    """What the refusal advises."""

    def __init__(self, net) -> None:
        super().__init__()
        self.net = net

    def forward(self, a, b):
        return self.net([a, b])


@pytest.mark.parametrize("shape", [[(8,), (16,)], {"xs": [(8,), (16,)]}, {"x": (8,), "flag": True}])
def test_a_network_that_takes_other_than_tensors_is_refused_with_what_works(shape) -> None:
    with pytest.raises(InputError, match=r"return self\.net\(\[a, b\]\)"):
        OpGraph.from_torch(Pyramid(), shape)
    assert OpGraph.from_torch(Wrapped(Pyramid()), [(8,), (16,)]).flops == 192


@pytest.mark.parametrize("shape", [(3, 32, 32.0), (3, None, None)])
def test_a_shape_of_other_than_whole_numbers_is_shown_whole(shape) -> None:
    with pytest.raises(InputError, match=r"input_shape=\(3, "):
        OpGraph.from_torch(nn.Linear(32, 4), shape)


def test_distributions_are_traced_unchecked_and_checked_again() -> None:
    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.choice, self.scale = nn.Linear(8, 4), nn.Linear(8, 3), nn.Parameter(torch.zeros(4))

        def forward(self, x):
            moves = torch.distributions.Normal(self.mean(x), self.scale.exp())
            choices = torch.distributions.Categorical(logits=self.choice(x))
            return moves.log_prob(moves.rsample()).sum(-1) + choices.log_prob(choices.sample()), choices.entropy()

    graph = OpGraph.from_torch(Policy(), (8,))
    assert graph.flops == _forward(graph) == 2 * 8 * 7
    with pytest.raises(ValueError, match="scale"):
        torch.distributions.Normal(torch.zeros(2), torch.tensor([1.0, -1.0]))


def test_synchronised_normalisation_is_that_of_one_process() -> None:
    net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
    assert OpGraph.from_torch(net, (3, 8, 8)).flops == 36 * 2 * 216
    assert type(net[1]) is nn.SyncBatchNorm


class Random(nn.Module):
    """A small network drawn by a seed: modules, functionals, containers, keyword order, and control flow by shape."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.width = draw.choice([4, 6, 8])
        self.names = [draw.choice(list(STEPS)) for _ in range(draw.randint(1, 6))]
        self.layers = nn.ModuleList(nn.Linear(self.width, self.width, bias=draw.random() < 0.5) for _ in self.names)
        self.conv = nn.Conv1d(self.width, self.width, 3, padding=1, groups=draw.choice([1, 2]))
        self.norm = draw.choice([nn.LayerNorm, nn.RMSNorm])(self.width)
        self.register_buffer("scale", torch.rand(self.width, self.width))
        self.wrap = draw.choice(
            [lambda y: y, lambda y: {"y": [y]}, lambda y: SimpleNamespace(y=y), lambda y: (y, None)]
        )

    def forward(self, x):
        for name, layer in zip(self.names, self.layers, strict=True):
            x = STEPS[name](self, layer, x)
        return self.wrap(x)


STEPS = {
    "linear": lambda net, layer, x: layer(x).relu(),
    "functional": lambda net, layer, x: functional.linear(weight=layer.weight, input=x),
    "matmul": lambda net, layer, x: torch.matmul(other=layer.weight, input=x) * 0.5,
    "vector": lambda net, layer, x: x + (x @ layer.weight[0]).unsqueeze(-1),
    "einsum": lambda net, layer, x: torch.einsum("bti,ij->btj", x, layer.weight).tanh(),
    "conv": lambda net, layer, x: net.conv(x.transpose(1, 2)).transpose(1, 2),
    "norm": lambda net, layer, x: net.norm(x),
    "scores": lambda net, layer, x: torch.softmax(torch.bmm(x, x.transpose(1, 2)), -1) @ x,
    "attention": lambda net, layer, x: functional.scaled_dot_product_attention(value=x, key=layer(x), query=x),
    "buffer": lambda net, layer, x: x @ net.scale,
    "shape": lambda net, layer, x: layer(x) if x.shape[1] > 4 else x,
    "loop": lambda net, layer, x: torch.stack([layer(x[:, step]) for step in range(x.shape[1])], 1),
    "in place": lambda net, layer, x: layer(x).mul_(2).add_(x),
}


def _true(net: nn.Module, x: Any) -> tuple[float, Any]:
    """Operations of a real forward pass of two samples, and its result; products with vectors have no formula there."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.mv: lambda a, b, **_: 2 * a[0] * a[1]})
    with counter, sdpa_kernel(SDPBackend.MATH):
        out = net(x)
    return float(counter.get_total_flops()), out


@pytest.mark.parametrize("block", slow_where(lambda block: block > 0, range(10)))
def test_random_networks_are_counted_right_and_left_as_they_were(block: int) -> None:
    slowest = 0.0
    for seed in range(20 * block, 20 * block + 20):
        net = Random(seed)
        length = random.Random(seed).choice([3, 5])
        x = torch.randn(2, length, net.width)
        flops, before = _true(net, x)
        started = time.process_time()
        graph = OpGraph.from_torch(net, (length, net.width))
        slowest = max(slowest, time.process_time() - started)
        assert graph.flops * 2 + graph.nodes["fixed_flops"].sum() == flops, net.names
        assert graph.n_parameters == sum(parameter.numel() for parameter in net.parameters())
        assert graph.state_bytes == 4 * net.scale.numel()
        after = _true(net, x)[1]
        for one, other in zip(*(list(_tensors(result)) for result in (before, after)), strict=True):
            assert torch.equal(one, other), net.names
    print(f"slowest trace of block {block}: {slowest:.2f} s")  # noqa: T201 (shown by -rP)
    assert slowest < 20


def _tensors(result: Any) -> Any:
    from gpudemand.cost._torch_operators import results_in

    return results_in(result)
