"""Size and shape of the package, beside what it was and what it should be: ``python -m benchmarks.house``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pandas as pd

import gpudemand
from gpudemand._tables import aligned

PACKAGE = Path(gpudemand.__file__).parent
#: Options of a study, each of which should stand in few files.
OPTIONS = ("wait_share", "service_level", "lead_time")
MOST_LINES = 800
#: What `measure` says of commit 1ed4808, before files were merged.
BEFORE = {
    "lines": "55,710",
    "files": "421",
    "lines of imports": "3,989",
    "lines that a report reaches": "47,538",
    "... with costs only on demand": "45,193",
    f"files that name {', '.join(OPTIONS)}": "12, 26, 20",
    "names in gpudemand.__all__": "103",
    "median file": "124",
    "largest file": "304",
    f"files over {MOST_LINES} lines": "0",
}
#: Where the row has one.
AIM = {"lines": "40,000", "files": "115", "lines of imports": "2,000", "median file": "300", "largest file": "800"}
AIM[f"files over {MOST_LINES} lines"] = "0"


def measure(package: Path = PACKAGE) -> dict[str, str]:
    """Return the rows of the table: what is measured, and its value."""
    text = {path: path.read_text() for path in sorted(package.rglob("*.py"))}
    length = {path: source.count("\n") for path, source in text.items()}
    stub = ast.parse((package / "__init__.pyi").read_text()).body
    (public,) = (node.value for node in stub if isinstance(node, ast.Assign))
    named = (sum(bool(re.search(rf"\b{option}\b", source)) for source in text.values()) for option in OPTIONS)
    start = package / "cli" / "report.py"
    values = {
        "lines": sum(length.values()),
        "files": len(text),
        "lines of imports": sum(map(import_lines, text.values())),
        "lines that a report reaches": sum(length[path] for path in reached(start, package)),
        "... with costs only on demand": sum(length[path] for path in reached(start, package, ("gpudemand.cost",))),
        f"files that name {', '.join(OPTIONS)}": ", ".join(map(str, named)),
        "names in gpudemand.__all__": len(ast.literal_eval(public)),
        "median file": median(length.values()),
        "largest file": max(length.values()),
        f"files over {MOST_LINES} lines": sum(lines > MOST_LINES for lines in length.values()),
    }
    return {name: value if isinstance(value, str) else f"{value:,.0f}" for name, value in values.items()}


def import_lines(source: str) -> int:
    """Source lines of import statements, those of several lines with each of them."""
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in found)


def reached(start: Path, package: Path, on_demand: tuple[str, ...] = ()) -> set[Path]:
    """Files that a file imports, those that they import, and so on; deferred imports of `on_demand` are left out."""
    found, new = set(), {start}
    while new:
        found |= new
        new = {path for file in new for path in _imported(file, package, on_demand)} - found
    return found


def _imported(file: Path, package: Path, on_demand: tuple[str, ...]) -> Iterator[Path]:
    for node, is_deferred in _imports(ast.parse(file.read_text())):
        for alias in node.names:
            module = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
            if not (is_deferred and module.startswith(on_demand)):
                yield from _files(module, alias.name, package)


def _files(module: str, member: str, package: Path) -> Iterator[Path]:
    """File of a module, or of its member, which the stub of a lazy folder may take from elsewhere."""
    first, *parts = module.split(".")
    place = package.joinpath(*parts)
    if first != "gpudemand":
        return
    yield from (path for path in (place.with_suffix(".py"), place / "__init__.py") if parts and path.is_file())
    yield from (path for path in (place / f"{member}.py", place / member / "__init__.py") if path.is_file())
    if parts and (place / "__init__.pyi").is_file():
        for node in ast.parse((place / "__init__.pyi").read_text()).body:
            if isinstance(node, ast.ImportFrom) and member in (alias.name for alias in node.names):
                yield from _files(f"{module}.{node.module}", member, package)


def _imports(tree: ast.AST, *, is_deferred: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Imports, and whether they stand in a function; what type checkers alone read is left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, is_deferred
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield from _imports(node, is_deferred=is_deferred or isinstance(node, ast.FunctionDef))


def table() -> pd.DataFrame:
    """Return the table that is printed."""
    rows = [(name, value, AIM.get(name, ""), BEFORE[name]) for name, value in measure().items()]
    return pd.DataFrame(rows, columns=["", "today", "aim", "at 1ed4808"])


if __name__ == "__main__":
    print(aligned(table()))
