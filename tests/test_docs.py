"""The documentation: its code runs, its commands exist, its numbers were printed, and no public name is missing."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import json
import re
import shlex
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import typer
from sklearn.base import BaseEstimator

import gpudemand
from gpudemand import plotting
from gpudemand.cli.app import app
from gpudemand.jobs.schema import COLUMNS, RULES, STATUSES
from tests.test_notebooks import BOLD, NOTEBOOKS, QUOTED, is_printed, numbers, printed
from tests.tiers import slow_where

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MADE = {"notebooks", "reference"}  # written anew by each build
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in MADE)
#: A fenced block of Markdown; directives of Sphinx have their name in braces.
BLOCK = re.compile(r"^(`{3,})([\w{}-]*)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
SHELL = {"", "bash", "sh", "shell"}
#: Languages that hold commands in some of their lines: tables of cron, units of systemd, workflows.
HOLDS = {
    "text": re.compile(r"^(?:[\d*/,-]+[ \t]+){5}(.+)", re.MULTILINE),
    "ini": re.compile(r"^ExecStart=(?:/\S*/)?(.+)", re.MULTILINE),
    "yaml": re.compile(r"^\s*- run: (.+)", re.MULTILINE),
}
#: Characters of code that fit beside the contents.
WIDEST = 88
#: What a page needs beyond the package itself.
EXTRAS = {"new_gpu": ("torch",), "workers": ("distributed", "dask_jobqueue")}
#: Pages whose code does.
TAKE_SECONDS = ("estimators", "holidays_and_closures", "new_gpu", "which_gpu")
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

if not PAGES:
    pytest.skip("runs from a checkout", allow_module_level=True)

from docs.api_pages import commands  # noqa: E402
from docs.sources import gallery, notebook_rows, reference_pages, thumbnail, write_sources  # noqa: E402


def name(page):
    return str(page.relative_to(ROOT))


def blocks(text, languages):
    return [block for _, language, block in BLOCK.findall(text) if language in languages]


def only_python(text):
    """Text whose lines outside Python's blocks are blank, so that line numbers stay.

    >>> only_python("Look:\\n```python\\n>>> 1\\n1\\n```\\n")
    '\\n\\n>>> 1\\n1\\n\\n'
    """
    lines, kept = text.split("\n"), set()
    for block in BLOCK.finditer(text):
        if block[2] == "python":
            first = text[: block.start(3)].count("\n")
            kept |= set(range(first, first + block[3].count("\n")))
    return "\n".join(line if number in kept else "" for number, line in enumerate(lines))


def calls(block):
    """Commands of a block of shell, as lists of words.

    >>> calls("A=1 gpudemand usage x.csv \\\\\\n  --by user  # all\\nmake test && make docs")
    [['gpudemand', 'usage', 'x.csv', '--by', 'user'], ['make', 'test'], ['make', 'docs']]
    """
    found = []
    for line in block.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>()")
        lexer.whitespace_split = True
        call = [[]]
        for word in lexer:
            if set(word) <= set("|;&"):
                call.append([])
            elif call[-1] or not re.fullmatch(r"\w+=.*", word):
                call[-1].append(word)
        found += [words for words in call if words]
    return found


def options_of(command):
    names = (name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts))
    return {name for name in names if name.startswith("-")} | {"--help"}


def problem(words):
    """What is wrong with a command of ours: a word that it does not know, or none.

    >>> problem(["gpudemand", "usage", "x.csv", "--bye", "user"]), problem(["make", "tea"])
    ('--bye', 'tea')
    >>> problem(["gpudemand", "pull", "slurm", "--into", "x"]), problem(["sacct", "-a"])
    (None, None)
    """
    if words[0] == "gpudemand":
        command, rest = typer.main.get_command(app), words[1:]
        while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
            if rest[0] not in command.commands:
                return rest[0]
            command, rest = command.commands[rest[0]], rest[1:]
        return next((word for word in rest if word.startswith("-") and word not in options_of(command)), None)
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        return next((word for word in words[1:] if "=" not in word and word not in targets), None)
    if words[:2] == ["python", "-m"]:
        return None if importlib.util.find_spec(words[2]) else words[2]
    return None


@pytest.mark.parametrize("page", slow_where(lambda page: page.stem in TAKE_SECONDS, PAGES), ids=name)
def test_code_prints_what_it_says(page, tmp_path, monkeypatch):
    for module in EXTRAS.get(page.stem, ()):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUDEMAND_DEVICES", str(tmp_path / "devices"))
    test = doctest.DocTestParser().get_doctest(only_python(page.read_text()), {}, page.name, str(page), 0)
    report = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert not result.failed, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=name)
class TestEveryPage:
    def test_every_block_is_checked(self, page):
        languages = {language for _, language, _ in BLOCK.findall(page.read_text()) if not language.startswith("{")}
        assert languages <= {"python", "toml", *SHELL, *HOLDS}
        python = blocks(page.read_text(), {"python"})
        assert all(block.startswith(">>> ") for block in python)
        assert max((len(line) for block in python for line in block.splitlines()), default=0) <= WIDEST

    def test_plan_files_can_be_read(self, page, tmp_path):
        for plan in blocks(page.read_text(), {"toml"}):
            (tmp_path / "plan.toml").write_text(plan)
            assert gpudemand.read_plan(tmp_path / "plan.toml").log.name

    def test_numbers_in_the_prose_were_printed(self, page):
        if page.stem in ("history", "cases"):
            return  # what was measured then; inputs and figures of cases that `tests/jobs/test_threads.py` runs
        text = page.read_text()
        linked = [path for path in NOTEBOOKS if path.name in text]
        code = BLOCK.sub(" ", text)
        known = numbers("\n".join([*blocks(text, {"python"}), *map(printed, linked)]))
        prose = QUOTED.sub(" ", re.sub(r"^#.*|^\d+\. ", "", code, flags=re.MULTILINE))
        found = [number for number in numbers(prose) if number[0] > 12 or any(number[1:])]
        found += [number for bold in BOLD.findall(prose) for number in numbers(bold)]
        assert [number for number in found if not is_printed(*number, known)] == []


#: Code of a page that the build runs, without the settings of its cell.
CELL = re.compile(r"^```\{code-cell\} python\n(?:---\n.*?^---\n)?(.*?)^```$", re.MULTILINE | re.DOTALL)


class TestFigures:
    text = (DOCS / "figures.md").read_text()

    @pytest.mark.parametrize("name", [name for name in plotting.__all__ if name.endswith("Display")])
    def test_every_display_is_drawn_on_the_page_and_in_its_own_example(self, name):
        assert f"plotting.{name}" in "".join(CELL.findall(self.text))
        assert ".plot()" in (getattr(plotting, name).__doc__ or "")

    @pytest.mark.slow
    def test_the_code_draws(self):
        plt.close("all")
        cells = CELL.findall(self.text)
        space = {}
        for code in cells:
            exec(code, space)
        assert len(cells) == self.text.count("{code-cell}") == len(plt.get_fignums()) + 1
        assert self.text.count("    alt: ") == len(plt.get_fignums())
        assert max(len(line) for code in cells for line in code.splitlines()) <= WIDEST


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=name)
def test_commands_exist(page):
    text = page.read_text()
    shell = blocks(text, SHELL)
    for language, command in HOLDS.items():
        shell += [found for block in blocks(text, {language}) for found in command.findall(block)]
    assert [(words, problem(words)) for block in shell for words in calls(block) if problem(words)] == []


def stubs():
    """Public names by package, from the stubs and from packages without one."""
    for package in sorted(Path(gpudemand.__file__).parent.glob("**/__init__.py*")):
        for node in ast.parse(package.read_text()).body:
            is_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            if is_all and isinstance(node.value, ast.List):
                yield package.parent.name, ast.literal_eval(node.value)


def test_every_public_name_is_in_the_reference():
    pages = "\n".join(reference_pages().values())
    listed = {
        line.rpartition(".")[2].strip() for line in pages.splitlines() if "   ~gpudemand." in line or "::" in line
    }
    found = {package: set(names) - listed for package, names in stubs() if package != "cli"}
    assert len(found) >= 10
    assert {package: names for package, names in found.items() if names} == {}


def test_a_public_name_is_there_once():
    rows = [
        row for page in reference_pages().values() for row in re.findall(r"^   ~(gpudemand\.\S+)$", page, re.MULTILINE)
    ]
    assert len(rows) > 100
    assert sorted(rows) == sorted(set(rows))


def test_every_option_is_in_the_reference():
    page = commands()

    def check(command):
        for child in getattr(command, "commands", {}).values():
            check(child)
        if not hasattr(command, "commands"):
            assert {option for option in options_of(command) if f"`{option}" not in page} == {"--help"}

    check(typer.main.get_command(app))


def test_every_key_of_a_schema_is_in_the_reference():
    found = sorted(Path(gpudemand.__file__).parent.rglob("*.schema.json"))
    assert found
    for path in found:
        keys = set(re.findall(r"[`.](\w+)` \|", reference_pages()[f"{path.stem}.md"]))
        assert names_of_keys(json.loads(path.read_text())) <= keys


def names_of_keys(schema):
    """Names of all properties, at any depth.

    >>> sorted(names_of_keys({"properties": {"a": {"items": {"properties": {"b": {}}}}}}))
    ['a', 'b']
    """
    if isinstance(schema, list):
        return set().union(*map(names_of_keys, schema))
    if not isinstance(schema, dict):
        return set()
    own = schema.get("properties", {})
    return set(own).union(*map(names_of_keys, (*own.values(), *schema.values())))


@pytest.mark.parametrize("module", ["docs.api_pages", "docs.sources"])
def test_examples_of_the_builder(module):
    assert doctest.testmod(importlib.import_module(module), optionflags=FLAGS).failed == 0


def test_every_notebook_is_in_the_gallery():
    readme = (ROOT / "notebooks/README.md").read_text()
    assert [row[0] for row in notebook_rows(readme)] == [path.stem for path in NOTEBOOKS]
    for row in notebook_rows(readme):
        assert all(part in gallery(readme) for part in row)


def test_a_second_build_writes_what_changed_and_removes_what_is_gone(tmp_path):
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    docs = tmp_path / "docs"
    write_sources(docs)
    before = {path: path.stat().st_mtime_ns for path in docs.rglob("*.*")}
    gone = [docs / "notebooks/10_gone.ipynb", docs / "reference/api/gpudemand.gone.rst"]
    gone[1].parent.mkdir()
    for path in gone:
        path.touch()
    write_sources(docs)
    assert {path: path.stat().st_mtime_ns for path in docs.rglob("*.*")} == before
    assert len(before) > 2 * len(NOTEBOOKS) + 10


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_has_a_thumbnail(path):
    assert thumbnail(json.loads(path.read_text())).startswith(b"\x89PNG")


class TestFiles:
    text = (DOCS / "files.md").read_text()

    def test_columns_of_the_job_table(self):
        kinds = {"float64": "number", "datetime64[ns, UTC]": "UTC time"}
        rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", self.text, re.MULTILINE)
        assert rows == [(column, kinds.get(str(kind), "text")) for column, kind in COLUMNS.items()]

    def test_words_of_the_status(self):
        line = re.search(r"^Status: (.*?)\n\n", self.text, re.MULTILINE | re.DOTALL)
        assert re.findall(r"`(\w+)`", line[1]) == list(STATUSES)

    def test_reasons_of_refusals(self):
        line = re.search(r"^Rows are refused.*?: (.*?)\n\n", self.text, re.MULTILINE | re.DOTALL)
        assert re.findall(r"`(.+?)`", line[1]) == list(RULES)


def test_every_public_estimator_has_an_example():
    text = (DOCS / "howto" / "estimators.md").read_text()
    named = {name: getattr(gpudemand, name) for name in gpudemand.__all__}
    estimators = [name for name, each in named.items() if isinstance(each, type) and issubclass(each, BaseEstimator)]
    assert len(estimators) > 8
    assert [name for name in estimators if f"gd.{name}(" not in text] == []
