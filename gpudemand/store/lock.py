"""An exclusive lock on a file, which ends with the process that holds it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock while the block runs; another process that wants it waits, and a killed one gives it back.

    Parameters
    ----------
    path : Path
        File of the lock, made if absent; it stays.

    Examples
    --------
    >>> import tempfile
    >>> with locked(Path(tempfile.mkdtemp(), "lock")):
    ...     print("alone")
    alone
    """
    with path.open("a+b") as file:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
