"""Compiled functions: the cache on disk."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.bytecode import FunctionIdentity

from gpudemand import _array as _compiled

PACKAGE = Path(_compiled.__file__).parent
CALLED = "from gpudemand._array import compiled\n\n@compiled\ndef f(x):\n    return x + {}\n"
CALLER = "from gpudemand._array import compiled\nfrom {} import f\n\n@compiled\ndef g(x):\n    return f(x)\n"


def calls(folder, monkeypatch, added, name):
    """What the caller gives in a new process, with how often it was compiled."""
    (folder / f"{name}.py").write_text(CALLED.format(added))
    monkeypatch.setattr(_compiled, "_PACKAGE", folder)
    _compiled._sources.cache_clear()
    for module in (name, "caller"):
        sys.modules.pop(module, None)
    importlib.invalidate_caches()
    g = importlib.import_module("caller").g
    return g(1), sum(g.stats.cache_misses.values())


def test_a_function_is_compiled_once_for_all_constants(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fourth.py").write_text(f"{CALLED.format(1)}\n@compiled\ndef g(x):\n    return f(x) + f(2) + f(3)\n")
    try:
        f = _imported("fourth", monkeypatch, tmp_path)
        assert sys.modules["fourth"].g(1) == 9
        assert len(f.signatures) == 1
    finally:
        _compiled._sources.cache_clear()


def test_a_changed_function_in_another_file_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "caller.py").write_text(CALLER.format("called"))
    try:
        assert calls(tmp_path, monkeypatch, 1, "called") == (2, 1)
        assert calls(tmp_path, monkeypatch, 1, "called") == (2, 0)
        assert calls(tmp_path, monkeypatch, 20, "called") == (21, 1)
    finally:
        _compiled._sources.cache_clear()


def test_a_change_where_nothing_is_compiled_keeps_what_was(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "caller.py").write_text(CALLER.format("fifth"))
    try:
        assert calls(tmp_path, monkeypatch, 1, "fifth") == (2, 1)
        (tmp_path / "other.py").write_text("from gpudemand._array import FloatArray\n")
        assert calls(tmp_path, monkeypatch, 1, "fifth") == (2, 0)
    finally:
        _compiled._sources.cache_clear()


def test_compiled_functions_use_nothing_of_modules_where_nothing_is_compiled():
    """What they held of those would stay as it was when those change."""
    compiling = {path for path in PACKAGE.rglob("*.py") if _compiled._COMPILES.search(path.read_bytes())}
    assert len(compiling) > 5
    for path in compiling - {PACKAGE / "_array.py"}:
        tree = ast.parse(path.read_text())
        imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and "gpudemand" in str(node.module)]
        away = {
            name.asname or name.name
            for node in imports
            if PACKAGE.parent / f"{node.module.replace('.', '/')}.py" not in compiling
            for name in node.names
        }
        for function in tree.body:
            if isinstance(function, ast.FunctionDef) and function.decorator_list:
                used = {
                    node.id for statement in function.body for node in ast.walk(statement) if isinstance(node, ast.Name)
                }
                assert not used & away, (path, function.name)


def test_two_processes_that_compile_at_once_do_not_exchange_their_code(tmp_path, monkeypatch):
    """Each stores another signature."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "second.py").write_text(CALLED.replace("x + {}", "x[1]"))
    try:
        assert _imported("second", monkeypatch, tmp_path)(np.arange(4.0)[::2]) == 2
        assert _imported("second", monkeypatch, tmp_path)(np.arange(4.0)) == 1
        again = _imported("second", monkeypatch, tmp_path)
        assert again(np.arange(4.0)[::2]) == 2
        assert sum(again.stats.cache_hits.values()) == 1
    finally:
        _compiled._sources.cache_clear()


def test_a_damaged_cache_and_one_that_cannot_be_written_are_compiled_anew(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "third.py").write_text(CALLED.replace("x + {}", "x[2]"))
    try:
        assert _imported("third", monkeypatch, tmp_path)(np.arange(4.0)) == 2
        (code,) = tmp_path.rglob("*.nbc")
        whole = code.read_bytes()
        middle = len(whole) // 2
        for damaged in (b"", whole[:middle], whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]):
            code.write_bytes(damaged)
            f = _imported("third", monkeypatch, tmp_path)
            assert f(np.arange(4.0)) == 2
            assert sum(f.stats.cache_hits.values()) == 0
            assert len(code.read_bytes()) == len(whole)
        code.unlink()
        code.mkdir()  # nothing can be written in its place
        assert _imported("third", monkeypatch, tmp_path)(np.arange(4.0)) == 2
    finally:
        _compiled._sources.cache_clear()


@pytest.mark.slow
def test_names_of_machine_code_differ_from_process_to_process():
    """Equal names of inner functions of sorting that differ made a process that loads the code of two others crash."""
    code = (
        "from gpudemand._array import compiled\n"
        "f = compiled(lambda x: x + 1)\nf(1)\nprint(f.overloads[f.signatures[0]].fndesc.mangled_name)"
    )
    command = [sys.executable, "-c", code]
    names = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(2)]
    assert names[0] != names[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_numbers_apart():
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, str(next(FunctionIdentity._unique_ids)).encode())
        os._exit(0)
    os.wait()
    assert abs(int(os.read(read, 100)) - next(FunctionIdentity._unique_ids)) > 1000


def _imported(name, monkeypatch, folder):
    monkeypatch.setattr(_compiled, "_PACKAGE", folder)
    _compiled._sources.cache_clear()
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return importlib.import_module(name).f
