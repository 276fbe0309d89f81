"""Compiled functions: the cache on disk."""

from __future__ import annotations

import importlib
import sys

from gpudemand import _compiled

CALLED = "from gpudemand._compiled import compiled\n\n@compiled\ndef f(x):\n    return x + {}\n"
CALLER = "from gpudemand._compiled import compiled\nfrom {} import f\n\n@compiled\ndef g(x):\n    return f(x)\n"


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
