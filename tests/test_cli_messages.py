"""Messages of errors that a command can print: none has words of Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from typer.main import get_command

import gpudemand
from gpudemand.cli.app import app
from gpudemand.cli.options import in_the_shell

PACKAGE = Path(gpudemand.__file__).parent
#: What commands do not call, or with right arguments only.
NOT_CALLED = (
    *("forecast", "segments", "plotting", "planning", "metrics.py", "saved.py", "widgets.py", "datasets/simulate.py"),
    *("datasets/registry.py", "usage/series.py", "usage/idle.py", "jobs/table.py", "cost/graph.py", "bulk.py"),
    *(
        "cost/feature_table.py",
        "cost/step_time_model.py",
        "cost/model.py",
        "cost/_keras_trace.py",
        "study/scenarios.py",
    ),
)
#: In words of Python, as they speak of the user's own module, or of a plan that a script makes.
OF_CODE = (
    "module must be an instance of torch.nn.Module",
    "model must be ",
    "X is one column, not a table",
    "X() of X failed",
    "a plan is read from a file",
    "options must be a mapping",
    "calibrate with traced networks",
    "study must be a Study",
    "usage is a long table",
    "X is not of the form file.py:name",
)
#: Names in files that are read, in metrics, and of an environment.
IN_FILES = (
    r"type_aliases|gpu_type|batch_size|kube_\w+|http_proxy|vocab_size|head_dim|mlp_only_layers|num_experts_per_tok|"
    r"vision_config|model_type|qk_\w+_head_dim|unique_id|build_model|price_hour|rent_price|power_w|used_gpu_seconds|tres_table|"
    r"input_shape|server_priv|channels_last"
)
WORDS = re.compile(
    rf"\b(?!(?:{IN_FILES})\b)[a-z]+(?:_[a-z]+)+\b|\b[a-z]\w*=(?![=\d])|\b(?:None|True|False|DataFrame|ndarray|dict|tuple|"
    r"callable|iterable)\b|\w\(\)|\w\[['\"]|\b(?:TrainingJob|OpGraph|CostModel|Study)\b"
)


def options(command: click.Command) -> Iterator[tuple[str, str]]:
    """Arguments and options of a command and of those in it."""
    yield from ((each.name or "", each.opts[0]) for each in command.params if each.opts[0].startswith("--"))
    for own in getattr(command, "commands", {}).values():
        yield from options(own)


def text_of(node: ast.expr) -> str:
    """Text of an expression, with X for what is put in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    return str(node.value) if isinstance(node, ast.Constant) else "X"


def messages(file: Path) -> Iterator[tuple[int, str]]:
    """Lines and texts of the errors of a module, and of what it warns of."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name.endswith("Error") and " " in text_of(node.args[0]):
                yield node.lineno, text_of(node.args[0])


FILES = [
    file for file in sorted(PACKAGE.rglob("*.py")) if not file.relative_to(PACKAGE).as_posix().startswith(NOT_CALLED)
]
OPTIONS = dict(options(get_command(app)))


@pytest.mark.parametrize("file", FILES, ids=[file.relative_to(PACKAGE).as_posix() for file in FILES])
def test_messages_have_no_words_of_python(file: Path) -> None:
    said = [(line, in_the_shell(text, OPTIONS)) for line, text in messages(file) if not text.startswith(OF_CODE)]
    if file.name == "plan_file.py":  # its messages are printed as they are, with keys of the file
        said = [(line, text.replace("add global_batch to the job", "")) for line, text in said]
    assert [(line, WORDS.findall(text), text) for line, text in said if WORDS.search(text)] == []


def test_words_of_python_are_found() -> None:
    texts = ["pass n_jobs", "give prices=(1, 2)", "call fit()", "usage['ds'] lacks", "make it with TrainingJob"]
    assert all(map(WORDS.search, texts))
    assert not WORDS.search(in_the_shell("give prices=(1, 2) (--prices 1 2), as --gpus 4", OPTIONS))
