"""Files and folders that are replaced whole or not at all, and manifests with checksums.

A reader finds the old one or the new one, whenever the process ends and however many write. A process that is killed
leaves its unfinished work in a folder ``.gpudemand-*`` beside, which the next one that writes there deletes where the
file system has locks.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from gpudemand._validation import InputError, stack_level

T = TypeVar("T")


def write_manifest(folder: Path, name: str, about: Mapping[str, Any]) -> None:
    """List all files of a folder in its manifest; of the further entries, ``format`` is checked by `read_manifest`."""
    files = {file: file_sha256(folder / file) for file in sorted(_files(folder)) if file != name}
    (folder / name).write_text(manifest_text({**about, "files": files}), encoding="utf-8")


def manifest_text(content: Mapping[str, Any]) -> str:
    """Return the text of a manifest: its entries, ``files`` among them, and their checksum."""
    return json.dumps({**content, "sha256": _content_sha256(content)}, indent=1) + "\n"


def read_manifest(folder: Path, name: str, version: int, only: Collection[str] | None = None) -> dict[str, Any]:
    """Read a manifest of one `version`; check its checksum and those of the files that it lists, or of `only` some."""
    content, place = _read(folder / name), f"in {str(folder)!r}"
    if content is None:
        raise InputError(f"{name} {place} is damaged; copy or save the folder again.")
    if content.get("format") != version:
        problem = f"{name} {place} has format {content.get('format')!r}, and this version reads {version}"
        raise InputError(f"{problem}; fit and save it again, or update gpudemand.")
    if content.pop("sha256", None) != _content_sha256(content) or not isinstance(content.get("files"), dict):
        raise InputError(f"{name} {place} is damaged or was edited; copy or save the folder again.")
    for file in content["files"] if only is None else only:
        if not os.path.isfile(folder / file):  # also false for names that no file can have
            raise InputError(f"{file} is missing {place}; copy or save the folder again.")
        if file_sha256(folder / file) != content["files"].get(file):
            raise InputError(f"{file} {place} is damaged or was edited; copy or save the folder again.")
    return content


def foreign_file(folder: Path, name: str) -> str | None:
    """Return a file of a folder that its manifest does not list, or None."""
    of_file_managers = (".DS_Store", "Thumbs.db", "desktop.ini")
    while True:
        seen = folder.stat()
        content = _read(folder / name) or {}
        own = content.pop("sha256", None) == _content_sha256(content)  # other tools list files, too
        files = content.get("files") if own else None
        listed = {name, *files} if isinstance(files, dict) else set()
        unlisted = (file for file in _files(folder) if file not in listed and Path(file).name not in of_file_managers)
        try:
            found = next(unlisted, None)
        except FileNotFoundError:  # another process is replacing the folder
            continue
        if os.path.samestat(seen, folder.stat()):
            return found


def in_time(work: Callable[[], T], seconds: float) -> T:
    """Return the result of work, or raise a TimeoutError; a server can drip for ever with each single read in time.

    The work is done by a thread that is left behind in that case.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result(seconds)


def open_to_read(path: Path) -> BinaryIO:
    """Open a file, or raise an OSError for a pipe that nobody opens to write."""
    if not path.is_fifo():
        return path.open("rb")
    try:
        return in_time(lambda: path.open("rb"), _WRITER_S)
    except TimeoutError:
        raise TimeoutError(
            f"{str(path)!r} is a pipe into which nobody writes; name a file, or begin to write"
        ) from None


#: How long a pipe may have no writer.
_WRITER_S = 10.0


def read_whole(path: Path) -> bytes:
    """Read a small file, or raise an OSError for one that is larger than any that is written by hand."""
    with open_to_read(path) as file:
        content = file.read(_SMALL + 1)
    if len(content) > _SMALL:
        raise OSError(f"it has more than {_SMALL >> 20} MiB")
    return content


_SMALL = 1 << 24


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path) -> Iterator[str]:
    """Relative names of all files, links to folders included."""
    found = (path for path in _inside(folder) if path.is_symlink() or not path.is_dir())
    return (path.relative_to(folder).as_posix() for path in found)


def _inside(folder: Path) -> Iterator[Path]:
    """All files and folders below one; raises where one cannot be listed (``rglob`` is silent since Python 3.13)."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for parent, folders, files in os.walk(folder, onerror=refuse):
        yield from (Path(parent, name) for name in (*folders, *files))


def _read(path: Path) -> dict[str, Any] | None:
    """Content of a manifest, or None for a file that is missing or no JSON object."""
    try:
        content = json.loads(read_whole(path))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _content_sha256(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


#: Flags of the system calls that swap two names: renameat2 (Linux) and renamex_np (macOS).
_AT_FDCWD, _SWAP = -100, 2


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield where to write a file, which then takes the place of `path`; after an exception nothing has changed.

    A symbolic link stays, and what it points to is replaced. Owner, group, mode and access list of an older file are
    kept.
    """
    target = _resolved(path)
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {str(target.parent)!r} to write {target.name!r} into; make it first.")
    if target.exists() and not (target.is_file() and os.access(target, os.W_OK)):
        raise InputError(f"{str(path)!r} is no file that may be written; choose another name.")
    with _beside(target) as new:
        yield new
        if target.exists():
            _copy_access(target, new)
        _sync(new)
        os.replace(new, target)
    _sync(target.parent)


