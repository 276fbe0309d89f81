"""Run times of a study's jobs on other GPU types: as the log shows, as predicted, or as stated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm

from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import InputError, nearest, shorten, spelled
from gpudemand.datasets.devices import device
from gpudemand.planning.run_time import fixed_length
from gpudemand.planning.scenarios import MeasuredRunTimes
from gpudemand.study.pools import UNKNOWN

if TYPE_CHECKING:
    from gpudemand.planning.purchases import Purchase
    from gpudemand.study.study import Study

Z95 = float(norm.ppf(0.95))


def check_types(study: Study, purchases: Mapping[str, Purchase]) -> None:
    """Check that names of GPU types are those of the log, of what is installed, or of what is known otherwise."""
    given, logged = study.settings.installed, study.source.names("gpu_type")
    there = {*(logged or [UNKNOWN]), *(map(str, given) if isinstance(given, Mapping) else ())}
    for name, purchase in purchases.items():
        for named, speed in ((purchase.buy, purchase.speed), (purchase.rent, None)):
            if named is None or named in there:
                continue
            _check_spelling(f"option {name!r}", named, there)
            if speed is None and logged and np.isnan(of_device(named, "memory_gib")):
                raise InputError(
                    f"option {name!r} names the type {shorten(named)!r}, which neither the log nor a data sheet "
                    f"knows.{nearest(named, there)} Correct it, state the speed of what is bought, or add a data sheet "
                    "with save_device (in the shell a row in data/devices.csv)."
                )
    known = there | {str(named) for each in purchases.values() for named in (each.buy, each.rent)}
    for name, purchase in purchases.items():
        for field in ("power_w", "idle_power_w"):
            powers = getattr(purchase, field)
            for named in powers if isinstance(powers, Mapping) else ():
                if named not in known:
                    raise InputError(
                        f"option {name!r}: {field} names the type {shorten(named)!r}, which is neither there nor "
                        f"bought by any option.{nearest(named, known)}"
                    )


def _check_spelling(what: str, named: str, known: Iterable[str]) -> None:
    """Raise for a name that differs from a known one by case, spaces or hyphens only."""
    for other in known:
        if other != named and spelled(other) == spelled(named):
            raise InputError(f"{what} names the type {shorten(named)!r}, which is {other!r} elsewhere; write it so.")


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
