"""Kernels of a training step: recorded from PyTorch, against counts by hand, and derived from operators."""

from __future__ import annotations

import random
from dataclasses import replace

import pandas as pd
import pytest

from gpudemand.cost import OpGraph, TrainingJob
from gpudemand.cost.graph_features import step_kernels
from gpudemand.cost.operators import KINDS, Kernel
from tests.tiers import slow_beside, slow_where

torch = pytest.importorskip("torch")
zoo = pytest.importorskip("benchmarks.zoo", reason="runs from a checkout")
nn = torch.nn
functional = nn.functional

AMOUNTS = [f"{fixed}{name}" for fixed in ("", "fixed_") for name in ("flops", "bytes", "half_bytes")]


def recorded(net, shape, **options) -> pd.DataFrame:
    kernels = OpGraph.from_torch(net, shape, **options).kernels
    return kernels.astype({"kind": object, "backward": bool, "is_autocast": bool})


def one_pass(kernels: pd.DataFrame, kind: str, backward: bool) -> pd.DataFrame:
    return kernels[(kernels["kind"] == kind) & (kernels["backward"] == backward)]


def total(kernels: pd.DataFrame) -> dict[str, float]:
    """Amounts of all launches together, and their number."""
    return {**kernels[AMOUNTS].mul(kernels["calls"], axis=0).sum(), "calls": kernels["calls"].sum()}


class Calls(nn.Module):
    """A function of a layer's output, or of a layer and the input, as a module."""

    def __init__(self, layer, function) -> None:
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, x):
        """Apply the function."""
        return self.function(self.layer, x)


def test_every_kernel_is_of_a_known_kind() -> None:
    with torch.device("meta"):
        net = zoo.build("mobilenet_v1", "torch", (3, 32, 32), 10, width=0.25, depth=0.5)
    kernels = recorded(net, (3, 32, 32))
    assert list(kernels.columns) == list(Kernel._fields)
    assert set(kernels["kind"]) <= set(KINDS)
    assert (kernels[AMOUNTS] >= 0).all(axis=None)


def test_linear_layers_as_counted_by_hand() -> None:
    tokens, first, second, third = 3, 8, 16, 5
    kernels = recorded(nn.Sequential(nn.Linear(first, second), nn.Linear(second, third)), (tokens, first))
    flops = [2.0 * tokens * first * second, 2.0 * tokens * second * third]
    activations = [4.0 * tokens * (first + second), 4.0 * tokens * (second + third)]
    weights = [4.0 * first * second, 4.0 * second * third]
    forward, backward = (total(one_pass(kernels, "gemm", part)) for part in (False, True))
    assert forward == {
        "flops": sum(flops),
        "bytes": sum(activations),
        "half_bytes": sum(activations) / 2,
        "fixed_bytes": sum(weights) + 4.0 * (second + third),
        "fixed_half_bytes": sum(weights) / 2 + 2.0 * (second + third),
        "fixed_flops": 0.0,
        "calls": 2,
    }
    # Gradients of the weights of both layers, of the input of the second alone: nobody asks for that of the network.
    assert backward["flops"] == flops[0] + 2 * flops[1]
    assert backward["bytes"] == activations[0] + 2 * activations[1]
    assert backward["fixed_bytes"] == weights[0] + 2 * weights[1]
    assert backward["calls"] == 3


def test_gradients_of_biases_are_sums_over_samples_and_tokens() -> None:
    tokens, width = 3, 5
    sums = one_pass(recorded(nn.Linear(7, width), (tokens, 7)), "reduce", True)
    assert total(sums)["bytes"] == 4.0 * tokens * width
    assert total(sums)["fixed_bytes"] == 4.0 * width


