"""Segments and forecasts of many users over a year of days, in chunks: seconds by stage, peak memory, efficiency.

    python -m benchmarks.scale.users [--users 100000] [--jobs-per-user 20] [--processes 1 2] [--into FOLDER]

The same store is forecast by one process and by two, each time in a fresh one; the files must be equal. The time of 100
million users is that of their chunks at the measured efficiency of the last number of processes, and of one split.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pandas as pd

from benchmarks.scale.jobs import make_store
from gpudemand.bulk import bulk_forecast

MANY, WORKERS = 100_000_000, (1, 16, 256)


def measure(store: Path, into: Path, processes: int) -> dict[str, float]:
    """Seconds of the stages and of the parts of chunks, and the peak memory of all processes together."""
    bulk_forecast(store, into, n_jobs=processes)
    run = json.loads((into / "run.json").read_text())
    chunks = pd.json_normalize(list(run["chunks"].values()))
    parent = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    children = 0.0 if processes == 1 else processes * float(chunks["peak_gib"].max())
    return {
        "series": run["series"],
        **{name: stage["seconds"] for name, stage in run["stages"].items()},
        **{f"of chunks: {name}": float(chunks[f"seconds.{name}"].sum()) for name in ("usage", "segments", "forecast")},
        "peak GiB": parent + children,
    }


def main() -> None:
    """Print the table and the extrapolation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=float, default=100_000)
    parser.add_argument("--jobs-per-user", type=float, default=20)
    parser.add_argument("--processes", type=int, nargs=2, default=[1, 2])
    parser.add_argument("--into", type=Path, help="folder for what is made, and deleted (by default /tmp)")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gpudemand-", dir=options.into))
    try:
        _compare(folder, int(options.users), int(options.users * options.jobs_per_user), options.processes)
    finally:
        shutil.rmtree(folder)


def _compare(folder: Path, n_users: int, n_jobs: int, processes: list[int]) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        pool.submit(make_store, folder / "store", n_jobs, n_users).result()
    columns = {}
    for number in processes:
        # A pool's own processes may have none; those of an executor may.
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            columns[number] = pool.submit(measure, folder / "store", folder / f"run-{number}", number).result()
        print(pd.Series(columns[number], name=f"{number} processes").to_string(), flush=True)
    one, more = (sorted((folder / f"run-{number}" / "forecast").iterdir()) for number in processes)
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in more], "forecasts differ"
    few, many = processes
    efficiency = columns[few]["chunks"] * few / (columns[many]["chunks"] * many)
    print(f"efficiency of {many} processes: {efficiency:.0%}; equal bytes")
    for workers in WORKERS:
        series = MANY / columns[few]["series"]
        hours = series * (columns[few]["split"] + columns[few]["chunks"] * few / workers / efficiency) / 3600
        print(f"{MANY:,} users on {workers} workers: {hours:,.1f} h")


if __name__ == "__main__":
    main()
