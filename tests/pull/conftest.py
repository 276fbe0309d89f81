"""A Slurm whose clock a test sets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from gpudemand import _files, store
from gpudemand.jobs import read_jobs
from gpudemand.pull import slurm
from tests.pull import fake_slurm

RUN = slurm._run
HERE = Path(__file__).parent
HISTORY = HERE / "fixtures" / "sacct.psv"


@dataclass
class Cluster:
    """Commands on the path, their history and their clock.

    `as_processes`: run them as such; otherwise what they print is made in this process, in a tenth of the time, unless
    a test has put a script in their place.
    """

    bin: Path
    monkeypatch: pytest.MonkeyPatch
    as_processes: bool = False
    made_here: dict[str, tuple[Path, int]] = field(default_factory=dict)

    def at(self, now: pd.Timestamp | str, history: Path = HISTORY) -> None:
        """Set the clock of the cluster, and that of this process."""
        time = pd.Timestamp(now)
        time = time if time.tzinfo else time.tz_localize("UTC")
        for name in ("sacct", "squeue", "sinfo", "scontrol", "sacctmgr"):
            self.script(
                name,
                f'exec {sys.executable} -S -E {HERE / "fake_slurm.py"} {name} {history} {int(time.timestamp())} "$@"',
            )
            self.made_here[name] = history, int(time.timestamp())
        self.monkeypatch.setattr(slurm, "_now", lambda: time)
        self.monkeypatch.setattr(slurm, "_run", RUN if self.as_processes else self.run)

    def run(self, words: Sequence[str], stdout: int) -> bytes:
        """Stands for `slurm._run`."""
        if words[0] not in self.made_here:
            return RUN(words, stdout)
        printed = fake_slurm.answer(words[0], *self.made_here[words[0]], *words[1:]).encode()
        if stdout == subprocess.PIPE:
            return printed
        os.write(stdout, printed)
        return b""

    def script(self, name: str, text: str) -> None:
        self.made_here.pop(name, None)
        place = self.bin / name
        place.write_text(f"#!/bin/sh\n{text}\n")
        place.chmod(0o755)

    def pull(self, into: Path, now: pd.Timestamp | str | None = None, **options):
        if now is not None:
            self.at(now)
        return slurm.pull_slurm(into, **{"since": "2026-11-01"} | options)


@pytest.fixture(scope="module")
def quick_stores():
    """Stores with one database instead of one for each query (12 ms), and without waits for the disk."""
    database = duckdb.connect()

    @contextmanager
    def cursor():
        with database.cursor() as db:
            db.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
            yield db

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_database", cursor)
        patch.setattr(_files, "_sync", lambda place: None)
        yield


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Cluster:
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", str(place), prepend=os.pathsep)
    return Cluster(place, monkeypatch)


def stored(store: Path) -> pd.DataFrame:
    """Jobs of a store in a fixed order."""
    return read_jobs(store).sort_values(["submit", "job_id_raw"], ignore_index=True)
