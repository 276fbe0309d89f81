"""Suppression of the messages that TensorFlow prints when it is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Import TensorFlow inside this block without its messages on standard error.

    They are written before logging can be configured, so the file descriptor is redirected. The block has no effect
    once TensorFlow is imported.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)
