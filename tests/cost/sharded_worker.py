"""Bytes that a process really holds of a small sharded transformer; run by test_sharded_bytes.py in two processes."""

from __future__ import annotations

import json
import sys

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor

HIDDEN, LAYERS, FFN, VOCAB = 64, 4, 176, 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.up = nn.ModuleList(nn.Linear(HIDDEN, FFN, bias=False) for _ in range(2))
        self.down = nn.Linear(FFN, HIDDEN, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(HIDDEN) for _ in range(2))

    def forward(self, x):
        query, key, value, out = self.attention
        y = self.norms[0](x)
        x = x + out(nn.functional.scaled_dot_product_attention(query(y), key(y), value(y), is_causal=True))
        y = self.norms[1](x)
        return x + self.down(nn.functional.silu(self.up[0](y)) * self.up[1](y))


def build():
    parts = [nn.Embedding(VOCAB, HIDDEN), *(Block() for _ in range(LAYERS)), nn.RMSNorm(HIDDEN)]
    return nn.Sequential(*parts, nn.Linear(HIDDEN, VOCAB, bias=False))


def local_bytes(tensors):
    """Bytes of the shards that this process holds."""
    whole = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors)
    return sum(tensor.numel() * tensor.element_size() for tensor in whole)


def held_bytes(sharding):
    """Bytes that a process holds at most, after one step of a transformer sharded in that way."""
    torch.manual_seed(0)
    net = build()
    if sharding == "fsdp":
        for part in net:
            fully_shard(part)
        fully_shard(net)
        optimizer = torch.optim.AdamW(net.parameters())
    else:
        optimizer = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=torch.optim.AdamW)
    net(torch.randint(VOCAB, (2, 8))).square().mean().backward()
    optimizer.step()
    inner = optimizer.optim if sharding == "zero1" else optimizer
    states = [value for state in inner.state.values() for value in state.values() if torch.is_tensor(value)]
    held = {
        "parameters": local_bytes(net.parameters()),
        "gradients": local_bytes(parameter.grad for parameter in net.parameters()),
        "states": local_bytes(state for state in states if state.dim()),
    }
    every = [None] * distributed.get_world_size()
    distributed.all_gather_object(every, held)
    return {name: max(one[name] for one in every) for name in held}


def main(shardings):
    distributed.init_process_group("gloo")
    found = {sharding: held_bytes(sharding) for sharding in shardings}
    if distributed.get_rank() == 0:
        sys.stdout.write(json.dumps(found) + "\n")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
