"""Kill every command that writes, at random moments, and look at what is left: ``python -m scripts.kill_commands``.

Each command is killed (SIGKILL) while it writes to a free name and over an older result: every other time at a moment
drawn over its whole run, else shortly after it began to write. What is left must be the older result (or nothing) or
the new one, byte for byte; of `measure`, no finished row may be missing. Prints a row a command; exit code 1 if any
result was mixed or lost.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand.cost import make_plan, write_plan
from gpudemand.cost.measuring.measure import read_rows
from gpudemand.datasets import load_jobs_sample
from gpudemand.jobs import write_jobs

#: Seconds after a command began to write within which it is killed.
_WRITING_S = 0.2


@dataclass(frozen=True)
class Command:
    """A command with the arguments for the older and for the new result, and where it writes."""

    name: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    out: str
    appends: bool = False


def commands(folder: Path) -> list[Command]:
    """Make the input files of all commands."""
    jobs = load_jobs_sample()
    few = jobs[jobs["user"].isin(sorted(jobs["user"].unique())[:20])]
    few = few[few["submit"] < few["submit"].min() + pd.Timedelta("70D")].reset_index(drop=True)
    few.attrs = dict(jobs.attrs)
    logs = [str(folder / name) for name in ("log.parquet", "all.parquet")]
    write_jobs(few, logs[0])
    write_jobs(jobs, logs[1])
    plans = [str(folder / name) for name in ("first.csv", "plan.csv")]
    plan = make_plan(6, networks=["lenet"], frameworks=["torch"], n_repeated=0)
    write_plan(plan.head(2), plans[0])
    write_plan(plan, plans[1])
    subprocess.run(_line(("measure", plans[0], "--out", str(folder / "rows.csv"))), check=True, capture_output=True)
    calibrate = ("calibrate", "--rows", str(folder / "rows.csv"), "--device")
    report, prices = ("report", logs[0], "--horizon", "7"), ("--prices", "1", "3")
    return [
        *(
            Command(f"convert to {end}", *(("convert", log, "--format", "canonical") for log in logs), f"jobs.{end}")
            for end in ("csv", "parquet")
        ),
        Command("usage", *(("usage", log) for log in logs), "usage.csv"),
        Command("report", (*report, *prices), report, "report"),
        Command("calibrate", (*calibrate, "AMD EPYC"), (*calibrate, "T4"), "calibrated"),
        Command("measure", *(("measure", plan) for plan in plans), "measured.csv", appends=True),
        Command("demo", (*report, *prices), ("demo",), "demo"),
    ]


def _line(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "gpudemand", *arguments, "--quiet"]


def content(place: Path) -> Any:
    """Bytes of a file, or of all files of a folder by their names; None where there is nothing."""
    if place.is_dir():
        return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    return place.read_bytes() if place.exists() else None


def finished(command: Command, arguments: tuple[str, ...], out: Path) -> tuple[Any, float]:
    """Result and seconds of an undisturbed run."""
    begin = time.perf_counter()
    subprocess.run(_line((*arguments, "--out", str(out))), check=True, capture_output=True)
    return content(out), time.perf_counter() - begin


def kill_once(line: list[str], folder: Path, moment: Callable[[bool], float], *, writing: bool) -> None:
    """Start a command and kill it after a moment, or a moment after it began to write."""
    run = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while writing and run.poll() is None and not list(folder.glob(".gpudemand-*")):
        time.sleep(0.001)
    try:
        run.wait(timeout=moment(writing))
    except subprocess.TimeoutExpired:
        run.kill()
    run.wait()


def rows_of(data: bytes | None) -> set[str]:
    """Keys of the complete rows of a measurement file, which must be readable."""
    if not data or b"\n" not in data:
        return set()
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(data)
        file.flush()
        return set(read_rows(file.name)["key"])


def verdict(command: Command, found: Any, old: Any, new: Any) -> str:
    """What is left: ``old``, ``new`` or ``BROKEN``; of a log that grows, ``old`` if no row was added."""
    if command.appends:
        if not rows_of(old) <= rows_of(found):
            return "BROKEN"
        return "old" if rows_of(found) == rows_of(old) else "new"
    return "old" if found == old else "new" if found == new else "BROKEN"


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
        line = _line((*command.new, "--out", str(out)))
        writing = bool(number % 2) and not command.appends
        kill_once(line, place, lambda late: draw.uniform(0, _WRITING_S if late else seconds), writing=writing)
        counts[verdict(command, content(out), old, new)] += 1
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
    print(f"{'command':<20} {'over':<8} {'old':>4} {'new':>4} {'broken':>7}", flush=True)
    with tempfile.TemporaryDirectory() as inputs:
        for command in commands(Path(inputs)):
            for over in (False, True):
                if options.only and command.name not in options.only:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    counts = trial(command, Path(folder), options.kills, draw, over=over)
                broken += counts["BROKEN"]
                numbers = f"{counts['old']:>4} {counts['new']:>4} {counts['BROKEN']:>7}"
                print(f"{command.name:<20} {'older' if over else 'nothing':<8} {numbers}", flush=True)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
