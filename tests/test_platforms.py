"""What other systems lack: modules, calls and signals of POSIX stand behind a branch, and writers work without them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gpudemand

PACKAGE = Path(gpudemand.__file__).parent
#: What Windows lacks, as it is written in code.
MODULES = {"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog"}
# fmt: off
CALLS = {
    "os": {"fork", "getuid", "geteuid", "getgid", "setsid", "setpgid", "killpg", "chown", "fchown", "fchmod", "mkfifo",
           "nice", "listxattr", "getxattr", "setxattr", "sysconf", "getloadavg", "uname", "statvfs", "wait4",
           "pread", "pwrite", "posix_fallocate", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "O_NONBLOCK"},
    "signal": {"SIGKILL", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGPIPE", "alarm", "setitimer"},
    "time": {"tzset"},
}
# fmt: on


def is_branch(node):
    """Whether an `if` or conditional expression asks for the system, or for the call."""
    test = ast.unparse(node.test) if isinstance(node, (ast.If, ast.IfExp)) else ""
    return "sys.platform" in test or "os.name" in test or "hasattr(" in test or isinstance(node, ast.Try)


def posix_only(tree):
    """Lines with what Windows lacks and no branch around it; after ``if ...: return`` the rest is one."""
    found = []

    def walk(node, guarded):
        bare = isinstance(node, ast.Import) and {name.name for name in node.names} & MODULES
        bare = bare or (isinstance(node, ast.ImportFrom) and node.module in MODULES)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            bare = bare or node.attr in CALLS.get(node.value.id, ())
        if bare and not guarded:
            found.append(node.lineno)
        inside = guarded or is_branch(node) or (isinstance(node, ast.BoolOp) and "sys.platform" in ast.unparse(node))
        for field in ast.iter_child_nodes(node):
            walk(field, inside)
            left = isinstance(field, ast.If) and isinstance(field.body[-1], (ast.Return, ast.Raise))
            inside = inside or (left and is_branch(field))

    walk(tree, False)
    return found


@pytest.mark.slow
def test_what_windows_lacks_stands_behind_a_branch():
    files = sorted(PACKAGE.rglob("*.py"))
    found = {path.relative_to(PACKAGE).as_posix(): posix_only(ast.parse(path.read_text())) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_calls_without_a_branch_are_found():
    lines = "import os\nimport fcntl\nos.getuid()\nif hasattr(os, 'fork'):\n    os.fork()\nos.kill(1, 9)\n"
    assert posix_only(ast.parse(lines)) == [2, 3]
    assert posix_only(ast.parse("def f():\n    if sys.platform == 'win32':\n        return 0\n    import pwd\n")) == []


#: A process that has what Windows has: no modules and calls of POSIX, its names of the system, and its locks.
AS_WINDOWS = """
import os, shutil, sys, tempfile, types
from pathlib import Path
import gpudemand as gd, numpy, pandas, pyarrow.parquet
from gpudemand import _files
from gpudemand.report import history
jobs, _ = gd.make_cluster(n_users=4, n_days=20, random_state=0)
gd.write_jobs(jobs, "before.parquet")  # libraries that load on first use
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("chown", "listxattr", "getxattr", "setxattr", "getuid", "fork", "O_NOFOLLOW"):
    delattr(os, name)
held = set()
def locking(descriptor, how, n):
    place = os.fstat(descriptor).st_ino
    if place in held:
        raise PermissionError("in use")
    held.add(place)
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
closed = os.close
def close(descriptor):
    held.discard(os.fstat(descriptor).st_ino)
    closed(descriptor)
os.close = close
renamed = os.rename
def rename(old, new):  # Windows renames over nothing, not even an empty folder
    if os.path.exists(new):
        raise FileExistsError(17, "exists", str(new))
    renamed(old, new)
os.rename = rename
sys.platform, shutil._use_fd_functions = "win32", False
opened = os.open
def open_(path, *flags, **more):
    assert not os.path.isdir(path), "Windows opens no folders"
    return opened(path, *flags, **more)
os.open = open_
"""

WRITES = """
for _ in range(2):
    gd.write_jobs(jobs, "jobs.parquet")
assert len(gd.read_jobs("jobs.parquet")) == len(jobs)
Path("folder").mkdir()  # empty: taken
for text in ("one", "two"):
    with _files.replace_folder("folder", "list.json", {"format": 1}) as new:
        (new / "a.txt").write_text(text)
    assert Path("folder/a.txt").read_text() == text
with open("rows.csv", "a") as one, open("rows.csv", "a") as another:
    assert _files.lock(one.fileno())
    assert not _files.lock(another.fileno())
"""


@pytest.mark.slow
def test_writers_work_without_what_windows_lacks(tmp_path):
    run = [sys.executable, "-c", AS_WINDOWS + WRITES]
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before.parquet", "folder", "jobs.parquet", "rows.csv"]
