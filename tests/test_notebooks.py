"""House rules of the notebooks, and every bold number in their prose found in what their cells print."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
BOLD = re.compile(r"\*\*(.+?)\*\*")
MOST_LINES = 12


def cells(path, kind):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def source(cell):
    return "".join(cell["source"])


def printed(path):
    texts = []
    for cell in cells(path, "code"):
        for output in cell["outputs"]:
            texts.append("".join(output.get("text", "")))
            texts.append("".join(output.get("data", {}).get("text/plain", "")))
    return "\n".join(texts)


def test_there_are_notebooks():
    if not FOLDER.is_dir():
        pytest.skip("runs from a checkout")
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
class TestEveryNotebook:
    def test_title_is_a_question(self, path):
        title = source(cells(path, "markdown")[0]).splitlines()[0]
        assert title.startswith("# ")
        assert title.endswith("?")

    def test_ends_with_what_was_learned_and_what_was_not(self, path):
        end = source(cells(path, "markdown")[-1])
        assert "What we learned" in end
        assert "What this does not show" in end

    def test_cells_are_short_and_define_nothing(self, path):
        for number, cell in enumerate(cells(path, "code")):
            text = source(cell)
            assert len(text.splitlines()) <= MOST_LINES
            tree = ast.parse(text)
            defines = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While)
            assert not any(isinstance(node, defines) for node in ast.walk(tree))
            imports = any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in tree.body)
            assert not imports or number == 0

    def test_at_least_as_much_prose_as_code(self, path):
        assert len(cells(path, "markdown")) >= 0.7 * len(cells(path, "code"))

    def test_run_in_order_from_a_fresh_kernel_without_complaints(self, path):
        code = cells(path, "code")
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        assert not any(output["output_type"] in ("error", "stream") for cell in code for output in cell["outputs"])

    def test_numbers_in_the_prose_were_printed(self, path):
        output = printed(path)
        bold = [
            text for cell in cells(path, "markdown") for text in BOLD.findall(source(cell)) if re.search(r"\d", text)
        ]
        assert bold, "the answer of a notebook is a bold number"
        for text in bold:
            for number in re.findall(r"[\d][\d,.:-]*\d|\d", text):
                assert number in output or number.replace(",", "") in output, f"{number} stands in the prose only"

    def test_small_enough_to_read_online(self, path):
        assert path.stat().st_size < 1_000_000
