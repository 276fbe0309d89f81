"""Blocks of layers for gradient checkpointing."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

#: Least operators in a block.
_MIN_OPERATORS = 4
_NUMBERED = re.compile(r"\d$")


def checkpoint_blocks(names: Sequence[str]) -> list[int]:
    """Assign operators to blocks: the innermost numbered module around them that has several operators.

    Operators outside such modules belong to none. A network with fewer than two such modules is cut into pieces of
    equal length, the square root of the number of its operators. Blocks are numbered from 0; -1 is none.

    References
    ----------
    Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174, 2016.

    Examples
    --------
    >>> names = [f"blocks.{i}.{part}" for i in range(2) for part in ("norm", "attn.qkv", "attn.proj", "mlp.fc1")]
    >>> checkpoint_blocks(["stem", *names, "head"])
    [-1, 0, 0, 0, 0, 1, 1, 1, 1, -1]
    """
    counts = Counter(prefix for name in names for prefix in _numbered_prefixes(name))
    modules = [next((p for p in _numbered_prefixes(name) if counts[p] >= _MIN_OPERATORS), "") for name in names]
    numbers = {module: number for number, module in enumerate(dict.fromkeys(filter(None, modules)))}
    if len(numbers) < 2:
        length = max(math.ceil(math.sqrt(len(names))), 1)
        return [position // length for position in range(len(names))]
    return [numbers.get(module, -1) for module in modules]


def _numbered_prefixes(name: str) -> list[str]:
    """Paths of the numbered modules around an operator, innermost first."""
    parts = name.split(".")
    paths = [".".join(parts[: depth + 1]) for depth in range(len(parts)) if _NUMBERED.search(parts[depth])]
    return paths[::-1]
