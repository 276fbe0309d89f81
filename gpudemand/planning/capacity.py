"""`plan_capacity`: GPUs required by a forecast, orders and purchases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray
from gpudemand._validation import InputError, check_choice, check_list, check_number, nearest, told
from gpudemand.forecast.panel import infer_freq
from gpudemand.metrics import check_forecast
from gpudemand.planning.quantiles import QuantileTable, ratios_to_mean
from gpudemand.planning.wait_plan import WaitPlan, plan_waits
from gpudemand.units import WEEK, format_count, parse_duration
from gpudemand.usage.bins import bin_ends

#: A longer one is taken for a slip; with it, dates would be beyond those that pandas can hold.
_LONGEST_LEAD = pd.Timedelta("3653D")


def check_lead_time(lead_time: str | pd.Timedelta) -> pd.Timedelta:
    """Parse the time from an order to GPUs in service; raises if it is negative or above ten years."""
    lead = parse_duration(lead_time)
    if lead < pd.Timedelta(0):
        raise InputError(f"lead_time must not be negative; got {lead_time!r}.")
    if lead > _LONGEST_LEAD:
        raise InputError(f"lead_time must be at most ten years; got {lead_time!r}.")
    return lead


def order_date(needed: pd.Timestamp, lead: pd.Timedelta) -> pd.Timestamp:
    """Time a lead time before another, by the clock of its zone; NaT if that is.

    >>> order_date(pd.Timestamp("2026-05-04", tz="America/New_York"), pd.Timedelta("90D"))
    Timestamp('2026-02-03 00:00:00-0500', tz='America/New_York')
    """
    if pd.isna(needed) or needed.tz is None:
        return needed - lead
    clock = needed.tz_localize(None) - lead
    return clock.tz_localize(needed.tz, ambiguous=True, nonexistent="shift_forward")


def check_steps(name: str, given: pd.Series) -> pd.Series:
    """Check a number of GPUs that changes with time: index of times with a zone, each once; returned in UTC, sorted."""
    index = given.index
    is_zoned = isinstance(index, pd.DatetimeIndex) and index.tz is not None and len(index) > 0
    if not is_zoned or index.hasnans or not index.is_unique:
        raise InputError(f"{name} in time must be a Series whose index are times with a zone, each once.")
    values = [check_number(f"{name}[{time}]", number, 0) for time, number in given.items()]
    # Times of a log have nanoseconds, which no index of a coarser unit is searched for.
    return pd.Series(values, index=index.tz_convert("UTC").as_unit("ns"), dtype=float).sort_index()


def broadcast_by_time(given: pd.Series, ds: pd.Series) -> FloatArray:
    """Number in force at each time: the latest step up to it, before the first step that one."""
    steps, times = check_steps("installed", given), pd.DatetimeIndex(ds)
    if times.tz is None:
        raise InputError("installed in time has a zone, and the times of the forecast have none; tz_localize these.")
    place = steps.index.searchsorted(times.tz_convert("UTC"), side="right") - 1
    return steps.to_numpy()[np.maximum(place, 0)]


def broadcast_by_series(name: str, given: float | Mapping[str, float], ids: pd.Series) -> FloatArray:
    """Positive number for each row of a forecast, from one number or one per series."""
    if isinstance(given, (Mapping, pd.Series)):
        known = {
            str(series): check_number(f"{name}[{series!r}]", number, 0, open_low=True)
            for series, number in given.items()
        }
        missing = [series for series in ids.astype(str).unique() if series not in known]
        if missing:
            raise InputError(
                f"{name} says nothing about {missing[0]!r}.{nearest(missing[0], known)} "
                "It needs a number for each series."
            )
        return ids.astype(str).map(known).to_numpy(dtype=float)
    return np.full(len(ids), check_number(name, given, 0, open_low=True))


def bin_hours(forecast: pd.DataFrame) -> FloatArray:
    """Width of each row's bin in hours; the last bin ends where its frequency says."""
    times = pd.DatetimeIndex(sorted(forecast["ds"].unique()))
    if len(times) < 2:
        raise InputError(
            "the width of a bin cannot be told from one date; forecast GPUs (value='gpus') instead of GPU-hours."
        )
    ends = times[1:].append(bin_ends(times[-1:], infer_freq(times)))
    width = pd.Series((ends - times) / pd.Timedelta("1h"), index=times)
    return forecast["ds"].map(width).to_numpy(dtype=float)


