"""Compilation by numba that works wherever the package lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile without the interpreter's lock, and keep the machine code on disk where a folder can be written."""
    try:
        return cast(F, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:
        # Neither the package's folder nor the user's cache can be written: compile anew in each process.
        return cast(F, numba.njit(nogil=True)(function))
