"""Types of arrays, linear algebra of many small systems, and compiled functions."""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ContextDecorator, suppress
from functools import cache, partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numpy as np
import pandas as pd
from numba.core.dispatcher import Dispatcher
from numba.core.types import unliteral
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]

#: Text is Arrow-backed with NaN for missing: what pandas 3 calls ``str``, the same on pandas 2.3.
STRING = pd.StringDtype("pyarrow", na_value=np.nan)


class _OneThread(ContextDecorator):
    """Reentrant limit of all BLAS libraries to one thread; only the outermost entry touches the libraries."""

    def __init__(self) -> None:
        self._lock, self._depth = Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._depth:
                self._limit = _libraries().limit(limits=1)
            self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._depth -= 1
            if not self._depth:
                self._limit.restore_original_limits()


_ONE_THREAD = _OneThread()


def one_thread() -> _OneThread:
    """Limit BLAS to one thread, as a context manager or decorator; nested entries cost nothing."""
    return _ONE_THREAD


def solve_each(a: FloatArray, b: FloatArray) -> FloatArray:
    """Solve many small systems of equations on one thread; `a`: shape (..., n, n), `b`: (..., n)."""
    with _ONE_THREAD:
        return np.asarray(np.linalg.solve(a, b[..., None])[..., 0])


def unmasked(values: object) -> object:
    """Return what is given; of a masked array floats, NaN where it is masked.

    >>> unmasked(np.ma.masked_greater([1, 99], 50))
    array([ 1., nan])
    """
    return np.ma.filled(values.astype(float), np.nan) if isinstance(values, np.ma.MaskedArray) else values


@cache
def _libraries() -> ThreadpoolController:
    # SciPy has a BLAS of its own, which must be loaded to be limited. Finding the libraries is slow: do it once.
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()


F = TypeVar("F", bound=Callable[..., Any])
_PACKAGE = Path(__file__).parent


def _number_apart() -> None:
    """Let Numba number functions from a random one on.

    The numbers are part of the names in machine code, which is cached. Counted from 1 in each process, they gave inner
    functions of sorting that differ one name, and a process that loaded the code of two others confused them.
    """
    with suppress(ImportError):
        from numba.core.bytecode import FunctionIdentity

        FunctionIdentity._unique_ids = itertools.count(secrets.randbits(48))


_number_apart()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_number_apart)


def compiled(function: F) -> F:
    """Compile with `numba.njit`, releasing the GIL and caching the machine code on disk where that is possible."""
    return _compile(function)


def compiled_in_place(function: F) -> F:
    """Like `compiled`, for functions that make no array: references are not counted, most of the time of short ones."""
    return _compile(function, _nrt=False)


def inlined(function: F) -> F:
    """Like `compiled_in_place`, made part of its callers.

    A call hands on each array of a tuple as several numbers; that takes longer than most of the short functions do.
    """
    return _compile(function, _nrt=False, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compile(function: F, **options: Any) -> F:
    try:
        dispatcher = numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:
        # Neither the package's folder nor the user's cache is writable: compile in each process.
        dispatcher = numba.njit(nogil=True, **options)(function)
    if isinstance(dispatcher, Dispatcher):  # with NUMBA_DISABLE_JIT it is the function itself
        _compile_once(dispatcher)
    # Private names of Numba; without them, what is cached looks fresh when other files have changed.
    with suppress(AttributeError):
        file = dispatcher._cache._cache_file
        file._source_stamp = (file._source_stamp, _sources(), numba.__version__)
        file.save, file.load = partial(_save, file), partial(_load, file)
        for name in ("save_overload", "load_overload"):
            setattr(dispatcher._cache, name, partial(_or_compile_anew, getattr(dispatcher._cache, name)))
    return cast(F, dispatcher)


def _compile_once(dispatcher: Any) -> None:
    """Compile a function that compiled ones call with a constant as with any other value.

    Numba would compile it once more for each constant, and with it all that it calls.
    """
    template = dispatcher.get_call_template
    plain: Callable[[Any], Any] = unliteral

    def without_constants(arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        return template([plain(kind) for kind in arguments], {name: plain(named[name]) for name in named})

    dispatcher.get_call_template = without_constants


def _save(file: Any, key: object, data: object) -> None:
    """Store machine code, with its checksum, under a name of its own.

    Numba numbers the files of a function. Of two processes that compile it at once for different types, one would get
    the code of the other, and wrong results.
    """
    code = file._dump(data)
    file._save_data(_name(file, key), (hashlib.sha256(code).digest(), code))


def _load(file: Any, key: object) -> Any:
    """Machine code as it was stored, or None."""
    checksum, code = file._load_data(_name(file, key))
    return pickle.loads(code) if hashlib.sha256(code).digest() == checksum else None


def _name(file: Any, key: object) -> str:
    name = hashlib.sha256(repr((file._source_stamp, key)).encode()).hexdigest()[:16]
    return f"{file._index_name}.{name}.nbc"


def _or_compile_anew(work: Callable[..., Any], *arguments: Any) -> Any:
    """Result of work on the cache; None where it is damaged, full or not to be written."""
    with suppress(Exception):
        return work(*arguments)
    return None


@cache
def _sources() -> str:
    """Hash of the modules with compiled functions, as the machine code of one holds that of the others it calls."""
    texts = (path.read_bytes() for path in sorted(_PACKAGE.rglob("*.py")))
    return hashlib.sha256(b"".join(text for text in texts if _COMPILES.search(text))).hexdigest()


#: Where a function is compiled, or compiling is defined.
_COMPILES = re.compile(rb"^(@|def )(compiled|inlined)", re.MULTILINE)