def check_targets(target_utilization: float, service_level: float, highest: float) -> None:
    """Raise for targets out of range, or a service level beyond the widest interval (probability `highest`)."""
    check_number("target_utilization", target_utilization, 0, 1, open_low=True)
    check_number("service_level", service_level, 0.5, 0.9999, open_low=True)
    if service_level > highest + 1e-9:
        level = 100 * (2 * service_level - 1)
        raise InputError(
            f"the widest interval reaches the {100 * highest:.4g} % quantile, below the service level "
            f"{100 * service_level:.4g} %; predict with level=[..., {level:.4g}]."
        )


def check_unique(forecast: pd.DataFrame) -> None:
    """Raise for a series that has a time twice."""
    repeated = forecast[forecast.duplicated(["unique_id", "ds"])]
    if len(repeated):
        name, ds = repeated.iloc[0][["unique_id", "ds"]]
        raise InputError(f"the forecast has {str(name)!r} on {ds} more than once; of a backtest, plan for one cutoff.")


def _mix(
    demand: FloatArray, hours: FloatArray, required: FloatArray, reserved: float, on_demand: float
) -> dict[str, float]:
    weight = np.repeat(hours / demand.shape[1], demand.shape[1])
    total = float(hours.sum())
    share = reserved / on_demand
    fewest = 0.0 if share >= 1 else np.floor(_reached(demand.ravel(), weight, share))

    def bought(reserve: float) -> tuple[float, float, float]:
        """Cost, which is convex in the reserve, the reserve, and GPU-hours beyond it."""
        beyond = float((np.maximum(demand.ravel() - reserve, 0) * weight).sum())
        return reserved * reserve * total + on_demand * beyond, reserve, beyond

    cost, reserve, beyond = min(bought(fewest), bought(fewest + (share < 1)))
    return {
        "break_even_share": share,
        "reserve": reserve,
        "on_demand_gpu_hours": beyond,
        "cost": cost,
        "cost_reserved": reserved * float(required.max()) * total,
        "cost_on_demand": on_demand * float((demand.ravel() * weight).sum()),
    }


def _reached(demand: FloatArray, weight: FloatArray, share: float) -> float:
    """GPUs, in parts, that demand reaches in a share of the time."""
    order = np.argsort(demand)[::-1]
    busy = np.cumsum(weight[order]) / weight.sum()
    place = min(int(np.searchsorted(busy, share)), demand.size - 1)
    return float(demand[order][place])


#: Quantiles that a plan lists.
SHARES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
#: Share of the bins of a week that have to be short before GPUs are ordered: more than one day, less than two.
SHORT_SHARE = 0.25


def first_crossing(ds: pd.Series, short: pd.Series, short_share: float = SHORT_SHARE) -> pd.Timestamp:
    """First short bin from which on a share of the bins of a week is short.

    A single bin is often the noise of an upper quantile. Bins in the last week are judged by that week.

    `ds`: bins of a plan, ascending. `short`: whether more GPUs are required than installed. `short_share`: in [0, 1];
    0 lets a single bin decide, as does any share for bins of a week or longer. NaT if there is none.

    >>> ds = pd.Series(pd.date_range("2026-03-01", periods=14, freq="D"))
    >>> short = pd.Series([0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1], dtype=bool)
    >>> [str(first_crossing(ds, short, share).date()) for share in (0, 0.25)]
    ['2026-03-03', '2026-03-10']
    """
    times, total = pd.DatetimeIndex(ds), np.append(0, np.cumsum(short))
    last_week = int(times.searchsorted(times[-1] - WEEK, side="right"))
    start = np.minimum(np.arange(len(times)), last_week)
    stop = times.searchsorted(times[start] + WEEK)
    lasting = (total[stop] - total[start]) >= short_share * (stop - start)
    return ds[short.to_numpy() & lasting].min()


def required_table(
    forecast: pd.DataFrame,
    quantiles: QuantileTable,
    installed: FloatArray,
    target_utilization: float,
    service_level: float,
    ratios: FloatArray | None = None,
) -> pd.DataFrame:
    """Table of a plan, sorted by series and time; see `CapacityPlan.to_frame`."""
    demand = {name: _demand(quantiles, share) for name, share in SHARES.items()}
    required = _required(_demand(quantiles, service_level), target_utilization)
    columns = {f"demand_{name}": gpus for name, gpus in demand.items()}
    columns |= {f"required_{name}": _required(gpus, target_utilization) for name, gpus in demand.items()}
    columns |= {"required": required, "installed": installed, "shortfall": np.maximum(required - installed, 0.0)}
    columns["p_over"] = quantiles.exceedance(installed)
    if ratios is not None:
        columns["share_over"] = quantiles.share_over(installed, ratios)
    table = pd.DataFrame({"unique_id": forecast["unique_id"], "ds": forecast["ds"], **columns})
    return table.sort_values(["unique_id", "ds"], kind="stable", ignore_index=True)


