"""Bandwidth of groups of GPUs that work together, by where they sit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudemand.cost.hardware import Device

#: Bytes a second of a link of unknown bandwidth, a direction: sixteen lanes of PCIe 4.0.
_LINK = 32e9
#: Seconds of a message, by NCCL's own figures: between kernels within a node, and over the network.
_LATENCY = (1e-5, 3e-5)


def group_bandwidth(device: Device, size: int, stride: int = 1) -> float:
    """Bytes a second, a GPU and direction, of a ring among `size` GPUs, every `stride`-th of the cluster.

    Between machines the GPUs of one machine in the group share the traffic, each with its own network card.

    Examples
    --------
    >>> from gpudemand.cost.devices import device
    >>> [round(group_bandwidth(device("H100"), size, 8 // size) / 1e9) for size in (2, 8)]
    [450, 450]
    >>> round(group_bandwidth(device("H100"), 16) / 1e9), round(group_bandwidth(device("H100"), 16, 8) / 1e9)
    (400, 50)
    """
    # A bridge joins pairs, and not every card has one.
    link = (device.pcie_bandwidth if device.interconnect == "nvlink bridge" else device.interconnect_bandwidth) / 2.0
    link = _LINK if math.isnan(link) or link <= 0 else link
    node = int(device.node_gpus)
    if size * stride <= node:
        return link
    neighbours = max(node // stride, 1)
    return min(link, neighbours * device.network_bandwidth)


def ring_seconds(device: Device, n_bytes: float, size: int, stride: int = 1, passes: float = 2.0) -> float:
    """Seconds of a ring: an all-reduce passes the data twice, an all-gather or reduce-scatter once."""
    if size <= 1:
        return 0.0
    latency = _LATENCY[int(size * stride > device.node_gpus)] * math.log2(size)
    return passes * (n_bytes * (size - 1) / size / group_bandwidth(device, size, stride) + latency)


def all_to_all_seconds(device: Device, n_bytes: float, size: int, copies: int) -> float:
    """Seconds in which each of `size` neighbouring GPUs sends its tokens to others that it draws, once to each.

    Parameters
    ----------
    device : Device
    n_bytes : float
        Of the tokens of a GPU.
    size : int
    copies : int
        Draws of each token, one after another; those that fall on the same GPU, or on the same machine, are sent once.

    Examples
    --------
    >>> from gpudemand.cost.devices import device
    >>> within, across = (all_to_all_seconds(device("H100"), 1e9, size, 8) for size in (8, 64))
    >>> bool(across > 5 * within)
    True
    """
    if size <= 1:
        return 0.0
    node = min(int(device.node_gpus), size)
    nodes = max(size // node, 1)
    latency = _LATENCY[int(nodes > 1)] * math.log2(size)
    within = _drawn(node, copies) * (node - 1) / node / group_bandwidth(device, node)
    return n_bytes * (within + _drawn(nodes, copies) * (nodes - 1) / nodes / device.network_bandwidth) + latency


def _drawn(places: int, draws: int) -> float:
    """Mean number of different places that so many draws fall on."""
    return places * (1.0 - (1.0 - 1.0 / places) ** draws)
