"""Capacity plans under changes of the workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, as_pandas, check_columns
from gpudemand.metrics import levels
from gpudemand.planning.capacity.capacity_plan import CapacityPlan, plan_utilization
from gpudemand.planning.capacity.quantiles import pick_model
from gpudemand.planning.scenarios.changes import Change, JobCosts, StepEvent, recent_workload
from gpudemand.usage.membership import series_codes

#: A change, or several that are applied in order.
Scenario = Change | Sequence[Change]
#: Memory (GB as sold) -> a device with as much.
CARDS = {24: "GeForce RTX 3090", 40: "A100-SXM4-40GB", 80: "A100-SXM4-80GB"}


class WhatIf:
    """Capacity plans under scenarios, from a forecast and the jobs of the weeks before it.

    A change acts on the jobs of those weeks; the ratio of GPU-hours after and before, by series, scales the forecast
    and its intervals. The seasonal pattern and the relative uncertainty of demand stay the same.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table; jobs submitted in the `days` before the forecast count, with their GPU-hours so far.
    forecast : DataFrame
        As for `plan_capacity`: the total, or series by GPU type, group, user ...
    installed : float or mapping of str to float
        GPUs installed.
    costs : object, optional
        A `CostStepTime` or `MeasuredRunTimes`: required by changes of GPU type, batch size and precision.
    days : int, default=28
    options : mapping, optional
        Other arguments of `plan_capacity`, such as ``{"lead_time": "60D"}``.

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> from gpudemand.planning.scenarios.changes import Growth, RemoveGroup
    >>> jobs, _ = make_cluster(n_users=20, n_days=60, random_state=0)
    >>> ds = pd.date_range("2026-03-01", periods=4, freq="W", tz="UTC")
    >>> forecast = pd.DataFrame({"unique_id": "total", "ds": ds, "M": 50.0, "M-lo-90": 40.0, "M-hi-90": 60.0})
    >>> what_if = WhatIf(jobs, forecast, installed=80)
    >>> less = [Growth(2.0), RemoveGroup("vision", by="group")]
    >>> what_if.compare({"base": [], "doubled": Growth(2.0), "doubled, no vision": less})["required"].tolist()
    [71.0, 142.0, 115.0]
    """

    def __init__(
        self,
        jobs: pd.DataFrame,
        forecast: pd.DataFrame,
        *,
        installed: float | Mapping[str, float],
        costs: JobCosts | None = None,
        days: int = 28,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.forecast = forecast = check_columns(forecast, ("unique_id", "ds"), "forecast")
        if getattr(forecast["ds"].dtype, "tz", None) is None:
            raise InputError("forecast['ds'] has no time zone, and jobs have; give it theirs with .dt.tz_localize.")
        self.installed = installed
        self.options = dict(options or {})
        self.costs = costs
        self.ids = [str(name) for name in forecast["unique_id"].unique()]
        self.workload = recent_workload(jobs, forecast["ds"].min(), days)
        self.base_hours = self._hours(self.workload)
        if not self.base_hours.any():
            raise InputError(f"no job of the {days} days before the forecast belongs to its series.")

    def plan(self, scenario: Scenario = ()) -> CapacityPlan:
        """Capacity plan under a scenario.

        Parameters
        ----------
        scenario : Change or sequence of Change
            Several are applied in order; none is the base case.

        Returns
        -------
        CapacityPlan
        """
        return plan_utilization(self.changed_forecast(scenario), installed=self.installed, **self.options)

    def changed_forecast(self, scenario: Scenario) -> pd.DataFrame:
        """Forecast under a scenario, with its intervals."""
        changes = [scenario] if isinstance(scenario, Change) else list(scenario)
        workload = self.workload
        for change in changes:
            workload = change.apply(workload, self.costs)
        hours = self._hours(workload)
        factor = np.divide(hours, self.base_hours, out=np.ones_like(hours), where=self.base_hours > 0)
        new = [
            name for name, before, after in zip(self.ids, self.base_hours, hours, strict=True) if after > before == 0
        ]
        if new:
            raise InputError(f"{new[0]!r} had no work before the forecast, so there is nothing to scale.")
        forecast, names = self.forecast.copy(), self._value_columns()
        row_factor = forecast["unique_id"].astype(str).map(dict(zip(self.ids, factor, strict=True)))
        forecast[names] = forecast[names].mul(row_factor.to_numpy(dtype=float), axis=0)
        for event in changes:
            if isinstance(event, StepEvent):
                forecast[names] = forecast[names].add(event.added_gpus(forecast), axis=0)
        return forecast

    def compare(self, scenarios: Mapping[str, Scenario]) -> pd.DataFrame:
        """Compare the plans of several scenarios.

        Parameters
        ----------
        scenarios : mapping of str to scenario
            Name -> a change, or several.

        Returns
        -------
        DataFrame
            A row a scenario and series: ``scenario``, ``unique_id``, then the columns of `CapacityPlan.summary`.
        """
        parts = [
            self.plan(scenario).summary.reset_index().assign(scenario=name) for name, scenario in scenarios.items()
        ]
        table = pd.concat(parts, ignore_index=True)
        return table[["scenario", *[name for name in table.columns if name != "scenario"]]]

    def _hours(self, workload: pd.DataFrame) -> FloatArray:
        codes = series_codes(workload, self.ids)
        hours = workload["gpu_hours"].to_numpy(dtype=float)
        return np.bincount(codes[codes >= 0], hours[codes >= 0], minlength=len(self.ids)).astype(float)

    def _value_columns(self) -> list[str]:
        model = pick_model(self.forecast, self.options.get("model"))
        ends = [f"{model}-{side}-{level:g}" for level in levels(self.forecast, model) for side in ("lo", "hi")]
        return [model, *ends]


def fits_on_cards(jobs: pd.DataFrame, costs: JobCosts, cards: Mapping[int, str] | None = None) -> pd.DataFrame:
    """Share of jobs whose memory fits on cards of 24, 40 and 80 GB.

    Parameters
    ----------
    jobs : DataFrame
        With the columns required by `costs`.
    costs : CostStepTime
    cards : mapping of int to str, optional
        GB -> a device of `gpudemand.cost.devices` with as much.

    Returns
    -------
    DataFrame
        Index ``gb``; ``device``, ``share_of_jobs``: expected, from each job's probability to fit.
    """
    jobs = as_pandas(jobs, "jobs")
    rows = {
        size: {"device": card, "share_of_jobs": float(costs.costs(jobs.assign(gpu_type=card))["fits"].mean())}
        for size, card in (cards or CARDS).items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("gb")
