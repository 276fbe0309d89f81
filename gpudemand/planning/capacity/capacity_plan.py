"""The capacity plan of a forecast: required against installed GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_columns, check_number
from gpudemand.planning.capacity.inputs import (
    bin_hours,
    broadcast_by_series,
    broadcast_by_time,
    check_lead_time,
    check_targets,
    check_unique,
    order_date,
)
from gpudemand.planning.capacity.purchase_mix import purchase_mix
from gpudemand.planning.capacity.quantiles import QuantileTable
from gpudemand.planning.capacity.required import SHORT_SHARE, first_crossing, required_table
from gpudemand.planning.capacity.within_bins import ratios_to_mean
from gpudemand.units import format_count


def plan_utilization(
    forecast: pd.DataFrame,
    *,
    installed: float | Mapping[str, float] | pd.Series,
    target_utilization: float = 0.85,
    service_level: float = 0.95,
    lead_time: str | pd.Timedelta = "90D",
    unit: str = "gpus",
    model: str | None = None,
    short_share: float = SHORT_SHARE,
    held: pd.DataFrame | None = None,
) -> CapacityPlan:
    """`plan_capacity` without a target for waits."""
    check_choice("unit", unit, ("gpus", "gpu_hours"))
    lead, forecast = check_lead_time(lead_time), check_columns(forecast, ("unique_id", "ds"), "forecast")
    quantiles = QuantileTable.from_forecast(forecast, model)
    check_unique(forecast)
    check_targets(target_utilization, service_level, quantiles.highest)
    lasting = check_number("short_share", short_share, 0, 1)
    if unit == "gpu_hours":
        quantiles = QuantileTable(quantiles.z, quantiles.values / bin_hours(forecast)[:, None])
    if isinstance(installed, pd.Series) and isinstance(installed.index, pd.DatetimeIndex):
        capacity = broadcast_by_time(installed, forecast["ds"])
    else:
        capacity = broadcast_by_series("installed", installed, forecast["unique_id"])
    ratios = None if held is None else ratios_to_mean(held, forecast)
    table = required_table(forecast, quantiles, capacity, target_utilization, service_level, ratios)
    order = np.lexsort((forecast["ds"].to_numpy(), forecast["unique_id"].astype(str).to_numpy()))
    ordered = QuantileTable(quantiles.z, quantiles.values[order])
    ratios = None if ratios is None else ratios[order]
    return CapacityPlan(table, target_utilization, service_level, lead, dict(forecast.attrs), ordered, lasting, ratios)


@dataclass(frozen=True)
class CapacityPlan:
    """Required against installed GPUs by series and date; prints one line a series.

    Attributes
    ----------
    table : DataFrame
        See `to_frame`.
    target_utilization, service_level : float
    lead_time : Timedelta
    attrs : dict
        Metadata of the forecast, such as the kind of data.
    quantiles : QuantileTable
        Predictive distribution of demand, with the rows of `table`.
    short_share : float
        Share of the bins of a week that has to be short for a crossing.
    ratios : ndarray of shape (n_rows, n_ratios), optional
        Equally likely ratios of the demand at a time to the mean of its bin, by row of `table`.
    """

    table: pd.DataFrame = field(repr=False)
    target_utilization: float
    service_level: float
    lead_time: pd.Timedelta
    attrs: dict[str, object] = field(default_factory=dict, repr=False)
    quantiles: QuantileTable | None = field(default=None, repr=False)
    short_share: float = SHORT_SHARE
    ratios: FloatArray | None = field(default=None, repr=False)

    def to_frame(self) -> pd.DataFrame:
        """The plan by series and bin.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``; ``demand_p50`` ... ``demand_p99``: GPUs busy; ``required_p50`` ... ``required_p99``
            and ``required`` (at the service level): GPUs required; ``installed``; ``shortfall``; ``p_over``:
            probability that the demand of the bin exceeds the installed GPUs; ``share_over``: expected share of the bin
            in which it does, where the plan knows how demand varies within bins.
        """
        return self.table.copy()

    @property
    def summary(self) -> pd.DataFrame:
        """The plan by series: installed GPUs, largest requirement and shortfall, dates, and utilization.

        Returns
        -------
        DataFrame
            Index ``unique_id``; ``installed``, ``required``, ``shortfall``, ``first_crossing`` (the first short bin
            from which on at least `short_share` of the bins of a week are short; NaT if never), ``order_by``
            (`first_crossing` less the lead time, possibly in the past), ``peak_utilization`` (demand at the service
            level over installed, where there are any), ``share_over`` (expected share of the time ahead with more
            demand than GPUs; without the GPUs `held` in finer bins, the share of the forecast's bins, which for means
            over days is less).
        """
        groups = self.table.groupby("unique_id", sort=False)
        crossings = {
            name: first_crossing(series["ds"], series["shortfall"] > 0, self.short_share) for name, series in groups
        }
        busy = self.table["required"] * self.target_utilization
        there = self.table["installed"].where(self.table["installed"] > 0)
        over = "p_over" if self.ratios is None else "share_over"
        frame = pd.DataFrame(
            {
                "installed": groups["installed"].first(),
                "required": groups["required"].max(),
                "shortfall": groups["shortfall"].max(),
                "first_crossing": pd.Series(crossings, dtype=self.table["ds"].dtype),
                "peak_utilization": (busy / there).groupby(self.table["unique_id"], sort=False).max(),
                "share_over": groups[over].mean(),
            }
        )
        frame = frame.loc[list(groups.groups)] if len(frame) > 1 else frame
        crossing = frame["first_crossing"]
        due = pd.Series([order_date(time, self.lead_time) for time in crossing], crossing.index, crossing.dtype)
        frame.insert(4, "order_by", due)
        return frame

    def replan(
        self,
        *,
        growth: float = 1.0,
        extra_gpus: float = 0.0,
        target_utilization: float | None = None,
        service_level: float | None = None,
    ) -> CapacityPlan:
        """Plan with other demand, more GPUs or other targets; arguments not given stay.

        Parameters
        ----------
        growth : float, default=1.0
            Demand relative to the forecast.
        extra_gpus : float, default=0.0
            GPUs added to each series.
        target_utilization, service_level : float, optional

        Returns
        -------
        CapacityPlan
        """
        known = self.known_quantiles()
        quantiles = QuantileTable(known.z, known.values * check_number("growth", growth, 0))
        target = self.target_utilization if target_utilization is None else target_utilization
        level = self.service_level if service_level is None else service_level
        check_targets(target, level, known.highest)
        capacity = self.table["installed"].to_numpy() + check_number("extra_gpus", extra_gpus, 0)
        return CapacityPlan(
            required_table(self.table, quantiles, capacity, target, level, self.ratios),
            target,
            level,
            self.lead_time,
            self.attrs,
            quantiles,
            self.short_share,
            self.ratios,
        )

    def exceedance(self, capacity: Sequence[float] | None = None) -> pd.DataFrame:
        """Expected share of the time ahead, or of the forecast's bins, in which demand exceeds a number of GPUs.

        Parameters
        ----------
        capacity : sequence of float, optional
            GPUs; by default 101 values from none to 1.5 times the requirement.

        Returns
        -------
        DataFrame
            ``unique_id``, ``gpus``, ``share_over``: decreasing in ``gpus``.
        """
        quantiles, parts = self.known_quantiles(), []
        ratios = np.ones((len(self.table), 1)) if self.ratios is None else self.ratios
        given = None if capacity is None else np.array([check_number("capacity", gpus, 0) for gpus in capacity])
        for name, rows in self.table.groupby("unique_id", sort=False).indices.items():
            highest = max(self.table["required"].iloc[rows].max(), self.table["installed"].iloc[rows].max())
            steps = np.linspace(0, 1.5 * highest, 101) if given is None else given
            subset = QuantileTable(quantiles.z, quantiles.values[rows])
            over = [float(subset.share_over(np.full(len(rows), gpus), ratios[rows]).mean()) for gpus in steps]
            parts.append(pd.DataFrame({"unique_id": name, "gpus": steps, "share_over": over}))
        return pd.concat(parts, ignore_index=True)

    def purchase_mix(
        self, reserved: float | Mapping[str, float], on_demand: float | Mapping[str, float]
    ) -> pd.DataFrame:
        """Cheapest mix of reserved and on-demand GPUs over the time of the plan, at prices of a GPU-hour.

        Parameters
        ----------
        reserved, on_demand : float or mapping of str to float
            Price of a GPU-hour, for every series or by ``unique_id``.

        Returns
        -------
        DataFrame
            See `gpudemand.planning.capacity.purchase_mix.purchase_mix`.
        """
        hours, required = bin_hours(self.table), self.table["required"].to_numpy(dtype=float)
        return purchase_mix(self.table["unique_id"], self.known_quantiles(), hours, required, reserved, on_demand)

    def known_quantiles(self) -> QuantileTable:
        """Predictive distribution of demand, with the rows of `table`; raises where the plan was made without."""
        if self.quantiles is None:
            raise InputError("this plan was made without the quantiles of demand; make it with plan_capacity.")
        return self.quantiles

    def __repr__(self) -> str:
        return f"{self._headline()}\n{self._printed().to_string()}"

    def _repr_html_(self) -> str:
        return f"<p>{self._headline()}</p>{self._printed().to_html()}"

    def _headline(self) -> str:
        return (
            f"Capacity plan: {100 * self.service_level:.4g} % service level, "
            f"{100 * self.target_utilization:.4g} % target utilization, lead time {self.lead_time.days} days"
        )

    def _printed(self) -> pd.DataFrame:
        summary = self.summary.rename_axis(None)
        counts = {name: summary[name].map(format_count) for name in ("installed", "required", "shortfall")}
        crossing = _dates(summary["first_crossing"])
        crossing = crossing.mask(summary["first_crossing"].isna() & (summary["shortfall"] > 0), "rarely")
        dates = {"first short": crossing, "order by": _dates(summary["order_by"])}
        over = f"share of {'bins' if self.ratios is None else 'time'} over"
        return pd.DataFrame(
            {**counts, **dates, over: summary["share_over"].map("{:.1%}".format).str.replace("%", " %")}
        )


def _dates(times: pd.Series) -> pd.Series:
    return times.dt.strftime("%Y-%m-%d").fillna("never")
