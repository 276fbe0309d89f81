"""Persistence features of many usage series: seconds and peak memory, beside GUDHI, giotto-tda and plain Vietoris-Rips.

    python -m benchmarks.segments.speed [--users 23570] [--days 546] [--many 1000000] [--sample 200]

Series are synthetic: zero-inflated (3 % of days active), and dense. Slow methods run on a sample and are extrapolated,
which the table states. Compilation is excluded by a warm-up.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudemand.segments import (
    LogSpectrum,
    PersistenceStatistics,
    RipsStatistics,
    TopologicalSegmenter,
    sublevel_persistence,
    takens_embedding,
)
from gpudemand.segments.features import RIPS_STRIDE, RIPS_WINDOW
from gpudemand.units import format_seconds

Values = NDArray[Any]
Method = Callable[[Values], object]


def zero_inflated(n_users: int, n_days: int, share: float = 0.03) -> Values:
    """Exponential usage on a `share` of the days."""
    rng = np.random.default_rng(0)
    return np.where(rng.random((n_users, n_days)) < share, rng.exponential(20.0, (n_users, n_days)), 0.0)


def dense(n_users: int, n_days: int) -> NDArray[np.float32]:
    """Uniform usage on every day, in single precision."""
    return np.random.default_rng(0).random((n_users, n_days), dtype=np.float32)


def with_gudhi(values: Values) -> None:
    """Diagrams by GUDHI's code for one dimension, which is ten times as fast as its general complex."""
    import_module("gudhi.sklearn.cubical_persistence").CubicalPersistence(homology_dimensions=0).fit_transform(values)


def diagrams(values: Values) -> None:
    """Diagrams by gpudemand, checked and sorted, one series at a time."""
    for series in values:
        sublevel_persistence(series)


def with_giotto_tda(values: Values) -> None:
    """Diagrams by giotto-tda, in one call on all cores."""
    import_module("gtda.homology").CubicalPersistence(homology_dimensions=(0,), n_jobs=-1).fit_transform(values)


def with_ripser(values: Values) -> None:
    """H1 of all windows of 50 days by ripser, as in the paper's notebooks."""
    ripser = import_module("ripser").ripser
    for row in values:
        ripser(takens_embedding(row, dimension=50), maxdim=1)


def with_giotto_ph(values: Values) -> None:
    """H1 of all windows by giotto-ph, in one thread."""
    ripser = import_module("gph").ripser_parallel
    for row in values:
        ripser(takens_embedding(row, dimension=50), maxdim=1, n_threads=1)


def statistics(values: Values) -> None:
    """16 sublevel and superlevel statistics by gpudemand."""
    PersistenceStatistics().fit_transform(values)


def spectrum(values: Values) -> None:
    """Log-spectrum by gpudemand."""
    LogSpectrum().fit_transform(values)


def loops(values: Values) -> None:
    """H1 of 64 landmarks of the windows of 50 days by gpudemand, on all cores."""
    RipsStatistics(n_jobs=-1).fit_transform(values)


def all_loops(values: Values) -> None:
    """H1 of all distinct windows by gpudemand, in one process."""
    RipsStatistics(n_landmarks=None).fit_transform(values)


def seconds(method: Method, values: Values, warm_up: int) -> float:
    """Minimum of up to three runs after a warm-up."""
    method(values[:warm_up])
    best, spent = np.inf, 0.0
    while spent < 2.0:
        start = time.perf_counter()
        method(values)
        took = time.perf_counter() - start
        best, spent = min(best, took), spent + max(took, 0.7)
    return best


def row(name: str, method: Method, values: Values, n_users: int) -> None:
    """Print one line of the table: time for all users, extrapolated from the sample."""
    try:
        took = seconds(method, values, warm_up=2)
    except ImportError:
        print(f"{name:<58} not installed")
        return
    whole = took * n_users / len(values)
    note = "measured" if len(values) == n_users else f"extrapolated from {len(values):,} series"
    print(f"{name:<58} {format_seconds(whole):>9}  {note}", flush=True)


def compare(values: Values, sample: int) -> None:
    """Print the table for one data set."""
    n_users = len(values)
    few, fewest = values[:sample], values[: max(sample // 50, 2)]
    row("sublevel and superlevel statistics (gpudemand)", statistics, values, n_users)
    row("sublevel, diagrams only (gpudemand, one by one)", diagrams, few, n_users)
    row("sublevel, diagrams only (GUDHI)", with_gudhi, few, n_users)
    row("sublevel, diagrams only (giotto-tda)", with_giotto_tda, few, n_users)
    row("log-spectrum, 80 frequencies (gpudemand)", spectrum, values, n_users)
    row("H1 of 50-day windows, 64 landmarks (gpudemand)", loops, values[: 10 * sample], n_users)
    row("H1 of 50-day windows, all distinct (gpudemand, 1 core)", all_loops, fewest, n_users)
    row("H1 of 50-day windows, all (ripser, 1 core)", with_ripser, fewest, n_users)
    row("H1 of 50-day windows, all (giotto-ph, 1 core)", with_giotto_ph, fewest, n_users)


def whole_fit(n_users: int, n_days: int) -> None:
    """Time fits of the segmenter with an automatic number of segments, with default and with Rips features."""
    columns = pd.date_range("2026-01-05", periods=n_days, freq="D")
    wide = pd.DataFrame(zero_inflated(n_users, n_days), columns=columns)
    landmarked = f"with Rips persistence of windows of {RIPS_WINDOW} bins, stride {RIPS_STRIDE}"
    for name, blocks in (("by default", None), (landmarked, ["rhythm", "weekly_persistence", "rips"])):
        segmenter = TopologicalSegmenter(blocks=blocks, random_state=0)
        segmenter.fit(wide.iloc[:100])
        start = time.perf_counter()
        segmenter.fit(wide)
        print(
            f"{'fit, ' + name + ' (gpudemand)':<58} {format_seconds(time.perf_counter() - start):>9}  measured",
            flush=True,
        )


def million(n_users: int, n_days: int) -> None:
    """Time the statistics of dense float32 series in this process, and print them with the peak memory."""
    statistics(dense(10, n_days))
    values = dense(n_users, n_days)
    start = time.perf_counter()
    statistics(values)
    took = time.perf_counter() - start
    print(json.dumps({"seconds": took, "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=23_570)
    parser.add_argument("--days", type=int, default=546)
    parser.add_argument("--many", type=int, default=1_000_000, help="users of 365 dense days, in a separate process")
    parser.add_argument("--sample", type=int, default=200, help="series that slow methods run on")
    parser.add_argument("--only-many", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only_many:
        million(args.many, 365)
        return
    for name, make in (("3 % of days active", zero_inflated), ("every day active", dense)):
        print(f"{args.users:,} series of {args.days} days, {name} (synthetic)")
        compare(make(args.users, args.days), args.sample)
        print()
    whole_fit(args.users, args.days)
    print()
    command = [sys.executable, "-m", "benchmarks.segments.speed", "--only-many", "--many", str(args.many)]
    run = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(f"{args.many:,} series of 365 days, every day active, float32 (synthetic)")
    print(f"{'sublevel and superlevel statistics (gpudemand)':<58} {format_seconds(run['seconds']):>9}  measured")
    print(f"{'peak memory, the data included':<58} {run['gib']:>5.1f} GiB")


if __name__ == "__main__":
    main()