def _demand(quantiles: QuantileTable, share: float) -> FloatArray:
    # Forecasts may be negative, demand is not.
    return np.maximum(quantiles.quantile(share), 0.0)


def _required(demand: FloatArray, target_utilization: float) -> FloatArray:
    # Rounded so that no GPU is added for a rounding error: 85.0 / 0.85 is 100.00000000000001.
    return np.ceil(np.round(demand / target_utilization, 9))


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
    lead, forecast = check_lead_time(lead_time), check_forecast(forecast)
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
        """
        known = self.known_quantiles()
        quantiles = QuantileTable(known.z, known.values * check_number("growth", growth, 0))
        target = self.target_utilization if target_utilization is None else target_utilization
        level = self.service_level if service_level is None else service_level
        check_targets(target, level, known.highest)
        capacity = self.table["installed"].to_numpy() + check_number("extra_gpus", extra_gpus, 0)
        table = required_table(self.table, quantiles, capacity, target, level, self.ratios)
        return replace(self, table=table, target_utilization=target, service_level=level, quantiles=quantiles)

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
        listed = [] if capacity is None else check_list("capacity", capacity, "numbers of GPUs")
        given = None if capacity is None else np.array([check_number("capacity", gpus, 0) for gpus in listed])
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
        """Mix of reserved and on-demand GPUs of least expected cost over the time of the plan.

        A further reserved GPU pays off while the share of hours in which it would be busy exceeds the ratio of the
        prices, the break-even share (the newsvendor's critical ratio); of the whole GPUs below and above, the cheaper.

        Parameters
        ----------
        reserved, on_demand : float or mapping of str to float
            Price of a GPU-hour, for every series or by ``unique_id``.

        Returns
        -------
        DataFrame
            Index ``unique_id``; ``break_even_share``, ``reserve`` (GPUs), ``on_demand_gpu_hours`` (expected, beyond the
            reserve), ``cost`` of that mix over all bins, ``cost_reserved`` of reserving the highest requirement,
            ``cost_on_demand`` of reserving nothing.
        """
        ids, hours, demand = self.table["unique_id"], bin_hours(self.table), self.known_quantiles().demand()
        prices = broadcast_by_series("reserved", reserved, ids), broadcast_by_series("on_demand", on_demand, ids)
        required, rows = self.table["required"].to_numpy(dtype=float), {}
        for name in ids.unique():
            mine = (ids == name).to_numpy()
            rows[name] = _mix(demand[mine], hours[mine], required[mine], *(price[mine][0] for price in prices))
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("unique_id")

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


@told("Planning capacity")
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
) -> CapacityPlan | WaitPlan:
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
        time, by `plan_waits` with the other arguments as they are there, of one series; the target utilization, the
        lead time, `short_share` and `held` do not apply then.
    wait_share : float in (0, 1), default=0.9
        Only with `wait`.
    jobs : DataFrame, optional
        Job table that `wait` needs, and nothing else: the coming jobs are drawn from it.
    held : DataFrame, optional
        GPUs held in finer bins than the forecast's, such as hours. The share of time with more demand than GPUs counts
        how demand varies within the bins then; a mean over a day hides its peaks.

    Returns
    -------
    CapacityPlan, or with `wait` a WaitPlan

    Raises
    ------
    InputError
        For values out of range, a forecast without intervals, intervals too narrow for the service level, or arguments
        that do not apply with, or without, `wait`.

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
    limits: dict[str, Any] = {"target_utilization": target_utilization, "lead_time": lead_time}
    limits |= {"short_share": short_share, "held": held}
    if wait is None:
        _refuse({"wait_share": wait_share, "jobs": jobs}, "is for a plan with wait=, which is not given")
        return plan_utilization(forecast, installed=installed, unit=unit, **limits, **targets)
    _refuse(limits, "does not apply to a plan with wait=")
    if isinstance(installed, (Mapping, pd.Series)):
        raise InputError("waits are planned for a constant number of GPUs installed in one pool; give that number.")
    if jobs is None or unit != "gpus":
        raise InputError("wait= needs a log of jobs, of which coming ones are drawn, and a forecast in GPUs.")
    return plan_waits(forecast, jobs, installed=installed, wait=wait, wait_share=wait_share, **targets)


def _refuse(given: Mapping[str, object], why: str) -> None:
    """Raise for an argument of `plan_capacity` that is not its default."""
    parameters = signature(plan_capacity).parameters
    for name, value in given.items():
        default = parameters[name].default
        if value is not default and (default is None or value != default):
            raise InputError(f"{name} {why}; leave it out.")
