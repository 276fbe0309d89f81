"""Pages of the reference: every public name, every command of the shell, every key of the files with a schema."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

import gpudemand

#: Option of a command in running text.
_OPTION = re.compile(r"(?<![`\w])(--[a-z-]+)")
#: Packages whose public names are commands or entry points of these.
_NOT_A_LIBRARY = {"gpudemand.cli"}


def library() -> dict[str, list[str]]:
    """Package -> its public names in full, each once: at the top if it is one of the few, or else in its package.

    Examples
    --------
    >>> names = library()
    >>> "gpudemand.ETS" in names["gpudemand.forecast"], "gpudemand.forecast.TSB" in names["gpudemand.forecast"]
    (True, True)
    >>> "gpudemand.Study" in names["gpudemand"]
    True
    """
    pages: dict[str, list[str]] = {"gpudemand": []}
    top = {name: getattr(gpudemand, name) for name in gpudemand.__all__}
    for module in _packages():
        own = {name: getattr(module, name) for name in module.__all__}
        pages[module.__name__] = [f"{module.__name__}.{name}" for name in own if top.get(name) is not own[name]]
    listed = {lookup(name) for names in pages.values() for name in names}
    for name in _top_names():
        thing = getattr(gpudemand, name)
        if thing not in listed:
            home = ".".join(thing.__module__.split(".")[:2])
            pages[home if home in pages else "gpudemand"].append(f"gpudemand.{name}")
    return {page: sorted(names, key=lambda name: name.rpartition(".")[2]) for page, names in pages.items() if names}


def _top_names() -> Iterator[str]:
    """Names that resolve at the top, in its list or not, but for sub-packages."""
    tree = ast.parse(Path(gpudemand.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    yield from (alias.name for node in imports for alias in node.names)


def _packages() -> Iterator[Any]:
    for found in pkgutil.walk_packages(gpudemand.__path__, "gpudemand."):
        if found.ispkg and found.name not in _NOT_A_LIBRARY:
            module = importlib.import_module(found.name)
            if getattr(module, "__all__", ()):
                yield module


def lookup(name: str) -> Any:
    """Return the object of a full public name."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def page(package: str, names: list[str]) -> str:
    """Return the page of a package: what it is for, and a table of its names, each with a page of its own.

    Parameters
    ----------
    package : str
    names : list of str
        In full.

    Returns
    -------
    str
        reStructuredText.
    """
    module = importlib.import_module(package)
    about = (inspect.getdoc(module) or "").split("\n\n")[0]
    constants = [name for name in names if not callable(lookup(name))]
    rows = [f"   ~{name}" for name in names if name not in constants]
    options = ["   :toctree: api", "   :nosignatures:"]
    lines = [package, "=" * len(package), "", about, "", ".. autosummary::", *options, "", *rows, ""]
    for name in constants:
        lines += [f".. py:data:: {name}", f"   :value: {lookup(name)!r}", ""]
    return "\n".join(lines)


def commands() -> str:
    """Return the page of the shell: every command with its arguments and options, in Markdown."""
    from gpudemand.cli.app import app

    root = typer.main.get_command(app)
    parts = ["# Commands", "", "`gpudemand COMMAND --help` prints the same.", ""]
    return "\n".join([*parts, *_command_lines("gpudemand", root)])


def _command_lines(name: str, command: Any) -> Iterator[str]:
    children = getattr(command, "commands", {})
    if not children:
        about = (command.help or "").split("\n\n")
        yield from (f"## {name}", "", *(line for text in about for line in (text, "")))
        yield from (
            "| | |",
            "|---|---|",
            *(_row(parameter) for parameter in command.params if parameter.name != "help"),
        )
        yield ""
    for child, inner in children.items():
        yield from _command_lines(f"{name} {child}", inner)


def _row(parameter: Any) -> str:
    """Row of a table: how an argument or option is written, what it is, and its default."""
    is_option = parameter.param_type_name == "option"
    label = (
        ", ".join([*parameter.opts, *parameter.secondary_opts])
        if is_option
        else (parameter.metavar or parameter.name.upper())
    )
    about = _OPTION.sub(r"`\1`", parameter.help or "")
    if parameter.required:
        about += " Required."
    elif parameter.default not in (None, False, "", ()):
        about += f" Default: `{parameter.default}`."
    return f"| `{label}` | {about.replace('|', chr(92) + '|').strip()} |"


def schema(content: Mapping[str, Any]) -> str:
    """Return the page of a JSON schema: every key with its type and meaning, in Markdown.

    Examples
    --------
    >>> keys = {"gpus": {"type": "integer", "description": "Installed."}}
    >>> print(schema({"title": "a.json", "description": "A plan.", "properties": keys}))
    # a.json
    <BLANKLINE>
    A plan.
    <BLANKLINE>
    | key | type | |
    |---|---|---|
    | `gpus` | integer | Installed. |
    """
    rows = (f"| `{key}` | {kind} | {about} |" for key, kind, about in _keys(content, content, ""))
    return "\n".join(
        [f"# {content['title']}", "", content["description"], "", "| key | type | |", "|---|---|---|", *rows]
    )


def _keys(content: Mapping[str, Any], root: Mapping[str, Any], place: str) -> Iterator[tuple[str, str, str]]:
    """Keys of a schema and of what lies below them: place, type, meaning; ``*`` is any name, ``[]`` an entry."""
    children = {f"{place}.{name}".lstrip("."): inner for name, inner in content.get("properties", {}).items()}
    if isinstance(content.get("additionalProperties"), dict):
        children[f"{place}.*"] = content["additionalProperties"]
    if isinstance(content.get("items"), dict):
        children[f"{place}[]"] = content["items"]
    for key, found in children.items():
        inner = {**_referred(found, root), **found}
        yield key, _kind(inner), inner.get("description", "")
        yield from _keys(inner, root, key)


def _referred(inner: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    return root["$defs"][inner["$ref"].rpartition("/")[2]] if "$ref" in inner else {}


def _kind(inner: Mapping[str, Any]) -> str:
    """Type of a value, or the values that it can have."""
    if "const" in inner:
        return f"`{inner['const']}`"
    if "enum" in inner:
        return ", ".join(f"`{value}`" for value in inner["enum"])
    kinds = inner.get("type", "any")
    text = " or ".join([kinds] if isinstance(kinds, str) else kinds)
    return f"{text}, {inner['format']}" if "format" in inner else text
