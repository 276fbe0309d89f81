"""Promises about the whole package: who imports whom, what an import costs, what the top level offers."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import gpudemand

PACKAGE = Path(gpudemand.__file__).parent

#: Layers from the bottom up. A module imports its own folder or lower layers, never a neighbour or one above.
LAYERS = [
    {"_validation", "_files", "_array", "_child", "_parallel", "_tables", "units", "metrics"},
    {"store"},
    {"jobs"},
    {"usage", "datasets", "pull"},
    {"cost", "segments", "forecast"},
    {"planning", "bulk", "saved"},
    {"study"},
    {"plotting"},
    {"report", "widgets"},
    {"cli", "__main__"},
]
FLAT = {0, 9}  # layers whose members may use one another
#: `Study.report` renders a study, as a convenience: the one arrow that points up.
UPWARDS = {("study", "report")}
HEAVY = {"torch", "tensorflow", "keras", "gtda", "gph"}
MODULES = sorted(PACKAGE.rglob("*.py"))
#: A longer file holds two subjects.
MOST_LINES = 800


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path): path for path in MODULES}
#: Where a report of a log may reach the code of costs, and what asks for it.
COSTS_ON_DEMAND = {
    ("gpudemand.planning.programmes", "_bundled_costs"): "a programme of training jobs that names no predictor",
    ("gpudemand.planning.training_run_time", "_training_job"): "the networks of a log, given to `CostStepTime`",
    ("gpudemand.study.plan_file", "training"): "a programme of a plan file that states a training job",
    ("gpudemand.study.plan_file", "_predictor"): "the predictor that a plan file names for it",
    ("gpudemand.study.plan_file", "_tracer"): "the networks of a log, compared with what its jobs took",
    ("gpudemand.study.plan_file", "adapter"): "the adapter of such a job",
    ("gpudemand.study.plan_file", "layout"): "the layout of such a job",
    ("gpudemand.study.speeds", "_mix"): "purchases that are compared, of types that the log lacks",
    ("gpudemand.plotting.cost", "_matrix"): "the figure of a network, which no report has",
}


def is_for_types_only(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def import_nodes(tree, without=()):
    """Imports of a module, those inside functions but for some included; what type checkers alone read is left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif not is_for_types_only(node) and getattr(node, "name", None) not in without:
            yield from import_nodes(node, without)


@cache
def tree_of(path):
    return ast.parse(path.read_text())


@cache
def imported(path, without=()):
    """Full names of the modules of this package that a file imports, but for some functions."""
    found = set()
    for node in import_nodes(tree_of(path), without):
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


def downward(name):
    """Modules that a module imports, without those of `UPWARDS`."""
    return {other for other in imported(NAMES[name]) if (folder_of(name), folder_of(other)) not in UPWARDS}


def layer_of(name):
    return next((number for number, members in enumerate(LAYERS) if name in members), None)


def upward(path):
    """Folders above its own, or beside it, that a module imports."""
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    below = {name.split(".")[1] for name in imported(path) if "." in name} - {own}
    layer = layer_of(own)
    return {
        (own, name)
        for name in below
        if own != "__init__" and not (layer_of(name) < layer or (layer_of(name) == layer and layer in FLAT))
    }


def test_every_folder_belongs_to_a_layer():
    parts = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES} - {"__init__"}
    assert {part for part in parts if layer_of(part) is None} == set()


def test_import_direction():
    assert set().union(*map(upward, MODULES)) == UPWARDS


def test_no_circle_between_files():
    assert circles({name: downward(name) for name in NAMES}) == []


def test_no_circle_between_folders():
    arrows = {}
    for name in NAMES:
        own = folder_of(name)
        arrows.setdefault(own, set()).update({folder_of(other) for other in downward(name)} - {own})
    assert circles(arrows) == []


def reached(start):
    """Modules that a module imports, and those that they import, but for `COSTS_ON_DEMAND`."""
    found, new = set(), {start}
    while new:
        found |= new
        names = {name: tuple(function for module, function in COSTS_ON_DEMAND if module == name) for name in new}
        new = set().union(*(imported(NAMES[name], functions) for name, functions in names.items())) - found
    return found


def test_a_report_reaches_no_code_of_costs():
    found = reached("gpudemand.cli.report")
    assert {name for name in found if name.startswith("gpudemand.cost")} == set()
    assert {module for module, _ in COSTS_ON_DEMAND} <= found
    for module, function in COSTS_ON_DEMAND:
        others = tuple(name for place, name in COSTS_ON_DEMAND if place == module and name != function)
        assert any(name.startswith("gpudemand.cost") for name in imported(NAMES[module], others)), function


@pytest.mark.slow
def test_a_report_on_a_log_loads_no_code_of_costs(tmp_path):
    code = """
import sys
import gpudemand
jobs, _ = gpudemand.make_cluster(n_users=8, n_days=30, random_state=0)
gpudemand.Study(jobs, installed=100, horizon=4, lead_time="7D").report(sys.argv[1])
print(*(name for name in sys.modules if name.startswith("gpudemand.cost")))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "report")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    tree = ast.parse("def f():\n    from gpudemand.usage import series\nif TYPE_CHECKING:\n    import gpudemand.units")
    assert [node.module for node in import_nodes(tree)] == ["gpudemand.usage"]


def test_a_file_holds_one_subject():
    assert {path.name for path in MODULES if path.read_text().count("\n") > MOST_LINES} == set()


def backs_a_framework(module):
    """Private modules with a framework in their name hold what can only be written with it at hand."""
    name = module.rsplit(".", 1)[-1]
    return name.startswith("_") and ("torch" in name or "keras" in name)


def loaded_at_import(path):
    """Modules that a file imports at its top level."""
    for node in tree_of(path).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_heavy_frameworks_are_loaded_on_first_use_only():
    for path in MODULES:
        if not backs_a_framework(path.stem):
            found = set(loaded_at_import(path))
            assert not HEAVY & {module.split(".")[0] for module in found}, path.name
            assert not any(map(backs_a_framework, found)), path.name


def test_import_is_light():
    code = "import sys, time; t = time.perf_counter(); import gpudemand; print(time.perf_counter() - t, *sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, *modules = run.stdout.split()
    assert float(seconds) < 0.3
    assert not {*HEAVY, "pandas", "matplotlib"} & set(modules)


def test_every_name_of_the_top_level_exists_and_is_documented():
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    names = [alias.name for node in import_nodes(tree) for alias in node.names]
    for name in names:
        assert getattr(gpudemand, name).__doc__, name
    assert len(names) == len(set(names)) > len(gpudemand.__all__)
    assert set(gpudemand.__all__) <= set(names)
    assert len(gpudemand.__all__) <= 50
    assert set(gpudemand.__all__) == set(dir(gpudemand))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No gpudemand attribute forecaster"):
        gpudemand.forecaster  # noqa: B018


def test_sub_packages_are_attributes_whatever_was_used_before():
    names = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py") if not path.parent.name.startswith("_"))
    code = f"import gpudemand as gd; print(*(getattr(gd, name).__name__ for name in {names}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [f"gpudemand.{name}" for name in names]
