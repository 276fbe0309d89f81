"""The table of the package's size and shape."""

from __future__ import annotations

import subprocess
import sys

import pytest

house = pytest.importorskip("benchmarks.house", reason="runs from a checkout")


def test_every_row_is_printed():
    run = subprocess.run([sys.executable, "-m", "benchmarks.house"], capture_output=True, text=True, check=True)
    head, *rows = run.stdout.splitlines()
    assert head.split() == ["today", "aim", "at", "1ed4808"]
    assert [row.strip().startswith(name) for row, name in zip(rows, house.BEFORE, strict=True)] == [True] * len(
        house.BEFORE
    )
    for row, before in zip(rows, house.BEFORE.values(), strict=True):
        assert row.rstrip().endswith(before)


def test_an_import_of_several_lines_counts_each():
    assert house.import_lines("import os\nfrom a import (\n    b,\n)\n\ndef f():\n    import c\n") == 5
