"""Capacity plans: for the utilization of GPUs, or for the waits of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from gpudemand._validation import InputError
from gpudemand.planning.capacity.capacity_plan import CapacityPlan, plan_utilization
from gpudemand.planning.capacity.required import SHORT_SHARE
from gpudemand.planning.capacity.wait_plan import PooledWaitPlan, WaitPlan
from gpudemand.planning.capacity.wait_requirement import plan_waits


def plan_capacity(
    forecast: pd.DataFrame,
    *,
    installed: float | Mapping[str, float] | pd.Series,
    target_utilization: float = 0.85,
    service_level: float = 0.95,
    lead_time: str | pd.Timedelta = "90D",
    unit: str = "gpus",
    model: str | None = None,
    short_share: float = SHORT_SHARE,
    wait: str | pd.Timedelta | None = None,
    wait_share: float = 0.9,
    jobs: pd.DataFrame | None = None,
    held: pd.DataFrame | None = None,
) -> CapacityPlan | WaitPlan | PooledWaitPlan:
    """Required GPUs, first shortfall and order date from a demand forecast.

    The requirement of a bin is the quantile of demand at `service_level`, divided by `target_utilization` and rounded
    up: at a utilization of 100 % jobs queue, GPUs are fragmented, and no node may fail.

    Parameters
    ----------
    forecast : DataFrame
        ``unique_id``, ``ds`` and one model's point and interval columns, as ``predict(h, level=[80, 95])`` returns. A
        series is a pool of interchangeable GPUs: the total, or one series a GPU type.
    installed : float, mapping of str to float, or Series by time
        GPUs installed, for every series or by ``unique_id``; or a Series indexed by the times from which on there are
        so many (deliveries, retirements).
    target_utilization : float in (0, 1], default=0.85
        Share of the installed GPUs that may be busy.
    service_level : float in (0.5, 1), default=0.95
        Probability with which the demand of a bin is met.
    lead_time : str or Timedelta, default="90D"
        Time from the order to GPUs in service.
    unit : {"gpus", "gpu_hours"}, default="gpus"
        Unit of the forecast; GPU-hours are divided by the width of a bin.
    model : str, optional
        Model to use, if the frame has several.
    short_share : float in [0, 1], default=0.25
        GPUs first run short, and are due then, in the first short bin from which on at least this share of the bins
        of a week are short; 0 lets a single bin decide. A plan that is only short more rarely prints ``rarely``.
    wait : str or Timedelta, optional
        Plan for waits instead of utilization: the GPUs with which a share `wait_share` of the jobs starts within this
        time, by `plan_waits` with the other arguments as they are there.
    wait_share : float in (0, 1), default=0.9
    jobs : DataFrame, optional
        Job table that `wait` needs: the coming jobs are drawn from it.
    held : DataFrame, optional
        GPUs held in finer bins than the forecast's, such as hours. The share of time with more demand than GPUs counts
        how demand varies within the bins then; a mean over a day hides its peaks.

    Returns
    -------
    CapacityPlan, or with `wait` a WaitPlan, or with `wait` and a mapping a PooledWaitPlan

    Raises
    ------
    InputError
        For values out of range, a forecast without intervals, or intervals too narrow for the service level.

    Examples
    --------
    >>> ds = pd.date_range("2026-03-01", periods=3, freq="MS")
    >>> forecast = pd.DataFrame({"unique_id": "total", "ds": ds, "ETS": [80.0, 90.0, 100.0],
    ...     "ETS-lo-90": [70.0, 75.0, 80.0], "ETS-hi-90": [90.0, 105.0, 120.0]})
    >>> plan_capacity(forecast, installed=120, lead_time="30D")
    Capacity plan: 95 % service level, 85 % target utilization, lead time 30 days
           installed  required  shortfall first short   order by  share of bins over
    total        120       142         22  2026-04-01 2026-03-02               1.7 %
    """
    targets: dict[str, Any] = {"service_level": service_level, "model": model}
    if wait is None:
        limits: dict[str, Any] = {"target_utilization": target_utilization, "lead_time": lead_time, "unit": unit}
        limits |= {"short_share": short_share, "held": held}
        return plan_utilization(forecast, installed=installed, **limits, **targets)
    if isinstance(installed, pd.Series) and isinstance(installed.index, pd.DatetimeIndex):
        raise InputError(
            "waits are planned for a constant number of GPUs installed, or one a pool, not for a Series in time."
        )
    if jobs is None or unit != "gpus":
        raise InputError("wait= needs jobs=, the log that coming jobs are drawn from, and a forecast in GPUs.")
    return plan_waits(forecast, jobs, installed=installed, wait=wait, wait_share=wait_share, **targets)
