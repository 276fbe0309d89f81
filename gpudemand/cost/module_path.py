"""Networks by module path, such as ``team.networks:build``, traced in a process of their own.

What builds a network is code of others: it runs in a child in Python's safe-path mode (``-P``), where no file of the
working directory takes the place of a library, and only numbers and names come back.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from typing import Any, Self

import gpudemand
from gpudemand._child import Child, serve
from gpudemand._validation import InputError, stack_level
from gpudemand.cost.graph import OpGraph
from gpudemand.cost.job import tracer_of
from gpudemand.cost.networks import built
from gpudemand.cost.operators import IncompleteTraceWarning, UnknownOperatorWarning

_WARNINGS = {kind.__name__: kind for kind in (IncompleteTraceWarning, UnknownOperatorWarning)}
#: The package of this process, wherever it lies, and nothing else beside it.
_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); import gpudemand; del sys.path[0]; import {0}; {0}.main()"


def is_module_path(text: str) -> bool:
    """Whether a text is ``package.module:factory``, rather than a published name or a file.

    >>> is_module_path("team.networks:build"), is_module_path("hf:config.json"), is_module_path("net.py:f")
    (True, False, False)
    """
    module, colon, name = text.partition(":")
    words = [*module.split("."), name]
    return bool(colon) and module != "hf" and words[-2] != "py" and all(map(str.isidentifier, words))


class NetworkTracer:
    """Graphs of what factories build, ``package.module:factory``: a function, a class, or a network.

    A context: the process in which networks are built is started for the first one and serves those after it, for
    importing a framework takes longer than tracing. `folder`: where modules are looked for that are not installed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def trace(self, place: str, input_shape: Any = None, input_dtype: Any = None) -> OpGraph:
        """Graph of a network; shape and data type as for `OpGraph.from_torch` and `OpGraph.from_keras`."""
        if self._child is None:
            self._child = Child(["-c", _CHILD.format(__name__), str(Path(gpudemand.__file__).parent.parent)])
        folder = str(self._folder.resolve())
        answer = self._child.ask({"place": place, "shape": input_shape, "dtype": input_dtype, "folder": folder})
        if answer is None:
            raise InputError(f"{place!r} ended its process: {self._last_words()}")
        if "error" in answer:
            raise InputError(answer["error"])
        for kind, text in answer["warnings"]:
            warnings.warn(text, _WARNINGS[kind], stacklevel=stack_level())
        return OpGraph.from_dict(answer["graph"])

    def _last_words(self) -> str:
        assert self._child is not None
        code, lines = self._child.wait(), self._child.said().strip().splitlines()
        self._close()  # the next network has a new process
        return lines[-1] if lines else f"exit status {code}"

    def _close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def main() -> None:
    """Answer requests until the input ends."""
    serve(_answer)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    if request["folder"] not in sys.path:
        sys.path.append(request["folder"])  # last: it takes the place of nothing
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            graph = _traced(request["place"], _shapes(request["shape"]), request["dtype"])
        except InputError as error:
            return {"error": str(error)}
    said = [[type(one.message).__name__, str(one.message)] for one in caught]
    return {"graph": graph.to_dict(), "warnings": [one for one in said if one[0] in _WARNINGS]}


def _traced(place: str, shape: Any, dtype: Any) -> OpGraph:
    module, _, name = place.partition(":")
    try:
        found = importlib.import_module(module)
    except Exception as error:
        hint = "install it, or put it beside the plan" if isinstance(error, ModuleNotFoundError) else "mend it"
        raise InputError(f"{module!r} cannot be imported ({type(error).__name__}: {error}); {hint}.") from error
    model = built(found, name, module)
    trace = tracer_of(model)
    if shape is None and trace == OpGraph.from_torch:
        raise InputError(f"{place!r} is of PyTorch and needs input, the shape of one sample: input = [3, 224, 224].")
    return trace(model, shape, input_dtype=dtype)


def _shapes(given: Any) -> Any:
    """Shapes as tuples, which JSON has as lists: of one input, or of several by position or by name."""
    if isinstance(given, dict):
        return {name: tuple(shape) for name, shape in given.items()}
    several = isinstance(given, list) and bool(given) and isinstance(given[0], list)
    return [tuple(shape) for shape in given] if several else None if given is None else tuple(given)
