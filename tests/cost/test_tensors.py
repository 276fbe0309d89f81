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


@pytest.mark.parametrize("name", slow_beside(["gpt", "vgg11"], ["vit_tiny", "gpt", "convnext_tiny", "vgg11"]))
def test_saved_bytes_in_mixed_precision_are_those_of_autograd(name):
    shape = SHAPES[zoo.kind(name)]
    module = zoo.build(name, "torch", shape, width=0.5)
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0  # the mask depends on the device
    x = torch.randn(2, *shape) if len(shape) > 1 else torch.randint(0, 10, (2, *shape))
    layers = read_layers(OpGraph.from_torch(module, shape), mixed_precision=True)
    sizes = [size for layer in layers for size in (*(layers[o].output for o in layer.saves), layer.saved_extra)]
    sizes += [layer.half_copies for layer in layers]
    simulated = sum(fixed + 2 * per_sample for fixed, per_sample in sizes)
    assert simulated == pytest.approx(_saved_under_autocast(module, x), rel=0.01)
