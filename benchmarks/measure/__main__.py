"""Train every job of a plan for a few steps and record time and memory.

    python -m benchmarks.measure PLAN --out ROWS [--timeout 300] [--process fresh] [--networks benchmarks.zoo]

PLAN is a CSV file with a row a job; an unfinished file of rows is continued.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.measure.networks import ZOO
from benchmarks.measure.runs import Progress, measure_training_cost
from gpudemand._validation import InputError
from gpudemand.units import format_seconds


def show(progress: Progress) -> None:
    """Print the status of a finished row and the time left."""
    row = f"{progress.row['framework']} {progress.row['network']}: {progress.row['status']}"
    print(f"{progress.done}/{progress.total}, {format_seconds(progress.left_s)} left, {row}", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds after which a job is aborted")
    parser.add_argument("--process", choices=("fresh", "shared"), default="fresh", help="shared is for GPUs")
    parser.add_argument("--networks", default=ZOO, help="module or file.py that builds the networks by name")
    given = parser.parse_args()
    options = {"timeout_s": given.timeout, "process": given.process, "networks": given.networks}
    try:
        measure_training_cost(given.plan, given.out, **options, progress=show)
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
