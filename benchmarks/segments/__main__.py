"""Accuracy of the segments: known and unseen archetypes, labelled public series, and forecasts for real users.

python -m benchmarks.segments [--data DIR] [--seeds 20] [--resamples 20] [--only known|unseen|ucr|users]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.segments import archetypes, ucr, unseen, users


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with series/ and traces/")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--resamples", type=int, default=20)
    parser.add_argument("--only", choices=("known", "unseen", "ucr", "users"))
    options = parser.parse_args()
    if options.only in (None, "known"):
        archetypes.report(options.seeds)
    if options.only in (None, "unseen"):
        unseen.report(max(options.seeds // 7, 1))
    if options.only in (None, "ucr"):
        ucr.report(options.data)
    if options.only in (None, "users"):
        for name in users.READERS:
            users.report(name, options.data, options.resamples)


if __name__ == "__main__":
    main()
