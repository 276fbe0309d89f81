"""Promises about the whole package: who imports whom, what an import costs, what the top level offers."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import gpudemand

PACKAGE = Path(gpudemand.__file__).parent

#: Layers from the bottom up. A module imports its own layer's package or lower layers, never a neighbour or one above.
LAYERS = [
    {
        "_typing",
        "_validation",
        "_atomic",
        "_compiled",
        "_manifest",
        "_tables",
        "_linalg",
        "_parallel",
        "_printing",
        "units",
        "metrics",
    },
    {"store", "slurm"},
    {"jobs"},
    {"usage", "datasets", "pull"},
    {"cost", "segments", "forecast"},
    {"planning", "bulk"},
    {"plotting"},
    {"stages"},
    {"report", "widgets"},
    {"study"},
    {"planfile"},
    {"cli", "__main__"},
]
FLAT = {0, 11}  # layers whose members may use one another
HEAVY = {"torch", "tensorflow", "keras", "gtda", "gph"}
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_MODULES = 15


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path): path for path in MODULES}


def is_for_types_only(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def import_nodes(tree):
    """Imports of a module, those inside functions included; only what type checkers alone read is left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif not is_for_types_only(node):
            yield from import_nodes(node)


def imported(path):
    """Full names of the modules of this package that a file imports."""
    found = set()
    for node in import_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in NAMES}
        elif node.module in NAMES:
            whole = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in NAMES else node.module for name in whole}
    return found - {module_name(path)}


def folder_of(name):
    """Folder of a module; the few at the top are their own, because foundations and widgets lie side by side there."""
    folder = NAMES[name].parent
    return name if folder == PACKAGE else str(folder.relative_to(PACKAGE))


def circles(arrows):
    """Groups of nodes that reach one another (networkx is no dependency; graphlib names one circle of each group)."""
    sorter = TopologicalSorter(arrows)
    try:
        sorter.prepare()
    except CycleError as error:
        return error.args[1]
    return []


def layer_of(name):
    return next((number for number, members in enumerate(LAYERS) if name in members), None)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_import_direction(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    layer = layer_of(own)
    assert layer is not None, f"{own} belongs to no layer"
    below = {name.split(".")[1] for name in imported(path) if "." in name}
    for name in below - {own}:
        other = layer_of(name)
        assert other is not None, f"{path.name} imports {name}, which belongs to no layer"
        assert other < layer or (other == layer and layer in FLAT), f"{own} must not import {name}"


def test_no_circle_between_files():
    assert circles({name: imported(path) for name, path in NAMES.items()}) == []


def test_no_circle_between_folders():
    arrows = {}
    for name, path in NAMES.items():
        own = folder_of(name)
        arrows.setdefault(own, set()).update({folder_of(other) for other in imported(path)} - {own})
    assert circles(arrows) == []


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    tree = ast.parse("def f():\n    from gpudemand.usage import series\nif TYPE_CHECKING:\n    import gpudemand.units")
    assert [node.module for node in import_nodes(tree)] == ["gpudemand.usage"]


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=lambda p: p.name)
def test_a_folder_can_be_taken_in_at_a_glance(folder):
    assert len(list(folder.glob("*.py"))) <= MOST_MODULES


def backs_a_framework(module):
    """Private modules with a framework in their name hold what can only be written with it at hand."""
    name = module.rsplit(".", 1)[-1]
    return name.startswith("_") and ("torch" in name or "keras" in name)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_frameworks_are_loaded_on_first_use_only(path):
    if backs_a_framework(path.stem):
        return
    for node in ast.parse(path.read_text()).body:
        modules = (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        assert not HEAVY & {module.split(".")[0] for module in modules}
        assert not any(backs_a_framework(module) for module in modules)


def test_import_is_light():
    code = "import sys, time; t = time.perf_counter(); import gpudemand; print(time.perf_counter() - t, *sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, *modules = run.stdout.split()
    assert float(seconds) < 0.3
    assert not {*HEAVY, "pandas", "matplotlib"} & set(modules)


def test_every_name_of_the_top_level_exists_and_is_documented():
    assert len(gpudemand.__all__) > 50
    for name in gpudemand.__all__:
        thing = getattr(gpudemand, name)
        assert thing.__doc__, name
    assert set(gpudemand.__all__) <= set(dir(gpudemand))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No gpudemand attribute forecaster"):
        gpudemand.forecaster  # noqa: B018
