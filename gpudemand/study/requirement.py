"""GPUs required, the risk without an order, and orders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gpudemand._array import STRING, FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.metrics import KEYS
from gpudemand.planning.capacity import (
    SHARES,
    CapacityPlan,
    bin_hours,
    broadcast_by_time,
    order_date,
    plan_utilization,
)
from gpudemand.planning.need import WINDOW
from gpudemand.planning.wait_plan import WaitPlan
from gpudemand.study.pools import installed_changes
from gpudemand.study.selection import SCORED_LEVELS, SelectedForecast, evaluation_rows
from gpudemand.study.settings import Settings
from gpudemand.study.usage_tables import MEAN
from gpudemand.study.waits import Need
from gpudemand.units import SECONDS_PER_HOUR
from gpudemand.usage.bins import bin_ends


class Order(NamedTuple):
    """GPUs to order beyond those ordered before: from when until when (NaT: the end) they are short, and when due."""

    gpus: int
    begin: pd.Timestamp
    end: pd.Timestamp
    order_by: pd.Timestamp


@dataclass(frozen=True)
class Requirement:
    """Capacity plans for the mean, and for the peak or for waits.

    The target for waits, or the peak of usage without jobs, decides: it says how much headroom is needed, which a
    target utilization of the mean only guesses. `plans`: ``"mean"``: mean per bin at the target utilization;
    ``"wait"``: the GPUs with which the jobs of the four weeks from each bin on start in time; or ``"peak"``: the most
    held at once in them. `installed`: when the plan begins. `installed_from`: {"given", "pulled", "log"}. `hourly`:
    demand by hour, where bins are longer. `steps`: GPUs installed from each time on, where deliveries or retirements
    are known. `log_end`: from the arrival of an order on that is placed then, the requirement counts.
    """

    plans: dict[str, CapacityPlan]
    installed: float
    installed_from: str
    forecast: pd.DataFrame
    hourly: pd.DataFrame | None = None
    steps: pd.Series | None = None
    log_end: pd.Timestamp = pd.NaT

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Summaries of both plans: ``basis``, ``target_utilization`` and the columns of ``CapacityPlan.summary``.

        Mean and peak have the ``share_over`` of the mean, which counts how demand varies within bins: of time. What is
        due is ordered as the log ends, not before.
        """
        table = pd.concat([plan.summary for plan in self.plans.values()]).rename_axis("basis").reset_index()
        table.insert(1, "target_utilization", [plan.target_utilization for plan in self.plans.values()])
        begins = table["first_crossing"].tolist()
        for place, basis in enumerate(self.plans):
            if basis != MEAN:
                # What is required is so from the arrival of an order on; before, none could be there.
                table.loc[place, "required"] = self.counted(basis)["required"].max()
                table.loc[place, "shortfall"] = self.short_on_arrival(table.loc[place, "required"])
                short = self._shortages(self.plans[basis].table, "required")
                table.loc[place, "first_crossing"] = short["begin"].min()
                begins[place] = self._can_meet(short)["begin"].min()
        return with_date_dtype(table.assign(order_by=[*map(self._due, begins)]), self.plans[MEAN].table["ds"])

    def counted(self, basis: str) -> pd.DataFrame:
        """Rows of a plan whose largest requirement counts: as an order arrives; of the mean, which varies, all."""
        table = self.plans[basis].table
        return table if basis == MEAN else self.on_arrival(table)

    @property
    def arrival(self) -> pd.Timestamp:
        """When an order is there that is placed as the log ends."""
        return self.log_end + self.plans[MEAN].lead_time

    def on_arrival(self, table: pd.DataFrame) -> pd.DataFrame:
        """Row of a plan as an order arrives that is placed as the log ends; the last one of a plan that ends before."""
        return table[table["ds"] <= max(self.arrival, table["ds"].min())].tail(1)

    def short_on_arrival(self, required: float) -> float:
        """GPUs of a number required that are short at some time of the four weeks after the arrival of an order."""
        return max(required - self.installed_later, 0.0)

    @property
    def _deciding(self) -> list[str]:
        """Bases of the plans that the requirement is the larger of."""
        return [basis for basis in self.plans if basis != MEAN] or [MEAN]

    @cached_property
    def deciding(self) -> pd.DataFrame:
        """Rows of `summary`, by basis, of the plans that the requirement is the larger of."""
        return self.summary.set_index("basis").loc[self._deciding]

    @property
    def binding(self) -> str:
        """Basis of the deciding plan that requires more GPUs."""
        return str(self.deciding["required"].idxmax())

    @property
    def required(self) -> float:
        """GPUs that the deciding plans require."""
        return float(self.deciding["required"].max())

    @property
    def shortfall(self) -> float:
        """GPUs that are short at some time of the four weeks after the arrival of an order."""
        return float(self.deciding["shortfall"].max())

    def shortages(self, column: str = "required") -> pd.DataFrame:
        """Times in which GPUs are short, at some probability, such as ``required_p90``; one that lasts has no ``end``.

        A need is that of four weeks, so that even a short gap in the GPUs counts. ``gpus``: the most that are short.
        """
        return self._shortages(self._envelope, column)

    def _shortages(self, table: pd.DataFrame, column: str) -> pd.DataFrame:
        rows = self.timeline(table)
        lacking = rows[column] - rows["installed"]
        run = (lacking > 0).ne((lacking > 0).shift()).cumsum()
        runs = pd.DataFrame({"begin": rows["ds"], "gpus": lacking}).groupby(run).agg({"begin": "min", "gpus": "max"})
        runs.insert(1, "end", runs["begin"].shift(-1))
        return runs[runs["gpus"] > 0].reset_index(drop=True)

    def timeline(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rows of a plan at its bins, as an order arrives, and as GPUs do or leave, until the last need ends.

        What is required as an order arrives is required for four weeks from then on.
        """
        bins = pd.DatetimeIndex(table["ds"])
        known = [] if self.steps is None else [time.tz_convert(bins.tz) for time in self.steps.index]
        later = pd.DatetimeIndex([self.arrival.tz_convert(bins.tz), *known])
        times = bins.union(later[(later > bins[0]) & (later < bins[-1] + WINDOW)])
        rows = table.iloc[bins.searchsorted(times, side="right") - 1].reset_index(drop=True)
        rows = rows.assign(ds=times, installed=self.installed_at(pd.Series(times)))
        counts, weeks = list(rows.columns[rows.columns.str.startswith("required")]), times - self.arrival
        inside = (weeks >= pd.Timedelta(0)) & (weeks < WINDOW)
        rows.loc[inside, counts] = np.maximum(rows.loc[inside, counts], self.on_arrival(table)[counts].to_numpy())
        return rows

    def first_crossing(self, column: str = "required") -> pd.Timestamp:
        """First time at which GPUs are short, at some probability as of `shortages`; NaT if never."""
        return self.shortages(column)["begin"].min()

    def order_by(self, column: str = "required") -> pd.Timestamp:
        """Begin of the first of `shortages` that an order can meet, less the lead time, but not before the log ends.

        What a retirement leaves short until a delivery that comes before the order could is not met by ordering. NaT
        if there is none.
        """
        return self._due(self._can_meet(self.shortages(column))["begin"].min())

    def _due(self, begin: pd.Timestamp) -> pd.Timestamp:
        """When to order what is short from a time on: as the log ends, where it is too late already."""
        if pd.isna(begin):
            return pd.NaT
        due = order_date(begin, self.plans[MEAN].lead_time)
        # By the clock of a zone, the lead time before the arrival may be an hour after the end of the log.
        return self.log_end if begin <= self.arrival else max(due, self.log_end)

    def _can_meet(self, shortages: pd.DataFrame) -> pd.DataFrame:
        """Rows of shortages that last beyond the arrival of an order."""
        return shortages[~(shortages["end"] <= self.arrival)]

    def installed_at(self, times: pd.Series) -> FloatArray:
        """GPUs installed at some times, with the deliveries and retirements that are known."""
        return np.full(len(times), self.installed) if self.steps is None else broadcast_by_time(self.steps, times)

    def when_fewest(self, begin: pd.Timestamp, end: pd.Timestamp) -> pd.Timestamp:
        """Time, the first from one until another, at which the fewest GPUs are installed."""
        inside = [] if self.steps is None else self.steps.index.tz_convert(begin.tz)
        times = [begin, *(time for time in inside if begin < time < end)]
        return times[int(self.installed_at(pd.Series(times)).argmin())]

    def fewest_installed(self, begin: pd.Timestamp, end: pd.Timestamp) -> float:
        """Fewest GPUs installed from one time until another."""
        return float(self.installed_at(pd.Series([self.when_fewest(begin, end)]))[0])

    @property
    def installed_later(self) -> float:
        """Fewest GPUs installed in the four weeks after the arrival of an order that is placed as the log ends."""
        return self.fewest_installed(self.arrival, self.arrival + WINDOW)

    def to_order(self) -> int:
        """GPUs that are short as an order arrives that is placed as the log ends, or else when the first one is due.

        Each time for the four weeks from then on: later it is looked at again.
        """
        now, short = math.ceil(self.shortfall), self._can_meet(self.shortages())
        return now if now or short.empty else self._short_from(short["begin"].min())

    def _short_from(self, begin: pd.Timestamp) -> int:
        """GPUs of what is required at a time that are short at some time of the four weeks from then on."""
        rows = self.timeline(self._envelope)
        return math.ceil(rows["required"][rows["ds"] <= begin].iloc[-1] - self.fewest_installed(begin, begin + WINDOW))

    def orders(self) -> list[Order]:
        """Order what is `to_order` first, and beyond it what GPUs that leave after its four weeks leave short."""
        short = self._can_meet(self.shortages())
        if short.empty:
            return []
        rows, ordered, found = self.timeline(self._envelope), 0, list[Order]()
        begin = short["begin"].min()
        leave = rows["ds"][(rows["installed"].diff() < 0) & (rows["ds"] >= max(begin, self.arrival) + WINDOW)]
        for time in [begin, *leave]:
            gpus = self._short_from(time) if found else self.to_order()
            if gpus > ordered:
                end = short["end"][short["begin"] <= time].iloc[-1]
                found.append(Order(gpus - ordered, time, end, self._due(time)))
                ordered = gpus
        return found

    @property
    def end(self) -> pd.Timestamp:
        """When the last need of the plan ends."""
        return self._envelope["ds"].max() + WINDOW

    def envelope(self) -> pd.DataFrame:
        """Maximum of the deciding plans, bin by bin, as `CapacityPlanDisplay` takes it."""
        return self._envelope.copy()

    @cached_property
    def _envelope(self) -> pd.DataFrame:
        table = self.to_frame()
        table = table[table["basis"].isin(self._deciding)]
        required = [name for name in table.columns if name.startswith("required")]
        return table.groupby("ds", as_index=False)[[*required, "installed"]].max()

    def to_frame(self) -> pd.DataFrame:
        """Both plans bin by bin, with a column ``basis``."""
        table = pd.concat([plan.to_frame() for plan in self.plans.values()], ignore_index=True)
        return table.rename(columns={"unique_id": "basis"})


def plan_requirement(
    forecast: pd.DataFrame, max_held: float, settings: Settings, hourly: pd.DataFrame | None = None
) -> Requirement:
    """Plan capacity for the series ``mean``, and for ``wait`` or ``peak``.

    `max_held`: taken as installed where no number is given. `hourly`: demand by hour, for bins that are longer: see
    ``held`` of `plan_capacity`.
    """
    given = settings.total_installed
    installed = float(max_held) if given is None else given
    # The target utilization is headroom of the mean for peaks; a peak itself may use every GPU.
    targets = {MEAN: settings.target_utilization} | {
        basis: 1.0 for basis in forecast["unique_id"].unique() if basis != MEAN
    }
    plans = {
        basis: plan_utilization(
            of_basis(forecast, basis),
            installed=installed,
            target_utilization=target,
            service_level=settings.service_level,
            lead_time=settings.longest_lead_time,
            held=hourly if basis == MEAN else None,
        )
        for basis, target in targets.items()
    }
    begin = installed_now(settings, max_held, forecast)
    steps = given if isinstance(given, pd.Series) else None
    until = forecast["ds"].min() if settings.until is None else settings.end
    source = "log" if given is None else settings.installed_from
    return Requirement(plans, begin, source, forecast, hourly, steps, until)


def of_basis(forecast: pd.DataFrame, basis: str) -> pd.DataFrame:
    """The forecast of one basis, with the levels that it has."""
    return forecast[forecast["unique_id"] == basis].dropna(axis=1, how="all").reset_index(drop=True)


def installed_now(settings: Settings, max_held: float, forecast: pd.DataFrame) -> float:
    """GPUs installed when the forecast begins: as given, or `max_held`."""
    given = settings.total_installed
    if isinstance(given, pd.Series):
        return float(broadcast_by_time(given, forecast["ds"].sort_values().head(1))[0])
    return float(max_held) if given is None else given


def headline(
    requirement: Requirement, need: Need, selected: SelectedForecast, log: pd.DataFrame, settings: Settings
) -> dict[str, object]:
    """The numbers at the top of the page and of ``--json``: plain numbers, texts (dates in ISO form) and None."""
    facts, basis = log.iloc[0], requirement.binding
    to_order = requirement.to_order()
    plan: Any = requirement.summary.set_index("basis").loc[basis]
    arrival, installed_later = need.log_end + need.lead_time, requirement.installed_later
    low, high = (math.ceil(need.at(arrival, share)) for share in (0.05, 0.95))
    alone = need.without(*(work.name for work in need.programmes)) if need.programmes else None
    return {
        "required": int(plan["required"]),
        "required_without_programmes": alone and math.ceil(alone.at(arrival, settings.service_level)),
        "required_lo": low,
        "required_hi": high,
        "risk_without_order": need.risk(installed_later, arrival),
        "rule": need.rule,
        "order_arrives": arrival.isoformat(),
        "stuck_jobs": need.forecast.stuck,
        "past_windows": len(need.forecast.weekly),
        "tells_growth": need.forecast.tells_growth,
        "installed": requirement.installed,
        "installed_stated": requirement.installed_from != "log",
        "installed_from": requirement.installed_from,
        "shortfall": math.ceil(requirement.shortfall),
        "basis": basis,
        "first_crossing": _iso(requirement.first_crossing()),
        "order_by": _iso(requirement.order_by()),
        "to_order": to_order,
        "to_order_as_one_pool": to_order,
        "orders_as_one_pool": order_numbers(None, requirement.orders(), settings.longest_lead_time),
        "installed_later": installed_later,
        "installed_changes": installed_changes(settings.installed, need.log_end, requirement.end),
        "shortages": shortage_numbers(requirement),
        **{each.name: getattr(settings, each.name) for each in fields(settings) if each.metadata.get("headline")},
        "lead_time": settings.longest_lead_time,
        "log_begin": facts["first"].isoformat(),
        "log_end": facts["last"].isoformat(),
        "plan_end": selected.forecast["ds"].max().isoformat(),
        "model": selected.model,
        "selected": selected.windows.n_selection > 0,
        **_scores(selected),
        "data_kind": str(facts["kind"]),
        **{name: None if pd.isna(facts[name]) else int(facts[name]) for name in ("jobs", "rejected", "users")},
    }


def shortage_numbers(requirement: Requirement) -> list[dict[str, object]]:
    """Times in which GPUs are short: ``begin``, ``end`` (None of one that lasts as long as the plan) and ``gpus``."""
    return [
        {"begin": _iso(row.begin), "end": _iso(row.end), "gpus": math.ceil(row.gpus)}
        for row in requirement.shortages().itertuples()
    ]


def order_numbers(name: str | None, orders: list[Order], lead_time: str) -> list[dict[str, Any]]:
    """Orders of a GPU type, or of all as one pool: ``name``, fields of `Order` and ``lead_time``."""
    dates = ("begin", "end", "order_by")
    return [
        {"name": name, "gpus": each.gpus, **{date: _iso(getattr(each, date)) for date in dates}, "lead_time": lead_time}
        for each in orders
    ]


def _scores(selected: SelectedForecast) -> dict[str, object]:
    score, naive = selected.score(MEAN), selected.best_naive(MEAN)
    return {
        "wape": _finite(score["wape"]),
        "best_naive": str(naive["model"]),
        "best_naive_wape": _finite(naive["wape"]),
        "coverage_80": _finite(score["coverage_80"]),
        "coverage_95": _finite(score["coverage_95"]),
    }


def _iso(time: pd.Timestamp) -> str | None:
    return None if pd.isna(time) else pd.Timestamp(time).isoformat()


def _finite(value: float) -> float | None:
    # JSON has no NaN.
    return float(value) if math.isfinite(value) else None


def risk_table(requirement: Requirement) -> pd.DataFrame:
    """GPUs required at P50, P90, P95 and P99, by either plan, and by the one that decides as an order arrives."""
    envelope, rows = requirement.envelope(), []
    for name, share in SHARES.items():
        column = f"required_{name}"
        by_basis = {f"required_{basis}": requirement.counted(basis)[column].max() for basis in requirement.plans}
        required = max(by_basis[f"required_{basis}"] for basis in requirement.deciding.index)
        shortfall = requirement.short_on_arrival(float(requirement.on_arrival(envelope)[column].iloc[0]))
        first = requirement.first_crossing(column)
        dates = {"first_crossing": first, "order_by": requirement.order_by(column)}
        rows.append({"probability": share, **by_basis, "required": required, "shortfall": shortfall, **dates})
    return with_date_dtype(pd.DataFrame(rows), requirement.plans[MEAN].table["ds"])


def with_date_dtype(table: pd.DataFrame, ds: pd.Series) -> pd.DataFrame:
    """Give the date columns of a plan the dtype of `ds`, also where all of them are missing.

    >>> never = pd.DataFrame({"first_crossing": [pd.NaT], "order_by": [pd.NaT]})
    >>> str(with_date_dtype(never, pd.Series(["2026-03-01"], dtype="datetime64[ns, UTC]"))["order_by"].dtype)
    'datetime64[ns, UTC]'
    """
    names = ("first_crossing", "order_by")
    return table.assign(**{name: pd.Series(table[name].tolist(), dtype=ds.dtype, index=table.index) for name in names})


def risk_numbers(requirement: Requirement, selected: SelectedForecast, risk: pd.DataFrame) -> dict[str, object]:
    """Numbers on risk for the headline: GPUs held in the bin with the largest mean demand, required by probability."""
    rows = selected.forecast[selected.forecast["unique_id"] == MEAN]
    top: Any = rows[rows["ds"] == requirement.plans[MEAN].table.set_index("ds")["required"].idxmax()].iloc[0]
    share_over = requirement.summary.set_index("basis").loc[requirement.binding, "share_over"]
    return {
        "peak_bin": pd.Timestamp(top["ds"]).isoformat(),
        "peak_bin_median": float(top[selected.model]),
        "peak_bin_lo_95": max(float(top[f"{selected.model}-lo-95"]), 0.0),
        "peak_bin_hi_95": float(top[f"{selected.model}-hi-95"]),
        **{f"required_{name}": int(count) for name, count in zip(SHARES, risk["required"], strict=True)},
        "share_over": float(share_over),
    }


def purchase_costs(requirement: Requirement, settings: Settings) -> pd.DataFrame:
    """Cheapest mix of reserved and on-demand GPUs for the forecast of the mean, at one price of all types."""
    if settings.prices is None:
        raise InputError(
            "no prices were given; add prices=(reserved, on_demand) (--prices RESERVED ON_DEMAND), per GPU-hour."
        )
    if settings.horizon < 2:
        raise InputError("the plan is one bin long, so its hours are unknown; costs need a longer horizon.")
    assert not isinstance(settings.prices, Mapping)
    reserved, on_demand = settings.prices
    table = requirement.plans[MEAN].purchase_mix(reserved, on_demand).reset_index(drop=True)
    return table.assign(price_reserved=reserved, price_on_demand=on_demand)


def costs_by_pool(plans: Mapping[str, Requirement], settings: Settings) -> pd.DataFrame:
    """`purchase_costs` of each type (or cluster) at its own prices, with its name in a first column, and their sum."""
    parts = {name: purchase_costs(plan, settings.of_one(name)) for name, plan in plans.items()}
    table = pd.concat(parts.values(), ignore_index=True)
    together = table[["reserve", "on_demand_gpu_hours", "cost", "cost_reserved", "cost_on_demand"]].sum()
    table = pd.concat([table, together.to_frame().T], ignore_index=True)
    table.insert(0, settings.pool, pd.array([*parts, "all"], dtype=STRING))
    return table


def evaluated_series(selected: SelectedForecast, series: str, models: list[str]) -> pd.DataFrame:
    """Rows of the evaluation windows for one series, and the columns of some models with their bounds."""
    evaluates = evaluation_rows(selected.backtest, selected.windows)
    rows = selected.backtest[evaluates & (selected.backtest["unique_id"] == series)]
    bounds = [f"{model}-{side}-{level}" for model in models for level in SCORED_LEVELS for side in ("lo", "hi")]
    table = rows[[*KEYS, *models, *bounds]].reset_index(drop=True)
    table.attrs = dict(selected.backtest.attrs)
    return table


#: A month later is the next time that a monthly report is looked at.
_LATER = pd.Timedelta("30D")
_WEEK = pd.Timedelta("7D")
#: Of the shortest day, on which the clock is put forward.
_HOURS_A_DAY = 23.0


def compare_orders(
    requirement: Requirement,
    need: Need,
    waits: WaitPlan | None,
    log_end: pd.Timestamp,
    settings: Settings,
    cost: float | pd.Series | None = None,
) -> pd.DataFrame:
    """Compare ordering the GPUs that are short: not at all, at the end of the log, and 30 days later.

    `need`: GPUs needed. `waits`: tells the waits on others. `log_end`: the day on which is decided. `settings`:
    ``prices`` of all types and ``freq`` are read. `cost`: of an hour of the GPUs installed, where it is not that of all
    at the one reserved price; see `installed_cost`. Returns ``order`` (GPUs beyond those that are installed when it
    arrives), ``order_on`` and ``in_service`` (NaT for no order), ``risk`` (probability that the four weeks after an
    order could arrive need more), and over the time from then until four weeks after the later order is there, with
    demand beyond the forecast as in its last four weeks: ``share_in_time`` and ``mean_wait_h`` (of the jobs of that
    time, missing without a target for waits), ``idle_share`` (expected idle GPU-hours over those there),
    ``unmet_share`` (expected GPU-hours beyond the GPUs over those of demand), and ``cost`` (GPUs at the reserved price,
    demand beyond them at the price on demand; missing without prices). The last three are missing where the plan is
    shorter than a day.
    """
    plan, gpus = requirement.plans[MEAN], requirement.to_order()
    dates = [log_end, log_end + _LATER] if gpus else []
    table = pd.DataFrame({"order": [0, *([gpus] * len(dates))], "order_on": pd.Series([pd.NaT, *dates])})
    table["in_service"] = table["order_on"] + plan.lead_time
    hours, arrival = _bin_hours(plan.table["ds"], settings.freq), log_end + plan.lead_time
    bins, place = _continued(plan.table["ds"], hours[-1], arrival + _LATER + WINDOW)
    # Before, nothing that is ordered is there.
    after = (bins >= min(arrival, bins.iloc[-1])).to_numpy()
    bins, place = bins[after].reset_index(drop=True), place[after]
    arrived = [(bins >= arrival).to_numpy() for arrival in table["in_service"]]
    there = requirement.installed_at(bins) + table["order"].to_numpy()[:, None] * np.array(arrived)
    outcomes = pd.DataFrame([_outcome(requirement, place, hours[place], gpus, settings) for gpus in there])
    outcomes["cost"] += _beside_mean(requirement, bins, hours[place], settings, cost)
    if hours.sum() < _HOURS_A_DAY:  # some hours, of the night or of the day, say nothing of the others
        outcomes[:] = np.nan
    # An order of now is there in all of the four weeks, a later one in none that count.
    at_once = table["order"].where(table["order_on"] == log_end, 0)
    table["risk"] = [need.risk(requirement.installed_later + gpus, requirement.arrival) for gpus in at_once]
    return table.join(_met(need, waits, bins, there)).join(outcomes)


def _beside_mean(
    requirement: Requirement, bins: pd.Series, hours: FloatArray, settings: Settings, cost: float | pd.Series | None
) -> float:
    """What the GPUs installed cost beyond the one reserved price of all."""
    if cost is None or settings.prices is None:
        return 0.0
    assert not isinstance(settings.prices, Mapping)
    hourly = broadcast_by_time(cost, bins) if isinstance(cost, pd.Series) else cost
    return float(((hourly - settings.prices[0] * requirement.installed_at(bins)) * hours).sum())


def _met(need: Need, waits: WaitPlan | None, bins: pd.Series, there: FloatArray) -> pd.DataFrame:
    """Expected share of jobs in time and mean wait (h) over the weeks of the bins, a row an order."""
    names = {"share_in_time": 1.0, "mean_wait_s": SECONDS_PER_HOUR}
    if waits is None:
        return pd.DataFrame(np.nan, index=range(len(there)), columns=["share_in_time", "mean_wait_h"])
    weeks = np.arange(0, len(bins), max(len(bins) // 16, 1))
    needed = [need.samples(max(bins.iloc[week], need.log_end)) for week in weeks]
    rows = [
        [
            np.mean([waits.expected(name, float(gpus[week]), at) for week, at in zip(weeks, needed, strict=True)])
            / unit
            for name, unit in names.items()
        ]
        for gpus in there
    ]
    return pd.DataFrame(rows, columns=["share_in_time", "mean_wait_h"])


def _bin_hours(ds: pd.Series, freq: str) -> FloatArray:
    """Widths of bins; of a single one by its frequency."""
    if len(ds) > 1:
        return bin_hours(pd.DataFrame({"ds": ds}))
    times = pd.DatetimeIndex(ds)
    return ((bin_ends(times, freq) - times) / pd.Timedelta("1h")).to_numpy(dtype=float)


def _continued(ds: pd.Series, last_hours: float, until: pd.Timestamp) -> tuple[pd.Series, IntArray]:
    """Bins of a plan, and then its last weeks time and again until a time; and the row of each."""
    times = pd.DatetimeIndex(ds)
    span = times[-1] - times[0] + pd.Timedelta(hours=last_hours)
    cycle = min(WINDOW, span // _WEEK * _WEEK) or span
    last = np.flatnonzero(times > times[-1] - cycle)
    again = range(1, 1 + max(int(np.ceil((until - times[-1]) / cycle)), 0))
    bins = times.append([times[last] + number * cycle for number in again])
    place = np.concatenate([np.arange(len(times)), *([last] * len(again))])
    there = (bins < until) | (np.arange(len(bins)) < len(times))
    return pd.Series(bins[there]), place[there]


def _outcome(
    requirement: Requirement,
    place: IntArray,
    hours: FloatArray,
    gpus: FloatArray,
    settings: Settings,
) -> dict[str, float]:
    """Expected shares and cost with a number of GPUs in each bin, which are rows of the plan."""
    demand = requirement.plans[MEAN].known_quantiles().demand()[place]
    unmet = float((np.maximum(demand - gpus[:, None], 0).mean(axis=1) * hours).sum())
    idle = float((np.maximum(gpus[:, None] - demand, 0).mean(axis=1) * hours).sum())
    wanted, there = float((demand.mean(axis=1) * hours).sum()), float((gpus * hours).sum())
    outcome = {"idle_share": idle / there if there else 0.0, "unmet_share": unmet / wanted if wanted else 0.0}
    assert not isinstance(settings.prices, Mapping)
    reserved, on_demand = settings.prices or (np.nan, np.nan)
    return outcome | {"cost": reserved * there + on_demand * unmet}