def test_convolutions_as_counted_by_hand() -> None:
    first, second, third, positions = 3, 8, 5, 10 * 10
    net = nn.Sequential(*(nn.Conv2d(*pair, 3, padding=1, bias=False) for pair in ((first, second), (second, third))))
    kernels = recorded(net, (first, 10, 10))
    flops = [2.0 * positions * 9 * first * second, 2.0 * positions * 9 * second * third]
    activations = [4.0 * positions * (first + second), 4.0 * positions * (second + third)]
    weights = [4.0 * 9 * first * second, 4.0 * 9 * second * third]
    forward, backward = (one_pass(kernels, "conv_3x3", part) for part in (False, True))
    assert total(forward)["flops"] == sum(flops)
    assert total(forward)["bytes"] == sum(activations)
    assert total(forward)["fixed_bytes"] == sum(weights)
    # One call computes both gradients; the first layer's reads the input and writes no gradient of it.
    assert total(backward)["flops"] == flops[0] + 2 * flops[1]
    assert total(backward)["bytes"] == activations[0] + activations[1] + 4.0 * positions * second
    assert total(backward)["calls"] == 2
    assert set(forward["weights"]) == {9 * first * second, 9 * second * third}


@pytest.mark.parametrize(
    ("layer", "kind", "flops"),
    [
        (nn.Conv2d(8, 8, 7, padding=3, groups=8), "conv_depthwise", 2 * 64 * 49 * 8),
        (nn.Conv2d(8, 16, 3, padding=1, groups=2), "conv_grouped", 2 * 64 * 9 * 4 * 16),
        (nn.Conv2d(8, 16, 1), "conv_1x1", 2 * 64 * 8 * 16),
        (nn.Conv2d(8, 16, 5, padding=2), "conv_large", 2 * 64 * 25 * 8 * 16),
        (nn.ConvTranspose2d(8, 4, 2, 2), "conv_transpose", 2 * 64 * 4 * 8 * 4),
    ],
)
def test_kinds_of_convolutions(layer, kind: str, flops: float) -> None:
    kernels = recorded(layer, (8, 8, 8))
    assert total(one_pass(kernels, kind, False))["flops"] == flops
    assert total(one_pass(kernels, kind, True))["flops"] == flops


@pytest.mark.parametrize(
    ("layer", "axes", "is_direct"),
    [
        (nn.Conv2d(8, 16, 3, padding=1), 2, False),
        (nn.Conv2d(8, 16, 3, padding=2, dilation=2), 2, True),
        (nn.Conv1d(8, 16, 3, padding=1), 1, True),
        (nn.Conv3d(8, 16, 3, padding=1), 3, True),
    ],
)
def test_convolutions_without_a_fast_algorithm(layer, axes: int, is_direct: bool) -> None:
    kernels = recorded(nn.Sequential(nn.ReLU(), layer), (8, *[8] * axes))
    for backward in (False, True):
        found = one_pass(kernels, "conv_3x3", backward)["is_direct"]
        assert found.astype(bool).tolist() == [is_direct] * len(found) != []


@pytest.mark.parametrize(("tokens", "width"), [(5, 24), (64, 128), (12, 24)])
def test_bytes_of_parameters_are_fixed_and_those_of_activations_are_not(tokens: int, width: int) -> None:
    # Two samples of 64 tokens are as many rows as a matrix of 128 x 128 has.
    kernels = recorded(nn.Linear(width, width, bias=False), (tokens, width))
    forward, backward = (total(one_pass(kernels, "gemm", part)) for part in (False, True))
    for amounts in (forward, backward):
        assert amounts["fixed_bytes"] == 4.0 * width * width
        assert amounts["bytes"] == 4.0 * tokens * 2 * width


@pytest.mark.parametrize("samples", [2, 3, 16])
def test_amounts_do_not_depend_on_the_traced_batch(samples: int) -> None:
    net = nn.Sequential(nn.Conv2d(3, 7, 3, padding=1), nn.GroupNorm(7, 7), nn.ReLU(), nn.Flatten(), nn.Linear(700, 11))
    few, many = (recorded(net, [torch.zeros(n, 3, 10, 10)]) for n in (2, samples))
    pd.testing.assert_frame_equal(few, many, check_dtype=False)


