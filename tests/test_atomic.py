"""Files and folders are replaced as a whole or not at all, whatever happens on the way."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

from gpudemand import _files as _atomic
from gpudemand._files import check_replaceable, read_manifest, replace_file, replace_folder
from gpudemand._tables import write_table
from gpudemand._validation import InputError
from tests.faults import disk_full, interrupted_at, kill, needs_fork
from tests.tiers import slow_beside

LIST = "list.json"
#: Whether there is an older one, and what happens; kills where there is none are those of `tests.test_kills`.
FAULTS = [(False, disk_full), (True, disk_full), (True, kill)]


def write(path, text):
    with replace_file(path) as new:
        new.write_text(text)


def fill(path, **files):
    with replace_folder(path, LIST, {"format": 1}) as new:
        (new / "inner").mkdir()
        for name, text in files.items():
            (new / "inner" / name).write_text(text)


def content(folder):
    """Text of all files, after a look at their checksums."""
    listed = read_manifest(folder, LIST, 1)["files"]
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {LIST, *listed}
    return {Path(name).name: (folder / name).read_text() for name in listed}


@pytest.fixture(params=["swapped", "renamed twice"])
def both_ways(request, monkeypatch):
    """Systems that swap two names in one step, and systems that do not."""
    if request.param == "renamed twice":
        monkeypatch.setattr(_atomic, "_swap", lambda one, other: False)


def test_an_exception_changes_nothing(tmp_path):
    place, folder = tmp_path / "file", tmp_path / "folder"
    for old in (False, True):
        with pytest.raises(UnicodeEncodeError):
            write(place, "half of \ud800")
        with pytest.raises(UnicodeEncodeError):
            fill(folder, b="whole", a="half of \ud800")
        assert {path.name for path in tmp_path.iterdir()} == ({"file", "folder"} if old else set())
        if old:
            assert place.read_text() == "old"
            assert content(folder) == {"a": "old"}
        write(place, "old")
        fill(folder, a="old")


@needs_fork
@pytest.mark.parametrize(("old", "fault"), slow_beside([(False, disk_full), (True, kill)], FAULTS))
def test_a_file_is_old_or_new_after_a_fault_at_any_step(tmp_path, old, fault):
    place, step = tmp_path / "file.txt", 1
    while True:
        if old:
            write(place, "old")
        more = interrupted_at(lambda: write(place, "new"), tmp_path, step, fault)
        found = place.read_text() if place.exists() else None
        assert found in ({"old", "new"} if old else {None, "new"}), step
        leftover = [path.name for path in tmp_path.iterdir() if path != place]
        assert all(name.startswith(".gpudemand-") for name in leftover), step
        if not more:
            break
        place.unlink(missing_ok=True)
        step += 1
    assert found == "new"
    assert step > 5


@needs_fork
@pytest.mark.parametrize(("old", "fault"), slow_beside([(True, kill)], FAULTS))
def test_a_folder_is_old_or_new_after_a_fault_at_any_step(tmp_path, old, fault):
    step, states = 1, {}
    while True:
        place = tmp_path / f"{step}" / "folder"
        place.parent.mkdir()
        if old:
            fill(place, a="old", b="old")
        more = interrupted_at(lambda at=place: fill(at, a="new"), place.parent, step, fault)
        found = content(place) if place.exists() else None
        states[step] = "new" if found == {"a": "new"} else "old"
        assert states[step] == "new" or found == ({"a": "old", "b": "old"} if old else None), step
        leftover = [path.name for path in place.parent.iterdir() if path != place]
        assert all(name.startswith(".gpudemand-") for name in leftover), step
        if not more:
            break
        step += 1
    assert set(states.values()) == {"old", "new"}
    assert fault is disk_full or sorted(states.values(), reverse=True) == list(states.values())
    assert step > 10


@needs_fork
@pytest.mark.slow
def test_without_a_swap_a_failed_rename_restores_the_old_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(_atomic, "_swap", lambda one, other: False)
    for step in range(1, 100):
        place = tmp_path / f"{step}" / "folder"
        place.parent.mkdir()
        fill(place, a="old")
        more = interrupted_at(lambda at=place: fill(at, a="new"), place.parent, step, disk_full)
        assert content(place) in ({"a": "old"}, {"a": "new"}), step
        if not more:
            assert [path.name for path in place.parent.iterdir()] == ["folder"]
            return
    pytest.fail("never whole")


@pytest.mark.usefixtures("both_ways")
def test_what_is_not_of_the_new_folder_is_not_in_it(tmp_path):
    fill(tmp_path / "folder", a="old", b="old")
    fill(tmp_path / "folder", a="new", c="new")
    assert content(tmp_path / "folder") == {"a": "new", "c": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.slow
def test_of_two_writers_at_once_one_wins(tmp_path):
    place, both = tmp_path / "folder", threading.Barrier(2)
    fill(place, same="")

    def compete(name):
        for _ in range(20):
            both.wait(timeout=60)
            fill(place, **{name: name, "same": name})

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compete, ("a", "b")))
    assert content(place) in ({"a": "a", "same": "a"}, {"b": "b", "same": "b"})


def test_a_foreign_file_is_never_replaced(tmp_path):
    place = tmp_path / "folder"
    fill(place, a="old")
    (place / "inner" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"'inner/notes\.txt', which would be lost; choose another folder"):
        fill(place, a="new")
    assert (place / "inner" / "notes.txt").read_text() == "mine"
    assert (place / "inner" / "a").read_text() == "old"
    (place / "inner" / "notes.txt").rename(place / ".DS_Store")
    fill(place, a="new")
    assert content(place) == {"a": "new"}


@pytest.mark.parametrize("manifest", [None, "", "[]", "{}", '{"files": ["mine"]}', "\xff", "[" * 100_000])
def test_a_folder_without_a_manifest_is_never_replaced(tmp_path, manifest):
    (tmp_path / "mine").write_text("mine")
    if manifest is not None:
        (tmp_path / LIST).write_text(manifest, encoding="latin-1")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match="which would be lost"):
        fill(tmp_path, a="new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_current_folder_a_mount_and_a_file_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (".", "/proc" if os.path.ismount("/proc") else "/"):
        with pytest.raises(InputError, match="which cannot be replaced as a whole; name a folder in it"):
            check_replaceable(path, LIST)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is a file; name a folder"):
        check_replaceable("file", LIST)
    assert check_replaceable("new/folder", LIST) == tmp_path.resolve() / "new" / "folder"


def test_only_files_in_known_folders_are_written(tmp_path):
    with pytest.raises(InputError, match=r"there is no folder '.*nowhere' to write 'a' into"):
        write(tmp_path / "nowhere" / "a", "x")
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(InputError, match="is no file that may be written"):
            write(place, "x")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path):
    with pytest.raises(OSError, match=r"No space left on device: '.*usage.csv'"), replace_file(tmp_path / "usage.csv"):
        raise OSError(errno.ENOSPC, "detail of a library")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_library_that_needs_utf8_ends_in_a_sentence(tmp_path):
    jobs = pd.DataFrame({"user": ["a"], "gpus": [1.0]})
    with pytest.raises(InputError, match=r"na\\udcffme.parquet' is no name in UTF-8; rename"):
        write_table(jobs, tmp_path / os.fsdecode(b"na\xffme.parquet"))
    assert not list(tmp_path.iterdir())


def test_links_and_modes_are_kept(tmp_path):
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    write(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    mask = os.umask(0o027)
    try:
        fill(tmp_path / "folder", a="new")
        write(tmp_path / "file", "new")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o750
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "inner" / "a").unlink(), "inner/a is missing"),
        (lambda f: (f / "inner" / "a").write_text("edited"), "inner/a .* is damaged or was edited"),
        (lambda f: (f / LIST).write_text("{"), "is damaged"),
        (lambda f: (f / LIST).write_text("7"), "is damaged"),
        (lambda f: edit(f, format=2), "has format 2, and this version reads 1"),
        (lambda f: edit(f, format=None), "has format None"),
        (lambda f: edit(f, files={}), "is damaged or was edited"),
        (lambda f: edit(f, more=1), "is damaged or was edited"),
    ],
)
def test_a_damaged_folder_is_not_read(tmp_path, damage, message):
    fill(tmp_path / "folder", a="1", b="2")
    damage(tmp_path / "folder")
    with pytest.raises(InputError, match=message):
        read_manifest(tmp_path / "folder", LIST, 1)


def edit(folder, **changes):
    (folder / LIST).write_text(json.dumps({**json.loads((folder / LIST).read_text()), **changes}))


def test_a_list_of_another_tool_makes_no_folder_replaceable(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / LIST).write_text('{"files": {"thesis.tex": ""}}')
    with pytest.raises(InputError, match="which would be lost"):
        fill(tmp_path, a="new")
    assert (tmp_path / "thesis.tex").read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="gives files to another group")
def test_owner_and_group_are_kept(tmp_path):
    fill(tmp_path / "folder", a="old")
    write(tmp_path / "file", "old")
    for place in (tmp_path / "folder", *(tmp_path / "folder").rglob("*"), tmp_path / "file"):
        os.chown(place, 1234, 5678)
    (tmp_path / "folder").chmod(0o2750)
    fill(tmp_path / "folder", a="new", b="new")
    write(tmp_path / "file", "new")
    about = [path.stat() for path in (tmp_path / "file", tmp_path / "folder", tmp_path / "folder" / "inner" / "a")]
    assert [(one.st_uid, one.st_gid) for one in about] == [(1234, 5678)] * 3
    assert stat.S_IMODE(about[1].st_mode) == 0o2750
    assert (tmp_path / "folder" / "inner" / "b").stat().st_gid == 5678


@needs_fork
def test_what_killed_processes_left_is_removed_by_the_next_one_and_what_is_in_use_is_not(tmp_path):
    fill(tmp_path / "folder", a="old")
    for step in range(3, 30, 3):
        interrupted_at(lambda: fill(tmp_path / "folder", a="new"), tmp_path, step, kill)
    assert any(path.name.startswith(".gpudemand-") for path in tmp_path.iterdir())
    with replace_file(tmp_path / "file") as new:
        new.write_text("slow")
        fill(tmp_path / "folder", a="newer")
        assert new.read_text() == "slow"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.skipif(sys.platform == "win32", reason="locks of POSIX")
@pytest.mark.parametrize("with_locks", [True, False])
def test_on_a_network_file_system_nothing_in_use_is_removed(tmp_path, monkeypatch, with_locks):
    import fcntl

    flock = fcntl.flock

    def as_nfs(descriptor, operation):
        if not with_locks or not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_RDWR:
            raise OSError(errno.EBADF if with_locks else errno.ENOLCK, "no lock")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", as_nfs)
    left = tmp_path / ".gpudemand-leftover"
    left.mkdir()
    with replace_file(tmp_path / "file") as new:
        new.write_text("slow")
        write(tmp_path / "other", "quick")
        assert new.read_text() == "slow"
    assert [(tmp_path / name).read_text() for name in ("file", "other")] == ["slow", "quick"]
    assert left.exists() != with_locks


def test_of_two_first_versions_at_once_the_second_is_refused(tmp_path):
    place = tmp_path / "folder"

    def first_of_both():
        with replace_folder(place, LIST, {"format": 1}):
            fill(place, a="first")

    with pytest.raises(InputError, match=r"another process has written .* meanwhile; try again"):
        first_of_both()
    assert content(place) == {"a": "first"}


@pytest.mark.skipif(sys.platform == "win32", reason="locks of POSIX")
def test_who_replaces_a_folder_finds_what_the_one_before_wrote(tmp_path):
    place, started = tmp_path / "folder", threading.Event()
    fill(place, a="0")

    def add(name):
        started.set()
        with replace_folder(place, LIST, {"format": 1}) as new:
            shutil.copytree(place / "inner", new / "inner")
            (new / "inner" / name).write_text(name)

    other = threading.Thread(target=add, args=("c",))
    with replace_folder(place, LIST, {"format": 1}) as new:
        other.start()
        started.wait()
        time.sleep(0.2)
        shutil.copytree(place / "inner", new / "inner")
        (new / "inner" / "b").write_text("b")
    other.join()
    assert content(place) == {"a": "0", "b": "b", "c": "c"}


def test_a_file_that_is_saved_at_the_last_moment_is_not_deleted(tmp_path, monkeypatch):
    fill(tmp_path / "folder", a="old")
    put = _atomic._put

    def save_and_put(new, target, **how):
        (target / "note.txt").write_text("mine")
        put(new, target, **how)

    monkeypatch.setattr(_atomic, "_put", save_and_put)
    with pytest.warns(UserWarning, match="'note.txt' was saved while"):
        fill(tmp_path / "folder", a="new")
    assert [path.read_text() for path in tmp_path.glob("folder.old*/note.txt")] == ["mine"]
    assert content(tmp_path / "folder") == {"a": "new"}


def test_the_home_of_nobody_is_no_path(tmp_path):
    with pytest.raises(InputError, match="cannot be a path"):
        write("~nobody-at-all/x", "x")
