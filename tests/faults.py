"""Work on files that is killed, or fails, at a chosen step: the state of the disk must be sound after each."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudemand import _files as _atomic
from gpudemand._validation import InputError

#: Steps that Python reports: opened, renamed, made, removed, changed names.
_EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.scandir"}
#: Functions after which a file or a folder may have changed.
_CALLS = {"open", "write", "writelines", "flush", "close", "__exit__", "truncate", "ftruncate", "sendfile", "fsync"}
_CALLS |= {"replace", "rename", "mkdir", "unlink", "remove", "rmdir", "link", "symlink", "chmod"}
_DONE, _FAILED, _BROKEN = 0, 3, 4
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a fork of this process")


def kill(step: int) -> None:
    """End the process at once, as the system does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def disk_full(step: int) -> None:
    """Fail as a full disk does."""
    raise OSError(errno.ENOSPC, f"no space left, at step {step}")


def interrupted_at(work: Callable[[], object], folder: Path, step: int, fault: Callable[[int], None]) -> bool:
    """Do the work in a fork, with a fault at one step of what it does under `folder`; False if it has fewer steps."""
    status = _forked(lambda: _work(work, folder, step, fault))
    assert status in (_DONE, _FAILED, -signal.SIGKILL), f"the work ended with {status} at step {step}"
    return status != _DONE


def states(work: Callable[[], object], folder: Path) -> list[dict[str, bytes]]:
    """Files under a folder after each call of some work, done in a fork, that changed one: what a kill there leaves."""
    with tempfile.TemporaryDirectory() as own:
        report = Path(own, "states")
        assert _forked(lambda: _watch(work, folder, report)) == _DONE, "the work failed"
        found: list[dict[str, bytes]] = pickle.loads(report.read_bytes())
    return found


def content(folder: Path) -> dict[str, bytes]:
    """Bytes of all files under a folder, by their relative names."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _watch(work: Callable[[], object], folder: Path, report: Path) -> int:
    seen: list[Any] = [(_marks(folder), content(folder))]

    def look(frame: Any, event: str, function: Any) -> None:
        """Record the folder if the call that ends here changed it."""
        by_python = event == "return" and frame.f_code is _atomic._swap.__code__
        if by_python or (event == "c_return" and function.__name__ in _CALLS):
            marks = _marks(folder)
            if marks != seen[-1][0]:
                seen.append((marks, content(folder)))

    sys.setprofile(look)
    try:
        work()
    except BaseException:
        traceback.print_exc()
        return _BROKEN
    finally:
        sys.setprofile(None)
    report.write_bytes(pickle.dumps([files for _, files in seen] + [content(folder)]))
    return _DONE


def _marks(folder: str | Path) -> list[tuple[str, int, int, int]]:
    """Name, inode, size and time of all files under a folder."""
    found = []
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            found += _marks(entry.path)
        else:
            about = entry.stat(follow_symlinks=False)
            found.append((entry.path, about.st_ino, about.st_size, about.st_mtime_ns))
    return found


def _forked(work: Callable[[], int]) -> int:
    """Status of some work in a fork of this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks where threads run
        child = os.fork()
    if not child:
        signal.alarm(120)
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count_steps(work: Callable[[], object], folder: Path) -> int:
    """Number of steps of some work, done in a fork."""
    report = folder / "steps"
    interrupted_at(lambda: (work(), _STEPS[0](report)), folder, -1, kill)
    steps = int(report.read_text())
    report.unlink()
    return steps


#: In the fork, a function that writes the number of steps so far to a file.
_STEPS: list[Callable[[Path], object]] = []


def _work(work: Callable[[], object], folder: Path, step: int, fault: Callable[[int], None]) -> int:
    count, armed, own = 0, True, os.getpid()

    def passed(*_: object) -> None:
        """Count a step, and fail at the chosen one."""
        nonlocal count, armed
        count += 1
        if armed and count == step and os.getpid() == own:
            armed = False
            fault(step)

    def heard(event: str, arguments: tuple[object, ...]) -> None:
        if event in _EVENTS and arguments and str(folder) in os.fspath(str(arguments[0])):
            passed()

    _STEPS[:] = [lambda report: report.write_text(str(count))]
    sync, swap = os.fsync, _atomic._swap
    os.fsync = lambda descriptor: (passed(), sync(descriptor))[1]
    _atomic._swap = lambda one, other: (passed(), swap(one, other), passed())[1]
    sys.addaudithook(heard)
    try:
        work()
    except BaseException as error:
        if isinstance(error, (OSError, InputError)) and not armed:
            return _FAILED
        traceback.print_exc()
        return _BROKEN
    return _DONE if armed else _FAILED


def restore(files: dict[str, bytes], folder: Path) -> None:
    """Make a folder hold these files, as `content` returns them."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    folder.mkdir(exist_ok=True)
