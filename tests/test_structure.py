"""Promises about the whole package: who imports whom, what an import costs, what the top level offers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gpudemand

PACKAGE = Path(gpudemand.__file__).parent

#: Layers from the bottom up. A module imports its own layer's package or lower layers, never a neighbour or one above.
LAYERS = [
    {"_typing", "_validation", "_linalg", "_parallel", "units", "metrics"},
    {"jobs", "usage", "hierarchy", "_bins", "_log", "datasets"},
    {"cost", "segments", "forecast"},
    {"planning"},
    {"plotting"},
    {"report", "widgets", "cli", "cli_cost", "_terminal", "__main__"},
]
FLAT = {0, 1, 5}  # layers whose members may use one another
HEAVY = {"torch", "tensorflow", "keras", "gtda", "gph"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def layer_of(name):
    return next((number for number, members in enumerate(LAYERS) if name in members), None)


def imported(path):
    """Modules of this package that a file imports, as first component below gpudemand."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gpudemand"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("gpudemand.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_import_direction(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    layer = layer_of(own)
    assert layer is not None, f"{own} belongs to no layer"
    for name in imported(path) - {own, "__version__"}:
        other = layer_of(name)
        assert other is not None, f"{path.name} imports {name}, which belongs to no layer"
        assert other < layer or (other == layer and layer in FLAT), f"{own} must not import {name}"


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
    assert float(seconds) < 1.0
    assert not {*HEAVY, "pandas", "matplotlib"} & set(modules)


def test_every_name_of_the_top_level_exists_and_is_documented():
    assert set(gpudemand.__all__) == set(gpudemand._HOME)
    for name in gpudemand.__all__:
        thing = getattr(gpudemand, name)
        assert thing.__doc__, name
    assert set(gpudemand.__all__) <= set(dir(gpudemand))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'forecaster'"):
        gpudemand.forecaster  # noqa: B018
