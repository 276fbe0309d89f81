"""Run times of a study's jobs on other GPU types: as the log shows, as predicted, or as stated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.datasets.devices import device
from gpudemand.planning.quantiles import Z95
from gpudemand.planning.run_time import fixed_length
from gpudemand.planning.scenarios import MeasuredRunTimes
from gpudemand.study.pools import UNKNOWN

if TYPE_CHECKING:
    from gpudemand.study.study import Study


class RunTimes(NamedTuple):
    """Run times of jobs on each type: relative to those in the log, their error, GPUs for one, and where from."""

    ratio: FloatArray
    spread: FloatArray
    cards: FloatArray
    source: str


class Speeds:
    """Run times of the jobs of a study's last window on other types, which options have in common."""

    def __init__(self, study: Study) -> None:
        assert study.need.forecast.window is not None
        self.jobs = study.source.jobs.iloc[study.need.forecast.window.rows].reset_index(drop=True)
        self.fixed = fixed_length(self.jobs)
        self.measured = MeasuredRunTimes.of_checked(study.source.jobs, study.step_costs)
        self._known: dict[Any, tuple[FloatArray, float, str]] = {}

    def ratios(
        self, rows: IntArray, source: str, name: str, mix: Mapping[str, float] | None
    ) -> tuple[FloatArray, float, str]:
        """Ratios of jobs of a type on another one, the spread of their errors, and where from.

        As the log shows for the same work on both types, or as predicted for its networks, or for a mix of networks.
        """
        place = source, name, tuple(sorted((mix or {}).items()))
        if place not in self._known:
            self._known[place] = self._ratios(self.jobs.iloc[rows], source, name, mix)
        return self._known[place]

    def _ratios(
        self, jobs: pd.DataFrame, source: str, name: str, mix: Mapping[str, float] | None
    ) -> tuple[FloatArray, float, str]:
        measured = self.measured
        if name in set(measured.jobs["gpu_type"]) and len(table := measured.ratios(source, name)):
            return measured.move(jobs, name)[0], float(table.attrs["error"]), "measured in the log"
        middle, low, high = _mix(source, name, mix)
        ratio, known = np.full(len(jobs), middle), measured.knows(jobs)
        if known.any():
            ratio[known] = measured.move(jobs[known], name)[0]
        told = "predicted for networks" if known.all() else "predicted for a mix of networks"
        return ratio, math.log(high / low) / (2 * Z95), told


def _mix(before: str, after: str, mix: Mapping[str, float] | None) -> tuple[float, float, float]:
    """Run time on a type relative to that on another, for a mix of networks, and its 90 % interval."""
    if before == UNKNOWN:
        raise InputError(
            "the log names no GPU types, so nothing tells how much faster others are; say what its GPUs are with "
            'type_aliases (unknown = "A100"), or state the speed of each option.'
        )
    from gpudemand.cost.reference_mix import mix_ratios

    row: Any = mix_ratios(before, after, weights=mix).loc["all"]
    return float(row["ratio"]), float(row["ratio-lo-90"]), float(row["ratio-hi-90"])


def of_device(name: str, field: str) -> float:
    """Number of a data sheet; NaN where the type is no known device."""
    try:
        return float(getattr(device(name), field))
    except InputError:
        return float("nan")
