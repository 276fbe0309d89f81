"""Contexts of a trace of a PyTorch module: what it changes for a while, and what it must leave as it was."""

from __future__ import annotations

import contextlib
import logging
import random
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def autocast_flag() -> Iterator[None]:
    """Say that autocast is on, which modules ask; the listener does the casts."""
    import torch

    before = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before)


@contextlib.contextmanager
def random_state_restored() -> Iterator[None]:
    """Leave the generators of random numbers as they were."""
    import torch

    state = random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(state)


@contextlib.contextmanager
def flex_attention_on_cpu() -> Iterator[None]:
    """Let `flex_attention`, if it was imported, pass its check that there is no gradient on a CPU; none is computed."""
    module: Any = sys.modules.get("torch.nn.attention.flex_attention")
    check = getattr(module, "_validate_device", None)
    if check is None:
        yield
        return
    module._validate_device = lambda *_: None
    try:
        yield
    finally:
        module._validate_device = check


@contextlib.contextmanager
def fake_tensor_log_disabled() -> Iterator[None]:
    """Suppress the stack that PyTorch logs for an error that is raised again as `InputError`."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
