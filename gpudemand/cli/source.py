"""Command-line arguments of networks, ``module.py:build_model``, and of input shapes, ``3x224x224``."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from gpudemand._validation import InputError, nearest


def load_model(place: str) -> Any:
    """Run a Python file, and load a network from it or call the function or class that builds one.

    The file is executed with all that it does, like ``python file.py`` under another name than ``__main__``.

    Parameters
    ----------
    place : str
        ``file.py:name``: a function without parameters, a class that needs none, or a model.

    Returns
    -------
    torch.nn.Module, keras.Model or whatever it makes

    Raises
    ------
    InputError
        If there is no such file or name, or the file or the function fails.
    """
    path, colon, name = place.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise InputError(
            f"{place!r} is not of the form file.py:name; write file.py:name, such as model.py:build_model."
        )
    module = _run_file(Path(path))
    if not hasattr(module, name):
        public = [word for word in vars(module) if not word.startswith("_")]
        raise InputError(f"{Path(path).name} has no {name!r}.{nearest(name, public)}")
    found = getattr(module, name)
    if not isinstance(found, type) and not _is_function(found):
        return found
    try:
        return found()
    except Exception as error:
        raise InputError(f"{name}() of {Path(path).name} failed: {type(error).__name__}: {error}.") from error


def _is_function(found: Any) -> bool:
    # Models are callable as well; functions and partials have code.
    return hasattr(found, "__code__") or hasattr(found, "func")


def _run_file(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}; give the path of the file that builds the network.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The file may import modules beside it.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{path.name} cannot be run: {type(error).__name__}: {error}.") from error
    finally:
        sys.path.pop(0)
    return module


def parse_shape(text: str) -> tuple[int, ...]:
    """Read the shape of one sample.

    Parameters
    ----------
    text : str
        Numbers with ``x`` between them.

    Raises
    ------
    InputError
        For any other text.

    Examples
    --------
    >>> parse_shape("3x224x224"), parse_shape("128")
    ((3, 224, 224), (128,))
    """
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text.strip().lower()):
        raise InputError(
            f"input {text!r} is not a shape; write the sizes of one sample with x between, such as 3x224x224."
        )
    return tuple(int(size) for size in text.strip().lower().split("x"))
