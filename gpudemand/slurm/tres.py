"""GPUs and their use in Slurm's TRES and GRES strings, such as ``cpu=8,gres/gpu:a100=2``."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

from gpudemand.units import gpu_share

_ENTRY = re.compile(r"(?:gres[/:])?(?P<kind>gpu|shard|mps)(?P<rest>[:=].*)?$", re.IGNORECASE)
_UTILIZATION = re.compile(r"(?:^|,)gres/gpuutil=(\d+(?:\.\d+)?)(?:,|$)")
#: Of MPS, Slurm's documentation advises a count of 100 a GPU, so that requests are percentages.
_MPS_PER_GPU = 100.0
#: A process cannot use more percent than this of all GPUs of a job; Slurm prints 2 ** 64 - 2 for what it cannot read.
_MAX_PERCENT = 1e8


@dataclass(frozen=True)
class GpuCount:
    """GPUs in a TRES string.

    Attributes
    ----------
    gpus : float
        Whole GPUs, and slices, shards and MPS as shares of one; NaN where an entry cannot be read, or shards are
        counted and their number a GPU is not known.
    gpu_type : str or None
        Several types are sorted and joined by ``"+"``; shards without a type are of the type ``shard``.
    devices : float
        What Slurm itself counts as ``gres/gpu``: each slice is one, shards are none.
    shards : bool
        Whether `gpus` is NaN only because the number of shards a GPU is not known.
    """

    gpus: float
    gpu_type: str | None
    devices: float
    shards: bool = False


def count_tres(tres: str, shards_per_gpu: float = math.nan) -> GpuCount:
    """Count the GPUs of a TRES or GRES string.

    If a site tracks GPUs with and without their type, the typed entries are parts of the untyped one.

    Parameters
    ----------
    tres : str
        Such as ``"cpu=8,gres/gpu=2,gres/gpu:a100=2"`` or ``"gpu:a100:2(IDX:0-1)"``.
    shards_per_gpu : float
        How many ``gres/shard`` make one GPU; of ``gres/mps`` 100 do.

    Examples
    --------
    >>> count_tres("gres/gpu:1g.10gb=7,gres/gpu:a100=7,gres/gpu=14")
    GpuCount(gpus=8.0, gpu_type='1g.10gb+a100', devices=14.0, shards=False)
    >>> count_tres("gres/shard=2", shards_per_gpu=4).gpus
    0.5
    """
    found: dict[str, dict[str, float]] = {kind: defaultdict(float) for kind in ("gpu", "shard", "mps")}
    for entry in re.sub(r"\([^)]*\)", "", tres).split(","):
        match = _ENTRY.match(entry.strip())
        if match:
            name, count = _named_count(match["rest"])
            found[match["kind"].lower()][name] += count
    devices = _total(found["gpu"])
    if math.isnan(devices + _total(found["shard"]) + _total(found["mps"])):
        return GpuCount(math.nan, None, math.nan)
    parts = _total(found["shard"]) / shards_per_gpu if found["shard"] else 0.0
    parts += _total(found["mps"]) / _MPS_PER_GPU if found["mps"] else 0.0
    gpus = _shares(found["gpu"], devices) + parts
    return GpuCount(gpus, _types(found), devices, math.isnan(gpus))


def _total(counts: dict[str, float]) -> float:
    typed = sum(count for name, count in counts.items() if name)
    total = counts.get("", 0.0)
    return math.nan if math.isnan(total + typed) else max(total, typed)


def _shares(counts: dict[str, float], devices: float) -> float:
    typed = {name: Fraction(count) for name, count in counts.items() if name}
    whole = Fraction(devices) - sum(typed.values())
    return float(whole + sum(count * gpu_share(name) for name, count in typed.items()))


def _types(found: dict[str, dict[str, float]]) -> str | None:
    names = {name for counts in found.values() for name, count in counts.items() if name and count > 0}
    for kind in ("shard", "mps"):
        if _total(found[kind]) > 0 and not any(name and count > 0 for name, count in found[kind].items()):
            names.add(kind)
    return "+".join(sorted(names)) or None


def _named_count(rest: str | None) -> tuple[str, float]:
    """Type (or an empty string) and count in one entry, from the text after ``gpu``."""
    parts = re.split("[:=]", rest[1:]) if rest else ["1"]
    if len(parts) == 1:
        parts = ["", parts[0]] if parts[0].isdecimal() or rest is None or rest[0] == "=" else [parts[0], "1"]
    name, count = ":".join(parts[:-1]), parts[-1]
    return name, float(count) if re.fullmatch(r"[0-9]+", count) else math.nan


def gpu_utilization(usage: str) -> float:
    """GPU utilization in a field such as TRESUsageInTot, as a number of GPUs in full use; NaN if it has none.

    Slurm adds up the percentages of the GPUs that a process uses, so that two GPUs at 75 % are 150.

    Examples
    --------
    >>> gpu_utilization("cpu=00:10:00,gres/gpumem=1G,gres/gpuutil=150")
    1.5
    """
    match = _UTILIZATION.search(usage)
    percent = float(match[1]) if match else math.nan
    return percent / 100 if percent <= _MAX_PERCENT else math.nan


def shards_per_gpu(gres: str, kind: str = "shard") -> float:
    """Shards (or MPS) a GPU on a node, from its line of ``sinfo -o %G``; NaN where it has none.

    Examples
    --------
    >>> shards_per_gpu("gpu:h100:8(S:0-1),shard:h100:32(S:0-1)")
    4.0
    """
    counts = dict.fromkeys(("gpu", kind), 0.0)
    for entry in re.sub(r"\([^)]*\)", "", gres).split(","):
        match = _ENTRY.match(entry.strip())
        if match and match["kind"].lower() in counts:
            counts[match["kind"].lower()] += _named_count(match["rest"])[1]
    return counts[kind] / counts["gpu"] if counts["gpu"] and counts[kind] else math.nan
