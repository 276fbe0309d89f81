"""Simulated memory against the memory that PyTorch allocates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.cost import OpGraph
from gpudemand.cost.liveness import PARTS, Setting, checkpoint_blocks, step_events
from gpudemand.cost.memory import (
    CachingAllocator,
    allocated_bytes,
    interpolated_features,
    memory_breakdown,
    memory_features,
    memory_summary,
    replay,
    simulate_memory,
)
from gpudemand.cost.memory_model import MemoryModel, largest_that, max_batch_size
from gpudemand.cost.step_time_model import FarFromTrainingWarning
from gpudemand.datasets.registry import data_folder
from tests.tiers import slow_where

torch = pytest.importorskip("torch")
zoo = pytest.importorskip("benchmarks.zoo", reason="runs from a checkout")
meter = pytest.importorskip("benchmarks.measure.meter", reason="runs from a checkout")
MIB = 2**20
IMAGE = (3, 32, 32)
#: Operators of PyTorch that ask for memory.
_ASKING = ("aten::empty", "aten::resize")


def _module(name: str):
    torch.manual_seed(0)
    if name == "gpt":
        return zoo.build("gpt", "torch", (32,), 10, vocabulary=200, depth=0.5, width=0.5), (32,)
    depth = 0.5 if name in ("densenet121", "shufflenet_v2", "vit_tiny") else 1.0
    return zoo.build(name, "torch", IMAGE, 10, width=0.5, depth=depth), IMAGE


def _measured_peak(module, shape, batch: int, optimizer: str) -> int:
    """Bytes beyond the weights and the batch, at the peak of the second step, without scratch memory of oneDNN.

    The latter depends on the processor: of VGG-11, 13 % on AVX2, and little on AVX-512.
    """
    weights = list(module.parameters())
    update = torch.optim.Adam(weights) if optimizer == "adam" else torch.optim.SGD(weights, 0.01)
    tokens = len(shape) == 1
    x = torch.randint(200, (batch, *shape)) if tokens else torch.randn(batch, *shape)
    y = torch.randint(10, (batch * (shape[0] if tokens else 1),))

    def step() -> None:
        outputs = module(x)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        losses = [torch.nn.functional.cross_entropy(logits.reshape(len(y), -1), y) for logits in outputs]
        torch.stack(losses).sum().backward()
        update.step()
        update.zero_grad(set_to_none=True)

    step()
    activity = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity], profile_memory=True) as profile:
        step()
    events = sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    memory = [event for event in events if event.name() == "[memory]"]
    changes = np.array([event.nbytes() for event in memory])
    held = np.cumsum(changes)
    # What a kernel frees at once, and no operator of PyTorch asked for.
    scratch = (changes > 0) & np.append(changes[:-1] == -changes[1:], False)
    begin, end = np.array([_span(event) for event in events if event.name().startswith(_ASKING)]).T
    last = np.searchsorted(begin, times := np.array([event.start_ns() for event in memory]), side="right") - 1
    asked = (last >= 0) & (times <= end[last])
    states = [value for state in update.state.values() for value in state.values() if torch.is_tensor(value)]
    state_bytes = sum(value.numel() * value.element_size() for value in states)
    return int(np.where(scratch & ~asked, 0, held).max()) + state_bytes


def _span(event) -> tuple[int, int]:
    return event.start_ns(), event.start_ns() + event.duration_ns()


@pytest.mark.parametrize(
    ("name", "optimizer", "within"),
    slow_where(
        lambda case: case[0] in ("densenet121", "mobilenet_v2", "shufflenet_v2", "squeezenet", "vit_tiny"),
        [
            ("resnet18", "sgd", 0.02),
            ("densenet121", "adam", 0.02),
            ("mobilenet_v2", "adam", 0.02),
            ("shufflenet_v2", "sgd", 0.05),
            ("vit_tiny", "sgd", 0.01),
            ("vgg11", "adam", 0.02),
            ("squeezenet", "sgd", 0.05),
            ("gpt", "sgd", 0.02),
        ],
    ),
)
def test_simulated_peak_is_that_of_torch(name: str, optimizer: str, within: float) -> None:
    module, shape = _module(name)
    graph = OpGraph.from_torch(module, shape)
    found = simulate_memory(graph, 16, Setting(optimizer, device="cpu"))
    simulated = found.allocated - found.parts["parameters"] - found.parts["input"]
    assert simulated == pytest.approx(_measured_peak(module, shape, 16, optimizer), rel=within)


def _step_peak(module, passes: int, reducer=None) -> int:
    """Bytes at the peak of a step, from before the gradients, in which a module of parameters takes 64 samples.

    Of three the last, as a reducer builds its buckets anew in the first two, when the old ones may still be there.
    """
    update, called = torch.optim.SGD(module.parameters(), 0.01), module
    activity = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity], profile_memory=True) as profile:
        called = reducer(module) if reducer else module
        for _ in range(3):
            for _ in range(passes):
                torch.nn.functional.cross_entropy(called(torch.randn(64, 256)), torch.zeros(64).long()).backward()
            update.step()
            update.zero_grad(set_to_none=True)
    events = sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    changes = [event.nbytes() for event in events if event.name() == "[memory]"]
    return int(np.cumsum(changes)[-(len(changes) // 3) :].max())


@pytest.mark.parametrize("passes", [1, 2, 3])
@pytest.mark.parametrize("reduced", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_gradients_that_passes_and_buckets_hold_are_those_of_torch(passes: int, reduced: bool) -> None:
    net = torch.nn.Sequential(*[torch.nn.Linear(256, 256, bias=False) for _ in range(24)])
    graph = OpGraph.from_torch(net, (256,))
    if reduced:
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        # On a busy machine gloo's threads are sometimes late, and hold a copy of the gradients for longer.
        reducer = torch.nn.parallel.DistributedDataParallel if reduced else None
        peak = min(_step_peak(net, passes, reducer) for _ in range(8 if reduced else 1))
    finally:
        if reduced:
            torch.distributed.destroy_process_group()
    buckets = graph.parameter_bytes if reduced else 0.0
    found = simulate_memory(graph, 64, Setting(device="cpu", accumulate=passes, buckets=buckets))
    assert found.allocated - found.parts["parameters"] == pytest.approx(peak, rel=0.03)


class _Auxiliary(torch.nn.Module):
    """An auxiliary head on early features, as in PSPNet (Zhao et al., CVPR 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.late = torch.nn.Linear(96, 512), torch.nn.Linear(512, 256)
        self.head, self.auxiliary = torch.nn.Linear(256, 10), torch.nn.Linear(512, 10)

    def forward(self, x):
        early = self.early(x.flatten(2).transpose(1, 2)).relu()
        return self.head(self.late(early).relu().mean(1)), self.auxiliary(early.mean(1))


def test_every_output_has_a_loss() -> None:
    """The last operator belongs to the auxiliary head; the other one is trained, too."""
    torch.manual_seed(0)
    module, shape = _Auxiliary(), (96, 32)
    found = simulate_memory(OpGraph.from_torch(module, shape), 16, Setting(device="cpu"))
    simulated = found.allocated - found.parts["parameters"] - found.parts["input"]
    assert simulated == pytest.approx(_measured_peak(module, shape, 16, "sgd"), rel=0.06)


def _measured_inference_peak(module, x) -> int:
    """Bytes beyond the weights and the batch at the peak of a forward pass without gradients."""
    activity = torch.profiler.ProfilerActivity.CPU
    with torch.no_grad(), torch.profiler.profile(activities=[activity], profile_memory=True) as profile:
        module.eval()(x)
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    return int(np.cumsum([e.nbytes() for e in sorted(events, key=lambda event: event.start_ns())]).max())


@pytest.mark.parametrize(
    ("name", "within"),
    slow_where(
        lambda case: case[0] in ("densenet121", "mobilenet_v2", "vit_tiny"),
        [("resnet18", 0.01), ("vit_tiny", 0.01), ("densenet121", 0.15), ("mobilenet_v2", 0.01), ("gpt", 0.01)],
    ),
)
def test_simulated_peak_of_inference_is_that_of_torch(name: str, within: float) -> None:
    module, shape = _module(name)
    found = simulate_memory(
        OpGraph.from_torch(module, shape, train=False), 16, Setting("adam", device="cpu", inference=True)
    )
    x = torch.randint(200, (16, *shape)) if name == "gpt" else torch.randn(16, *shape)
    simulated = found.allocated - found.parts["parameters"] - found.parts["input"]
    assert simulated == pytest.approx(_measured_inference_peak(module, x), rel=within)
    assert found.parts["optimizer_state"] == found.parts["gradients"] == 0


class _Nested(torch.nn.Module):
    """A wide input that is read once, by the first of the modules within the one that is called."""

    def __init__(self) -> None:
        super().__init__()
        layers = [torch.nn.Linear(512, 64), torch.nn.Linear(64, 256), torch.nn.Linear(256, 8)]
        self.wide, self.inner = torch.nn.Linear(16, 512), torch.nn.Sequential(*layers)

    def forward(self, x):
        return self.inner(self.wide(x))


def test_what_a_module_was_given_lives_until_it_returns() -> None:
    graph, setting = OpGraph.from_torch(_Nested(), (16,)), Setting(device="cpu", inference=True)
    found = simulate_memory(graph, 128, setting)
    simulated = found.allocated - found.parts["parameters"] - found.parts["input"]
    assert simulated == pytest.approx(128 * 4 * (512 + 64 + 256), rel=0.002)
    assert simulated == pytest.approx(_measured_inference_peak(_Nested(), torch.randn(128, 16)), rel=0.01)


class _Listed(torch.nn.Module):
    """Two branches that are concatenated, and read by a layer of the same module."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.last = (torch.nn.Linear(width, 256) for width in (16, 16, 512))

    def forward(self, x):
        branches = [self.left(x), self.right(x)]
        return self.last(torch.cat(branches, 1))


def test_a_list_of_tensors_lives_until_its_call_returns() -> None:
    module = torch.nn.Sequential(_Listed(), torch.nn.Linear(256, 4))
    found = simulate_memory(OpGraph.from_torch(module, (16,)), 128, Setting(device="cpu", inference=True))
    simulated = found.allocated - found.parts["parameters"] - found.parts["input"]
    assert simulated == pytest.approx(128 * 4 * (2 * 256 + 512 + 256), rel=0.002)
    assert simulated == pytest.approx(_measured_inference_peak(module, torch.randn(128, 16)), rel=0.01)


#: Of cuBLAS, in GiB: two workspaces on Hopper.
_CUBLAS_GIB = 0.07


@pytest.mark.parametrize(
    ("network", "batch", "precision"),
    slow_where(
        lambda case: case[0] not in ("gpt", "lstm", "resnext29"),
        [
            ("gpt", 638, "fp32"),
            ("lstm", 293, "fp32"),
            ("resnext29", 137, "fp32"),
            ("shufflenet_v2", 312, "fp32"),
            ("densenet121", 1000, "tf32"),
            ("vit_small", 138, "tf32"),
            ("preact_resnet18", 922, "bf16"),
            ("resnext29", 189, "bf16"),
        ],
    ),
)
def test_simulated_peak_is_that_measured_on_a_gpu(network: str, batch: int, precision: str) -> None:
    rows = pd.read_csv(data_folder() / "cost" / "h200" / "networks.csv").query("status == 'ok'")
    row = rows[rows[["network", "batch_size", "precision"]].eq([network, batch, precision]).all(axis=1)].iloc[0]
    job = meter.configuration_from_row(row[list(meter.PLAN_COLUMNS)].to_dict())
    graph = OpGraph.from_torch(job.build(zoo), job.input_shape)
    found = simulate_memory(graph, batch, Setting(job.optimizer, precision == "bf16"))
    assert found.allocated / 2**30 + _CUBLAS_GIB == pytest.approx(row["allocated_gib"], rel=0.02)


class _Dropped(torch.nn.Module):
    """Attention that drops weights in training."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.inputs, self.share = torch.nn.Linear(64, 192), share

    def forward(self, x):
        parts = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.inputs(x).chunk(3, -1))
        out = torch.nn.functional.scaled_dot_product_attention(*parts, dropout_p=self.share if self.training else 0.0)
        return out.transpose(1, 2).contiguous().flatten(2)