@pytest.mark.parametrize(
    ("shape", "tokens", "used"),
    [
        ((5000, 24), (16, 24), lambda x, weight: x + weight[:16]),
        ((5000, 24), (16, 24), lambda x, weight: x + weight.index_select(0, torch.arange(16, device=x.device))),
        ((24, 4, 6), (16, 24), lambda x, weight: torch.einsum("bsd,dhk->bshk", x, weight)),
        ((24, 24), (24,), lambda x, weight: (torch.zeros(len(x), 24) @ weight + x) @ weight),
    ],
)
def test_gradients_of_a_part_of_a_parameter_do_not_depend_on_the_traced_batch(shape, tokens, used) -> None:
    net = Calls(nn.ParameterList([torch.zeros(shape)]), lambda layer, x: used(x, layer[0]))
    few, many = (total(recorded(net, [torch.zeros(n, *tokens)])) for n in (2, 10))
    assert few == pytest.approx(many)


def of_low_rank(x, first, second):
    """A layer whose weight is a product of parameters."""
    return x @ (first @ second)


def attend(queries, x):
    """Attention of as many queries for each sample to its tokens, and to each other."""
    queries = functional.layer_norm(queries + torch.zeros_like(queries), queries.shape[-1:])
    queries = queries + (queries @ queries.transpose(1, 2)).softmax(-1) @ queries
    return (queries @ x.transpose(1, 2)).softmax(-1) @ x


#: Shapes of parameters, of a sample, and a function of the input and the parameters.
SHARED = {
    "product of weights": (((24, 8), (8, 24)), (16, 24), of_low_rank),
    "generated weight": (((24 * 24, 4), (4, 1)), (16, 24), lambda x, a, b: x @ (a @ b).view(24, 24)),
    "expanded queries": (((1, 10, 24),), (16, 24), lambda x, q: attend(q.expand(len(x), -1, -1), x)),
    "repeated queries": (((1, 10, 24),), (16, 24), lambda x, q: attend(q.repeat(len(x), 1, 1), x)),
    "instance normalisation": (((6,), (6,)), (6, 8, 8), lambda x, w, b: functional.instance_norm(x, None, None, w, b)),
    "positional bias": (((16, 3), (3, 16)), (16, 16), lambda x, a, b: x @ x.mT + (a @ b).relu()),
}


@pytest.mark.parametrize("name", SHARED)
def test_amounts_at_another_batch_are_those_of_its_trace(name: str) -> None:
    shapes, sample, function = SHARED[name]
    net = Calls(nn.ParameterList(map(torch.zeros, shapes)), lambda layer, x: function(x, *layer))
    few, many = (total(recorded(net, [torch.zeros(n, *sample)])) for n in (2, 22))
    for part in ("flops", "bytes", "half_bytes"):
        assert few[f"fixed_{part}"] == pytest.approx(many[f"fixed_{part}"])
        assert few[part] == pytest.approx(many[part])
    assert few["calls"] == many["calls"]


def test_work_of_a_loop_over_samples_grows_with_the_batch() -> None:
    def one_by_one(layer, x):
        return torch.stack([layer(sample) for sample in x])

    plain, looped = (
        total(one_pass(recorded(Calls(nn.Linear(8, 8, bias=False), f), (5, 8)), "gemm", False))
        for f in (lambda layer, x: layer(x), one_by_one)
    )
    assert looped["flops"] == plain["flops"]
    assert looped["bytes"] >= plain["bytes"]


def test_a_network_for_one_batch_size_is_recorded() -> None:
    net = Calls(nn.Linear(8, 8, bias=False), lambda layer, x: layer(x.reshape(2, 40)[:, :8]))
    assert total(one_pass(recorded(net, (5, 8)), "gemm", False))["flops"] == 2.0 * 8 * 8


