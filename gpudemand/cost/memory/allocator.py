"""Simulation of PyTorch's caching allocator for CUDA: what it reserves for a sequence of allocations, without a GPU."""

from __future__ import annotations

from bisect import bisect_left, insort

from gpudemand._typing import FloatArray, IntArray

# Bytes; the constants of c10/cuda/CUDACachingAllocator.cpp.
#: Every block is a multiple of this.
BLOCK = 512
_MIB = 2**20
#: Up to this, blocks come from segments of `_SMALL_SEGMENT`.
_SMALL = _MIB
_SMALL_SEGMENT, _LARGE_SEGMENT = 2 * _MIB, 20 * _MIB
#: From this on, a block has a segment of its own, rounded up to `ROUND`.
OWN_SEGMENT, ROUND = 10 * _MIB, 2 * _MIB
_FIRST_ADDRESS = 2**44


class CachingAllocator:
    """Allocates blocks from segments and caches freed blocks, as ``torch.cuda`` does with its default settings.

    Sizes are rounded up to 512 bytes. Blocks of at most 1 MiB come from segments of 2 MiB, larger ones from segments
    of 20 MiB, and from 10 MiB on from segments of their own. The smallest free block that is large enough is taken
    (best fit) and split if more than 1 MiB (of a small one, 512 bytes) would remain. Free neighbours are merged;
    segments are never returned to the device.

    Attributes
    ----------
    allocated, reserved : int
        Bytes allocated, and bytes taken from the device.
    peak_allocated : int
        Maximum of `allocated` so far. Reserved bytes only grow.

    References
    ----------
    PyTorch, "CUDA semantics: memory management"; constants of PyTorch 1.12 to 2.9.

    Examples
    --------
    >>> pool = CachingAllocator()
    >>> first = pool.malloc(3 * 2**20)
    >>> pool.allocated // 2**20, pool.reserved // 2**20
    (3, 20)
    >>> pool.free(first)
    >>> _ = pool.malloc(15 * 2**20)
    >>> pool.reserved // 2**20
    20
    """

    def __init__(self) -> None:
        self.allocated = self.reserved = self.peak_allocated = 0
        self._free: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
        self._size: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._is_free: set[int] = set()
        self._large: dict[int, bool] = {}
        self._next_segment = _FIRST_ADDRESS

    def malloc(self, size: float) -> int:
        """Allocate a block; return its address."""
        rounded = max(BLOCK, -(-int(size) // BLOCK) * BLOCK)
        large = rounded > _SMALL
        address = self._take(rounded, large)
        self._split(address, rounded, large)
        self.allocated += self._size[address]
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return address

    def free(self, address: int) -> None:
        """Free a block."""
        size, large = self._size[address], self._large[address]
        self.allocated -= size
        after = address + size
        if after in self._is_free:
            size += self._unlist(after)
            self._forget(after)
        before = self._before.get(address)
        if before is not None and before in self._is_free:
            size += self._unlist(before)
            self._forget(address)
            address = before
        self._put(address, size, large)

    def _take(self, size: int, large: bool) -> int:
        blocks = self._free[large]
        place = bisect_left(blocks, (size, 0))
        if place == len(blocks):
            return self._new_segment(size, large)
        _, address = blocks.pop(place)
        self._is_free.remove(address)
        return address

    def _new_segment(self, block: int, large: bool) -> int:
        own = -(-block // ROUND) * ROUND
        size = (_LARGE_SEGMENT if block < OWN_SEGMENT else own) if large else _SMALL_SEGMENT
        address = self._next_segment
        # Segments do not touch, so that their blocks never merge.
        self._next_segment += size + BLOCK
        self.reserved += size
        self._size[address], self._large[address] = size, large
        return address

    def _split(self, address: int, size: int, large: bool) -> None:
        rest = self._size[address] - size
        if rest <= _SMALL if large else rest < BLOCK:
            return
        remainder, after = address + size, address + size + rest
        self._size[address] = size
        self._before[remainder] = address
        if after in self._before:
            self._before[after] = remainder
        self._put(remainder, rest, large)

    def _unlist(self, address: int) -> int:
        """Remove a block from the free list, to merge it with a neighbour; return its size."""
        size = self._size[address]
        blocks = self._free[self._large[address]]
        del blocks[bisect_left(blocks, (size, address))]
        self._is_free.remove(address)
        return size

    def _forget(self, address: int) -> None:
        """Delete the records of a block that was merged into the one before it."""
        del self._size[address], self._before[address], self._large[address]

    def _put(self, address: int, size: int, large: bool) -> None:
        self._size[address], self._large[address] = size, large
        if address + size in self._before:
            self._before[address + size] = address
        insort(self._free[large], (size, address))
        self._is_free.add(address)


def replay(
    tensor: IntArray, sign: IntArray, sizes: FloatArray, pool: CachingAllocator | None = None
) -> CachingAllocator:
    """Run allocations (`sign` +1) and frees (-1) of tensors of `sizes` bytes through an allocator; return it.

    Examples
    --------
    >>> import numpy as np
    >>> pool = replay(np.array([0, 1, 0]), np.array([1, 1, -1]), np.array([2e6, 600.0]))
    >>> pool.allocated, pool.reserved
    (1024, 23068672)
    """
    pool = CachingAllocator() if pool is None else pool
    addresses: dict[int, int] = {}
    for number, direction in zip(tensor.tolist(), sign.tolist(), strict=True):
        if direction > 0:
            addresses[number] = pool.malloc(sizes[number])
        else:
            pool.free(addresses.pop(number))
    return pool
