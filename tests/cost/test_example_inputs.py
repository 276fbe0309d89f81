"""Example tensors of which not all have the batch as their first axis: edges, matrices, tables of indices."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from gpudemand.cost.graph import IncompleteTraceWarning, OpGraph  # noqa: E402
from gpudemand.cost.memory import memory_breakdown, resident_bytes  # noqa: E402

FIXED = pytest.mark.filterwarnings("ignore:.*not grow with the batch")


class Messages(nn.Module):
    """Messages along the edges of a graph, which are of a fixed number."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes, self.edges = nn.Linear(16, 32), nn.Linear(64, 32)

    def forward(self, x, ends):
        h = self.nodes(x)
        return torch.zeros_like(h).index_add_(0, ends[1], self.edges(torch.cat([h[ends[0]], h[ends[1]]], -1)))


class Mixing(nn.Module):
    """A convolution on a graph whose adjacency is an input, the same for all samples."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 8)

    def forward(self, adjacency, x):
        return torch.relu(adjacency @ self.fc(x))


class Tables(nn.Module):
    """Dense features and one row of each of several tables, whose indices are tables by samples."""

    def __init__(self, n_tables: int = 4) -> None:
        super().__init__()
        self.tables, self.fc = nn.ModuleList(nn.Embedding(100, 8) for _ in range(n_tables)), nn.Linear(13, 8)

    def forward(self, dense, indices):
        found = [table(rows) for table, rows in zip(self.tables, indices, strict=True)]
        return torch.stack([self.fc(dense), *found]).prod(0)


def edges_of(n_nodes: int, n_edges: int = 80) -> dict[str, torch.Tensor]:
    return {"x": torch.zeros(n_nodes, 16), "ends": torch.zeros(2, n_edges, dtype=torch.long)}


def memory_of_batch(graph: OpGraph, batch: int) -> float:
    parts = memory_breakdown(graph, batch).to_frame().set_index("part")
    return float(parts.loc["the batch", "gib"]) * 2**30


def amounts(graph: OpGraph) -> list[float]:
    columns = ("flops", "fixed_flops", "saved_bytes", "fixed_saved_bytes", "bytes_read", "fixed_bytes_read")
    return [float(graph.nodes[column].sum()) for column in columns]


@FIXED
@pytest.mark.parametrize("n_nodes", [20, 200])
def test_the_edges_of_an_example_graph_are_as_many_whatever_its_nodes(n_nodes: int) -> None:
    graph = OpGraph.from_torch(Messages(), list(edges_of(n_nodes).values()))
    assert (graph.flops, graph.nodes["fixed_flops"].sum()) == (2 * 16 * 32, 80 * 2 * 64 * 32)
    assert graph.error_scale == 1


@FIXED
@pytest.mark.parametrize("batch", [20, 2000])
def test_the_edges_of_an_example_graph_are_resident_once(batch: int) -> None:
    graph = OpGraph.from_torch(Messages(), edges_of(20, 1000))
    assert (graph.input_shapes, graph.fixed_input_bytes) == (((16,),), 16e3)
    assert memory_of_batch(graph, batch) == batch * 16 * 8 + 16e3
    least = resident_bytes(graph, [batch]) - resident_bytes(replace(graph, fixed_input_bytes=0.0), [batch])
    assert least == pytest.approx(16e3)


def test_an_example_input_without_the_batch_is_said() -> None:
    with pytest.warns(IncompleteTraceWarning, match=r"input of shape \(2, 80\) does not grow .* 20 samples"):
        graph = OpGraph.from_torch(Messages(), edges_of(20))
    assert graph.error_scale == 1


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_number_that_is_an_input_is_not_said_to_be_as_large_for_every_batch(shape, is_first: bool) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(16, 8)

        def forward(self, x, scale):
            return self.fc(x) * scale

    items = {"x": torch.zeros(4, 16), "scale": torch.ones(shape)}
    graph = OpGraph.from_torch(Scaled(), dict([*items.items()][::-1] if is_first else items))
    assert (graph.input_shapes, graph.flops) == (((16,),), 2 * 16 * 8)


@FIXED
@pytest.mark.parametrize("n_edges", [80, 8])
def test_the_order_of_named_examples_does_not_matter(n_edges: int) -> None:
    inputs = edges_of(20, n_edges)
    first, second = (OpGraph.from_torch(Messages(), dict(items)) for items in (inputs.items(), [*inputs.items()][::-1]))
    assert (first.input_shapes, amounts(first)) == (second.input_shapes, amounts(second))


@FIXED
def test_a_matrix_for_all_samples_may_come_before_them() -> None:
    class Turned(Mixing):
        def forward(self, x, adjacency):
            return super().forward(adjacency, x)

    x, adjacency = torch.zeros(6, 20, 16), torch.zeros(20, 20)
    before, after = OpGraph.from_torch(Mixing(), [adjacency, x]), OpGraph.from_torch(Turned(), [x, adjacency])
    assert before.input_shapes == after.input_shapes == ((20, 16),)
    assert amounts(before) == amounts(after)
    assert before.flops == pytest.approx(20 * (2 * 16 * 8 + 2 * 20 * 8))


@pytest.mark.parametrize("n_samples", [32, 512])
@pytest.mark.parametrize("turned", [False, True])
def test_a_batch_on_another_axis_of_an_example_is_found(n_samples: int, turned: bool) -> None:
    items = {"dense": torch.zeros(n_samples, 13), "indices": torch.zeros(4, n_samples, dtype=torch.long)}
    graph = OpGraph.from_torch(Tables(), dict([*items.items()][::-1] if turned else items))
    assert sorted(graph.input_shapes) == [(4,), (13,)]
    assert graph.fixed_input_bytes == 0
    assert graph.flops == 2 * 13 * 8


@FIXED
def test_an_axis_that_is_as_long_as_the_batch_by_chance_is_none() -> None:
    class Located(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.where = nn.Linear(16, 8), nn.Linear(2, 8)

        def forward(self, x, places):
            return self.fc(x)[:, None] + self.where(places)

    graph = OpGraph.from_torch(Located(), [torch.zeros(2, 16), torch.zeros(50, 2)])
    assert (graph.flops, graph.nodes["fixed_flops"].sum()) == (2 * 16 * 8, 50 * 2 * 2 * 8)
    assert graph.fixed_input_bytes == 4 * 50 * 2


@FIXED
def test_a_matrix_beside_a_batch_on_the_second_axis_counts_once() -> None:
    class Projected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(16, 2, 32)

        def forward(self, x, matrix):
            return self.layer(x @ matrix)

    with pytest.warns(IncompleteTraceWarning, match=r"inputs of shape \(50, 3, 16\) are taken to hold 3 samples"):
        graph = OpGraph.from_torch(Projected(), [torch.zeros(50, 3, 16), torch.zeros(16, 16)])
    assert (graph.input_shapes, graph.fixed_input_bytes) == (((50, 16),), 4 * 16 * 16)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_batch_on_the_second_axis_is_found_where_sequences_are_of_other_lengths() -> None:
    net = nn.Transformer(16, 2, 1, 1, 32)
    with pytest.warns(IncompleteTraceWarning, match="are taken to hold 4 samples"):
        graph = OpGraph.from_torch(net, [torch.zeros(30, 4, 16), torch.zeros(20, 4, 16)])
    assert graph.input_shapes == ((30, 16), (20, 16))


class Attending(nn.Module):
    """Queries (queries, samples, 16) attend to (samples, tokens, 16)."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, queries, x, labels=None):
        scores = torch.einsum("qbd,btd->bqt", self.project(queries), self.project(x))
        return self.loss(self.head(torch.einsum("bqt,btd->bqd", scores.softmax(-1), x)), labels)

    def loss(self, logits, labels):
        return logits.mean() if labels is None else nn.functional.cross_entropy(logits.mean(1), labels)


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_the_batch_of_a_network_that_returns_its_loss_may_be_that_of_later_axes(labelled: bool, named: bool) -> None:
    class Logits(Attending):
        def loss(self, logits, labels):
            return logits

    items = {"queries": torch.zeros(5, 3, 16), "x": torch.zeros(3, 7, 16)}
    items |= {"labels": torch.zeros(3, dtype=torch.long)} if labelled else {}
    with pytest.warns(IncompleteTraceWarning, match="are taken to hold 3 samples"):
        graph = OpGraph.from_torch(Attending(), items if named else list(items.values()))
    assert graph.input_shapes[:2] == ((5, 16), (7, 16))
    assert graph.fixed_input_bytes == graph.nodes["fixed_flops"].sum() == 0
    assert graph.flops == OpGraph.from_torch(Logits(), list(items.values())).flops


