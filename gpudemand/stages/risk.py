"""Risk: GPUs required by probability, backtest of plans, and purchase costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.metrics import KEYS
from gpudemand.planning.backtest import plan_backtest
from gpudemand.planning.capacity.inputs import order_date
from gpudemand.planning.capacity.required import SHARES
from gpudemand.stages.requirement import Requirement
from gpudemand.stages.selection import SCORED_LEVELS, SelectedForecast
from gpudemand.stages.sources.settings import Settings
from gpudemand.stages.sources.windows import evaluation_rows
from gpudemand.stages.usage_tables import MEAN, PEAK

#: Service levels that the bounds of `SCORED_LEVELS` give.
_TESTED_LEVELS = (0.90, 0.95)


def risk_table(requirement: Requirement) -> pd.DataFrame:
    """GPUs required at P50, P90, P95 and P99.

    Parameters
    ----------
    requirement : Requirement

    Returns
    -------
    DataFrame
        ``probability``; ``required_mean`` and ``required_peak`` (or ``required_wait``) by either plan, ``required``
        (of those that decide), all in the
        bin with the largest requirement; ``shortfall``; ``first_crossing`` and ``order_by`` (NaT if never).
    """
    lead, envelope = requirement.plans[MEAN].lead_time, requirement.envelope()
    rows = []
    for name, share in SHARES.items():
        column = f"required_{name}"
        by_basis = {f"required_{basis}": requirement.plans[basis].table[column].max() for basis in requirement.plans}
        required = max(by_basis[f"required_{basis}"] for basis in requirement.deciding.index)
        shortfall = float((envelope[column] - envelope["installed"]).max())
        first = requirement.crossing(column)
        dates = {"first_crossing": first, "order_by": order_date(first, lead)}
        rows.append({"probability": share, **by_basis, "required": required, "shortfall": max(shortfall, 0.0), **dates})
    return with_date_dtype(pd.DataFrame(rows), requirement.plans[MEAN].table["ds"])


def with_date_dtype(table: pd.DataFrame, ds: pd.Series) -> pd.DataFrame:
    """Give the date columns of a plan the dtype of `ds`, also where all of them are missing.

    Examples
    --------
    >>> never = pd.DataFrame({"first_crossing": [pd.NaT], "order_by": [pd.NaT]})
    >>> str(with_date_dtype(never, pd.Series(["2026-03-01"], dtype="datetime64[ns, UTC]"))["order_by"].dtype)
    'datetime64[ns, UTC]'
    """
    names = ("first_crossing", "order_by")
    return table.assign(**{name: pd.Series(table[name].tolist(), dtype=ds.dtype, index=table.index) for name in names})


def risk_numbers(requirement: Requirement, selected: SelectedForecast, risk: pd.DataFrame) -> dict[str, object]:
    """Collect the numbers on risk, beside `gpudemand.stages.requirement.headline`.

    Parameters
    ----------
    requirement : Requirement
    selected : SelectedForecast
    risk : DataFrame
        As `risk_table` returns it.

    Returns
    -------
    dict
        ``peak_bin`` (the bin with the largest requirement, by the mean where waits decide, in ISO form),
        ``peak_bin_median``, ``peak_bin_lo_95`` and ``peak_bin_hi_95`` (GPUs held), ``required_p50`` ...
        ``required_p99``, ``share_over``.
    """
    # Waits are simulated for the mean demand.
    series = requirement.binding if requirement.binding in (MEAN, PEAK) else MEAN
    rows = selected.forecast[selected.forecast["unique_id"] == series]
    top: Any = rows[rows["ds"] == requirement.plans[series].table.set_index("ds")["required"].idxmax()].iloc[0]
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
    """Cheapest mix of reserved and on-demand GPUs for the forecast of the mean.

    Parameters
    ----------
    requirement : Requirement
    settings : Settings
        ``prices`` of all types and ``horizon`` are read.

    Returns
    -------
    DataFrame of one row
        See `gpudemand.planning.CapacityPlan.purchase_mix`.

    Raises
    ------
    InputError
        If no prices were given, or the horizon is a single bin.
    """
    if settings.prices is None:
        raise InputError(
            "no prices were given; add --prices RESERVED ON_DEMAND (per GPU-hour) to the command, or "
            "prices=(reserved, on_demand) to build_report."
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


def backtest_plans(selected: SelectedForecast) -> pd.DataFrame:
    """Backtest capacity plans on the evaluation windows, by the selected model and by the best naive method.

    Parameters
    ----------
    selected : SelectedForecast

    Returns
    -------
    DataFrame
        ``series``, ``model``, ``service_level`` and the columns of `gpudemand.planning.plan_backtest`.
    """
    parts = []
    for series in selected.scores["series"].drop_duplicates():
        models = dict.fromkeys([selected.model, str(selected.best_naive(series)["model"])])
        tested = plan_backtest(evaluated_series(selected, series, list(models)), _TESTED_LEVELS).reset_index()
        tested.insert(0, "series", series)
        parts.append(tested)
    return pd.concat(parts, ignore_index=True).astype({"series": STRING, "model": STRING})


def evaluated_series(selected: SelectedForecast, series: str, models: list[str]) -> pd.DataFrame:
    """Rows of the evaluation windows for one series, and the columns of some models with their bounds."""
    evaluates = evaluation_rows(selected.backtest, selected.windows)
    rows = selected.backtest[evaluates & (selected.backtest["unique_id"] == series)]
    bounds = [f"{model}-{side}-{level}" for model in models for level in SCORED_LEVELS for side in ("lo", "hi")]
    table = rows[[*KEYS, *models, *bounds]].reset_index(drop=True)
    table.attrs = dict(selected.backtest.attrs)
    return table
