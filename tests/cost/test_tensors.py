from __future__ import annotations

import pytest

from gpudemand.cost import OpGraph
from gpudemand.cost.liveness import read_layers
from tests.tiers import slow_beside

torch = pytest.importorskip("torch")
zoo = pytest.importorskip("benchmarks.zoo", reason="runs from a checkout")
SHAPES = {"image": (3, 32, 32), "tokens": (32,)}


def _saved_under_autocast(module, x) -> float:
    """Bytes that autograd saves in a forward pass under autocast, each storage once, without parameters and batch."""
    excluded = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), x)}
    saved = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in excluded:
            saved[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", dtype=torch.bfloat16):
        module(x)
    return float(sum(size for size, _ in saved.values()))


@pytest.mark.parametrize(
    "name", slow_beside(["gpt", "vgg11"], ["vit_tiny", "gpt", "convnext_tiny", "resnet18", "vgg11"])
)
def test_saved_bytes_in_mixed_precision_are_those_of_autograd(name):
    shape = SHAPES[zoo.kind(name)]
    module = zoo.build(name, "torch", shape, width=0.5)
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0  # the mask depends on the device
        if isinstance(part, torch.nn.LayerNorm):  # in single precision on a GPU, but not on a CPU
            part.register_forward_pre_hook(lambda _, inputs: inputs[0].float())
    x = torch.randn(2, *shape) if len(shape) > 1 else torch.randint(0, 10, (2, *shape))
    assert _saved_bytes(module, shape) == pytest.approx(_saved_under_autocast(module, x), rel=0.01)


def _saved_bytes(module, shape) -> float:
    """Bytes that are saved for two samples, by the simulation."""
    layers = read_layers(OpGraph.from_torch(module, shape), mixed_precision=True)
    sizes = [size for layer in layers for size in (*(layers[o].output for o in layer.saves), layer.saved_extra)]
    sizes += [layer.saved_copies for layer in layers]
    return sum(fixed + 2 * per_sample for fixed, per_sample in sizes)


def test_activations_in_place_are_saved_before_and_after() -> None:
    """Once as they were, and once as the next convolution reads them, which saves no output of its own."""
    layers = []
    for channels in (3, 32, 32):
        layers += [torch.nn.Conv2d(channels, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.SiLU(inplace=True)]
    module, x = torch.nn.Sequential(*layers, torch.nn.Conv2d(32, 8, 1)), torch.randn(2, 3, 32, 32)
    saved = _saved_under_autocast(module, x)
    assert _saved_bytes(module, (3, 32, 32)) + x.nbytes / 2 == pytest.approx(saved, rel=0.01)  # of the batch, a copy


class _Widened(torch.nn.Module):
    """A power and a normalization of half precision, which autocast computes in single."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(64, 256), torch.nn.LayerNorm(256)

    def forward(self, x):
        return self.norm(self.first(x).relu().pow(2).sum(1))


def test_single_precision_copies_are_saved_instead_of_what_was_cast() -> None:
    power = read_layers(OpGraph.from_torch(_Widened(), (8, 64)), mixed_precision=True)[2]
    assert (power.type, power.saves, power.saved_copies) == ("Pow", (), (0.0, 4.0 * 8 * 256))


class _Adapted(torch.nn.Module):
    """A frozen layer with an adapter beside it (LoRA)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.base = torch.nn.LayerNorm(256), torch.nn.Linear(256, 256, bias=False).requires_grad_(False)
        self.adapter = torch.nn.Sequential(torch.nn.Linear(256, 4, bias=False), torch.nn.Linear(4, 256, bias=False))

    def forward(self, x):
        x = self.norm(x)
        return self.base(x) + self.adapter(x)


def test_a_frozen_layer_saves_no_input() -> None:
    saved = _saved_under_autocast(_Adapted(), torch.randn(2, 512, 256))
    assert _saved_bytes(_Adapted(), (512, 256)) == pytest.approx(saved, rel=0.01)