@FIXED
def test_queries_of_all_samples_beside_a_loss_are_no_batch() -> None:
    class Queried(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2)

        def forward(self, queries, memory, target):
            return (self.attention(queries[:, None].expand(-1, memory.shape[1], -1), memory, memory)[0] - target).mean()

    items = [torch.zeros(6, 16), torch.zeros(10, 3, 16), torch.zeros(6, 3, 16)]
    with pytest.warns(IncompleteTraceWarning, match="are taken to hold 3 samples"):
        graph = OpGraph.from_torch(Queried(), items)
    assert (graph.input_shapes, graph.fixed_input_bytes) == (((10, 16), (6, 16)), 4 * 6 * 16)


@FIXED
def test_a_table_that_a_loss_is_taken_with_is_no_batch() -> None:
    class Compared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image, self.text = nn.Linear(12, 8), nn.Linear(9, 8)

        def forward(self, image, text):
            return (self.image(image) @ self.text(text).T).mean()

    graph = OpGraph.from_torch(Compared(), [torch.zeros(4, 12), torch.zeros(30, 9)])
    assert (graph.input_shapes, graph.fixed_input_bytes) == (((12,),), 4 * 30 * 9)


@FIXED
@pytest.mark.parametrize(("samples", "tokens"), [(8, 12), (2, 128), (4, 512), (7, 16), (4, 7)])
def test_the_batch_beside_a_loss_is_what_most_examples_begin_with(samples: int, tokens: int) -> None:
    """A table of (5, 16) comes first, as long on its second axis as one of them."""
    items = [torch.zeros(5, 16), *torch.zeros(2, samples, tokens, dtype=torch.long)]
    with pytest.warns(IncompleteTraceWarning, match=f"are taken to hold {samples} samples"):
        graph = OpGraph.from_torch(Summed(), items)
    assert graph.input_shapes == ((tokens,), (tokens,))


def test_examples_of_one_sample_beside_a_loss_have_no_other_batch() -> None:
    items = [torch.zeros(5, 16), *torch.zeros(2, 1, 128, dtype=torch.long)]
    with pytest.warns(IncompleteTraceWarning) as caught:
        OpGraph.from_torch(Summed(), items)
    assert not any("hold 128 samples" in str(one.message) for one in caught)


class Summed(nn.Module):
    """Tokens of (samples, tokens) with a table, and the loss against labels of the same shape."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, table, tokens, labels):
        logits = self.head(self.embedding(tokens) + table.sum())
        return nn.functional.cross_entropy(logits.reshape(-1, 50), labels.reshape(-1))
