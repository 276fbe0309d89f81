"""Cases of parametrized tests that `make test` leaves to `make test-all`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def slow_where(is_slow: Callable[[Any], bool], cases: Iterable[Any]) -> list[Any]:
    """The cases, those marked slow that take seconds and go through the same code as the others."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow) if is_slow(case) else case
        for case in cases
    ]


def slow_beside(quick: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases, all but the quick ones marked slow."""
    chosen = list(quick)
    return slow_where(lambda case: case not in chosen, cases)