def test_attention_with_dropout_is_one_kernel() -> None:
    """On a GPU: neither its weights are saved, nor is its result copied."""
    plain, dropped = (OpGraph.from_torch(_Dropped(share), (32, 64), train=True) for share in (0.0, 0.1))
    assert list(dropped.nodes["type"]) == list(plain.nodes["type"]) == ["Gemm", "Attention"]
    assert simulate_memory(dropped, 64) == simulate_memory(plain, 64)


def test_logits_of_mixed_precision_have_a_loss_in_single() -> None:
    """Of bf16 logits the log-softmax and its gradient take twice as much as they."""
    graph = OpGraph.from_torch(torch.nn.Linear(8, 50_000), (8,))
    with_loss, without = (
        simulate_memory(graph, 512, Setting(mixed_precision=True, loss=loss)).allocated for loss in (True, False)
    )
    logits = 2.0 * 512 * 50_000
    assert with_loss - without == pytest.approx(4 * logits, rel=0.01)


def test_only_optimizers_with_roots_need_scratch_memory() -> None:
    scratch = {name: Setting(name).optimizer_workspace([4.0, 8.0]) for name in ("sgd", "momentum", "adam", "adamw")}
    assert scratch == {"sgd": 0.0, "momentum": 0.0, "adam": 12.0, "adamw": 12.0}


