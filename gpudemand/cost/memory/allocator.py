"""PyTorch's caching allocator for CUDA, simulated: what it reserves for a sequence of allocations, without a GPU."""

from __future__ import annotations

from bisect import bisect_left, insort

from gpudemand._typing import FloatArray, IntArray

#: Bytes: every block is a multiple of this.
BLOCK = 512
_MIB = 2**20
#: Up to this, blocks come from segments of `_SMALL_SEGMENT`.
_SMALL = _MIB
_SMALL_SEGMENT, _LARGE_SEGMENT = 2 * _MIB, 20 * _MIB
#: From this on, a block has a segment of its own, rounded up to `_ROUND`.
_OWN_SEGMENT, _ROUND = 10 * _MIB, 2 * _MIB
_GAP = 2**44


class CachingAllocator:
    """Hands out blocks of segments and keeps freed blocks, as ``torch.cuda`` does with its default settings.

    Sizes are rounded up to 512 bytes. Blocks of at most 1 MiB come from segments of 2 MiB, larger ones from segments
    of 20 MiB, and from 10 MiB on from segments of their own. The smallest free block that is large enough is taken,
    and split if more than 1 MiB (or, of a small one, 512 bytes) would be left. Freed neighbours are merged; a segment
    is never given back.

    Attributes
    ----------
    allocated, reserved : int
        Bytes handed out, and bytes taken from the device.
    peak_allocated : int
        The most that was handed out. Reserved bytes only grow.

    References
    ----------
    PyTorch, "CUDA semantics: memory management"; the constants are those of PyTorch 1.12 to 2.9.

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
        self._next_segment = _GAP

    def malloc(self, size: float) -> int:
        """Hand out a block; return its address."""
        wanted = max(BLOCK, -(-int(size) // BLOCK) * BLOCK)
        large = wanted > _SMALL
        address = self._take(wanted, large)
        self._split(address, wanted, large)
        self.allocated += self._size[address]
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return address

    def free(self, address: int) -> None:
        """Take a block back."""
        size, large = self._size[address], self._large[address]
        self.allocated -= size
        after = address + size
        if after in self._is_free:
            size += self._absorb(after)
        before = self._before.get(address)
        if before is not None and before in self._is_free:
            size += self._absorb(before, keep=True)
            del self._size[address], self._before[address], self._large[address]
            address = before
        self._put(address, size, large)

    def _take(self, wanted: int, large: bool) -> int:
        blocks = self._free[large]
        place = bisect_left(blocks, (wanted, 0))
        if place == len(blocks):
            return self._new_segment(wanted, large)
        _, address = blocks.pop(place)
        self._is_free.remove(address)
        return address

    def _new_segment(self, wanted: int, large: bool) -> int:
        own = -(-wanted // _ROUND) * _ROUND
        size = (_LARGE_SEGMENT if wanted < _OWN_SEGMENT else own) if large else _SMALL_SEGMENT
        address = self._next_segment
        # Segments do not touch, so that their blocks never merge.
        self._next_segment += size + BLOCK
        self.reserved += size
        self._size[address], self._large[address] = size, large
        return address

    def _split(self, address: int, wanted: int, large: bool) -> None:
        rest = self._size[address] - wanted
        if rest <= _SMALL if large else rest < BLOCK:
            return
        remainder, after = address + wanted, address + wanted + rest
        self._size[address] = wanted
        self._before[remainder] = address
        if after in self._before:
            self._before[after] = remainder
        self._put(remainder, rest, large)

    def _absorb(self, address: int, *, keep: bool = False) -> int:
        """Take a free block out of the lists, to be merged with its neighbour; return its size."""
        size = self._size[address]
        blocks = self._free[self._large[address]]
        del blocks[bisect_left(blocks, (size, address))]
        self._is_free.remove(address)
        if not keep:
            del self._size[address], self._before[address], self._large[address]
        return size

    def _put(self, address: int, size: int, large: bool) -> None:
        self._size[address], self._large[address] = size, large
        if address + size in self._before:
            self._before[address + size] = address
        insort(self._free[large], (size, address))
        self._is_free.add(address)


def replay(
    tensor: IntArray, sign: IntArray, sizes: FloatArray, pool: CachingAllocator | None = None
) -> CachingAllocator:
    """Play a sequence of tensors that come (+1) and go (-1) through an allocator.

    Parameters
    ----------
    tensor, sign : ndarray of shape (n_events,)
        Which tensor, and whether it comes or goes.
    sizes : ndarray of shape (n_tensors,)
        Bytes.
    pool : CachingAllocator, optional
        Where to start; a fresh one by default.

    Returns
    -------
    CachingAllocator
        Its state afterwards.

    Examples
    --------
    >>> import numpy as np
    >>> pool = replay(np.array([0, 1, 0]), np.array([1, 1, -1]), np.array([2e6, 600.0]))
    >>> pool.allocated, pool.reserved
    (1024, 23068672)
    """
    pool = CachingAllocator() if pool is None else pool
    addresses: dict[int, int] = {}
    for number, way in zip(tensor.tolist(), sign.tolist(), strict=True):
        if way > 0:
            addresses[number] = pool.malloc(sizes[number])
        else:
            pool.free(addresses.pop(number))
    return pool
