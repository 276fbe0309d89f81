"""Changes of how the same training runs: on another GPU, in larger batches, in another precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.cost.devices import PRECISIONS, device
from gpudemand.planning.runtime.training import training_steps
from gpudemand.planning.scenarios.changes import Change, Costs, theirs


@dataclass(frozen=True)
class Recost(Change):
    """Base of changes that let the same training run otherwise."""

    def apply(self, work: pd.DataFrame, costs: Costs | None) -> pd.DataFrame:
        """Return the work as far as it fits; what does not fit stays as it is."""
        if costs is None:
            raise InputError(f"{type(self).__name__} needs to know the networks; give WhatIf costs=CostStepTime(...).")
        here = self._concerns(work)
        before, after = work[here], self._changed(work[here])
        old, new = costs.costs(before), costs.costs(after)
        ratio = (
            training_steps(after)
            * new["step_time_s"].to_numpy()
            / np.maximum(training_steps(before) * old["step_time_s"].to_numpy(), 1e-12)
        )
        fits = new["fits"].to_numpy(dtype=float)
        # What fits with a probability moves with that share: the expected work, with no draw.
        moved = after.assign(gpu_hours=before["gpu_hours"].to_numpy() * ratio * fits)
        stays = before.assign(gpu_hours=before["gpu_hours"].to_numpy() * (1 - fits))
        return pd.concat([work[~here], moved, stays[fits < 1]], ignore_index=True)

    def _concerns(self, work: pd.DataFrame) -> Any:
        return np.ones(len(work), dtype=bool)

    def _changed(self, work: pd.DataFrame) -> pd.DataFrame:
        raise NotImplementedError


@dataclass(frozen=True)
class MoveTo(Recost):
    """Jobs run on another GPU, each with the speed-up of its network there, and only if its memory fits.

    Parameters
    ----------
    target : str
        GPU type, a device of `gpudemand.cost.devices`.
    source : str, optional
        GPU type that is left; all others by default.
    """

    target: str
    source: str | None = None

    def _concerns(self, work: pd.DataFrame) -> Any:
        if self.source is None:
            return (work["gpu_type"] != self.target).to_numpy(dtype=bool)
        return theirs(work, "gpu_type", self.source)

    def _changed(self, work: pd.DataFrame) -> pd.DataFrame:
        return work.assign(gpu_type=pd.Series(self.target, index=work.index, dtype=work["gpu_type"].dtype))


@dataclass(frozen=True)
class LargerBatch(Recost):
    """Batches grow by a factor where they fit: fewer, longer steps for the same epochs.

    Parameters
    ----------
    factor : float
    """

    factor: float = 2.0

    def _changed(self, work: pd.DataFrame) -> pd.DataFrame:
        factor = check_number("factor", self.factor, 0, open_low=True)
        return work.assign(batch_size=np.maximum(np.round(work["batch_size"] * factor), 1).astype(np.int64))


@dataclass(frozen=True)
class Precision(Recost):
    """Jobs train in another precision, such as ``"bf16"`` (mixed), on GPUs that have it; others go on as before.

    Parameters
    ----------
    precision : str
    source : str, optional
        Precision that is left; all by default.
    """

    precision: str
    source: str | None = None

    def _concerns(self, work: pd.DataFrame) -> Any:
        able = work["gpu_type"].isin([name for name in work["gpu_type"].unique() if _offers(name, self.precision)])
        meant = work["precision"] != self.precision if self.source is None else work["precision"] == self.source
        return (meant & able).to_numpy(dtype=bool)

    def _changed(self, work: pd.DataFrame) -> pd.DataFrame:
        return work.assign(precision=pd.Series(self.precision, index=work.index, dtype=work["precision"].dtype))


def _offers(gpu_type: str, precision: str) -> bool:
    # `device` refuses a name that no row of the device table has.
    return check_choice("precision", precision, PRECISIONS) in device(gpu_type).precisions
