"""A report from a store of five million jobs, with and without a target for waits: seconds and peak memory.

python -m benchmarks.scale.report [--jobs 5e6] [--users 1000] [--into FOLDER]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.scale.jobs import make_store

TARGETS = ((), ("--wait", "1h"))


def measure(store: Path, out: Path, options: tuple[str, ...]) -> dict[str, float]:
    """Seconds, seconds of processor and peak memory of ``gpudemand report``, the only child of this process."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "gpudemand", "report", str(store), "--out", str(out), "--quiet", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "CPU s": used.ru_utime + used.ru_stime, "peak GiB": used.ru_maxrss / 2**20}


def main() -> None:
    """Print a row a target, as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=float, default=5e6)
    parser.add_argument("--users", type=int, default=1_000)
    parser.add_argument("--into", type=Path, help="folder for what is made, and deleted (by default /tmp)")
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="gpudemand-", dir=options.into) as folder:
        store = Path(folder, "store")
        # Each in a process of its own, whose children are only what is measured.
        with spawn.Pool(1) as pool:
            pool.apply(make_store, (store, int(options.jobs), options.users))
        for target in TARGETS:
            with spawn.Pool(1) as pool:
                took = pool.apply(measure, (store, Path(folder, "report"), target))
            print(" ".join(target) or "no target", {name: round(value, 2) for name, value in took.items()}, flush=True)


if __name__ == "__main__":
    main()
