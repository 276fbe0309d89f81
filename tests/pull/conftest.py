"""A Slurm whose clock a test sets."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from gpudemand.jobs import read_jobs
from gpudemand.pull import slurm

HERE = Path(__file__).parent
HISTORY = HERE / "fixtures" / "sacct.psv"


@dataclass
class Cluster:
    """Commands on the path, their history and their clock."""

    bin: Path
    monkeypatch: pytest.MonkeyPatch

    def at(self, now: pd.Timestamp | str, history: Path = HISTORY) -> None:
        """Set the clock of the cluster, and that of this process."""
        time = pd.Timestamp(now)
        time = time if time.tzinfo else time.tz_localize("UTC")
        for name in ("sacct", "squeue", "sinfo", "scontrol", "sacctmgr"):
            self.script(
                name,
                f'exec {sys.executable} -S -E {HERE / "fake_slurm.py"} {name} {history} {int(time.timestamp())} "$@"',
            )
        self.monkeypatch.setattr(slurm, "_now", lambda: time)

    def script(self, name: str, text: str) -> None:
        place = self.bin / name
        place.write_text(f"#!/bin/sh\n{text}\n")
        place.chmod(0o755)

    def pull(self, into: Path, now: pd.Timestamp | str | None = None, **options):
        if now is not None:
            self.at(now)
        return slurm.pull_slurm(into, **{"since": "2026-11-01"} | options)


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Cluster:
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", str(place), prepend=os.pathsep)
    return Cluster(place, monkeypatch)


def stored(store: Path) -> pd.DataFrame:
    """Jobs of a store in a fixed order."""
    return read_jobs(store).sort_values(["submit", "job_id_raw"], ignore_index=True)
