"""Numba compilation with a fallback for installations that cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile with `numba.njit`, releasing the GIL and caching the machine code on disk where that is possible.

    The cache sees changes of a function's own file only: after those of compiled functions in others, delete it.
    """
    return _compile(function)


def compiled_in_place(function: F) -> F:
    """Like `compiled`, for functions that make no array: references are not counted.

    That takes most of the time of short functions that hand on tuples of arrays.
    """
    return _compile(function, _nrt=False)


def inlined(function: F) -> F:
    """Like `compiled_in_place`, made part of its callers.

    A call hands on each array of a tuple as several numbers; that takes longer than most of the short functions do.
    """
    return _compile(function, _nrt=False, forceinline=True)


def _compile(function: F, **options: Any) -> F:
    try:
        return cast(F, numba.njit(nogil=True, cache=True, **options)(function))
    except RuntimeError:
        # Neither the package's folder nor the user's cache is writable: compile in each process.
        return cast(F, numba.njit(nogil=True, **options)(function))
