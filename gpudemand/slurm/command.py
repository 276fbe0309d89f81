"""The calls of Slurm's clients that print its accounting, and their answers."""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from gpudemand._validation import InputError
from gpudemand.slurm.failures import failure
from gpudemand.slurm.nodes import EVENT_FIELDS
from gpudemand.slurm.tres import shards_per_gpu

#: Without these no job can be counted ...
NEEDED = ("JobIDRaw", "JobID", "Cluster", "User", "Account", "Submit", "Start", "End", "State", "ReqTRES", "AllocTRES")
#: ... and of these those are asked for that this version knows. None holds what users write, which may hold the bars.
OPTIONAL = (
    *("Partition", "QOS", "Eligible", "ElapsedRaw", "TimelimitRaw", "ExitCode", "NNodes", "NodeList", "NTasks"),
    *("TRESUsageInAve", "TRESUsageInTot"),
)
#: By these, sacct also lists jobs that were cancelled before they were eligible, which it otherwise leaves out.
_STATES = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,RV,S,TO"
#: Times are understood in UTC, whatever the zone of the cluster, and printed in seconds since 1970: of any longer
#: format sacct prints the first 19 characters, without a zone.
_ENVIRONMENT = {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}
_JOBS_A_CALL = 1000
_LONGEST_S = 6 * 3600


@dataclass(frozen=True)
class Sacct:
    """One call of ``sacct`` whose answer has a row for every run of a job and for every step.

    Attributes
    ----------
    fields : tuple of str
    select : tuple of str
        Options that choose the jobs.
    clusters : str or None
        Names of clusters, or ``all``; by default the one that the call is made on.
    """

    fields: tuple[str, ...]
    select: tuple[str, ...]
    clusters: str | None = None

    @property
    def words(self) -> list[str]:
        """The command, word by word."""
        where = ["-M", self.clusters] if self.clusters else []
        return ["sacct", "-a", "-D", "-P", *where, *self.select, "-o", ",".join(self.fields)]

    def __str__(self) -> str:
        """Return the command as one types it in a shell, with its environment."""
        return in_shell(self.words)


def ended_or_open(begin: pd.Timestamp, end: pd.Timestamp) -> tuple[str, ...]:
    """Options for the jobs that ended, ran or waited at some time between two times."""
    return ("-s", _STATES, "-S", f"{begin:%Y-%m-%dT%H:%M:%S}", "-E", f"{end:%Y-%m-%dT%H:%M:%S}")


def by_id(ids: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Options for jobs by their numbers, as many at once as a command line takes."""
    numbers = sorted(set(ids))
    for first in range(0, len(numbers), _JOBS_A_CALL):
        yield ("-j", ",".join(numbers[first : first + _JOBS_A_CALL]))


def months(begin: pd.Timestamp, end: pd.Timestamp) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
    """Windows from `begin` to `end`, cut where months begin.

    Examples
    --------
    >>> day = pd.Timestamp("2026-03-31", tz="UTC")
    >>> [f"{low:%m-%d} to {high:%m-%d}" for low, high in months(day, day + pd.Timedelta("3D"))]
    ['03-31 to 04-01', '04-01 to 04-03']
    """
    firsts = pd.date_range(begin.normalize(), end, freq="MS")
    edges = [begin, *(first for first in firsts if begin < first < end), end]
    return list(itertools.pairwise(edges))


def known_fields() -> tuple[str, ...]:
    """Fields to ask this version of Slurm for.

    Raises
    ------
    InputError
        If there is no sacct, or it lacks a field without which jobs cannot be counted.
    """
    known = set(_output(["sacct", "-e"]).split())
    missing = [name for name in NEEDED if name not in known]
    if missing:
        raise InputError(f"this sacct knows no field {missing[0]}; Slurm 20.11 or newer is needed.")
    return (*NEEDED, *(name for name in OPTIONAL if name in known))


def known_clusters() -> list[str] | None:
    """Names of the clusters of Slurm's accounting; None where nobody can tell."""
    try:
        return _output(["sacctmgr", "-n", "-P", "show", "cluster", "format=cluster"]).split()
    except InputError:
        return None


def controller_time() -> pd.Timestamp | None:
    """Time on the clock of Slurm's controller; None where it does not answer."""
    try:
        _, _, time = _output(["scontrol", "show", "config"]).partition("\n")[0].rpartition(" ")
    except InputError:
        return None
    return pd.Timestamp(int(time), unit="s", tz="UTC") if time.isdecimal() else None


def call(command: Sacct, answer: Path) -> None:
    """Run a command, and write what it prints to a file."""
    with answer.open("wb") as file:
        _run(command.words, file.fileno())


def waiting_ids(clusters: str | None = None) -> list[str] | None:
    """Numbers of the jobs that wait, also of those that are held, which no window lists; None where nobody can tell."""
    where = ["-M", clusters] if clusters else []
    try:
        words = _output(["squeue", "-h", "-a", *where, "-t", "PD", "-o", "%A"]).split()
    except InputError:
        return None
    return [word for word in words if word.isdecimal()]


def events_command(clusters: str | None = None) -> list[str]:
    """Words of the command that prints which GPUs clusters had and nodes missed, as long as Slurm remembers."""
    which = [] if clusters is None else ["all_clusters" if clusters == "all" else f"cluster={clusters}"]
    return ["sacctmgr", "-P", "show", "event", "all_time", *which, f"format={','.join(EVENT_FIELDS)}"]


def node_events(clusters: str | None = None) -> str | None:
    """Answer of `events_command`; None where nobody can tell."""
    try:
        return _output(events_command(clusters))
    except InputError:
        return None


def in_shell(words: Sequence[str]) -> str:
    """A command as one types it in a shell, with the environment in which times are seconds of UTC."""
    return " ".join(f"{name}={value}" for name, value in _ENVIRONMENT.items()) + " " + shlex.join(words)


def shards_by_node() -> dict[str, float]:
    """Shards that make one GPU, by node; empty where there are none, or nobody can tell."""
    try:
        lines = _output(["sinfo", "-h", "-a", "-N", "-o", "%N|%G"]).splitlines()
    except InputError:
        return {}
    found = {node: shards_per_gpu(gres) for node, _, gres in (line.partition("|") for line in lines)}
    return {node: count for node, count in found.items() if count == count}


def _output(words: Sequence[str]) -> str:
    return _run(words, subprocess.PIPE).decode("utf-8", "replace")


def _run(words: Sequence[str], stdout: int) -> bytes:
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**os.environ, **_ENVIRONMENT},
            timeout=_LONGEST_S,
            check=False,
        )
    except FileNotFoundError:
        raise InputError(
            f"there is no {words[0]} on this machine; run this where Slurm's commands are, or give the commands that "
            "--command-only prints to a colleague who has them."
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{words[0]} cannot be run ({error}).") from error
    if done.returncode:
        raise failure(words[0], done.stderr.decode("utf-8", "replace"), done.returncode)
    return done.stdout or b""
