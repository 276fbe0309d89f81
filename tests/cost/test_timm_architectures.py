"""Vision transformers of timm: exact parameter counts, and one sentence for what they are not."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from gpudemand._validation import InputError
from gpudemand.cost.job import TrainingJob


def vision_transformer(width=64, layers=3, classes=10, scaled=False):
    """Parts of a vision transformer as timm names them."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2, self.attn, self.mlp = *(nn.LayerNorm(width) for _ in "12"), nn.Module(), nn.Module()
            self.attn.num_heads, self.attn.qkv, self.attn.proj = 4, nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp.fc1, self.mlp.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.gamma = nn.Parameter(torch.ones(width)) if scaled else None

    found = nn.Module()
    found.embed_dim, found.num_classes = width, classes
    found.patches, found.cls_token = nn.Conv2d(3, width, 4, 4), nn.Parameter(torch.zeros(1, 1, width))
    found.pos_embed, found.blocks = nn.Parameter(torch.zeros(1, 17, width)), nn.Sequential(*(Block() for _ in "123"))
    found.norm, found.head = nn.LayerNorm(width), nn.Linear(width, classes)
    return found


def test_a_vision_transformer_of_timm_has_the_parameters_of_its_module(monkeypatch):
    known = {"vit": vision_transformer(), "scaled": vision_transformer(scaled=True), "bare": vision_transformer()}
    known["bare"].num_classes = 0
    library = SimpleNamespace(is_model=known.__contains__, create_model=known.get)
    monkeypatch.setitem(sys.modules, "timm", library)
    job = TrainingJob.from_config("timm:vit", 17, device="H100", micro_batch=64)
    assert job.model.n_parameters == sum(one.numel() for one in known["vit"].parameters())
    assert (job.model.layers, job.model.heads, job.model.causal) == (3, 4, False)
    for name, reason in (("scaled", "no plain"), ("bare", "no plain"), ("resnet51", "no network 'resnet51'")):
        with pytest.raises(InputError, match=reason):
            TrainingJob.from_config(f"timm:{name}", 17)


def test_without_timm_its_names_are_refused_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match="needs timm: pip install timm"):
        TrainingJob.from_config("timm:vit_base_patch16_224", 197)
