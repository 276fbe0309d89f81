"""Ten million jobs to daily GPU-hours per user: processor seconds and peak memory, beside an expert's pandas.

    python -m benchmarks.usage [--jobs 10000000] [--users 5000] [--days 365]

Each method runs in a fresh process that starts from the same Parquet file; peak memory is that process's high-water
resident size.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from gpudemand.jobs.table import as_jobs
from gpudemand.usage.series import usage_series

START = pd.Timestamp("2025-01-01", tz="UTC")


def make_log(path: Path, n_jobs: int, n_users: int, n_days: int) -> None:
    """Write a canonical log with heavy-tailed users and run times."""
    rng = np.random.default_rng(0)
    submit = START + pd.to_timedelta(rng.integers(0, n_days * 86400, n_jobs), unit="s")
    start = submit + pd.to_timedelta(rng.exponential(600, n_jobs).round(), unit="s")
    run = pd.to_timedelta(np.exp(rng.normal(7.5, 2.0, n_jobs)).clip(1, 14 * 86400).round(), unit="s")
    users = np.array([f"user{i:05d}" for i in range(n_users)])
    frame = pd.DataFrame(
        {
            "job_id": pd.RangeIndex(n_jobs).astype(str),
            "user": users[(rng.pareto(1.2, n_jobs) * n_users / 50).astype(int) % n_users],
            "submit": submit,
            "start": start,
            "end": start + run,
            "gpus": rng.choice([1.0, 2.0, 4.0, 8.0], n_jobs, p=[0.7, 0.1, 0.1, 0.1]),
        }
    )
    as_jobs(frame, kind="synthetic").to_parquet(path)


def with_gpudemand(path: Path) -> float:
    """Daily GPU-hours per user, from the file."""
    return float(usage_series(path, by="user", freq="D")["y"].sum())


def with_pandas(path: Path) -> float:
    """The same by an expert, who trusts every row: cumulative sums of what the ends of jobs change, by ``bincount``."""
    jobs = pd.read_parquet(path, columns=["user", "start", "end", "gpus"])
    code, users = pd.factorize(jobs["user"], sort=True)
    begin, end = (jobs[name].to_numpy("datetime64[us]").astype("int64") for name in ("start", "end"))
    gpus, day_us = jobs["gpus"].to_numpy(), 86_400_000_000
    first, n_days = begin.min() // day_us, int(end.max() // day_us - begin.min() // day_us) + 2
    held = np.zeros(len(users) * n_days)
    for times, sign in ((begin, 1.0), (end, -1.0)):
        day, part = np.divmod(times - first * day_us, day_us)
        for place, change in ((day, 1.0 - part / day_us), (day + 1, part / day_us)):
            held += np.bincount(code * n_days + place, sign * gpus * change, len(held))
    return float(24.0 * held.reshape(len(users), n_days).cumsum(axis=1).sum())


METHODS: dict[str, Callable[[Path], float]] = {"gpudemand": with_gpudemand, "pandas and bincount": with_pandas}


def measure(name: str, path: str) -> str:
    """Run one method in this (fresh) process and say what it took."""
    began = time.process_time()
    total = METHODS[name](Path(path))
    seconds = time.process_time() - began
    return json.dumps(
        {
            "method": name,
            "seconds": seconds,
            "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            "gpu_hours": total,
        }
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, default=5_000)
    parser.add_argument("--days", type=int, default=365)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        make = multiprocessing.get_context("spawn").Process(
            target=make_log, args=(path, options.jobs, options.users, options.days)
        )
        make.start()
        make.join()
        rows = []
        for name in METHODS:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                rows.append(json.loads(pool.apply(measure, (name, str(path)))))
    table = pd.DataFrame(rows).set_index("method")
    print(f"{options.jobs:,} jobs of {options.users:,} users over {options.days} days, to daily GPU-hours per user")
    print(table.to_string(float_format=lambda x: f"{x:,.2f}"))


if __name__ == "__main__":
    main()
