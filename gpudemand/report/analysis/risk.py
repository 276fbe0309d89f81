"""At which risk: GPUs by probability, how the plans of the past held, and money."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.metrics import KEYS
from gpudemand.planning.backtest import plan_backtest
from gpudemand.planning.capacity.plan import SHARES
from gpudemand.report.analysis.requirement import Need
from gpudemand.report.analysis.selection import SCORED_LEVELS, Outlook, scoring_rows
from gpudemand.report.analysis.settings import Settings
from gpudemand.report.analysis.usage import MEAN, PEAK

#: Service levels that intervals of `SCORED_LEVELS` hold.
_TESTED = (0.90, 0.95)


def risk_table(need: Need) -> pd.DataFrame:
    """List the GPUs that are enough at P50, P90, P95 and P99.

    Parameters
    ----------
    need : Need

    Returns
    -------
    DataFrame
        ``probability``; ``required_mean`` and ``required_peak`` by either plan, ``required`` (the larger), all in the
        bin that requires most; ``shortfall``; ``first_crossing`` and ``order_by`` (NaT if never).
    """
    larger, lead = need.larger(), need.plans[MEAN].lead_time
    rows = []
    for name, share in SHARES.items():
        column = f"required_{name}"
        short = larger.loc[larger[column] > larger["installed"], "ds"]
        most = {f"required_{basis}": need.plans[basis].table[column].max() for basis in (MEAN, PEAK)}
        required = max(most.values())
        first = short.min() if len(short) else pd.NaT
        dates = {"first_crossing": first, "order_by": first - lead}
        row = {"probability": share, **most, "required": required, "shortfall": max(required - need.installed, 0.0)}
        rows.append(row | dates)
    table = pd.DataFrame(rows)
    return dated(table, larger["ds"])


def dated(table: pd.DataFrame, ds: pd.Series) -> pd.DataFrame:
    """Give the columns of dates the type of `ds`, also where none of them is known.

    Examples
    --------
    >>> never = pd.DataFrame({"first_crossing": [pd.NaT], "order_by": [pd.NaT]})
    >>> str(dated(never, pd.Series(pd.to_datetime(["2026-03-01"], utc=True))).dtypes["order_by"])
    'datetime64[ns, UTC]'
    """
    names = ("first_crossing", "order_by")
    return table.assign(**{name: pd.Series(table[name].tolist(), dtype=ds.dtype, index=table.index) for name in names})


def risk_numbers(need: Need, outlook: Outlook, risk: pd.DataFrame) -> dict[str, object]:
    """Collect what the first half-page says on risk, beside `gpudemand.report.analysis.requirement.headline`.

    Returns
    -------
    dict
        ``busiest`` (the bin that requires most, in ISO form), ``busiest_median``, ``busiest_low_95`` and
        ``busiest_high_95`` (GPUs held), ``required_p50`` ... ``required_p99``, ``share_over``.
    """
    rows = outlook.forecast[outlook.forecast["unique_id"] == need.deciding]
    top: Any = rows[rows["ds"] == need.larger().set_index("ds")["required"].idxmax()].iloc[0]
    numbers: dict[str, object] = {
        "busiest": pd.Timestamp(top["ds"]).isoformat(),
        "busiest_median": float(top[outlook.model]),
        "busiest_low_95": max(float(top[f"{outlook.model}-lo-95"]), 0.0),
        "busiest_high_95": float(top[f"{outlook.model}-hi-95"]),
    }
    numbers |= {f"required_{name}": int(count) for name, count in zip(SHARES, risk["required"], strict=True)}
    share = need.table.set_index("basis").loc[need.deciding, "share_over"]
    return numbers | {"share_over": float(share)}


def money(need: Need, settings: Settings) -> pd.DataFrame:
    """Find the cheapest mix of reserved and on-demand GPUs for the forecast of the mean.

    Parameters
    ----------
    need : Need
    settings : Settings
        ``prices`` and ``horizon`` are read.

    Returns
    -------
    DataFrame of one row
        See `gpudemand.planning.capacity.purchase_mix.purchase_mix`.

    Raises
    ------
    InputError
        If no prices were given, or the horizon is a single bin.
    """
    if settings.prices is None:
        raise InputError(
            "no prices were given, so nothing is said on money; add --prices RESERVED ON_DEMAND (per GPU-hour) to the "
            "command, or prices=(reserved, on_demand) to build_report."
        )
    if settings.horizon < 2:
        raise InputError("the plan is one bin long, so its hours cannot be told; money needs a longer horizon.")
    reserved, on_demand = settings.prices
    table = need.plans[MEAN].purchase_mix(reserved, on_demand).reset_index(drop=True)
    return table.assign(price_reserved=reserved, price_on_demand=on_demand)


def past_plans(outlook: Outlook) -> pd.DataFrame:
    """Say how plans would have held on the scored windows, by the chosen model and by the best naive method.

    Parameters
    ----------
    outlook : Outlook

    Returns
    -------
    DataFrame
        ``series``, ``model``, ``service_level`` and the columns of `gpudemand.planning.plan_backtest`.
    """
    parts = []
    for series in (MEAN, PEAK):
        models = dict.fromkeys([outlook.model, str(outlook.best_naive(series)["model"])])
        tested = plan_backtest(scored_rows(outlook, series, list(models)), _TESTED).reset_index()
        parts.append(tested.assign(series=series))
    table = pd.concat(parts, ignore_index=True)
    order = ["series", *[name for name in table.columns if name != "series"]]
    return table[order].astype({"series": STRING, "model": STRING})


def scored_rows(outlook: Outlook, series: str, models: list[str]) -> pd.DataFrame:
    """Rows of the backtest that scored, for one series and some models with their bounds."""
    scores = scoring_rows(outlook.backtest, outlook.windows)
    rows = outlook.backtest[scores & (outlook.backtest["unique_id"] == series)]
    bounds = [f"{model}-{side}-{level}" for model in models for level in SCORED_LEVELS for side in ("lo", "hi")]
    kept = rows[[*KEYS, *models, *bounds]].reset_index(drop=True)
    kept.attrs = dict(outlook.backtest.attrs)
    return kept
