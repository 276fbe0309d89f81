"""Benchmark on public measurements of step time and memory: a table a track.

    python -m benchmarks.cost --train DIR [--test DIR] [--track family device memory ...] [--cache DIR] [--traced]

DIR holds a folder a project, as `benchmarks.cost.load` reads them. With one folder, whole groups of it are held out in
turn; with another `--test` folder, the first is the training and the second the test set. Needs timm and torchvision
for networks that the cache lacks; with ``--traced`` those are dropped.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import pandas as pd

from benchmarks.cost import memory
from benchmarks.cost.jobs import jobs_of, with_terms
from benchmarks.cost.load import READERS
from benchmarks.cost.methods import EXTRA, METHODS
from benchmarks.cost.score import held_out, log_errors, predictions
from benchmarks.cost.traced import CACHE, TraceCache
from benchmarks.cost.tracks import TRACKS, Track, across, within

log = logging.getLogger(__name__)


def table_of(track: Track, data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Features of the jobs of a track; graphs that are missing are traced."""
    found = [name for name in (*track.sources, *track.beside) if (data / name).is_dir()]
    jobs = pd.concat([jobs_of(READERS[name](data / name)) for name in found], ignore_index=True)
    jobs = _collapsed(jobs[track.rows(jobs)])
    if trace:
        cache.trace(jobs["graph"].unique())
    missing = sorted(set(jobs["graph"]) - set(cache.keys()))
    if missing:
        log.info("%d networks have no graph: %s", len(missing), ", ".join(missing))
    table = with_terms(jobs, cache)
    one_of = list(track.one_of)
    return table.groupby(one_of).sample(1, random_state=0).reset_index(drop=True) if one_of else table


def _collapsed(jobs: pd.DataFrame) -> pd.DataFrame:
    """On one GPU, rows of several hosts are repetitions: their median."""
    known = [name for name in jobs.columns if name != "step_time_s"]
    jobs = jobs.assign(host=jobs["host"].where(jobs["n_gpus"] > 1, ""))
    cells = jobs.groupby(known, as_index=False, dropna=False, sort=False)["step_time_s"]
    spread = (jobs["step_time_s"] / jobs.groupby(known, dropna=False)["step_time_s"].transform("median") - 1.0).abs()
    if (spread > 0).any():
        log.info("noise floor: repetitions differ from their median by %.1f %%", 100 * spread[spread > 0].median())
    return cells.median()


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
    return held_out(name, outs, table)


def _zeros(*tables: pd.DataFrame) -> dict[str, float]:
    return {name: 0.0 for table in tables for name in table.columns if name.startswith("work:")}


def main() -> None:
    """Run the tracks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, default=None)
    parser.add_argument("--track", nargs="+", default=[*TRACKS, *memory.TRACKS], choices=[*TRACKS, *memory.TRACKS])
    parser.add_argument("--method", nargs="+", default=list(METHODS), choices=list(METHODS), help="of step time")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--traced", action="store_true", help="only networks that the cache has already")
    parser.add_argument("--out", type=Path, help="a Parquet file for predicted over measured, of all held-out rows")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    cache, test = TraceCache(options.cache), None if options.test == options.train else options.test
    trace, results = not options.traced, []
    for name in options.track:
        if name in TRACKS:
            results.append(run(name, options.train, test, cache, options.method, trace=trace))
        else:
            results.append(memory.run(name, options.train, test, cache, trace=trace))
    if options.out is not None:
        pd.concat(results, ignore_index=True).to_parquet(options.out, compression="zstd")


if __name__ == "__main__":
    main()