@pytest.mark.parametrize("layer", [nn.EmbeddingBag(1000, 8), nn.Sequential(nn.Embedding(1000, 8), nn.Flatten())])
def test_the_gradient_of_an_embedding_is_written_once_a_step(layer) -> None:
    kernels = recorded(layer, (5,), input_dtype="int64")
    backward = total(kernels[kernels["backward"]])
    assert backward["fixed_bytes"] >= 1000 * 8 * 4
    assert backward["bytes"] < 1000


@pytest.mark.parametrize("samples", [2, 16, 40])
@pytest.mark.parametrize("tokens", [(), (3,)])
def test_extents_of_a_linear_layer_are_those_of_its_weight(samples: int, tokens: tuple[int, ...]) -> None:
    kernels = recorded(nn.Linear(16, 40, bias=False), [torch.zeros(samples, *tokens, 16)])
    products = kernels[kernels["kind"] == "gemm"]
    assert set(zip(products["channels"], products["inner"], strict=True)) == {(16, 40)}


def test_casts_of_a_parameter_appear_once_and_in_half_precision_only() -> None:
    layer = nn.Linear(8, 8, bias=False)
    kernels = recorded(Calls(layer, lambda layer, x: layer(layer(layer(x)))), (5, 8))
    assert not one_pass(kernels, "gemm", False).empty
    casts = kernels[kernels["kind"] == "cast"]
    assert casts["is_autocast"].all()
    assert not kernels.loc[kernels["kind"] != "cast", "is_autocast"].any()
    of_weight = casts[casts["fixed_half_bytes"] > 0]
    # Reads four bytes a weight and writes two; the gradient reads two and writes four.
    assert of_weight[["backward", "fixed_half_bytes", "calls"]].to_numpy().tolist() == [
        [False, 6.0 * 64, 1],
        [True, 6.0 * 64, 1],
    ]
    of_input = one_pass(casts[casts["fixed_half_bytes"] == 0], "cast", False)
    assert of_input[["half_bytes", "calls"]].to_numpy().tolist() == [[6.0 * 5 * 8, 1]]


def test_gradients_of_a_tensor_that_is_used_twice_are_added() -> None:
    layer = nn.Linear(8, 8, bias=False)
    once = recorded(Calls(layer, lambda layer, x: layer(x).sin()), (5, 8))
    twice = recorded(Calls(layer, lambda layer, x: torch.cat([(y := layer(x)).sin(), y.sin()])), (5, 8))
    added = total(one_pass(twice, "pointwise", True))["bytes"] - 2 * total(one_pass(once, "pointwise", True))["bytes"]
    assert added == 4.0 * 3 * 5 * 8  # reads two gradients and writes their sum


def attention(layer, x, **options):
    """Four heads of sixteen."""
    query, key, value = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in layer(x).chunk(3, -1))
    return functional.scaled_dot_product_attention(query, key, value, **options)


@pytest.mark.parametrize("tokens", [32, 128])
def test_fused_attention_is_one_kernel_a_pass(tokens: int) -> None:
    kernels = recorded(Calls(nn.Linear(64, 192), attention), (tokens, 64))
    forward, backward = (total(one_pass(kernels, "attention", part)) for part in (False, True))
    assert (forward["calls"], backward["calls"]) == (1, 1)
    assert forward["flops"] == 4.0 * tokens**2 * 64
    assert backward["flops"] == 2.5 * forward["flops"]  # scores again, and four products of gradients
    # Query, key, value and output, and no scores.
    assert forward["bytes"] == pytest.approx(4.0 * 4 * tokens * 64, rel=0.05)
    assert set(kernels["kind"]).isdisjoint({"softmax", "matmul"})


def test_causal_attention_is_half_the_operations() -> None:
    full, causal = (
        recorded(Calls(nn.Linear(64, 192), lambda layer, x, c=c: attention(layer, x, is_causal=c)), (128, 64))
        for c in (False, True)
    )
    for part in (False, True):
        halves = total(one_pass(causal, "attention", part))["flops"]
        assert 2 * halves == total(one_pass(full, "attention", part))["flops"]


