"""Blocks of layers between which gradient checkpointing keeps activations."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

#: A block holds at least so many operators.
_FEWEST = 4
_NUMBERED = re.compile(r"\d$")


def blocks_of(names: Sequence[str]) -> list[int]:
    """Sort operators into blocks by the path of their module: the innermost numbered one that holds a few of them.

    Those outside every such module belong to none. A network without numbered modules is cut into pieces of equal
    length, as many as the square root of its operators.

    Parameters
    ----------
    names : sequence of str
        Path of each operator, in order: ``layer1.0.conv1``.

    Returns
    -------
    list of int
        Number of the block, from 0 on; -1 for none.

    References
    ----------
    Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174, 2016.

    Examples
    --------
    >>> names = [f"blocks.{i}.{part}" for i in range(2) for part in ("norm", "attn.qkv", "attn.proj", "mlp.fc1")]
    >>> blocks_of(["stem", *names, "head"])
    [-1, 0, 0, 0, 0, 1, 1, 1, 1, -1]
    """
    held = Counter(prefix for name in names for prefix in _prefixes(name))
    homes = [next((prefix for prefix in _prefixes(name) if held[prefix] >= _FEWEST), "") for name in names]
    numbers = {home: number for number, home in enumerate(dict.fromkeys(home for home in homes if home))}
    if len(numbers) < 2:
        length = max(math.ceil(math.sqrt(len(names))), 1)
        return [position // length for position in range(len(names))]
    return [numbers.get(home, -1) for home in homes]


def _prefixes(name: str) -> list[str]:
    """Paths of the numbered modules around an operator, the innermost first."""
    parts = name.split(".")
    paths = [".".join(parts[: depth + 1]) for depth in range(len(parts)) if _NUMBERED.search(parts[depth])]
    return paths[::-1]
