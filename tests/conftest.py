"""Fixtures that several test modules share."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import matplotlib as mpl
import pytest

mpl.use("agg")

#: Modules written in PyTorch, which doctest would import to look for examples; one is run by processes of its own.
collect_ignore = ["cost/sharded_worker.py", *([] if find_spec("torch") else ["cost/networks.py"])]

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real logs and measurements, which lives beside the repository and never in it."""
    folder = Path(os.environ.get("GPUDEMAND_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"needs the real data folder {folder.name!r} beside the repository (or GPUDEMAND_SHARED_DATA)")
    return folder
