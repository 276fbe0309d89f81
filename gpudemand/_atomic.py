"""Files and folders that are replaced as a whole: written beside the old one, synced to disk, then renamed.

A reader finds the old one or the new one, whenever the process ends and however many write. A process that is killed
leaves its unfinished work in a folder ``.gpudemand-*`` beside, which may be deleted.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpudemand._manifest import foreign_file, write_manifest
from gpudemand._validation import InputError

#: Flags of the system calls that swap two names: renameat2 (Linux) and renamex_np (macOS).
_AT_FDCWD, _SWAP = -100, 2


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield where to write a file, which then takes the place of `path`; after an exception nothing has changed.

    Parameters
    ----------
    path : path-like
        The file; a symbolic link stays, and what it points to is replaced. The mode of an older file is kept.

    Yields
    ------
    Path
        A free name in a folder of its own, with the name of the file.

    Raises
    ------
    InputError
        If there is no such folder, or `path` is something else than a file that may be written.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> file = Path(tempfile.mkdtemp(), "plan.txt")
    >>> with replace_file(file) as new:
    ...     _ = new.write_text("96 GPUs")
    >>> file.read_text()
    '96 GPUs'
    """
    target = _resolved(path)
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {str(target.parent)!r} to write {target.name!r} into; make it first.")
    if target.exists() and not (target.is_file() and os.access(target, os.W_OK)):
        raise InputError(f"{str(path)!r} is no file that may be written; choose another name.")
    with _beside(target) as new:
        yield new
        if target.exists():
            shutil.copymode(target, new)
        _sync(new)
        os.replace(new, target)
    _sync(target.parent)


@contextmanager
def replace_folder(path: str | os.PathLike[str], manifest: str, about: Mapping[str, Any]) -> Iterator[Path]:
    """Yield an empty folder to fill, which then takes the place of `path`; after an exception nothing has changed.

    Linux and macOS swap both folders in one step. Where the system or its file system cannot (some network file
    systems, Windows), the old folder is renamed first, and a kill between the two renames leaves it under that name.

    Parameters
    ----------
    path : path-like
        The folder; made if absent. See `check_replaceable` for what it may hold.
    manifest : str
        Name of its file that lists all others, written last.
    about : mapping
        Further entries of the manifest.

    Yields
    ------
    Path
        Of the folder to fill.

    Raises
    ------
    InputError
        If the folder holds anything else.
    OSError
        If the folder cannot be written.
    """
    target = check_replaceable(path, manifest)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _beside(target) as new:
        new.mkdir()
        yield new
        write_manifest(new, manifest, about)
        for place in (*new.rglob("*"), new):
            _sync(place)
        if check_replaceable(path, manifest).exists():
            shutil.copymode(target, new)
        _put(new, target)
    _sync(target.parent)


def check_replaceable(path: str | os.PathLike[str], manifest: str) -> Path:
    """Return the resolved path of a folder that is absent, is empty, or holds only what its manifest lists.

    Parameters
    ----------
    path : path-like
        The folder.
    manifest : str
        Name of its file that lists all others.

    Raises
    ------
    InputError
        For a file, a folder with anything else in it, a mount point, and the current folder or one around it.
    """
    target = _resolved(path)
    if not target.exists():
        return target
    if not target.is_dir():
        raise InputError(f"{str(path)!r} is a file; name a folder.")
    if os.path.ismount(target) or Path.cwd().is_relative_to(target):
        raise InputError(
            f"{str(path)!r} is a mount point or the current folder, which cannot be replaced as a whole; "
            f"name a folder in it, such as {os.path.join(path, 'out')!r}."
        )
    foreign = foreign_file(target, manifest)
    if foreign is not None:
        raise InputError(
            f"{str(path)!r} holds {foreign!r}, which would be lost; choose another folder, or remove it "
            f"(only a folder that is listed in its own {manifest} is replaced)."
        )
    return target


def _resolved(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.realpath(Path(path).expanduser()))


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Yield the path of the same name in a temporary folder beside it, on the same file system."""
    # Deleting the old version may fail (a network file system keeps open files); the new one is in place by then.
    with tempfile.TemporaryDirectory(prefix=".gpudemand-", dir=target.parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder, target.name)


def _sync(place: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    if os.name == "nt" and place.is_dir():  # Windows opens no folders
        return
    descriptor = os.open(place, os.O_RDWR if place.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put(new: Path, target: Path) -> None:
    """Rename `new` to `target`, and an older `target` out of the way."""
    try:
        os.rename(new, target)  # POSIX: also over an empty folder
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not _swap(new, target):
            _rename_both(new, target)


def _swap(one: Path, other: Path) -> bool:
    """Swap two names in one step; False where the system cannot."""
    if sys.platform == "win32":
        return False
    libc, names = ctypes.CDLL(None, use_errno=True), (os.fsencode(one), os.fsencode(other))
    if hasattr(libc, "renameat2"):
        return bool(libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _SWAP) == 0)
    return hasattr(libc, "renamex_np") and bool(libc.renamex_np(*names, _SWAP) == 0)


def _rename_both(new: Path, target: Path) -> None:
    # Not inside the temporary folder, which is deleted whatever happens.
    old = target.with_name(f"{target.name}.old{new.parent.name}")
    try:
        os.rename(target, old)
        os.rename(new, target)
    except BaseException:
        if not target.exists():
            os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)
