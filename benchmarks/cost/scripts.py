"""Step times of published training scripts beside predictions of the bare step: the table, its halves, and the track.

A script loads and augments data, computes losses and metrics on the host, logs and evaluates; the bundled model of step
time was fitted to loops that do none of it. Rows are facts from public pages, each with its source.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.cost.jobs import jobs_of, with_terms
from benchmarks.cost.load import version_number
from benchmarks.cost.traced import TraceCache
from gpudemand.datasets.registry import bundled_path

#: Of the draw of the sources that are scored once.
_SEED = 20261124


def script_jobs(cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Features and seconds of a step of every row whose network has a graph, and ``script``, the project that it is of."""
    rows = pd.read_csv(bundled_path("cost/training_scripts.csv"), dtype={"framework_version": "string"})
    tensorflow = rows["framework"] == "tensorflow"
    rows = rows.assign(
        framework=np.where(tensorflow, "tensorflow", "pytorch"),
        version=rows["framework_version"].where(tensorflow | (rows["framework"] == "pytorch")).map(version_number),
        compiled=rows["compiled"].astype(bool),
        mode="train",
        n_nodes=1,
        host="",
    )
    if trace:
        cache.trace(rows["graph"].unique())
    return with_terms(jobs_of(rows), cache)


def is_scored(sources: pd.Series) -> pd.Series:
    """Rows of the half of the sources that is drawn once and scored once; the others are for development."""
    names = np.sort(sources.unique().astype(str))
    drawn = np.random.default_rng(_SEED).permutation(names)[: len(names) // 2]
    return sources.isin(drawn)
