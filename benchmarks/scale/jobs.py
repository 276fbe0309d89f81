"""Stores of 10, 100 and 300 million jobs to daily GPU-hours per user: seconds and peak memory.

    python -m benchmarks.scale.jobs [--jobs 10e6 100e6 300e6] [--users 5000] [--into FOLDER]

Each store is written month by month and read in a fresh process, whose high-water resident size is its peak memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from gpudemand.jobs.table import as_jobs
from gpudemand.store import arrow_table, open_store
from gpudemand.usage.series import usage_series

START = pd.Timestamp("2025-01-01", tz="UTC")


def make_store(path: Path, n_jobs: int, n_users: int) -> None:
    """Write a store of one year of jobs, with heavy-tailed users and run times."""
    months = pd.date_range(START, periods=13, freq="MS")
    numbers = np.linspace(0, n_jobs, 13).astype(int)
    with open_store(path) as store:
        for month, begin, end, first, last in zip(
            range(12), months[:-1], months[1:], numbers[:-1], numbers[1:], strict=True
        ):
            rows = arrow_table(_jobs_of_a_month(month, begin, end, first, last, n_users))
            store.merge("jobs", f"{begin:%Y-%m}", rows, rows.select(["job_id"]), ["submit", "job_id"])
        store.commit()


def _jobs_of_a_month(
    seed: int, begin: pd.Timestamp, end: pd.Timestamp, first: int, last: int, n_users: int
) -> pd.DataFrame:
    rng, n = np.random.default_rng(seed), last - first
    submit = begin + pd.to_timedelta(np.sort(rng.integers(0, int((end - begin).total_seconds()), n)), unit="s")
    start = submit + pd.to_timedelta(rng.exponential(600, n).round(), unit="s")
    run = pd.to_timedelta(np.exp(rng.normal(7.5, 2.0, n)).clip(1, 14 * 86400).round(), unit="s")
    users = pd.array([f"user{i:07d}" for i in range(n_users)], dtype="string[pyarrow]")
    columns = {
        "job_id": np.arange(first, last).astype(str),
        "user": users[(rng.pareto(1.2, n) * n_users / 50).astype(int) % n_users],
        "submit": submit,
        "start": start,
        "end": start + run,
        "gpus": rng.choice([1.0, 2.0, 4.0, 8.0], n, p=[0.7, 0.1, 0.1, 0.1]),
    }
    return as_jobs(pd.DataFrame(columns), kind="synthetic")


def measure(path: Path) -> dict[str, float]:
    """Daily GPU-hours per user in this (fresh) process, and what they took."""
    began = time.perf_counter()
    gpu_hours = float(usage_series(path, by="user", freq="D")["y"].sum())
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": seconds,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_gib": used.ru_maxrss / 2**20,
        "gpu_hours": gpu_hours,
    }


def main() -> None:
    """Print a row a size, as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=float, nargs="+", default=[10e6, 100e6, 300e6])
    parser.add_argument("--users", type=int, default=5_000)
    parser.add_argument("--into", type=Path, help="folder for what is made, and deleted (by default /tmp)")
    options = parser.parse_args()
    print(f"{'jobs':>12} {'seconds':>9} {'CPU s':>9} {'CPU us a job':>12} {'peak GiB':>9} {'store GiB':>9}")
    for n_jobs in map(int, options.jobs):
        folder = Path(tempfile.mkdtemp(prefix="gpudemand-", dir=options.into))
        try:
            print(_row(folder / "store", n_jobs, options.users), flush=True)
        finally:
            shutil.rmtree(folder)


def _row(path: Path, n_jobs: int, n_users: int) -> str:
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1) as pool:
        pool.apply(make_store, (path, n_jobs, n_users))
    with spawn.Pool(1) as pool:
        took = pool.apply(measure, (path,))
    stored = sum(file.stat().st_size for file in path.rglob("*.parquet")) / 2**30
    return (
        f"{n_jobs:>12,} {took['seconds']:>9.1f} {took['cpu_seconds']:>9.1f} "
        f"{took['cpu_seconds'] / n_jobs * 1e6:>12.2f} {took['peak_gib']:>9.2f} {stored:>9.2f}"
    )


if __name__ == "__main__":
    main()
