"""What tests and docstring examples share: figures are closed after each."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest


def pytest_collection() -> None:
    """Look for no garbage among what is imported and collected, which is there to stay: a seventh of that time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep what was imported out of the search for garbage, which would take a twelfth of the time."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let it be freed."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
