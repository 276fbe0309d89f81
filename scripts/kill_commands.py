"""Kill every command that writes, at random moments, and look at what is left: ``python -m scripts.kill_commands``.

Each command runs in a fork of this process, which has loaded what they need, and is killed (SIGKILL) while it writes to
a free name and over an older result: every other time at a moment drawn over its whole run, else shortly after it began
to write. What is left must be the older result (or nothing) or
the new one, byte for byte; of commands that go on with what is there (`pull`), it must be readable and no
older row may be missing. Prints a row a command; exit code 1 if any result was mixed or lost.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand.cli.app import app
from gpudemand.cost import CostModel
from gpudemand.datasets import load_jobs_sample
from gpudemand.jobs import write_jobs
from gpudemand.pull import prometheus, slurm  # noqa: F401 (loaded before the forks)
from gpudemand.report import figures  # noqa: F401
from gpudemand.store import is_store, read_store
from tests.pull.conftest import HISTORY
from tests.pull.test_prometheus import FIRST, Server

#: Seconds after a command began to write within which it is killed.
_WRITING_S = 0.2


@dataclass(frozen=True)
class Command:
    """A command with the options for the older and for the new result, and where it writes.

    Attributes
    ----------
    rows : callable, optional
        Of a command that goes on with an older result: from its path to the rows in it.
    over : bool
        Whether it writes over an older result.
    """

    name: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    out: str
    option: tuple[str, ...] = ("--out",)
    rows: Callable[[Path], set[Any]] | None = None
    over: bool = True

    def start(self, options: tuple[str, ...], out: Path) -> int:
        """Begin to write to a path; returns the process."""
        return start([*self.name.split(), *options, *self.option, str(out)])


def make_inputs(folder: Path) -> None:
    """Write the input files of all commands."""
    jobs = load_jobs_sample()
    few = jobs[jobs["user"].isin(sorted(jobs["user"].unique())[:20])]
    few = few[few["submit"] < few["submit"].min() + pd.Timedelta("70D")].reset_index(drop=True)
    few.attrs = dict(jobs.attrs)
    write_jobs(few, folder / "log.parquet")
    write_jobs(jobs, folder / "all.parquet")
    runs = HISTORY.read_text().splitlines(keepends=True)
    (folder / "first.psv").write_text("".join(runs[:200]))
    (folder / "all.psv").write_text("".join(runs))
    built = "def resnet50():\n    return build('resnet50', input_shape=(3, 64, 64))\n"
    code = f"from gpudemand.cost.networks import build\n\n{built}"
    (folder / "killed_networks.py").write_text(code)
    (folder / "networks.toml").write_text('[resnet50]\nmodel = "killed_networks:resnet50"\ninput = [3, 64, 64]\n')


def commands(folder: Path, url: str) -> list[Command]:
    """Every command that writes, with the inputs of a folder and the address of a Prometheus."""
    log, jobs, dump, runs = ((str(folder / name),) for name in ("log.parquet", "all.parquet", "first.psv", "all.psv"))
    canonical, days, prices = ("--format", "canonical"), ("--horizon", "7"), ("--prices", "1", "3")
    metrics = ("--url", url, "--step", "1h", "--points", "24", "--since", str(FIRST.date()), "--until")
    into, networks = ("--into",), ("--networks", str(folder / "networks.toml"))
    return [
        *(Command("convert", log + canonical, jobs + canonical, f"jobs.{end}") for end in ("csv", "parquet")),
        Command("usage", log, jobs, "usage.csv"),
        Command("report", log + days + prices, log + days, "report"),
        Command("calibrate", ("--device", "AMD EPYC"), ("--device", "T4"), "calibrated"),
        Command("costs-against-log", log + networks, jobs + networks, "mine"),
        Command("demo", (), (), "demo"),
        Command("forecast", log + days, log + days, "run", ("--into",), forecast_chunks, over=False),
        Command("init", (), (), "plan.toml", option=(), over=False),
        Command("pull slurm", ("--from", *dump), ("--from", *runs), "jobs", into, partial(stored_rows, "jobs")),
        Command(
            *("pull prometheus", (*metrics, "2026-02-07"), (*metrics, "2026-02-12"), "usage", into),
            partial(stored_rows, "usage"),
        ),
    ]


def start(arguments: Sequence[str]) -> int:
    """Run a command in a fork; returns the process."""
    child = os.fork()
    if not child:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        app([*arguments, *(() if arguments[0] == "init" else ("--quiet",))], standalone_mode=False)
        os._exit(0)
    return child


def wait(child: int, seconds: float = 600.0) -> bool:
    """Whether a process ends within some time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.001)
    return False


