"""Predicted run times of trainings against those that the log shows, and programmes corrected by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from gpudemand._validation import InputError
from gpudemand.planning.runtime.ratios import OTHERS, run_time_ratios
from gpudemand.planning.scenarios.changes import NetworkCosts
from gpudemand.planning.scenarios.programme import PlannedWork, Programme
from gpudemand.stages.sources.source import Source

_NEEDED = ("network", "batch_size", "epochs", "samples")


def log_ratios(source: Source, step_costs: NetworkCosts | None) -> pd.DataFrame:
    """Ratios of observed to predicted run times by user; see `run_time_ratios`.

    Parameters
    ----------
    source : Source
    step_costs : CostStepTime or None
        Jobs of networks that it does not know are left out.

    Returns
    -------
    DataFrame

    Raises
    ------
    InputError
        If the log does not tell what its jobs train, or nothing predicts their step time.
    """
    jobs = source.jobs
    missing = [name for name in _NEEDED if name not in jobs.columns or jobs[name].isna().all()]
    if missing:
        raise InputError(
            f"the log's jobs do not tell {', '.join(missing)}, so predicted run times cannot be compared with theirs."
        )
    if step_costs is None:
        raise InputError(
            "nothing predicts the run times of the log's networks; give step_costs=CostStepTime(...) to compare them."
        )
    return run_time_ratios(jobs[step_costs.knows(jobs)], step_costs)


def calibrated(programmes: Sequence[PlannedWork], ratios: pd.DataFrame) -> tuple[PlannedWork, ...]:
    """Programmes whose predicted times are corrected by the ratio of their user, or that of others.

    Parameters
    ----------
    programmes : sequence of Programme or Serving
        Those that were calibrated by hand stay as they are.
    ratios : DataFrame
        As `run_time_ratios` returns it.
    """
    rows = ratios[["ratio", "low", "high"]].itertuples(index=False, name=None)
    found = dict(zip(ratios["user"].astype(str), ((float(a), float(b), float(c)) for a, b, c in rows), strict=True))
    return tuple(_calibrated(work, found) for work in programmes)


def _calibrated(work: PlannedWork, found: dict[str, tuple[float, float, float]]) -> PlannedWork:
    if not isinstance(work, Programme) or work.job is None or work.ratio is not None:
        return work
    own = found.get(str(work.user), found.get(OTHERS))
    return work if own is None else replace(work, ratio=own)
