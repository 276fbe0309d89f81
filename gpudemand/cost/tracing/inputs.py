"""Normalisation of `input_shape` and `input_dtype`."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple

import numpy as np

from gpudemand._validation import InputError, nearest, shorten

#: Batch size of a trace: batch normalisation cannot train on a single value.
BATCH = 2
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
_HOW = "give the shape of one sample, such as (3, 224, 224), or a list of such shapes for several inputs"


class InputSpec(NamedTuple):
    """One input: shape with the batch; name, example tensor and dtype if given."""

    name: str | None
    shape: tuple[int, ...]
    example: Any
    dtype: str | None


def read_inputs(input_shape: Any, input_dtype: Any) -> list[InputSpec]:
    """Normalise shapes, example tensors and dtypes.

    Raises
    ------
    InputError
        If a shape is invalid, or a dtype is unknown.

    Examples
    --------
    >>> read_inputs((3, 32, 32), None)
    [InputSpec(name=None, shape=(2, 3, 32, 32), example=None, dtype=None)]
    """
    named = _named(input_shape)
    dtypes = _dtypes(input_dtype, [name for name, _ in named])
    specs = [_spec(name, item, dtype) for (name, item), dtype in zip(named, dtypes, strict=True)]
    if not specs:
        raise InputError(f"input_shape is empty; {_HOW}.")
    return specs


def batch_of(specs: Sequence[InputSpec]) -> int:
    """Batch size of the inputs."""
    return specs[0].shape[0] if specs[0].shape else 1


def _named(input_shape: Any) -> list[tuple[str | None, Any]]:
    if isinstance(input_shape, Mapping):
        return list(input_shape.items())
    if _is_shape(input_shape) or _is_array(input_shape) or not isinstance(input_shape, (list, tuple)):
        return [(None, input_shape)]
    return [(None, item) for item in input_shape]


def _spec(name: str | None, item: Any, dtype: str | None) -> InputSpec:
    if _is_array(item):
        shape = tuple(int(extent) for extent in item.shape)
        if 0 in shape:
            raise InputError(f"an example input has the shape {shape}, which is empty; pass at least one sample.")
        return InputSpec(name, shape, item, dtype)
    if not _is_shape(item):
        raise InputError(f"input_shape={shorten(str(item))} is no shape; {_HOW}.")
    if any(extent < 1 for extent in item):
        raise InputError(f"input_shape={tuple(item)} holds an extent below 1; {_HOW}, without the batch.")
    return InputSpec(name, (BATCH, *(int(extent) for extent in item)), None, dtype)


def _dtypes(input_dtype: Any, names: list[str | None]) -> list[str | None]:
    if isinstance(input_dtype, Mapping):
        chosen = [input_dtype.get(name) for name in names]
    elif isinstance(input_dtype, (list, tuple)):
        chosen = list(input_dtype)
    else:
        chosen = [input_dtype] * len(names)
    if len(chosen) != len(names):
        raise InputError(f"input_dtype names {len(chosen)} types for {len(names)} inputs; give one for each.")
    return [None if dtype is None else _dtype(dtype) for dtype in chosen]


def _dtype(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise InputError(f"input_dtype={dtype!r} is not known.{nearest(name, DTYPES)} Choose from {', '.join(DTYPES)}.")
    return name


def _is_shape(item: Any) -> bool:
    return isinstance(item, (list, tuple)) and all(
        isinstance(extent, (int, np.integer)) and not isinstance(extent, bool) for extent in item
    )


def _is_array(item: Any) -> bool:
    return hasattr(item, "shape") and hasattr(item, "dtype")


def user_line(error: BaseException, tracer: str, *libraries: str) -> str:
    """Innermost line of a traceback outside the folder of the tracer, some libraries and the standard library.

    `tracer` and `libraries` are ``__file__``. Returns ``" at model.py, line 12 (if x.sum() > 0:)"``, or nothing.
    """
    skipped = {Path(file).parent for file in (tracer, *libraries)}
    for frame in reversed(extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not _is_standard_library(path) and not skipped.intersection(path.parents):
            return f" at {path.name}, line {frame.lineno} ({shorten(frame.line or '?', 80)})"
    return ""


def call_error(what: str, specs: Sequence[InputSpec], place: str, reason: str) -> InputError:
    """Error of a call that fails on the traced inputs."""
    shapes = ", ".join(str(spec.shape) for spec in specs)
    return InputError(
        f"{what} fails on input of shape {shapes}{place}: {reason}; check input_shape (without the batch) and "
        "input_dtype ('int64' for tokens), and that the model runs."
    )


def value_error(what: str, place: str, select: str) -> InputError:
    """Error of a call that branches on the values of a traced tensor."""
    return InputError(
        f"{what} depends on the values of a tensor{place}, which are unknown in a trace; express it with {select} or "
        "masks, or trace the branch you train."
    )


def first_line(error: BaseException, text: str | None = None) -> str:
    """Type of an error and the first line of its text."""
    lines = (str(error) if text is None else text).strip().splitlines()
    return f"{type(error).__name__}: {shorten(lines[0], 200)}" if lines else type(error).__name__


def _is_standard_library(path: Path) -> bool:
    inside = str(path).startswith("<frozen") or Path(sysconfig.get_path("stdlib")) in path.parents
    return inside and "site-packages" not in path.parts
