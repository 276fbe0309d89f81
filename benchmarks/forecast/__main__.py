"""Forecast accuracy on public series, beside naive and standard methods.

python -m benchmarks.forecast [--data DIR] [--track NAME ...] [--origins 28 | --origins 2020-08-01..2020-08-31]
    [--out FILE]

Each track is a module with ``TITLE``, ``AIM`` and ``run(data, origins)``, which returns a row a method. ``--origins``
is the number of newest origins, or the first and the last of them; by default a track has its own.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

import pandas as pd

from benchmarks.forecast import anchors
from benchmarks.forecast.origins import Origins
from gpudemand._validation import InputError

TRACKS = {
    "spot": "benchmarks.forecast.spot",
    "venus": "benchmarks.forecast.venus",
    "philly": "benchmarks.forecast.philly",
    "cdnow": "benchmarks.forecast.cdnow",
    "m4": "benchmarks.forecast.m4",
    "hangzhou": "benchmarks.forecast.hangzhou",
    "clusterwise": "benchmarks.forecast.clusterwise",
    "published": "benchmarks.forecast.published",
    "panels": "benchmarks.forecast.panels",
    "intervals": "benchmarks.forecast.intervals",
    "shapes": "benchmarks.forecast.shapes",
    "members": "benchmarks.forecast.members",
    "steps": "benchmarks.forecast.steps",
    "holidays": "benchmarks.forecast.holidays",
    "sums": "benchmarks.forecast.sums",
    "means": "benchmarks.forecast.means",
    "parking": "benchmarks.forecast.parking",
    "clusters": "benchmarks.forecast.clusters",
    "coldstart": "benchmarks.forecast.coldstart",
    "speed": "benchmarks.forecast.speed",
}


def report(name: str, data: Path, origins: Origins | None, out: Path | None = None) -> None:
    """Run a track and print its table, or the reason why it is skipped; with `out`, also write it as CSV."""
    track = import_module(TRACKS[name])
    print(f"\n{track.TITLE}\naim: {track.AIM}")
    if origins is not None:
        print(f"origins: {origins} instead of the track's own")
    with pd.option_context("display.width", 200, "display.max_columns", 30, "display.float_format", "{:.4f}".format):
        try:
            table = track.run(data, origins)
            print(table.to_string())
            if out is not None:
                table.round(4).to_csv(out)
        except FileNotFoundError as missing:
            print(f"left out: {missing.filename} was not found; --data is a folder with series/ and traces/.")
        except InputError as problem:
            print(f"left out: {problem}")


def main() -> None:
    """Print the tables of the chosen tracks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with series/ and traces/")
    parser.add_argument("--track", nargs="+", choices=TRACKS, default=list(TRACKS))
    parser.add_argument("--origins", type=Origins.parse, help="28, or 2020-08-01..2020-08-31")
    parser.add_argument("--out", type=Path, help="a CSV file for the table of the last track")
    options = parser.parse_args()
    if anchors.NOTE:
        print(anchors.NOTE)
    for name in options.track:
        report(name, options.data, options.origins, options.out)


if __name__ == "__main__":
    main()
