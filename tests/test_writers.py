"""Every writer of the package goes through `gpudemand._files`, and nothing loads pickle."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import gpudemand

PACKAGE = Path(gpudemand.__file__).parent
SAFE = ("replace_file", "replace_folder")
#: Methods that write to the file they are given.
METHODS = {"write_text", "write_bytes", "savefig", "print_png", "print_svg", "savez", "savez_compressed", "savetxt"}
METHODS |= {"to_parquet", "to_pickle", "to_feather", "to_excel", "to_hdf", "to_orc", "to_stata", "to_file", "tofile"}
METHODS |= {"write_table", "write_dataset", "write_parquet", "write_csv", "ParquetWriter", "retrieve", "urlretrieve"}
METHODS |= {"touch"}
#: Methods that return text if they are given no file.
OPTIONAL = {"to_csv", "to_json", "to_html", "to_markdown", "to_latex", "to_xml", "to_string"}
#: Functions of modules.
FUNCTIONS = {"os.replace", "os.rename", "os.link", "os.truncate", "os.open", "np.save", "json.dump", "pickle.dump"}
FUNCTIONS |= {
    f"shutil.{name}" for name in ("move", "copy", "copy2", "copyfile", "copytree", "rmtree", "unpack_archive")
}
MODE_SECOND = {"open", "gzip.open", "bz2.open", "lzma.open", "io.open", "os.fdopen", "codecs.open", "tarfile.open"}
#: Function of the package -> why it may write by itself.
ALLOWED = {
    "_files.py": "the place where it is done",
    "_child.py:serve": "a pipe",
    "_tables.py:write_table": "calls pandas inside replace_file",
    "bulk.py:bulk_forecast": "deletes the parts of a log that a finished run no longer needs",
    "bulk.py:_parts": "deletes parts that are damaged",
    "bulk.py:_write_intervals": "writes into the new folder of replace_folder",
    "bulk.py:open_run": "deletes unfinished work of a killed process",
    "cost/tracing.py:quiet_tensorflow": "the null device",
    "datasets/registry.py:fetch_file": "pooch writes a temporary file, compares its checksum and renames it",
    "jobs/files.py:as_file": "into a temporary folder",
    "report/build.py:_write": "writes into the new folder of replace_folder",
    "report/history.py:keep_history": "writes into the new folder of replace_folder",
    "report/history.py:_keep_edited": "writes into the new folder of replace_folder",
    "report/build.py:write_tables": "write_table is of this package",
    "report/figures.py:_draw": "in memory",
    "pull/slurm.py:call": "into what Store.scratch yields",
    "store.py:locked_folder": "a lock, which stays empty, and beside it who holds it",
    "store.py": "files named after their contents, which count once the manifest lists them, and no longer",
    "widgets.py:_drawn": "in memory",
    "cli/app.py:usage": "write_table is of this package",
}


#: Last parts of what may write: `ast.unparse` of every call of the package takes a second.
LAST = {name.rsplit(".", 1)[-1] for name in METHODS | OPTIONAL | FUNCTIONS | MODE_SECOND}


@cache
def tree_of(path):
    return ast.parse(path.read_text())


def last_name(call):
    """The last part of the name of what is called."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def writes(call):
    """Whether a call writes a file."""
    if last_name(call) not in LAST:
        return False
    name = ast.unparse(call.func)
    last = name.rsplit(".", 1)[-1]
    if last == "open" or name in MODE_SECOND:
        place = 1 if name in MODE_SECOND else 0
        given = [key.value for key in call.keywords if key.arg == "mode"] or call.args[place : place + 1]
        # A method may be an `open` of this package, with a path: there, only a literal is a mode.
        modes = [mode.value if isinstance(mode, ast.Constant) else "w" if place else "" for mode in given]
        return name == "os.open" or any(isinstance(mode, str) and set(mode) & set("wax+") for mode in modes)
    if last in OPTIONAL:
        return bool(call.args) or any(key.arg in ("path_or_buf", "buf") for key in call.keywords)
    return last in METHODS or name in FUNCTIONS


