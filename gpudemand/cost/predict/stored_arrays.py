"""Validation of the arrays of a stored model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpudemand._validation import InputError


def check_arrays(arrays: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """Return the arrays if they have these names, types and shapes, and all numbers are finite.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Such as an opened ``.npz``.
    known : mapping of str to str
        Name -> type (``f``, ``i``, ``u`` or ``U``, as in ``dtype.kind``) and sizes. A size is a number, or a name that
        stands for one number wherever it occurs.

    Raises
    ------
    InputError
        For an array that is missing, unknown, or of another type or shape.

    Examples
    --------
    >>> check_arrays({"x": np.zeros((3, 2)), "y": np.zeros(4)}, {"x": "f rows 2", "y": "f rows"})
    Traceback (most recent call last):
    ...
    gpudemand._validation.InputError: y has type f and shape (4,) where f and (3,) are expected.
    """
    if set(arrays) != set(known):
        names = ", ".join(sorted(set(arrays) ^ set(known))[:5])
        raise InputError(f"arrays are missing or unknown: {names}.")
    checked, sizes = {name: arrays[name] for name in known}, dict[str, int]()
    for name, array in checked.items():
        kind, *shape = known[name].split()
        for size, length in zip(shape, array.shape, strict=False):
            sizes.setdefault(size, int(size) if size.isdigit() else length)
        expected = tuple(sizes.get(size, 0) for size in shape)
        if (array.dtype.kind, array.shape) != (kind, expected):
            found = f"type {array.dtype.kind} and shape {array.shape}"
            raise InputError(f"{name} has {found} where {kind} and {expected} are expected.")
        if kind == "f" and not np.isfinite(array).all():
            raise InputError(f"{name} holds numbers that are not finite.")
    return checked