@contextmanager
def replace_folder(path: str | os.PathLike[str], manifest: str, about: Mapping[str, Any]) -> Iterator[Path]:
    """Yield an empty folder to fill, which then takes the place of `path`; after an exception nothing has changed.

    Linux and macOS swap both folders in one step. Where the system or its file system cannot (some network file
    systems, Windows), the old folder is renamed first, and a kill between the two renames leaves it under that name.
    Processes that replace the same folder wait for one another, so that each can keep what it needs of the older one.
    `manifest`: file that lists all others, written last, with further entries `about`.
    """
    target = check_replaceable(path, manifest)
    target.parent.mkdir(parents=True, exist_ok=True)
    is_new = not (target / manifest).exists()
    with _alone(target / manifest), _beside(target) as new:
        new.mkdir()
        if target.exists():
            _copy_access(target, new)  # before there are files in it, which inherit them
        yield new
        write_manifest(new, manifest, about)
        for place in _inside(new):
            if (older := target / place.relative_to(new)).exists():
                _copy_access(older, place)
        for place in (*_inside(new), new):
            _sync(place)
        seen = set(_files(check_replaceable(path, manifest)))
        _put(new, target, is_new=is_new)
        if new.exists() and not seen.issuperset(_files(new)) and (late := foreign_file(new, manifest)) is not None:
            # Somebody saved it into the older one, which is there now, after the last look.
            kept = target.with_name(f"{target.name}.old{new.parent.name}")
            os.rename(new, kept)
            warnings.warn(
                f"{late!r} was saved while {str(path)!r} was replaced; it is in {kept.name!r}.",
                stacklevel=stack_level(),
            )
    _sync(target.parent)


def _copy_access(old: Path, new: Path) -> None:
    """Give a file or folder the owner, group, mode and access list of an older one, as far as this user may."""
    about = old.stat()
    if hasattr(os, "chown"):
        for owner in (about.st_uid, -1):
            with suppress(PermissionError):
                os.chown(new, owner, about.st_gid)
                break
    shutil.copymode(old, new)
    if sys.platform == "linux":
        with suppress(OSError):
            for name in os.listxattr(old):
                if name.startswith("system.posix_acl"):
                    os.setxattr(new, name, os.getxattr(old, name))


def check_replaceable(path: str | os.PathLike[str], manifest: str) -> Path:
    """Return the resolved path of a folder that is absent, is empty, or holds only what its manifest lists."""
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


def utf8_name(path: Path) -> str:
    """Return the name of a file or folder, or raise an InputError for one that is not in UTF-8."""
    name = os.fspath(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name!a} is no name in UTF-8; rename the file or the folder.") from None
    return name


def _resolved(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(os.path.realpath(Path(path).expanduser()))
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be a path ({error}); choose another one.") from error


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Yield the path of the same name in a temporary folder beside it, on the same file system."""
    _remove_leftovers(target.parent)
    while True:
        # Deleting the old version may fail (a network file system keeps open files); the new one is in place by then.
        folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=target.parent, ignore_cleanup_errors=True)
        with folder, _locked(Path(folder.name)) as locked:
            if locked is not False:
                with named(target):
                    yield Path(folder.name, target.name)
                return


@contextmanager
def named(target: Path) -> Iterator[None]:
    """Let errors of a full disk, and of names that libraries refuse, name what could not be written."""
    try:
        yield
    except UnicodeEncodeError:
        utf8_name(target)
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(target)) from error


_PREFIX = ".gpudemand-"


@contextmanager
def _locked(folder: Path) -> Iterator[bool | None]:
    """Hold the lock of a folder, which tells others that it is in use.

    Yields False where another process has it, and None where nobody can tell, as on a file system without locks.
    """
    with ExitStack() as stack:
        try:
            # A file in it: NFS locks only what is open for writing.
            descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
            stack.callback(os.close, descriptor)
            found = lock(descriptor) and (folder / ".lock").exists()
        except FileNotFoundError:
            found = False
        except OSError:
            found = None
        yield found


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Hold the lock of a file that may be replaced meanwhile."""
    with ExitStack() as held:

        def taken() -> bool:
            held.close()
            try:
                descriptor = os.open(file, os.O_RDWR)
                held.callback(os.close, descriptor)
                return lock(descriptor) and os.path.samestat(os.fstat(descriptor), file.stat())
            except OSError:  # there is no older one, or nobody can tell
                return True

        if sys.platform != "win32":  # which renames no open file
            wait_for(taken, file.parent)
        yield


def wait_for(taken: Callable[[], bool], folder: Path, holder: Callable[[], str] = lambda: "another process") -> None:
    """Wait until a lock is taken, or raise an InputError that says who holds it."""
    until = time.monotonic() + PATIENCE_S
    while not taken():
        if time.monotonic() > until:
            problem = f"{str(folder)!r} is being written by {holder()}"
            raise InputError(f"{problem}; wait for its end, or end it, and try again.")
        time.sleep(0.05)


#: How long a process waits for another that writes into the same folder.
PATIENCE_S = 30.0


def lock(descriptor: int) -> bool:
    """Take the lock of a file that is open for writing; False where another process has it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, 2**30, os.SEEK_SET)  # what is locked, nobody else may read
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _remove_leftovers(folder: Path) -> None:
    """Delete what killed processes have left in a folder."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if re.fullmatch(rf"{re.escape(_PREFIX)}\w{{8}}", entry.name) and entry.is_dir(follow_symlinks=False):
                with _locked(Path(entry.path)) as unused:
                    if unused:
                        shutil.rmtree(entry.path, ignore_errors=True)


def _sync(place: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    if sys.platform == "win32" and place.is_dir():  # which opens no folders
        return
    descriptor = os.open(place, os.O_RDWR if place.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put(new: Path, target: Path, *, is_new: bool) -> None:
    """Rename `new` to `target`, and an older `target` out of the way, unless there was none at the begin."""
    if sys.platform == "win32":  # elsewhere a folder takes the place of an empty one
        with suppress(OSError):
            target.rmdir()
    try:
        os.rename(new, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if is_new:
            raise InputError(f"another process has written {str(target)!r} meanwhile; try again.") from error
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