class _Generated(torch.nn.Module):
    """Standardized weights, a learned query for each sample, and attention with a positional bias from a table."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 4, 4)
        self.query, self.table = (torch.nn.Parameter(torch.randn(*shape)) for shape in ((1, 8, 16), (16, 15)))
        self.register_buffer("index", torch.arange(8)[:, None] - torch.arange(8) + 7)

    def forward(self, x):
        weight = (self.conv.weight - self.conv.weight.mean((1, 2, 3), keepdim=True)) / 16.0
        x = torch.nn.functional.conv2d(x, weight, self.conv.bias, 4).flatten(2).transpose(1, 2)
        x = x + self.query.repeat(len(x), 8, 1)
        scores = x.unflatten(1, (8, 8)) @ x.unflatten(1, (8, 8)).transpose(2, 3) * self.table[:8, self.index].exp()
        return (scores.softmax(-1) @ x.unflatten(1, (8, 8))).mean((1, 2))


@pytest.mark.parametrize("batch", [3, 8])
def test_memory_is_that_recorded_at_each_batch_size(batch: int) -> None:
    """What is computed from parameters alone takes as much at any batch size, unless it is repeated for each sample."""
    module = _Generated()
    small, large = OpGraph.from_torch(module, (3, 32, 32)), OpGraph.from_torch(module, torch.randn(batch, 3, 32, 32))
    amounts = [name for name in small.nodes if "bytes" in name or "flops" in name]
    pd.testing.assert_frame_equal(small.nodes[amounts], large.nodes[amounts])
    assert small.nodes["fixed_bytes_written"].gt(0).sum() == 5  # of the weights three operators, of the bias two
    assert (small.nodes["bytes_written"].gt(0) | small.nodes["fixed_bytes_written"].gt(0)).all()


class _Biased(torch.nn.Module):
    """Fused attention with a learned bias of its scores."""

    def __init__(self) -> None:
        super().__init__()
        self.bias, self.inner = torch.nn.Parameter(torch.zeros(1, 4, 64, 64)), torch.nn.Linear(32, 32)

    def forward(self, x):
        heads = self.inner(x).unflatten(-1, (4, 8)).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=self.bias * 2.0)


def test_attention_with_a_learned_bias_saves_no_scores() -> None:
    nodes = OpGraph.from_torch(_Biased(), (64, 32)).nodes.set_index("type")
    assert nodes.loc["Attention", "saved_bytes"] < 4 * 64 * 64 * 4  # scores of four heads
    assert nodes.loc["Attention", "fixed_saved_bytes"] == 4 * 64 * 64 * 4


@pytest.fixture(scope="module")
def resnet() -> OpGraph:
    with torch.device("meta"):
        return OpGraph.from_torch(zoo.build("resnet18", "torch", (3, 64, 64), 10), (3, 64, 64))


def test_all_tensors_of_a_step_are_freed(resnet: OpGraph) -> None:
    for setting in (
        Setting("adam"),
        Setting(mixed_precision=True),
        Setting(checkpointing=True),
        Setting("adam", mixed_precision=True, inference=True),
    ):
        events = step_events(resnet, setting)
        alive = np.bincount(events.tensor, events.sign, minlength=events.fixed.size)
        assert alive.min() == 0
        assert alive.max() == 1
        remaining = {PARTS[part] for part in events.part[alive == 1]}
        assert remaining <= {"parameters", "optimizer_state", "input"}
        assert (events.allocated(8) >= 0).all()


def test_memory_grows_with_the_batch(resnet: OpGraph) -> None:
    allocated = allocated_bytes(step_events(resnet), [1, 2, 4, 8, 16, 64])
    assert (np.diff(allocated) > 0).all()
    table = memory_features(resnet, [1, 2, 3, 5, 8, 16, 17, 64])
    assert all(table[name].is_monotonic_increasing for name in table.columns if not name.startswith("part:"))
    assert (table["segments"] >= table["allocated"]).all()
    assert (table["allocated"] >= table["resident"]).all()


def test_mixed_precision_and_checkpointing_save_memory(resnet: OpGraph) -> None:
    plain = simulate_memory(resnet, 512).allocated
    assert simulate_memory(resnet, 512, Setting(mixed_precision=True)).allocated < 0.65 * plain
    assert simulate_memory(resnet, 512, Setting(checkpointing=True)).allocated < 0.75 * plain
    weights = 4.0 * resnet.n_parameters
    adam = simulate_memory(resnet, 64, Setting("adam"))
    assert adam.parts["optimizer_state"] == pytest.approx(2 * weights, rel=0.001)
    with pytest.raises(InputError, match="Did you mean 'adam'"):
        simulate_memory(resnet, 64, Setting("adm"))


def test_in_place_layers_allocate_no_tensor() -> None:
    def net(inplace: bool):
        layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(inplace), torch.nn.Flatten()]
        return torch.nn.Sequential(*layers, torch.nn.Linear(8 * 900, 2))

    copied, in_place = (step_events(OpGraph.from_torch(net(flag), IMAGE)) for flag in (False, True))
    activations = [(events.part == PARTS.index("activations")).sum() for events in (copied, in_place)]
    assert activations[1] == activations[0] - 1


def chain(names: list[str]) -> list[int]:
    """Blocks of operators of which each reads the one before."""
    return checkpoint_blocks(names, [[place - 1] if place else [] for place in range(len(names))])


def test_checkpoint_blocks_without_modules_are_equal_pieces() -> None:
    assert chain([""] * 9) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert chain([]) == []


def test_checkpoint_blocks_are_the_innermost_modules_of_a_stack() -> None:
    stages = [f"stages.{stage}.blocks.{block}" for stage in range(2) for block in range(2) for _ in range(5)]
    assert chain(["stem", *stages, "head"]) == [-1, *np.repeat(range(4), 5), -1]


@pytest.mark.parametrize("inner", ["heads", "projections"])
def test_parts_of_a_block_that_stand_side_by_side_are_no_checkpoint_blocks(inner: str) -> None:
    names, producers = [], list[list[int]]()
    for block in range(2):
        start = len(names)
        names += [f"layers.{block}", *np.repeat([f"layers.{block}.{inner}.{part}" for part in range(3)], 4)]
        producers += [
            [start - 1] * (block > 0),
            *([start] if place % 4 == 0 else [start + place] for place in range(12)),
        ]
        names.append(f"layers.{block}")
        producers.append([start + 4, start + 8, start + 12])
    assert checkpoint_blocks(names, producers) == [0] * 14 + [1] * 14


def test_layers_of_a_perceptron_within_a_block_are_no_checkpoint_blocks() -> None:
    block = [*["attention"] * 12, *["mlp.0"] * 4, *["mlp.1"] * 4]
    assert chain([f"layers.{number}.{part}" for number in range(2) for part in block]) == [0] * 20 + [1] * 20


def test_checkpointed_adapters_save_as_much_as_the_layers_that_they_are_in() -> None:
    class Adapted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = torch.nn.Linear(256, 256).requires_grad_(False)
            self.down, self.up = torch.nn.Linear(256, 4), torch.nn.Linear(4, 256)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + 2.0 * self.up(self.down(x))

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inputs = torch.nn.ModuleList(Adapted() for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query, key, value = (part(x) for part in self.inputs)
            return x + torch.softmax(query @ key.transpose(-1, -2), -1) @ value

    graph = OpGraph.from_torch(torch.nn.Sequential(*(Block() for _ in range(8))), (512, 256))
    whole, again = (simulate_memory(graph, 8, Setting(checkpointing=flag)).allocated for flag in (False, True))
    assert again < 0.5 * whole


def test_autocast_copies_what_softmax_reads_to_single_precision() -> None:
    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 1, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            key = self.first(x)
            return self.last(torch.softmax(key @ key.transpose(-1, -2), -1) @ key)

    batch, scores = 4, 4.0 * 4 * 1024**2
    peak = simulate_memory(OpGraph.from_torch(Scores(), (1024, 64)), batch, Setting(mixed_precision=True)).allocated
    # In the backward pass: the output of softmax, the gradients of it and of its input, and of this in half precision.
    assert peak == pytest.approx(3.5 * scores, rel=0.15)


# The caching allocator as documented by PyTorch.
@pytest.mark.parametrize(
    ("sizes", "reserved"),
    [
        ([1], 2),  # a small block comes from a segment of 2 MiB
        ([MIB], 2),
        ([MIB, MIB], 2),
        ([MIB + 1], 20),  # a large one, of 20 MiB
        ([3 * MIB] * 6, 20),
        ([3 * MIB] * 7, 40),
        ([10 * MIB], 10),  # from 10 MiB on, a segment of its own
        ([11 * MIB + 1], 12),
    ],
)
def test_segment_sizes(sizes: list[int], reserved: int) -> None:
    pool = CachingAllocator()
    for size in sizes:
        pool.malloc(size)
    assert pool.reserved == reserved * MIB


def test_blocks_are_cached_split_and_merged() -> None:
    pool = CachingAllocator()
    first, second = pool.malloc(40 * MIB), pool.malloc(600)
    pool.free(first)
    assert pool.reserved == 42 * MIB
    assert pool.allocated == 1024
    parts = [pool.malloc(10 * MIB) for _ in range(4)]
    assert pool.reserved == 42 * MIB
    for part in parts:
        pool.free(part)
    whole = pool.malloc(40 * MIB)  # the pieces are one block again
    assert pool.reserved == 42 * MIB
    pool.free(whole)
    pool.malloc(39 * MIB + 1)  # too little would be left to split
    assert pool.allocated == 40 * MIB + 1024
    pool.free(second)


def test_allocator_returns_to_empty() -> None:
    generator = np.random.default_rng(0)
    order = generator.permutation(300)
    sizes = 10.0 ** generator.uniform(2, 7.5, 300)
    tensors, signs = np.concatenate([np.arange(300), order]), np.repeat([1, -1], 300)
    pool = replay(tensors, signs, sizes)
    assert pool.allocated == 0
    assert pool.peak_allocated <= pool.reserved
    again = replay(tensors, signs, sizes, pool)
    assert again.reserved == pool.reserved


@pytest.fixture(scope="module")
def fitted(resnet: OpGraph) -> tuple[MemoryModel, pd.DataFrame, np.ndarray]:
    """A model of a make-believe GPU: 1.5 GiB for the driver, 10 % more than the segments."""
    tables = [memory_features(resnet, range(4, 260, 12), Setting(optimizer)) for optimizer in ("sgd", "adam")]
    table = pd.concat(tables, ignore_index=True)
    noise = np.random.default_rng(0).normal(0, 0.02, len(table))
    y = (1.5 + 1.1 * table["segments"].to_numpy() / 2**30) * np.exp(noise)
    return MemoryModel().fit(table, y, np.arange(len(y)) % 8), table, y


def test_model_predicts_and_covers(fitted) -> None:
    model, table, y = fitted
    assert np.abs(model.predict(table) / y - 1).max() < 0.08
    low, high = model.predict_interval(table).T
    assert ((y >= low) & (y <= high)).mean() >= 0.8
    chance = model.probability_below(table, y * 2)
    assert (chance > 0.9).all()
    assert (model.probability_below(table, y / 2) < 0.1).all()


def test_model_is_told_when_jobs_are_far_away(fitted) -> None:
    model, table, _ = fitted
    far = table.tail(1).assign(**{name: table[name].max() * 100 for name in ("segments", "allocated", "batch_size")})
    near = model.predict_interval(table.tail(1))[0]
    with pytest.warns(FarFromTrainingWarning):
        low, high = model.predict_interval(far)[0]
    assert high / low > near[1] / near[0]


def test_model_survives_being_stored(fitted, tmp_path) -> None:
    model, table, _ = fitted
    np.savez(tmp_path / "memory.npz", **model.to_arrays())
    with np.load(tmp_path / "memory.npz", allow_pickle=False) as arrays:
        again = MemoryModel.from_arrays(arrays)
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    np.testing.assert_array_equal(again.predict_interval(table), model.predict_interval(table))


def test_model_ignores_runs_that_broke_off(fitted) -> None:
    model, table, y = fitted
    broken = y.copy()
    broken[::9] *= 0.1
    other = MemoryModel().fit(table, broken, np.arange(len(y)) % 8)
    assert np.median(np.abs(other.predict(table) / model.predict(table) - 1)) < 0.03


def test_model_refuses_what_it_cannot_use(fitted) -> None:
    _, table, y = fitted
    with pytest.raises(InputError, match="lacks the column"):
        MemoryModel().fit(table.drop(columns="segments"), y)
    with pytest.raises(InputError, match="no amount of memory"):
        MemoryModel().fit(table, -y)
    with pytest.raises(InputError, match="single group"):
        MemoryModel().fit(table, y, np.zeros(len(y)))


def test_largest_batch_is_the_last_that_fits(fitted, resnet: OpGraph) -> None:
    model = fitted[0]
    best = max_batch_size(model, resnet, 3.0)
    chance = model.probability_below(interpolated_features(resnet, [best, best + 1]), 3.0)
    assert best > 8
    assert chance[0] >= 0.95 > chance[1]
    assert max_batch_size(model, resnet, 0.1) == 0
    assert max_batch_size(model, resnet, 6.0) > best


def test_no_setting_is_the_default_one(fitted, resnet: OpGraph) -> None:
    assert simulate_memory(resnet, 8, None) == simulate_memory(resnet, 8, Setting())
    assert memory_breakdown(resnet, 8, None).device_gib == memory_breakdown(resnet, 8).device_gib
    assert max_batch_size(fitted[0], resnet, 3.0, None) == max_batch_size(fitted[0], resnet, 3.0)


def test_largest_number_by_bisection() -> None:
    for limit in (0, 1, 2, 3, 63, 64, 65, 1000):
        for guess in (1, 5, 64, 5000):
            assert largest_that(lambda n, limit=limit: n <= limit, guess) == limit


def test_breakdown_adds_up(resnet: OpGraph) -> None:
    table = memory_breakdown(resnet, 64, Setting("adam"), context_gib=0.7)
    parts = table.to_frame().set_index("part")["gib"]
    assert parts.sum() == pytest.approx(table.device_gib)
    assert parts["context"] == 0.7
    assert parts["activations"] > parts["gradients"] > 0
    assert "optimizer state" in repr(table)
    assert "<table" in table._repr_html_()
    assert memory_breakdown(resnet, 64, Setting(mixed_precision=True)).allocated_gib < table.allocated_gib
    inference = memory_breakdown(resnet, 64, Setting("adam", inference=True))
    assert "inference, fp32" in repr(inference)
    assert inference.to_frame().set_index("part")["gib"][["gradients", "optimizer state"]].sum() == 0
    assert inference.allocated_gib < 0.5 * table.allocated_gib


def test_memory_between_simulated_batch_sizes_is_interpolated(resnet):
    batches = [1, 4, 5, 37, 48, 200]
    exact, between = memory_features(resnet, batches), interpolated_features(resnet, batches)
    assert list(between.columns) == list(exact.columns)
    assert between.iloc[[0, 1, 4]].equals(exact.iloc[[0, 1, 4]])  # these are simulated
    assert np.allclose(between["allocated"], exact["allocated"], rtol=0.01)
    assert np.allclose(between["segments"], exact["segments"], rtol=0.05)
    assert between["resident"].equals(exact["resident"])


def test_summary_equals_the_simulation_at_its_batch_sizes(resnet):
    summary = memory_summary(resnet)
    assert summary["allocated_16"] == simulate_memory(resnet, 16, Setting(device="cpu")).allocated
    assert summary["workspace_columns"] > 0
