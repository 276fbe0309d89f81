"""Operations and saved bytes of traced PyTorch operators beyond the classic ones."""

from __future__ import annotations

import math

import pytest

from gpudemand.cost import OpGraph

torch = pytest.importorskip("torch")


class Calls(torch.nn.Module):
    """A function of a dense layer's output as a module."""

    def __init__(self, function, width: int) -> None:
        super().__init__()
        self.first, self.function = torch.nn.Linear(width, width), function

    def forward(self, x):
        """Apply the layer, then the function."""
        return self.function(self.first(x))


@pytest.mark.parametrize(
    ("function", "flops"),
    [
        (lambda x: torch.fft.fft(x).real, 2.5 * 32 * 64 * 6),
        (lambda x: torch.fft.ifft(torch.fft.fft(x)).real, (2.5 + 5) * 32 * 64 * 6),
        (lambda x: torch.fft.rfft(x, dim=1).abs(), 2.5 * 32 * 64 * 5),
        (lambda x: torch.fft.irfft(torch.fft.rfft(x)), 2 * 2.5 * 32 * 64 * 6),
        (lambda x: torch.fft.fft2(x).real, 5 * 32 * 64 * 11),  # of complex numbers, whatever it is given
        (lambda x: torch.fft.rfftn(x, dim=(1, 2)).abs(), 2.5 * 32 * 64 * 11),
        (lambda x: torch.fft.ifft(x, None, 1).real, 2.5 * 32 * 64 * 5),
        (lambda x: torch.stft(x[:, 0], 16, 4, return_complex=True, center=False).abs(), 2.5 * 16 * 13 * 4),
    ],
)
def test_fourier_transforms_are_counted(function, flops: float) -> None:
    graph = OpGraph.from_torch(Calls(function, 64), (32, 64))
    assert graph.nodes.loc[graph.nodes["type"] == "DFT", "flops"].sum() == pytest.approx(flops)
    assert not graph.other_


def test_a_product_of_complex_numbers_is_four_of_real_ones() -> None:
    weight = torch.nn.Parameter(torch.zeros(33, 33, dtype=torch.complex64))
    graph = OpGraph.from_torch(Calls(lambda x: (torch.fft.rfft(x) @ weight).abs(), 64), (32, 64))
    assert graph.nodes.loc[graph.nodes["operator"] == "matmul", "flops"].sum() == 4 * 2 * 32 * 33 * 33


class Experts(torch.nn.Module):
    """Tokens sorted by expert, and one product for all experts."""

    def __init__(self, experts: int, width: int, inner: int, dtype=torch.bfloat16) -> None:
        super().__init__()
        self.up = torch.nn.Parameter(torch.empty(experts, width, inner, dtype=dtype))
        self.experts = experts

    def forward(self, x):
        """Give each expert the same number of tokens."""
        tokens = x.reshape(-1, x.shape[-1])
        ends = torch.arange(1, self.experts + 1, dtype=torch.int32) * (len(tokens) // self.experts)
        return torch._grouped_mm(tokens.to(self.up.dtype), self.up, offs=ends)


def test_grouped_products_are_counted() -> None:
    graph = OpGraph.from_torch(Experts(4, 64, 128), (32, 64))
    (product,) = graph.nodes.itertuples()
    assert (product.type, product.parameters) == ("Gemm", 4 * 64 * 128)
    assert product.flops == 2 * 32 * 64 * 128
    assert not graph.other_


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_kernels_of_grouped_products_are_recorded(dtype) -> None:
    kernels = OpGraph.from_torch(Experts(4, 64, 128, dtype), (32, 64)).kernels
    forward, backward = kernels[kernels["kind"] == "matmul"].itertuples()
    assert (forward.flops, backward.flops) == (2 * 32 * 64 * 128, 2 * 32 * 64 * 128)
    assert backward.fixed_bytes >= 4 * 4 * 64 * 128


class Flex(torch.nn.Module):
    """Causal attention by `flex_attention`, compiled or not."""

    def __init__(self, compiled: bool) -> None:
        super().__init__()
        from torch.nn.attention.flex_attention import flex_attention

        self.qkv = torch.nn.Linear(64, 192)
        self.attend = torch.compile(flex_attention, backend="eager") if compiled else flex_attention

    def forward(self, x):
        """Attend to earlier tokens only."""
        q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.attend(q, k, v, score_mod=lambda score, b, h, i, j: torch.where(i >= j, score, -math.inf))


@pytest.mark.parametrize("compiled", [False, True])
def test_flex_attention_counts_like_fused_attention(compiled: bool) -> None:
    graph = OpGraph.from_torch(Flex(compiled), (128, 64))
    attention = graph.nodes[graph.nodes["type"] == "Attention"]
    assert attention["flops"].tolist() == [4 * 128 * 128 * 64]
    assert attention["saved_bytes"].iloc[0] >= 4 * 128 * 64 * 4
    assert set(graph.nodes["type"]) == {"Gemm", "Attention"}
    assert OpGraph.from_torch(Flex(compiled), (128, 64), train=False).saved_bytes == 0
