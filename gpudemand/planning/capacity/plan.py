"""Capacity plan: quantiles of forecast demand against installed GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_columns, check_number
from gpudemand.planning.capacity.inputs import bin_hours, broadcast_by_series, check_lead_time
from gpudemand.planning.capacity.purchase_mix import purchase_mix
from gpudemand.planning.capacity.quantiles import QuantileTable
from gpudemand.units import format_count

#: Quantiles that a plan lists.
SHARES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


def plan_capacity(
    forecast: pd.DataFrame,
    *,
    installed: float | Mapping[str, float],
    target_utilization: float = 0.85,
    service_level: float = 0.95,
    lead_time: str | pd.Timedelta = "90D",
    unit: str = "gpus",
    model: str | None = None,
) -> CapacityPlan:
    """Required GPUs, first shortfall and order date from a demand forecast.

    The requirement of a bin is the quantile of demand at `service_level`, divided by `target_utilization` and rounded
    up: at a utilization of 100 % jobs queue, GPUs are fragmented, and no node may fail.

    Parameters
    ----------
    forecast : DataFrame
        ``unique_id``, ``ds`` and one model's point and interval columns, as ``predict(h, level=[80, 95])`` returns. A
        series is a pool of interchangeable GPUs: the total, or one series a GPU type.
    installed : float or mapping of str to float
        GPUs installed, for every series or by ``unique_id``.
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

    Returns
    -------
    CapacityPlan

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
           installed  required  shortfall first short   order by  share of time over
    total        120       142         22  2026-04-01 2026-03-02               1.7 %
    """
    check_choice("unit", unit, ("gpus", "gpu_hours"))
    lead, forecast = check_lead_time(lead_time), check_columns(forecast, ("unique_id", "ds"), "forecast")
    quantiles = QuantileTable.from_forecast(forecast, model)
    _check_unique(forecast)
    _check_targets(target_utilization, service_level, quantiles.highest)
    if unit == "gpu_hours":
        quantiles = QuantileTable(quantiles.z, quantiles.values / bin_hours(forecast)[:, None])
    capacity = broadcast_by_series("installed", installed, forecast["unique_id"])
    table = _table(forecast, quantiles, capacity, target_utilization, service_level)
    order = np.lexsort((forecast["ds"].to_numpy(), forecast["unique_id"].astype(str).to_numpy()))
    ordered = QuantileTable(quantiles.z, quantiles.values[order])
    return CapacityPlan(table, target_utilization, service_level, lead, dict(forecast.attrs), ordered)


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
    """

    table: pd.DataFrame = field(repr=False)
    target_utilization: float
    service_level: float
    lead_time: pd.Timedelta
    attrs: dict[str, object] = field(default_factory=dict, repr=False)
    quantiles: QuantileTable | None = field(default=None, repr=False)

    def to_frame(self) -> pd.DataFrame:
        """The plan by series and bin.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``; ``demand_p50`` ... ``demand_p99``: GPUs busy; ``required_p50`` ... ``required_p99``
            and ``required`` (at the service level): GPUs required; ``installed``; ``shortfall``; ``p_over``:
            probability that demand exceeds the installed GPUs.
        """
        return self.table.copy()

    @property
    def summary(self) -> pd.DataFrame:
        """The plan by series: installed GPUs, largest requirement and shortfall, dates, and utilization.

        Returns
        -------
        DataFrame
            Index ``unique_id``; ``installed``, ``required``, ``shortfall``, ``first_crossing`` (NaT if never),
            ``order_by`` (`first_crossing` less the lead time, possibly in the past), ``peak_utilization`` (demand
            at the service level over installed), ``share_over`` (expected share of time with more demand than GPUs).
        """
        groups = self.table.groupby("unique_id", sort=False)
        short = self.table[self.table["shortfall"] > 0]
        frame = pd.DataFrame(
            {
                "installed": groups["installed"].first(),
                "required": groups["required"].max(),
                "shortfall": groups["shortfall"].max(),
                "first_crossing": short.groupby("unique_id")["ds"].min(),
                "peak_utilization": groups["required"].max() * self.target_utilization / groups["installed"].first(),
                "share_over": groups["p_over"].mean(),
            }
        )
        frame = frame.loc[list(groups.groups)] if len(frame) > 1 else frame
        frame["first_crossing"] = pd.to_datetime(frame["first_crossing"])
        frame.insert(4, "order_by", frame["first_crossing"] - self.lead_time)
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
        known = self._known_quantiles()
        quantiles = QuantileTable(known.z, known.values * check_number("growth", growth, 0))
        target = self.target_utilization if target_utilization is None else target_utilization
        level = self.service_level if service_level is None else service_level
        _check_targets(target, level, known.highest)
        capacity = self.table["installed"].to_numpy() + check_number("extra_gpus", extra_gpus, 0)
        return CapacityPlan(
            _table(self.table, quantiles, capacity, target, level), target, level, self.lead_time, self.attrs, quantiles
        )

    def exceedance(self, capacity: Sequence[float] | None = None) -> pd.DataFrame:
        """Expected share of time in which demand exceeds a number of GPUs.

        Parameters
        ----------
        capacity : sequence of float, optional
            GPUs; by default 101 values from none to 1.5 times the requirement.

        Returns
        -------
        DataFrame
            ``unique_id``, ``gpus``, ``share_over``: decreasing in ``gpus``.
        """
        quantiles, parts = self._known_quantiles(), []
        given = None if capacity is None else np.array([check_number("capacity", gpus, 0) for gpus in capacity])
        for name, rows in self.table.groupby("unique_id", sort=False).indices.items():
            highest = max(self.table["required"].iloc[rows].max(), self.table["installed"].iloc[rows].max())
            steps = np.linspace(0, 1.5 * highest, 101) if given is None else given
            subset = QuantileTable(quantiles.z, quantiles.values[rows])
            over = [float(subset.exceedance(np.full(len(rows), gpus)).mean()) for gpus in steps]
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
        return purchase_mix(self.table["unique_id"], self._known_quantiles(), hours, required, reserved, on_demand)

    def _known_quantiles(self) -> QuantileTable:
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
        dates = {"first short": _dates(summary["first_crossing"]), "order by": _dates(summary["order_by"])}
        return pd.DataFrame(
            {**counts, **dates, "share of time over": summary["share_over"].map("{:.1%}".format).str.replace("%", " %")}
        )