def content(place: Path) -> Any:
    """Bytes of a file, or of all files of a folder by their names; None where there is nothing."""
    if place.is_dir():
        return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    return place.read_bytes() if place.exists() else None


def finished(command: Command, options: tuple[str, ...], out: Path) -> tuple[Any, float]:
    """Result and seconds of an undisturbed run."""
    begin = time.perf_counter()
    if not wait(command.start(options, out)) or not out.exists():
        raise RuntimeError(f"{command.name} {options} failed")
    return found(command, out), time.perf_counter() - begin


def found(command: Command, out: Path) -> Any:
    """What counts of a result."""
    return command.rows(out) if command.rows else content(out)


def kill_once(child: int, folder: Path, moment: float, *, writing: bool) -> None:
    """Kill a command after a moment, or a moment after it began to write."""
    while writing and not list(folder.glob(".gpudemand-*")):
        if wait(child, 0.001):
            return
    if not wait(child, moment):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def stored_rows(table: str, folder: Path) -> set[Any]:
    """Rows of a store, which must be readable."""
    rows = read_store(folder).read(table) if is_store(folder) else None
    return set() if rows is None else {tuple(row.values()) for row in rows.to_pylist()}


def forecast_chunks(folder: Path) -> set[Any]:
    """Chunks of forecasts, each with its bytes."""
    return {(file.name, file.read_bytes()) for file in folder.glob("forecast/[!.]*.parquet")}


def verdict(command: Command, out: Path, old: Any, new: Any) -> str:
    """What is left: ``old``, ``new`` or ``BROKEN``; of rows, ``old`` if none was added."""
    try:
        left = found(command, out)
    except ValueError:
        return "BROKEN"
    if command.rows:
        return "old" if left == (old or set()) else "new" if (old or set()) <= left else "BROKEN"
    return "old" if left == old else "new" if left == new else "BROKEN"


def trial(command: Command, folder: Path, kills: int, draw: random.Random, *, over: bool) -> Counter[str]:
    """Kill a command many times, each time over the same older result or none, and count what is left."""
    new, seconds = finished(command, command.new, folder / f"new-{command.out}")
    old = finished(command, command.old, folder / f"old-{command.out}")[0] if over else None
    counts: Counter[str] = Counter()
    for number in range(kills):
        place = folder / f"{number}"
        place.mkdir()
        out = place / command.out
        if over:
            source = folder / f"old-{command.out}"
            shutil.copytree(source, out) if source.is_dir() else shutil.copy(source, out)
        writing = bool(number % 2) and not command.rows
        moment = draw.uniform(0, _WRITING_S if writing else seconds)
        kill_once(command.start(command.new, out), place, moment, writing=writing)
        counts[verdict(command, out, old, new)] += 1
        shutil.rmtree(place)
    return counts


def main() -> int:
    """Run all trials; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="names of commands")
    options = parser.parse_args()
    draw, broken = random.Random(options.seed), 0
    print(f"{'command':<16} {'writes':<14} {'over':<8} {'old':>4} {'new':>4} {'broken':>7}", flush=True)
    with tempfile.TemporaryDirectory() as inputs, Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        make_inputs(Path(inputs))
        CostModel.load()
        for command in commands(Path(inputs), server.url):
            if options.only and command.name not in options.only:
                continue
            for over in (False, True) if command.over else (False,):
                with tempfile.TemporaryDirectory() as folder:
                    counts = trial(command, Path(folder), options.kills, draw, over=over)
                broken += counts["BROKEN"]
                numbers = f"{counts['old']:>4} {counts['new']:>4} {counts['BROKEN']:>7}"
                print(f"{command.name:<16} {command.out:<14} {'older' if over else 'nothing':<8} {numbers}", flush=True)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
