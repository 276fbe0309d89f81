"""Undo what a traced call changes outside the copy of its network.

A forward pass may keep tensors in globals, dicts of a class, caches of functions, closures of hooks. Those of a trace
have no data, so whatever the code of the network can reach is remembered before the trace and put back after it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

#: Objects that are looked at, at most; libraries are left out, so that few networks reach it.
_MOST_OBJECTS = 200_000
#: Tensors of more elements are not copied, as masks and counters are smaller.
_MOST_ELEMENTS = 2**20
#: Of the standard library, what user code keeps values in.
_PLAIN = ("builtins", "collections", "functools", "types", "weakref", "typing", "dataclasses", "__main__")
_ATOMS = (str, bytes, int, float, complex, type(None), CodeType)
_MISSING = object()


@contextlib.contextmanager
def left_as_found(network: Any, skipped: set[int]) -> Iterator[None]:
    """Put back, after the block, what the code of a network can reach outside of it.

    `skipped`: identities of objects that the block cannot change, such as weights of which it uses copies.
    """
    undo = [action for found in _reachable(network, skipped) if (action := _undo(found)) is not None]
    try:
        yield
    finally:
        for action in undo:
            action()


def _reachable(network: Any, skipped: set[int]) -> list[Any]:
    """Objects that a network and its code refer to, those of other libraries left out."""
    parts = network.modules() if hasattr(network, "modules") else [network]
    own = {type(part).__module__.partition(".")[0] for part in parts} - {"torch", "keras"}
    seen, found, waiting = set(skipped), list[Any](), deque([network])
    while waiting and len(found) < _MOST_OBJECTS:
        one = waiting.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if _is_own(one, own):
            found.append(one)
            waiting.extend(gc.get_referents(one))
            waiting.extend(vars(one).values() if hasattr(one, "__dict__") else ())
    return found


def _is_own(one: Any, own: set[str]) -> bool:
    """Whether user code may keep values in an object or behind it."""
    if isinstance(one, _ATOMS):
        return False
    if _is_tensor(one):
        return True
    is_named = isinstance(one, (type, FunctionType, ModuleType))
    place = one.__name__ if isinstance(one, ModuleType) else (one if is_named else type(one)).__module__
    root = str(place).partition(".")[0]
    if is_named:
        return root in own or not _is_library(root)
    return root in own or root in _PLAIN or hasattr(one, "_forward_hooks") or not _is_library(root)


def _is_tensor(one: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(type(one), torch.Tensor)


@functools.cache
def _is_library(root: str) -> bool:
    """Whether a top-level package is one of the standard library, installed, or this one."""
    if root in sys.stdlib_module_names or root == __name__.partition(".")[0]:
        return root != "__main__"
    file = getattr(sys.modules.get(root), "__file__", None)
    folders = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    return file is not None and any(Path(folder) in Path(file).parents for folder in folders)


def _undo(found: Any) -> Callable[[], None] | None:
    """What restores an object, or None if it holds nothing that changes."""
    if isinstance(found, dict):
        return _undo_dict(found)
    if isinstance(found, (list, deque, set)):
        return functools.partial(_restore_items, found, list(found))
    if isinstance(found, CellType):
        return functools.partial(_restore_cell, found, _content(found))
    if isinstance(found, type):
        put, remove = functools.partial(setattr, found), functools.partial(delattr, found)
        return functools.partial(_restore_names, vars(found), put, remove, dict(vars(found)))
    if hasattr(found, "cache_clear") and hasattr(found, "cache_info"):
        return functools.partial(_restore_cache, found, found.cache_info().misses)
    if _is_tensor(found):
        return _undo_tensor(found)
    fields = getattr(found, "__dict__", None)  # of some objects a view that nobody can write to
    return _undo_dict(fields) if isinstance(fields, dict) else None


def _undo_dict(found: dict[Any, Any]) -> Callable[[], None]:
    return functools.partial(_restore_names, found, found.__setitem__, found.__delitem__, dict(found))


def _restore_names(
    found: Mapping[Any, Any], put: Callable[..., None], remove: Callable[..., None], before: dict[Any, Any]
) -> None:
    for name in [name for name in found if name not in before]:
        remove(name)
    for name, value in before.items():
        if found.get(name, _MISSING) is not value:
            put(name, value)


def _restore_items(found: Any, before: list[Any]) -> None:
    if list(map(id, found)) != list(map(id, before)):
        found.clear()
        (found.update if isinstance(found, set) else found.extend)(before)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # of a variable that is not set yet
        return _MISSING


def _restore_cell(cell: CellType, before: Any) -> None:
    if before is _MISSING:
        del cell.cell_contents
    elif _content(cell) is not before:
        cell.cell_contents = before


def _restore_cache(function: Any, misses: int) -> None:
    if function.cache_info().misses != misses:
        function.cache_clear()


def _undo_tensor(tensor: Any) -> Callable[[], None] | None:
    """What restores a small tensor that is written in place, such as a counter."""
    if tensor.is_meta or str(tensor.layout) != "torch.strided" or tensor.numel() > _MOST_ELEMENTS:
        return None
    # How often it was written is not known of one that was made in `torch.inference_mode`.
    version = None if tensor.is_inference() else tensor._version
    return functools.partial(_restore_tensor, tensor, version, tensor.detach().clone())


def _restore_tensor(tensor: Any, version: int | None, before: Any) -> None:
    import torch

    if version is None or tensor._version != version:
        with torch.inference_mode(version is None):
            tensor.detach().copy_(before)
