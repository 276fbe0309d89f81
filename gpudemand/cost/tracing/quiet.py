"""TensorFlow's first words, kept off the screen of who asks for a network or its graph."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Import TensorFlow inside this block without the report on the machine that it writes to standard error.

    It writes before its log can be set up, so the file descriptor itself is turned away; Python's exceptions come
    through. Once TensorFlow is there, the block does nothing.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
