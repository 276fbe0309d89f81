"""House rules of the notebooks, and every number in their prose found in what their cells print."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
BOLD = re.compile(r"\*\*(.+?)\*\*")
MOST_LINES, WIDEST = 12, 110
#: A number, its thousands separated by commas, and the percent sign behind it; no part of a word, a date or a version.
NUMBER = re.compile(
    r"(?<![\w.,:/-])[-\u2212+]?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?:e([-+]?\d+))?(?![\w:/]|[.,-]\d)\s*(%?)"
)
#: What is no statement of a result: code, formulas, links, and references to papers.
QUOTED = re.compile(r"```.*?```|`[^`]*`|\$[^$]*\$|\]\([^)]*\)|arXiv[: ]\S+|\b(?:19|20)\d\d\b(?:-\d\d)*", re.DOTALL)


def cells(path, kind):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def content(path):
    """Cells, without those that say which packages the ones below need."""
    return [cell for cell in json.loads(path.read_text())["cells"] if "end_without(" not in source(cell)]


def source(cell):
    return "".join(cell["source"])


def printed(path):
    texts = []
    for cell in cells(path, "code"):
        for output in cell["outputs"]:
            texts.append("".join(output.get("text", "")))
            texts += ["".join(output.get("data", {}).get(kind, "")) for kind in ("text/plain", "text/markdown")]
    return "\n".join(texts)


def numbers(text):
    """Numbers of a text: value, decimals written, whether a percent sign follows.

    >>> numbers("7.2 % of 98,639 jobs, 1.5e3 s")
    [(7.2, 1, True), (98639.0, 0, False), (1500.0, -2, False)]
    """
    return [
        (
            float(f"{whole.replace(',', '')}{part}e{exponent or 0}"),
            max(len(part) - 1, 0) - int(exponent or 0),
            percent == "%",
        )
        for whole, part, exponent, percent in NUMBER.findall(text)
    ]


def is_printed(value, decimals, percent, output):
    """Whether an output number rounds to the value: as it stands, or for a percentage as a share of one.

    >>> is_printed(7.2, 1, True, numbers("0.0722")), is_printed(7.3, 1, True, numbers("7.2 %"))
    (True, False)
    >>> is_printed(4.0, 0, False, numbers("12.45 s")), is_printed(12.0, 0, False, numbers("12.45 s"))
    (False, True)
    """
    near = 0.5 * 10.0**-decimals * (1 + 1e-9)
    same = (abs(abs(found) - value) <= near for found, _, sign in output if percent or not sign)
    share = (abs(100 * abs(found) - value) <= near for found, _, sign in output if percent and not sign)
    return any(same) or any(share)


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

    def test_begins_with_the_answer_and_when_not_to_believe_it(self, path):
        begin = source(cells(path, "markdown")[0])
        assert numbers(begin)
        assert "as stored here" in begin.lower()
        assert "Do not believe" in begin

    def test_ends_with_what_was_learned_what_was_not_and_what_is_next(self, path):
        end = source(cells(path, "markdown")[-1])
        assert "What we learned" in end
        assert "What this does not show" in end
        linked = re.findall(r"\]\((\w+\.ipynb)\)", end.partition("**Next.**")[2])
        assert linked
        assert {name for name in linked if not (FOLDER / name).is_file()} == set()

    def test_a_figure_stands_in_the_first_third(self, path):
        every = content(path)
        first = next(
            i for i, cell in enumerate(every) if any("image/png" in o.get("data", {}) for o in cell.get("outputs", []))
        )
        assert first < len(every) / 3

    def test_every_figure_is_said_in_words_to_who_does_not_see_it(self, path):
        """The docs read them from the cell, which outlives a run, other readers from the output."""
        drawn = [
            (cell["metadata"]["mystnb"]["image"]["alt"], output["metadata"]["image/png"]["alt"])
            for cell in cells(path, "code")
            for output in cell["outputs"]
            if "image/png" in output.get("data", {})
        ]
        assert all(of_cell == of_output and 30 <= len(of_cell) <= 100 for of_cell, of_output in drawn)
        assert len({alt for alt, _ in drawn}) == len(drawn) > 0

    def test_tables_are_rounded_and_dates_are_dates(self, path):
        shown = [
            "".join(output["data"]["text/html"])
            for cell in cells(path, "code")
            for output in cell["outputs"]
            if "<p><b>" in "".join(output.get("data", {}).get("text/html", ""))
        ]
        assert not [html for html in shown if re.search(r"NaT|NaN|00:00:00|>\d+\.\d{4,}<", html)]

    def test_cells_are_short_and_define_nothing(self, path):
        for number, cell in enumerate(cells(path, "code")):
            text = source(cell)
            assert len(text.splitlines()) <= MOST_LINES
            assert max(map(len, text.splitlines())) <= WIDEST
            tree = ast.parse(text)
            defines = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While)
            assert not any(isinstance(node, defines) for node in ast.walk(tree))
            imports = any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in tree.body)
            assert not imports or number == 0 or (number == 1 and "end_without(" in source(cells(path, "code")[0]))

    def test_every_figure_is_introduced_and_every_result_commented(self, path):
        kinds = [cell["cell_type"] for cell in content(path)]
        assert not any(kinds[i : i + 3] == ["code"] * 3 for i in range(len(kinds))), "three code cells without a word"

    def test_run_in_order_from_a_fresh_kernel_without_complaints(self, path):
        code = cells(path, "code")
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        assert not any(output["output_type"] in ("error", "stream") for cell in code for output in cell["outputs"])

    def test_numbers_in_the_prose_were_printed(self, path):
        code = "\n".join(source(cell) for cell in cells(path, "code"))
        output = numbers(printed(path)) + numbers(re.sub(r"[^\d.\s]", " ", code))
        prose = [QUOTED.sub(" ", source(cell)) for cell in cells(path, "markdown")]
        found = [(number, text) for text in prose for number in numbers(text) if number[0] > 12 or any(number[1:])]
        # In running text small whole numbers are words; in bold they are results like all others.
        found += [(number, bold) for text in prose for bold in BOLD.findall(text) for number in numbers(bold)]
        displayed = any(
            "text/markdown" in out.get("data", {}) for cell in cells(path, "code") for out in cell["outputs"]
        )
        assert found or displayed, "a notebook answers with numbers"
        missing = [(number, text) for number, text in found if not is_printed(*number, output)]
        assert not missing, "numbers that stand in the prose only: " + "; ".join(
            f"{value:g}{' %' if percent else ''} in {text[:80]!r}" for (value, _, percent), text in missing
        )

    def test_dates_in_the_prose_were_printed(self, path):
        shown = printed(path) + "".join(source(cell) for cell in cells(path, "code"))
        dates = {date for cell in cells(path, "markdown") for date in re.findall(r"\b\d{4}-\d\d-\d\d\b", source(cell))}
        assert {date for date in dates if date not in shown} == set()

    def test_small_enough_to_read_online(self, path):
        assert path.stat().st_size < 1_000_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_the_readme_gives_the_answer_of_the_notebook(path):
    row = re.search(rf"\[{path.stem}\].*", (FOLDER / "README.md").read_text())
    assert row, "every notebook has a row in their README"
    answer = row[0].split("|")[2]
    assert [
        number for number in numbers(QUOTED.sub(" ", answer)) if not is_printed(*number, numbers(printed(path)))
    ] == []
    assert [date for date in re.findall(r"\d{4}-\d\d-\d\d", answer) if date not in printed(path)] == []


@pytest.mark.skipif(not FOLDER.is_dir(), reason="runs from a checkout")
def test_the_sample_has_one_answer_wherever_it_is_asked():
    from gpudemand.cli.report import SAMPLE

    asked, required = [], set()
    for name in ("00_quickstart", "07_capacity_plan"):
        path = FOLDER / f"{name}.ipynb"
        lines = [line for cell in cells(path, "code") for line in source(cell).splitlines()]
        names, values = next(line for line in lines if line.startswith("INSTALLED, LEAD_TIME")).split(" = ")
        asked.append(dict(zip(names.split(", "), ast.literal_eval(f"({values})"), strict=True)))
        required.add(re.search(r"within 1 h .* this cluster requires ([\d,]+) GPUs", printed(path))[1])
    of_command = {"INSTALLED": SAMPLE["installed"], "LEAD_TIME": SAMPLE["lead_time"], "WAIT": SAMPLE["wait"]}
    assert [{key: each[key] for key in of_command} for each in asked] == [of_command, of_command]
    assert len(required) == 1
    for page in ("README.md", "docs/tutorial.md", "notebooks/README.md"):
        assert required.copy().pop() in (FOLDER.parent / page).read_text(), page


@pytest.mark.skipif(not FOLDER.is_dir(), reason="runs from a checkout")
def test_the_readme_shows_how_target_and_installed_move_the_order():
    targets = re.findall(
        r"^\d +(10min|1h|4h|24h) +[\d.]+ +([\d.]+)", printed(FOLDER / "07_capacity_plan.ipynb"), re.MULTILINE
    )
    rows = re.findall(r"^\| (\d+) (min|h) \|(.+)\|$", (FOLDER.parent / "README.md").read_text(), re.MULTILINE)
    shown = {f"{number}{unit}": [int(cell) for cell in cells.split("|")] for number, unit, cells in rows}
    expected = {wait: int(float(gpus)) for wait, gpus in targets}
    assert shown == {wait: [gpus, max(gpus - 600, 0), max(gpus - 700, 0)] for wait, gpus in expected.items()}
    assert len(shown) == 4


#: Notebooks that answer for whatever log is read, and the modules that each needs.
OF_A_LOG = {
    "00_quickstart": [],
    "01_a_network_to_an_order": ["torch", "keras"],
    "04_shape_of_usage": ["gph"],
    "05_user_segments": [],
    "06_demand_forecast": [],
    "07_capacity_plan": [],
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not FOLDER.is_dir(), reason="runs from a checkout")
@pytest.mark.parametrize("name", OF_A_LOG)
def test_no_sentence_is_false_on_a_real_log(name, shared_data, tmp_path):
    nbclient, nbformat, *_ = map(pytest.importorskip, ["nbclient", "nbformat", *OF_A_LOG[name]])
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    (asked,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    log = str(shared_data / "traces/swf-kth-sp2/KTH-SP2-1996-2.swf.gz")
    asked.source += f'\nLOG, FORMAT, INSTALLED, LEAD_TIME, WAIT, SHARE = {log!r}, "swf", 100, "60D", "4h", 0.8'
    nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": FOLDER}}).execute()
    of_the_sample, notebook.cells[0].source = notebook.cells[0].source, ""
    assert "On the bundled sample, as stored here" in of_the_sample
    path = tmp_path / "kth.ipynb"
    nbformat.write(notebook, path)
    every = TestEveryNotebook()
    every.test_numbers_in_the_prose_were_printed(path)
    every.test_dates_in_the_prose_were_printed(path)
    # Which way things go is said by the cells that know: in the text it would be so for every log.
    ways = r"(?i)\b(?:more than|less than|fewer|(?:less|more) often|raises?|cuts?|rose|no more)\b"
    assert [text for text in map(source, cells(path, "markdown")[1:-1]) if re.search(ways, text)] == []
    if name in ("00_quickstart", "07_capacity_plan"):
        told = re.search(r"this cluster requires (\d+) GPUs, (no more|\d+ more) than the 100", printed(path))
        required, than = told.groups()
        said = printed(path).rpartition("For 80% of the jobs to start within 4h, ")[2]
        assert said.startswith(f"**{required}** GPUs suffice")
        if name == "00_quickstart":
            assert ("no more than the 100 installed" in said) == (than == "no more")
