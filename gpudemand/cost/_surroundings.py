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

from gpudemand._validation import InputError

#: Objects that are looked at, at most; libraries are left out, so that few networks reach it.
_MOST_OBJECTS = 200_000
#: Tensors of more elements are not copied, as masks and counters are smaller.
_MOST_ELEMENTS = 2**20
#: Of the standard library, what user code keeps values in.
_PLAIN = ("builtins", "collections", "functools", "types", "weakref", "typing", "dataclasses", "__main__")
_ATOMS = (str, bytes, int, float, complex, type(None), CodeType)
_CACHED = type(functools.lru_cache(len))
_MISSING = object()


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an attribute, if there is one, another value for the block."""
    before = getattr(owner, name, None)
    if before is None:
        yield
        return
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


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
            waiting.extend(_referents(one))
            waiting.extend((fields_of(one) or {}).values())
    return found


def _referents(one: Any) -> list[Any]:
    """What an object refers to, without the table of a cache of limited size.

    Its entries are links of a list that C code walks through: once cleared and put back, they are freed and walked
    through all the same, which ends the process.
    """
    found = gc.get_referents(one)
    if not issubclass(type(one), _CACHED) or one.cache_parameters()["maxsize"] is None:
        return found
    return [each for each in found if not (type(each) is dict and _holds_links(each, one.cache_info().currsize))]


def _holds_links(table: dict[Any, Any], size: int) -> bool:
    return len(table) == size and all(type(link).__name__ == "_lru_list_elem" for link in table.values())


def fields_of(one: Any) -> Any:
    """Attributes of an object, which is asked nothing: some libraries import what they are asked for, or raise."""
    try:
        return object.__getattribute__(one, "__dict__")
    except AttributeError:
        return None


def _is_own(one: Any, own: set[str]) -> bool:
    """Whether user code may keep values in an object or behind it."""
    kind = type(one)
    if issubclass(kind, _ATOMS):
        return False
    if _is_of(kind, "torch", "Tensor") or _is_of(kind, "torch.nn", "Module") or _is_of(kind, "keras", "Layer"):
        return True
    is_named = issubclass(kind, (type, FunctionType, ModuleType))
    fields = fields_of(one) if is_named else {}
    place = fields.get("__name__") if issubclass(kind, ModuleType) else (one if is_named else kind).__module__
    root = str(place).partition(".")[0]
    return root in own or (root in _PLAIN and not is_named) or not _is_library(root)


def _is_of(kind: type, library: str, name: str) -> bool:
    """Whether a class is one of a library, which need not be installed."""
    parent = getattr(sys.modules.get(library), name, None)
    return parent is not None and issubclass(kind, parent)


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
    kind = type(found)
    if issubclass(kind, dict):
        return _undo_dict(found)
    for container in (list, deque, set):
        if issubclass(kind, container):
            return functools.partial(_restore_items, found, container, list(container.__iter__(found)))
    if issubclass(kind, CellType):
        return functools.partial(_restore_cell, found, content_of(found))
    if issubclass(kind, type):
        put, remove = functools.partial(setattr, found), functools.partial(delattr, found)
        return functools.partial(_restore_names, vars(found), put, remove, dict(vars(found)))
    if hasattr(kind, "cache_clear"):
        return functools.partial(_restore_cache, found, found.cache_info().misses)
    if _is_of(kind, "torch", "Tensor"):
        return _undo_tensor(found)
    fields = fields_of(found)  # of some objects a view that nobody can write to
    return _undo_dict(fields) if issubclass(type(fields), dict) else None


def _undo_dict(found: dict[Any, Any]) -> Callable[[], None]:
    return functools.partial(_restore_names, found, found.__setitem__, found.__delitem__, dict(dict.items(found)))


def _restore_names(
    found: Mapping[Any, Any], put: Callable[..., None], remove: Callable[..., None], before: dict[Any, Any]
) -> None:
    now = dict(dict.items(found) if isinstance(found, dict) else found)  # whatever its class makes of it
    for name in now.keys() - before.keys():
        remove(name)
    for name, value in before.items():
        if now.get(name, _MISSING) is not value:
            put(name, value)


def _restore_items(found: Any, container: type[Any], before: list[Any]) -> None:
    if list(map(id, container.__iter__(found))) != list(map(id, before)):
        found.clear()
        (found.update if isinstance(found, set) else found.extend)(before)


def content_of(cell: CellType) -> Any:
    """What a cell of a closure holds; a marker for a variable that is not set yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _restore_cell(cell: CellType, before: Any) -> None:
    if before is _MISSING:
        del cell.cell_contents
    elif content_of(cell) is not before:
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


def check_gone(name: str, made: list[Any]) -> None:
    """Raise `InputError` if something still refers to a tensor that was made in the trace."""
    if all(reference() is None for reference in made):
        return
    gc.collect()
    alive = [tensor for reference in made if (tensor := reference()) is not None]
    # PyTorch itself may hold some, where no code reaches them.
    holders = [found for found in gc.get_referrers(*alive) if found is not alive] if alive else []
    if any(isinstance(found, (dict, list, tuple, set, deque, CellType)) for found in holders):
        raise InputError(
            f"the forward pass of {name} keeps tensors outside of the module, where a trace cannot remove them; let it "
            "keep them in its attributes, and build the model anew."
        )