def copies(node):
    """Whether a text is an SQL command that writes a file."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\bCOPY\b.*\bTO\b", node.value)


def unsafe_writes(tree):
    """Function and text of each write that does not name what an enclosing `with replace_...() as name` yields."""
    found = []

    def visit(node, function, names):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function, names = node.name, set()
        if isinstance(node, ast.With):
            items = [i for i in node.items if ast.unparse(i.context_expr).startswith(SAFE) and i.optional_vars]
            names = names | {ast.unparse(item.optional_vars) for item in items}
        if (isinstance(node, ast.Call) and writes(node)) or copies(node):
            used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            if not used & names:
                found.append((function, ast.unparse(node)))
        for child in ast.iter_child_nodes(node):
            visit(child, function, names)

    visit(tree, "", set())
    return found


def test_nothing_else_writes():
    seen = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        for function, text in unsafe_writes(tree_of(path)):
            excuse = {file, f"{file}:{function}"} & set(ALLOWED)
            assert excuse, f"{file}, {function}: {text}; write inside `with replace_file(path) as new`"
            seen |= excuse
    assert set(ALLOWED) - seen <= {"_tables.py:write_table"}, "an exception that is not needed"


@pytest.mark.parametrize(
    "code",
    [
        "open(p, 'w')",
        "open(p, mode='ab')",
        "open(p, m)",
        "p.open('r+b')",
        "gzip.open(p, 'wt')",
        "p.write_text(t)",
        "frame.to_csv(p)",
        "frame.to_parquet(p)",
        "np.savez(p, **a)",
        "np.save(p, a)",
        "json.dump(x, f)",
        "figure.savefig(p)",
        "shutil.copy(a, b)",
        "os.replace(a, b)",
        "db.sql('COPY (SELECT 1) TO ?')",
        "with replace_file(p) as new:\n    other.write_text(t)",
        "with open_for_reading(p) as new:\n    new.write_text(t)",
    ],
)
def test_a_write_is_found(code):
    assert unsafe_writes(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "open(p)",
        "open(p, 'rb')",
        "p.open(newline='')",
        "frame.to_csv(sep=' ')",
        "text.replace('a', 'b')",
        "with replace_file(p) as new:\n    frame.to_csv(new)",
        "with replace_folder(p, 'm', {}) as f:\n    (f / 'a').write_text(t)",
    ],
)
def test_other_calls_are_left_alone(code):
    assert not unsafe_writes(ast.parse(code))


#: What runs code that a file holds.
PICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "shelve", "marshal", "jsonpickle"}
LOADERS = {
    "read_pickle",
    "load_weights",
    "saving.load_model",
    "models.load_model",
    "torch.load",
    "joblib.load",
    "yaml.load",
}
LAST_OF_LOADERS = tuple(name.rsplit(".", 1)[-1] for name in LOADERS)


def unpickles(node):
    """Whether a node imports or calls what loads pickle."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        return bool({module.split(".")[0] for module in modules} & PICKLES)
    if not isinstance(node, ast.Call) or not last_name(node).endswith(LAST_OF_LOADERS):
        return False
    name = ast.unparse(node.func)
    if name in ("np.load", "numpy.load"):
        return not any(key.arg == "allow_pickle" and ast.unparse(key.value) == "False" for key in node.keywords)
    return name.endswith(tuple(LOADERS))


#: Machine code that Numba stores and would unpickle itself, here after its checksum.
CACHES = {PACKAGE / "_array.py"}


@pytest.mark.slow
def test_nothing_loads_pickle():
    for path in sorted(set(PACKAGE.rglob("*.py")) - CACHES):
        for node in ast.walk(tree_of(path)):
            assert not unpickles(node), f"{path.relative_to(PACKAGE)}: {ast.unparse(node)}"


@pytest.mark.parametrize(
    "code", ["import pickle", "from joblib.externals import cloudpickle\nimport dill", "np.load(f)", "torch.load(f)"]
)
def test_a_load_of_pickle_is_found(code):
    assert any(unpickles(node) for node in ast.walk(ast.parse(code)))
