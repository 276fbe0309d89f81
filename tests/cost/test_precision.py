"""Precision rules against ``torch.autocast`` of CUDA, whose casts show on fake tensors without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from gpudemand.cost.graph import Operator, OpGraph
from gpudemand.cost.graph_features import autocast_bytes, autocast_widths
from gpudemand.cost.liveness import read_layers
from gpudemand.cost.operators import HALF_TYPES, SINGLE_TYPES, VOCABULARY, autocast_width, torch_type


def test_rules_name_types_of_the_vocabulary():
    assert set(VOCABULARY) >= HALF_TYPES | SINGLE_TYPES
    assert not HALF_TYPES & SINGLE_TYPES


@pytest.mark.parametrize("weight", [0.0, 4.0])
def test_traffic_and_memory_have_the_same_precision(weight):
    dense = Operator("Gemm", "", "a", "linear", (1, 4), 0.0, 4, 16.0, 16.0, 16.0, 0.0)
    rows = [Operator(type_, "", "b", type_.lower(), (1, 4), 0.0, 0, weight, 16.0, 16.0, 0.0) for type_ in VOCABULARY]
    graph = OpGraph.from_operators([dense, *rows], [(0, i) for i in range(1, len(rows) + 1)])
    widths = autocast_widths(graph)
    assert (autocast_bytes(graph)["written"] == 16 * widths).all()
    assert [sum(layer.output) for layer in read_layers(graph, mixed_precision=True)] == (16 * widths).tolist()


def test_a_residual_stream_stays_single_after_a_single_precision_parameter():
    types = ["Gemm", "Add", "Gemm", "Add"]
    rows = [Operator(t, "", "x", t.lower(), (1,), 0.0, 0, 4.0 * (i == 1), 4.0, 4.0) for i, t in enumerate(types)]
    graph = OpGraph.from_operators(rows, [(0, 1), (1, 2), (1, 3), (2, 3)])
    assert autocast_widths(graph).tolist() == [0.5, 1.0, 0.5, 1.0]


#: ATen name -> a call on a half-precision activation `h`, single-precision parameters.
CALLS = {
    "conv2d": lambda t: t.F.conv2d(t.h, t.w),
    "linear": lambda t: t.F.linear(t.h, t.table),
    "prelu": lambda t: t.F.prelu(t.h, t.p),
    "batch_norm": lambda t: t.F.batch_norm(t.h, t.p, t.p, t.p, t.p, training=False),
    "instance_norm": lambda t: t.F.instance_norm(t.h, None, None, t.p, t.p),
    "layer_norm": lambda t: t.F.layer_norm(t.h, (8,)),
    "group_norm": lambda t: t.F.group_norm(t.h, 2, t.p, t.p),
    "add": lambda t: t.h + t.p,
    "mul": lambda t: t.h * t.h,
    "embedding": lambda t: t.F.embedding(t.index, t.table),
    "gather": lambda t: t.h.gather(0, t.index),
    "sqrt": lambda t: t.h.sqrt(),
    "rsqrt": lambda t: t.h.rsqrt(),
    "reciprocal": lambda t: t.h.reciprocal(),
    "cumsum": lambda t: t.h.cumsum(0),
    "pow": lambda t: t.h**2,
    "exp": lambda t: t.h.exp(),
    "exp2": lambda t: t.h.exp2(),
    "log": lambda t: t.h.log(),
    "erf": lambda t: t.h.erf(),
    "erfinv": lambda t: t.h.erfinv(),
    "sin": lambda t: t.h.sin(),
    "tan": lambda t: t.h.tan(),
    "softplus": lambda t: t.F.softplus(t.h),
    "logsigmoid": lambda t: t.F.logsigmoid(t.h),
    "sigmoid": lambda t: t.h.sigmoid(),
    "gelu": lambda t: t.F.gelu(t.h),
    "elu": lambda t: t.F.elu(t.h),
    "softmax": lambda t: t.h.softmax(-1),
    "log_softmax": lambda t: t.h.log_softmax(-1),
    "sum": lambda t: t.h.sum(),
    "prod": lambda t: t.h.prod(),
    "mean": lambda t: t.h.mean(),
    "var": lambda t: t.h.var(),
    "dropout": lambda t: t.F.dropout(t.h),
    "max_pool2d": lambda t: t.F.max_pool2d(t.h, 2),
    "upsample_nearest2d": lambda t: t.F.interpolate(t.h, scale_factor=2),
    "upsample_bilinear2d": lambda t: t.F.interpolate(t.h, scale_factor=2, mode="bilinear"),
    "mse_loss": lambda t: t.F.mse_loss(t.h, t.h),
    "cat": lambda t: t.torch.cat([t.h, t.h]),
    "scaled_dot_product_attention": lambda t: t.F.scaled_dot_product_attention(t.h, t.h, t.h),
}
WITH_PARAMETERS = {"conv2d", "linear", "prelu", "batch_norm", "instance_norm", "group_norm", "add", "embedding"}


@pytest.fixture
def cuda() -> Iterator[SimpleNamespace]:
    """Fake CUDA tensors under ``torch.autocast``; no autograd, which would need a GPU."""
    torch = pytest.importorskip("torch", minversion="2.4")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        shapes = {"h": (8, 8, 8, 8), "p": (8,), "w": (8, 8, 3, 3), "table": (8, 8), "index": (8, 8, 8, 8)}
        tensors = {name: torch.empty(shape, device="cuda") for name, shape in shapes.items()}
        tensors |= {"h": tensors["h"].half(), "index": tensors["index"].long()}
        torch.set_autocast_dtype("cuda", torch.float16)
        torch.set_autocast_enabled("cuda", True)
        try:
            yield SimpleNamespace(torch=torch, F=torch.nn.functional, **tensors)
        finally:
            torch.set_autocast_enabled("cuda", False)


@pytest.mark.parametrize("name", CALLS)
def test_widths_are_those_of_torch_autocast(cuda, name):
    result = CALLS[name](cuda)
    inputs = [1.0] if name == "embedding" else [0.5]
    assert autocast_width(torch_type(name), name, inputs, name in WITH_PARAMETERS) == result.element_size() / 4
