"""Tables of features of the public jobs of a track."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd

from benchmarks.cost.jobs import jobs_of, with_terms
from benchmarks.cost.load import READERS
from benchmarks.cost.traced import TraceCache
from benchmarks.cost.tracks import TRACKS, Track

log = logging.getLogger(__name__)
#: Tracks whose rows train the model of time: vision networks and language models, some 25 kinds of GPU, up to eight.
_TIME = ("family", "inference", "gpus", "device", "device-tensorflow", "device-pytorch", "transformers")
#: A project whose networks were rebuilt from descriptions with assumed sequence lengths: only those known exactly are
#: in the training set.
_APPROXIMATE, _EXACT = "lambda_pytorch", ("resnet50",)


def table_of(track: Track, data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Features of the jobs of a track; graphs that are missing are traced."""
    found = [name for name in (*track.sources, *track.beside) if (data / name).is_dir()]
    jobs = pd.concat([jobs_of(READERS[name](data / name)) for name in found], ignore_index=True)
    jobs, one_of = collapsed_hosts(jobs[track.rows(jobs)]), list(track.one_of)
    if one_of:
        jobs = jobs.groupby(one_of, dropna=False).sample(1, random_state=0)
    if trace:
        cache.trace(jobs["graph"].unique())
    missing = sorted(set(jobs["graph"]) - set(cache.keys()))
    if missing:
        log.info("%d networks have no graph: %s", len(missing), ", ".join(missing))
    return with_terms(jobs, cache).reset_index(drop=True)


def collapsed_hosts(jobs: pd.DataFrame) -> pd.DataFrame:
    """On one GPU, rows of several hosts are repetitions: their median."""
    known = [name for name in jobs.columns if name != "step_time_s"]
    jobs = jobs.assign(host=jobs["host"].where(jobs["n_gpus"] > 1, ""))
    cells = jobs.groupby(known, as_index=False, dropna=False, sort=False)["step_time_s"]
    spread = (jobs["step_time_s"] / jobs.groupby(known, dropna=False)["step_time_s"].transform("median") - 1.0).abs()
    if (spread > 0).any():
        log.info("noise floor: repetitions differ from their median by %.1f %%", 100 * spread[spread > 0].median())
    return cells.median()


def time_table(data: Path, cache: TraceCache, *, inference: bool = True, trace: bool = True) -> pd.DataFrame:
    """Jobs of all tracks of step time together."""
    names = [name for name in _TIME if inference or name != "inference"]
    tables = pd.concat([table_of(TRACKS[name], data, cache, trace=trace) for name in names], ignore_index=True)
    work = {name: 0.0 for name in tables.columns if name.startswith("work:")}
    jobs = tables.fillna(work).drop_duplicates(ignore_index=True)
    return jobs[(jobs["source"] != _APPROXIMATE) | jobs["network"].isin(_EXACT)].reset_index(drop=True)