def _check_targets(target_utilization: float, service_level: float, highest: float) -> None:
    check_number("target_utilization", target_utilization, 0, 1, open_low=True)
    check_number("service_level", service_level, 0.5, 0.9999, open_low=True)
    if service_level > highest + 1e-9:
        level = 100 * (2 * service_level - 1)
        raise InputError(
            f"the widest interval reaches the {100 * highest:.4g} % quantile, below the service level "
            f"{100 * service_level:.4g} %; predict with level=[..., {level:.4g}]."
        )


def _check_unique(forecast: pd.DataFrame) -> None:
    repeated = forecast[forecast.duplicated(["unique_id", "ds"])]
    if len(repeated):
        name, ds = repeated.iloc[0][["unique_id", "ds"]]
        raise InputError(f"the forecast has {str(name)!r} on {ds} more than once; of a backtest, plan for one cutoff.")


def _dates(times: pd.Series) -> pd.Series:
    return times.dt.strftime("%Y-%m-%d").fillna("never")


def _table(
    forecast: pd.DataFrame,
    quantiles: QuantileTable,
    installed: FloatArray,
    target_utilization: float,
    service_level: float,
) -> pd.DataFrame:
    demand = {name: _demand(quantiles, share) for name, share in SHARES.items()}
    required = _required(_demand(quantiles, service_level), target_utilization)
    columns = {f"demand_{name}": gpus for name, gpus in demand.items()}
    columns |= {f"required_{name}": _required(gpus, target_utilization) for name, gpus in demand.items()}
    columns |= {"required": required, "installed": installed, "shortfall": np.maximum(required - installed, 0.0)}
    columns["p_over"] = quantiles.exceedance(installed)
    table = pd.DataFrame({"unique_id": forecast["unique_id"], "ds": forecast["ds"], **columns})
    return table.sort_values(["unique_id", "ds"], kind="stable", ignore_index=True)


def _demand(quantiles: QuantileTable, share: float) -> FloatArray:
    # Forecasts may be negative, demand is not.
    return np.maximum(quantiles.quantile(share), 0.0)


def _required(demand: FloatArray, target_utilization: float) -> FloatArray:
    # Rounded so that no GPU is added for a rounding error: 85.0 / 0.85 is 100.00000000000001.
    return np.ceil(np.round(demand / target_utilization, 9))