def test_the_mask_of_attention_is_read() -> None:
    def masked(layer, x):
        return attention(layer, x, attn_mask=x.new_zeros(x.shape[0], 1, x.shape[1], x.shape[1]))

    net = nn.Linear(64, 192)
    plain, read = (one_pass(recorded(Calls(net, f), (128, 64)), "attention", False) for f in (attention, masked))
    assert total(read)["bytes"] - total(plain)["bytes"] == pytest.approx(4.0 * 128 * 128)


@pytest.mark.parametrize(("cell", "gates"), [(nn.LSTM, 4), (nn.GRU, 3)])
def test_recurrent_layers_as_cudnn_runs_them(cell, gates: int) -> None:
    steps, inside, hidden = 7, 6, 10
    kernels = recorded(cell(inside, hidden, batch_first=True), (steps, inside))
    of_input = 2.0 * inside * gates * hidden
    of_state = 2.0 * hidden * gates * hidden
    rows = kernels[kernels["kind"] == "gemm"].groupby(["backward", "inner", "channels", "flops"])["calls"].sum()
    assert rows.to_dict() == {
        (False, gates * hidden, inside, steps * of_input): 1,
        (False, gates * hidden, hidden, of_state): steps,
        # Backward: gradients of the input and of its weight at once, of the state step by step, of its weight at once.
        (True, gates * hidden, inside, steps * of_input): 2,
        (True, gates * hidden, hidden, of_state): steps,
        (True, gates * hidden, hidden, steps * of_state): 1,
    }
    per_step = kernels[(kernels["calls"] == steps) & (kernels["kind"] == "gemm")]
    assert (per_step["fixed_bytes"] == 4.0 * hidden * gates * hidden).all()  # the weight is read at every step


def test_a_second_direction_or_layer_of_a_recurrent_layer_doubles_its_products() -> None:
    steps, width = 5, 8
    plain, both, deep = (
        total(one_pass(recorded(nn.LSTM(width, width, batch_first=True, **k), (steps, width)), "gemm", False))
        for k in ({}, {"bidirectional": True}, {"num_layers": 2})
    )
    assert both["flops"] == deep["flops"] == 2 * plain["flops"]
    assert both["calls"] == deep["calls"] == 2 * plain["calls"] == 2 * (steps + 1)


def test_evaluation_mode_records_no_backward_pass() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(), nn.Flatten(), nn.Linear(8 * 36, 4))
    kernels = recorded(net, (3, 8, 8), train=False)
    assert not kernels["backward"].any()
    assert "random" not in set(kernels["kind"])
    inference = TrainingJob(net, (3, 8, 8), mode="inference").graph.kernels
    pd.testing.assert_frame_equal(inference.astype(kernels.dtypes), kernels)
    assert TrainingJob(net, (3, 8, 8)).graph.kernels["backward"].any()


def test_frozen_parameters_have_no_gradients() -> None:
    frozen = nn.Linear(8, 8, bias=False).requires_grad_(False)
    last = nn.Linear(8, 8, bias=False)
    flops = [total(one_pass(recorded(net, (3, 8)), "gemm", True))["flops"] for net in
             (nn.Sequential(frozen, last), nn.Sequential(last, frozen))]  # fmt: skip
    # Before what is trained, nothing; after it, the gradient of the input.
    assert flops == [2.0 * 3 * 64, 2 * 2.0 * 3 * 64]
    assert not recorded(frozen, (3, 8))["backward"].any()


