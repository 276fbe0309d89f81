"""Orders compared: what is short, idle and waited for if GPUs are ordered now, later, or not at all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray, IntArray
from gpudemand.planning.capacity.inputs import bin_hours
from gpudemand.planning.capacity.wait_plan import WaitPlan
from gpudemand.stages.requirement import Requirement
from gpudemand.stages.sources.settings import Settings
from gpudemand.stages.usage_tables import MEAN
from gpudemand.units import SECONDS_PER_HOUR
from gpudemand.usage.bins import parse_freq

#: A month later is the next time that a monthly report is looked at.
_LATER = pd.Timedelta("30D")
#: Time that is compared after the later order has arrived, and that the forecast is continued with.
_REVIEW, _WEEK = pd.Timedelta("28D"), pd.Timedelta("7D")


def compare_orders(
    requirement: Requirement, waits: WaitPlan | None, log_end: pd.Timestamp, settings: Settings
) -> pd.DataFrame:
    """Compare ordering the GPUs that are short: not at all, at the end of the log, and 30 days later.

    Parameters
    ----------
    requirement : Requirement
    waits : WaitPlan or None
        Simulates the waits.
    log_end : Timestamp
        The day on which is decided.
    settings : Settings
        ``prices`` of all types and ``installed`` are read.

    Returns
    -------
    DataFrame
        ``order`` (GPUs beyond those that are installed when it arrives), ``order_on`` and ``in_service`` (NaT for no
        order), and over the time until four weeks after the later order is there, with demand beyond the forecast as in
        its last four weeks: ``idle_share`` (expected idle GPU-hours over those there), ``unmet_share`` (expected
        GPU-hours beyond the GPUs over those of demand), ``mean_wait_h`` (of the jobs of that time, behind those that
        run and wait as the log ends; missing where some never start), ``wait_until_h`` (of those submitted until the
        order is in service), both missing without a plan for waits, and ``cost`` (GPUs at the reserved price, demand
        beyond them at the price on demand; missing without prices).
    """
    plan, gpus = requirement.plans[MEAN], requirement.to_order(log_end)
    dates = [log_end, log_end + _LATER] if gpus else []
    table = pd.DataFrame({"order": [0, *([gpus] * len(dates))], "order_on": pd.Series([pd.NaT, *dates])})
    table["in_service"] = table["order_on"] + plan.lead_time
    hours = _bin_hours(plan.table["ds"], settings.freq)
    bins, place = _continued(plan.table["ds"], hours[-1], table["in_service"].max() + _REVIEW)
    arrived = [(bins >= arrival).to_numpy() for arrival in table["in_service"]]
    there = requirement.installed_at(bins) + table["order"].to_numpy()[:, None] * np.array(arrived)
    outcomes = pd.DataFrame([_outcome(requirement, place, hours[place], gpus, settings) for gpus in there])
    end = bins.iloc[-1] + pd.Timedelta(hours=hours[place[-1]])
    waited = _mean_waits(waits, [pd.Series(gpus, bins) for gpus in there], table["in_service"], log_end, end)
    return table.join(outcomes.drop(columns="cost")).join(waited).join(outcomes["cost"])


def _mean_waits(
    plan: WaitPlan | None,
    installed: list[pd.Series],
    in_service: pd.Series,
    begin: pd.Timestamp,
    end: pd.Timestamp,
) -> pd.DataFrame:
    """Mean waits (h) of the jobs of the whole time, and of those submitted until each order is in service."""
    waits = np.full((len(installed), 1 + len(installed)), np.nan)
    if plan is not None:
        arrivals = [begin if pd.isna(arrival) else arrival for arrival in in_service]
        waits = plan.mean_waits(installed, [(begin, end), *((begin, arrival) for arrival in arrivals)])
    columns = {"mean_wait_h": waits[:, 0], "wait_until_h": np.diagonal(waits[:, 1:]).copy()}
    columns["wait_until_h"][in_service.isna()] = np.nan
    return pd.DataFrame(columns) / SECONDS_PER_HOUR


def _bin_hours(ds: pd.Series, freq: str) -> FloatArray:
    """Widths of bins; of a single one by its frequency."""
    if len(ds) > 1:
        return bin_hours(pd.DataFrame({"ds": ds}))
    return ((ds + parse_freq(freq) - ds) / pd.Timedelta("1h")).to_numpy(dtype=float)


def _continued(ds: pd.Series, last_hours: float, until: pd.Timestamp) -> tuple[pd.Series, IntArray]:
    """Bins of a plan, and then its last weeks time and again until a time (or no more); and the row of each."""
    times = pd.DatetimeIndex(ds)
    span = times[-1] - times[0] + pd.Timedelta(hours=last_hours)
    cycle = min(_REVIEW, span // _WEEK * _WEEK) or span
    last = np.flatnonzero(times > times[-1] - cycle)
    again = range(1, 1 + max(int(np.ceil((until - times[-1]) / cycle)), 0) if pd.notna(until) else 1)
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
