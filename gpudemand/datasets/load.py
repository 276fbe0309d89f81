"""Loaders of the bundled sample."""

from __future__ import annotations

import pandas as pd

from gpudemand._typing import STRING
from gpudemand.datasets.registry import bundled_path
from gpudemand.jobs.schema import COLUMNS
from gpudemand.jobs.table import as_jobs

_TEXT = ("network", "precision")


def load_jobs_sample() -> pd.DataFrame:
    """Load the job log of a simulated cluster: 120 users in 8 groups, 270 days, with growth.

    Returns
    -------
    DataFrame
        A canonical job table (``attrs["kind"]`` is ``"synthetic"``) with the additional columns
        ``network``, ``batch_size``, ``precision``, ``epochs`` and ``samples`` of `make_cluster`.

    Examples
    --------
    >>> jobs = load_jobs_sample()
    >>> jobs.shape
    (98639, 17)
    >>> jobs[["user", "group", "submit", "gpus", "gpu_type", "network"]].head(3)
           user  group                    submit  gpus gpu_type        network
    0  user-098    ads 2025-10-06 00:04:22+00:00   1.0     A100   mobilenet_v2
    1  user-098    ads 2025-10-06 00:31:42+00:00   1.0     A100   mobilenet_v2
    2  user-037  video 2025-10-06 00:39:50+00:00   2.0     A100  convnext_tiny
    """
    stored = pd.read_parquet(bundled_path("sample/jobs.parquet"))
    stored = stored.astype({name: STRING for name in stored.columns if name in _TEXT})
    return as_jobs(stored, kind="synthetic", source="bundled sample (gpudemand.datasets.make_cluster)")


def load_truth_sample() -> pd.DataFrame:
    """Load the ground truth of the bundled sample, one row a user.

    Returns
    -------
    DataFrame
        The second result of `make_cluster`, input of `expected_usage`.

    Examples
    --------
    >>> truth = load_truth_sample()
    >>> truth[["user", "group", "archetype", "typical_gpus"]].head(3)
           user     group archetype  typical_gpus
    0  user-001  language  sporadic           4.0
    1  user-002    speech   weekday           2.0
    2  user-003    vision   weekday           2.0
    >>> truth["archetype"].value_counts().head(3).to_dict()
    {'weekday': 32, 'sporadic': 30, 'burst': 22}
    """
    stored = pd.read_parquet(bundled_path("sample/truth.parquet"))
    text = ("user", "group", "archetype", "network")
    truth = stored.astype(dict.fromkeys(text, STRING)).astype(
        dict.fromkeys(("active_from", "active_to"), COLUMNS["submit"])
    )
    truth.attrs = dict(stored.attrs)
    return truth