def test_recording_leaves_global_state_and_the_module_alone() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.LSTM(8, 8, batch_first=True)).eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    torch.manual_seed(0)
    random.seed(0)
    state = (torch.get_rng_state(), random.getstate())
    with torch.no_grad():
        OpGraph.from_torch(net[:3].eval(), (8,), train=True)
        assert not torch.is_grad_enabled()
    OpGraph.from_torch(net, (8, 8), train=False)
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cuda")
    assert torch.equal(torch.get_rng_state(), state[0])
    assert random.getstate() == state[1]
    assert not any(part.training for part in net.modules())
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_a_failed_trace_leaves_the_autocast_flag_alone() -> None:
    with pytest.raises(ValueError, match="forward pass"):
        OpGraph.from_torch(nn.Linear(3, 4), (5,))
    assert not torch.is_autocast_enabled("cuda")
    assert torch.is_grad_enabled()


#: Largest ratio, either way, of derived to recorded amounts of kinds that dominate a step. Derived, the first
#: convolution has a gradient of its input, each element-wise operator the same number of products backward, and causal
#: attention both halves of its products.
_FACTORS = {
    "gemm": 1.02, "attention": 2.02, "batch_norm": 1.05, "layer_norm": 1.05, "pointwise": 1.4, "conv_1x1": 1.4,
    "conv_3x3": 1.6, "conv_depthwise": 1.4,
}  # fmt: skip


def by_kind(graph: OpGraph) -> pd.DataFrame:
    kernels = step_kernels(graph)
    kernels = kernels[~kernels["is_autocast"].astype(bool)]
    keys = [kernels["kind"].astype(object), kernels["backward"].astype(bool)]
    return kernels[["flops", "bytes"]].mul(kernels["calls"], axis=0).groupby(keys).sum().astype(float)


@pytest.mark.parametrize(
    "name",
    slow_beside(["vgg11", "convnext_tiny", "gpt"], ["vgg11", "mobilenet_v2", "convnext_tiny", "vit_tiny", "gpt"]),
)
def test_derived_kernels_agree_with_recorded_ones(name: str) -> None:
    shape = {"image": (3, 64, 64), "tokens": (32,)}[zoo.kind(name)]
    # Of few convolutions, the first is a larger part.
    depth = 1.0 if name == "vgg11" else 0.5
    with torch.device("meta"):
        graph = OpGraph.from_torch(zoo.build(name, "torch", shape, width=0.5, depth=depth), shape)
    found, derived = by_kind(graph), by_kind(replace(graph, kernels=None))
    large = found[found["bytes"] > 0.05 * found["bytes"].sum()].index
    large = large[large.get_level_values(0).isin(list(_FACTORS))]
    assert len(large) >= 4
    for amount in ("flops", "bytes"):
        for kind, backward in large[found.loc[large, amount] > 0]:
            ratio = derived.loc[(kind, backward), amount] / found.loc[(kind, backward), amount]
            assert 1 / _FACTORS[kind] <= ratio <= _FACTORS[kind], (amount, kind, backward, ratio)
    assert derived["flops"].sum() == pytest.approx(found["flops"].sum(), rel=0.05)


@pytest.mark.parametrize(
    ("name", "factor"), slow_where(lambda case: case[0] == "gpt", [("resnet18", 1.15), ("gpt", 1.15), ("lstm", 1.02)])
)
def test_a_network_of_keras_takes_the_work_of_its_twin_in_torch(name: str, factor: float) -> None:
    pytest.importorskip("tensorflow")
    shape = {"image": (3, 32, 32), "tokens": (32,)}[zoo.kind(name)]
    module, model = (zoo.build(name, framework, shape, width=0.25, depth=0.5) for framework in ("torch", "keras"))
    torch_work, keras_work = by_kind(OpGraph.from_torch(module, shape)), by_kind(OpGraph.from_keras(model))
    assert 1 / factor <= keras_work["flops"].sum() / torch_work["flops"].sum() <= factor
    products = [kind for kind in torch_work.index if kind[0] in ("gemm", "conv_1x1", "conv_3x3")]
    for kind in products:
        ratio = keras_work.loc[kind, "flops"] / torch_work.loc[kind, "flops"]
        assert ratio == pytest.approx(1.0, rel=0.05) or torch_work.loc[kind, "flops"] < 0.02 * torch_work["flops"].sum()
