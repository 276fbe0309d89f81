"""Changes of the hardware or configuration of the same training: GPU type, batch size, precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_columns, check_number
from gpudemand.cost.devices import device
from gpudemand.cost.hardware import PRECISIONS
from gpudemand.planning.runtime.training import training_steps
from gpudemand.planning.scenarios.changes import Change, JobCosts, rows_of
from gpudemand.planning.scenarios.measured import MeasuredRunTimes


@dataclass(frozen=True)
class HardwareChange(Change):
    """Base class of changes that scale GPU-hours by the ratio of predicted run times."""

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None) -> pd.DataFrame:
        """Return the workload with the jobs that fit changed, and the others as before."""
        if costs is None:
            raise InputError(
                f"{type(self).__name__} needs to know the networks; give WhatIf costs=CostStepTime(...), "
                "or costs=MeasuredRunTimes(jobs) to move jobs as fast as the log shows."
            )
        selected = self._affected(workload)
        before, after = workload[selected], self._changed(workload[selected])
        ratio, fits = self._ratio_and_fits(before, after, costs)
        # Expected workload: a job that fits with some probability is changed to that share.
        moved = after.assign(gpu_hours=before["gpu_hours"].to_numpy() * ratio * fits)
        stays = before.assign(gpu_hours=before["gpu_hours"].to_numpy() * (1 - fits))
        return pd.concat([workload[~selected], moved, stays[fits < 1]], ignore_index=True)

    def _ratio_and_fits(
        self, before: pd.DataFrame, after: pd.DataFrame, costs: JobCosts
    ) -> tuple[FloatArray, FloatArray]:
        """Ratio of run times after and before, and the chance that memory suffices."""
        old, new = costs.costs(before), costs.costs(after)
        ratio = (
            training_steps(after)
            * new["step_time_s"].to_numpy()
            / np.maximum(training_steps(before) * old["step_time_s"].to_numpy(), 1e-12)
        )
        return ratio, new["fits"].to_numpy(dtype=float)

    def _affected(self, workload: pd.DataFrame) -> Any:
        return np.ones(len(workload), dtype=bool)

    def _changed(self, workload: pd.DataFrame) -> pd.DataFrame:
        raise NotImplementedError


@dataclass(frozen=True)
class MoveTo(HardwareChange):
    """Move jobs to another GPU type, each with its speed-up, as far as memory fits.

    The speed-up is that of its network, or with `MeasuredRunTimes` the one that the log shows.

    Parameters
    ----------
    target : str
        GPU type, a device of `gpudemand.cost.devices`.
    source : str, optional
        GPU type to move from; all others by default.
    """

    target: str
    source: str | None = None

    def _affected(self, workload: pd.DataFrame) -> Any:
        if self.source is None:
            return (workload["gpu_type"] != self.target).to_numpy(dtype=bool)
        return rows_of(workload, "gpu_type", self.source)

    def _ratio_and_fits(
        self, before: pd.DataFrame, after: pd.DataFrame, costs: JobCosts
    ) -> tuple[FloatArray, FloatArray]:
        if isinstance(costs, MeasuredRunTimes):
            return costs.move(before, self.target)
        return super()._ratio_and_fits(before, after, costs)

    def _changed(self, workload: pd.DataFrame) -> pd.DataFrame:
        return workload.assign(gpu_type=pd.Series(self.target, index=workload.index, dtype=workload["gpu_type"].dtype))


@dataclass(frozen=True)
class LargerBatch(HardwareChange):
    """Multiply batch sizes by a factor where memory fits: fewer, longer steps for the same epochs.

    Parameters
    ----------
    factor : float
    """

    factor: float = 2.0

    def _changed(self, workload: pd.DataFrame) -> pd.DataFrame:
        factor = check_number("factor", self.factor, 0, open_low=True)
        check_columns(workload, ("batch_size",), "jobs")
        return workload.assign(batch_size=np.maximum(np.round(workload["batch_size"] * factor), 1).astype(np.int64))


@dataclass(frozen=True)
class Precision(HardwareChange):
    """Train in another precision, such as ``"bf16"`` (mixed), on GPUs that support it.

    Parameters
    ----------
    precision : str
    source : str, optional
        Precision to change from; all by default.
    """

    precision: str
    source: str | None = None

    def _affected(self, workload: pd.DataFrame) -> Any:
        check_columns(workload, ("precision",), "jobs")
        types, now = workload["gpu_type"], workload["precision"]
        supported = types.isin([name for name in types.unique() if _supports(name, self.precision)])
        selected = now != self.precision if self.source is None else now == self.source
        return (selected & supported).to_numpy(dtype=bool)

    def _changed(self, workload: pd.DataFrame) -> pd.DataFrame:
        dtype = workload["precision"].dtype
        return workload.assign(precision=pd.Series(self.precision, index=workload.index, dtype=dtype))


def _supports(gpu_type: str, precision: str) -> bool:
    return check_choice("precision", precision, PRECISIONS) in device(gpu_type).precisions
