"""The table of the package's size and shape."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.house import BEFORE, import_lines


def test_every_row_is_printed():
    run = subprocess.run([sys.executable, "-m", "benchmarks.house"], capture_output=True, text=True, check=True)
    head, *rows = run.stdout.splitlines()
    assert head.split() == ["today", "aim", "at", "1ed4808"]
    assert [row.strip().startswith(name) for row, name in zip(rows, BEFORE, strict=True)] == [True] * len(BEFORE)
    for row, before in zip(rows, BEFORE.values(), strict=True):
        assert row.rstrip().endswith(before)


def test_an_import_of_several_lines_counts_each():
    assert import_lines("import os\nfrom a import (\n    b,\n)\n\ndef f():\n    import c\n") == 5
