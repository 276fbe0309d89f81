"""The table of the package's size and shape."""

from __future__ import annotations

import subprocess
import sys

import pytest

house = pytest.importorskip("benchmarks.house", reason="runs from a checkout")


@pytest.mark.slow
def test_every_row_is_printed():
    run = subprocess.run([sys.executable, "-m", "benchmarks.house"], capture_output=True, text=True, check=True)
    head, *rows = run.stdout.splitlines()
    assert head.split() == ["today", "aim", "at", "1ed4808"]
    assert [row.strip().startswith(name) for row, name in zip(rows, house.BEFORE, strict=True)] == [True] * len(
        house.BEFORE
    )
    for row, before in zip(rows, house.BEFORE.values(), strict=True):
        assert row.rstrip().endswith(before)


def test_lines_and_files_are_counted_and_deferred_imports_told_apart(tmp_path):
    texts = {
        "__init__.py": "",
        "__init__.pyi": "__all__ = ['a', 'b']\n",
        "cli/report.py": "from gpudemand.study import plan\n\ndef f():\n    import gpudemand.cost.model\n",
        "study/plan.py": "wait_share = lead_time = 1\n",
        "cost/model.py": "x = 1\n" * 900,
        "unused.py": "import os\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = house.measure(tmp_path)
    assert found.keys() == house.BEFORE.keys()
    assert (found["lines"], found["files"], found["lines of imports"]) == ("906", "5", "3")
    assert (found["lines that a report reaches"], found["... with costs only on demand"]) == ("905", "5")
    assert found["files that name wait_share, service_level, lead_time"] == "1, 0, 1"
    assert (found["median file"], found["largest file"], found["files over 800 lines"]) == ("1", "900", "1")


def test_an_import_of_several_lines_counts_each():
    assert house.import_lines("import os\nfrom a import (\n    b,\n)\n\ndef f():\n    import c\n") == 5
