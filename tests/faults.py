"""Work on files that is killed, or fails, at a chosen step: the state of the disk must be sound after each."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudemand import _atomic
from gpudemand._validation import InputError

#: Steps that Python reports: opened, renamed, made, removed, changed names.
_EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.scandir"}
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks where threads run
        child = os.fork()
    if not child:
        os._exit(_work(work, folder, step, fault))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (_DONE, _FAILED, -signal.SIGKILL), f"the work ended with {status} at step {step}"
    return status != _DONE


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
    signal.alarm(120)
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
