"""The bundled predictor of large models on public runs that it was not fitted to.

    python -m benchmarks.cost.public_runs [--half development|scoring]

``data/cost/public_runs.csv`` holds runs that 18 further projects print. Its projects are divided by a fixed seed: those
of the development half may be looked at while the predictor is worked on, those of the scoring half are scored once a
change. Errors of time stand beside 6 N D at the best single share of the peak and at that by type of GPU, both of the
shared table; of memory, beside the formulas of DeepSpeed and Hugging Face.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

from benchmarks.cost.llm_load import read_runs
from gpudemand.datasets.registry import bundled_path

HALVES = ("development", "scoring")
#: Of the draw of the halves.
_SEED = 20261124


def load() -> pd.DataFrame:
    """Rows of `read_runs` with their ``half``."""
    rows = read_runs(bundled_path("cost/public_runs.csv"))
    return rows.assign(half=rows["source"].map(halves(rows)))


def halves(rows: pd.DataFrame) -> dict[str, str]:
    """Half of each project, drawn apart for those that have mixtures of experts, for both halves to have some."""
    sparse = rows["class"].eq("experts").groupby(rows["source"]).any()
    rng, found = np.random.default_rng(_SEED), {}
    for has in (True, False):
        names = rng.permutation(sorted(sparse.index[sparse == has])).tolist()
        found.update({name: HALVES[place % 2] for place, name in enumerate(names)})
    return found
