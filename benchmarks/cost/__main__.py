"""Benchmark on public measurements of step time and memory: a table a track.

    python -m benchmarks.cost [--train DIR] [--test DIR] [--track family device memory ...] [--cache DIR] [--traced]

DIR holds a folder a project, as `benchmarks.cost.load` reads them. With one folder, whole groups of it are held out in
turn; with another `--test` folder, the first is the training and the second the test set. Needs timm and torchvision
for networks that the cache lacks; with ``--traced`` those are dropped. Ten tracks are run only by name: ``h200``,
of our own measurements on a GPU, and ``alone``, with a single GPU in training; those of the papers, ``dnnabacus`` (on
the bundled measurements), ``placement`` and ``lattuada``; of large models ``llm`` and whole ``trainings``; ``scripts``,
published training scripts; ``counts``, other numbers of GPUs than those measured; and ``ratios`` of speed between types
of GPU.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import pandas as pd

from benchmarks.cost import (
    dnnabacus,
    exam,
    gpu_counts,
    lattuada,
    llm,
    memory,
    placement,
    scripts,
    speed_ratios,
    trainings,
)
from benchmarks.cost.calibration_curve import calibration_curve
from benchmarks.cost.methods import EXTRA, METHODS
from benchmarks.cost.score import held_out, log_errors, predictions
from benchmarks.cost.table import table_of
from benchmarks.cost.traced import CACHE, TraceCache
from benchmarks.cost.tracks import TRACKS, across, within

log = logging.getLogger(__name__)
#: Each takes the folder of public measurements and the cache of graphs.
BY_NAME = {
    "h200": exam.run,
    "alone": exam.alone,
    "counts": gpu_counts.run,
    "dnnabacus": dnnabacus.run,
    "placement": placement.run,
    "lattuada": lattuada.run,
    "llm": llm.run,
    "scripts": scripts.run,
    "trainings": trainings.run,
    "ratios": speed_ratios.run,
}


def run(
    name: str, train: Path, test: Path | None, cache: TraceCache, methods: list[str], *, trace: bool = True
) -> pd.DataFrame:
    """Log the table of one track; return the ratios of `held_out`."""
    track = TRACKS[name]
    table = table_of(track, train, cache, trace=trace)
    folds = within(track, table) if test is None else []
    if test is not None:
        other = table_of(track, test, cache, trace=trace)
        both = pd.concat([table, other], ignore_index=True)
        folds, table = across(track, both, len(table)), both.fillna(_zeros(table, other))
    n_rows, aim = sum(len(fold.test) for fold in folds), [100 * value for value in track.aim]
    log.info("\n%s: %d rows in %d folds; target %.0f %% / %.0f %%", name, n_rows, len(folds), *aim)
    compared = {method: METHODS[method] for method in methods} | EXTRA.get(name, {})
    outs = {method: predictions(make, table, folds, track.group) for method, make in compared.items()}
    log_errors(outs, table[track.group])
    if track.calibrated:
        log.info("by measured jobs of the device, on the same rows:\n%s", calibration_curve(table, folds, track.group))
    return held_out(name, outs, table)


def _zeros(*tables: pd.DataFrame) -> dict[str, float]:
    return {name: 0.0 for table in tables for name in table.columns if name.startswith("work:")}


def main() -> None:
    """Run the tracks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, default=Path("../shared/data/cost"))
    parser.add_argument("--test", type=Path, default=None)
    parser.add_argument(
        "--track", nargs="+", default=[*TRACKS, *memory.TRACKS], choices=[*TRACKS, *memory.TRACKS, *BY_NAME]
    )
    parser.add_argument("--method", nargs="+", default=list(METHODS), choices=list(METHODS), help="of step time")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--traced", action="store_true", help="only networks that the cache has already")
    parser.add_argument("--out", type=Path, help="a Parquet file for predicted over measured, of all held-out rows")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    cache, test = TraceCache(options.cache), None if options.test == options.train else options.test
    trace, results = not options.traced, []
    for name in options.track:
        if name in BY_NAME:
            results.append(BY_NAME[name](options.train, cache, trace=trace))
        elif name in TRACKS:
            results.append(run(name, options.train, test, cache, options.method, trace=trace))
        else:
            results.append(memory.run(name, options.train, test, cache, trace=trace))
    if options.out is not None:
        pd.concat(results, ignore_index=True).to_parquet(options.out, compression="zstd")


if __name__ == "__main__":
    main()
