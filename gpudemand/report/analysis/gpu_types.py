"""Which GPUs: a plan for each type of GPU, under the plan for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError, nearest
from gpudemand.planning.capacity.plan import SHARES
from gpudemand.report.analysis import tables
from gpudemand.report.analysis.parts import Parts, scaled
from gpudemand.report.analysis.requirement import Need, plan_need
from gpudemand.report.analysis.risk import dated, risk_table
from gpudemand.report.analysis.selection import Outlook, levels_for, named
from gpudemand.report.analysis.settings import Settings
from gpudemand.report.analysis.usage import MEAN, PEAK
from gpudemand.usage.series import usage_series

#: The row above the types.
ALL = "all, as one pool"


@dataclass(frozen=True)
class Types:
    """Plans for the types of GPU.

    Parameters
    ----------
    table : DataFrame
        All types as one pool, then a row a type, the one that requires most first: ``gpu_type``, ``installed``,
        ``required_p50`` ... ``required_p99``, ``required`` (at the service level), ``shortfall``, ``first_crossing``
        and ``order_by`` (NaT if never). Of a type, what hangs on GPUs installed is missing where these were given for
        all types together. Types that were given and never used come last, and require none.
    steps : DataFrame
        Bin by bin: ``gpu_type``, ``ds``, ``required_p50`` ... ``required_p99``, ``required``.
    """

    table: pd.DataFrame
    steps: pd.DataFrame


def check_installed(jobs: pd.DataFrame, settings: Settings) -> None:
    """Refuse GPUs installed by type that leave out a type of the log.

    Raises
    ------
    InputError
        Which names the type.
    """
    if not isinstance(settings.installed, Mapping):
        return
    missing = [name for name in jobs["gpu_type"].dropna().astype(str).unique() if name not in settings.installed]
    if missing:
        raise InputError(
            f"installed says nothing about {missing[0]!r}.{nearest(missing[0], settings.installed)} "
            "It needs a number for each type of GPU in the log, 0 where none are left."
        )


def plan_types(jobs: pd.DataFrame, outlook: Outlook, parts: Parts | None, need: Need, settings: Settings) -> Types:
    """Plan for each type of GPU by itself: a job that asks for one does not move to another.

    Means are scaled to the forecast of the total. Peaks and bounds are raised where together they would fall below it,
    so that at every probability the types require at least what one pool of all of them would.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    outlook : Outlook
        Forecast of the total.
    parts : Parts or None
        Where these are the types, their method is used; otherwise that of the total.
    need : Need
        The plan for the total.
    settings : Settings

    Returns
    -------
    Types

    Raises
    ------
    InputError
        If the log tells fewer than two types of GPU apart.
    """
    if jobs["gpu_type"].nunique() < 2:
        raise InputError("the log tells fewer than two types of GPU apart, so the plan is for one pool.")
    model = parts.model if parts is not None and parts.by == "gpu_type" else outlook.model
    plans = _plans(jobs, model, outlook, settings)
    rows = [_row(ALL, need, need.installed)]
    rows += [_row(name, plan, _installed(name, plan, settings)) for name, plan in plans.items()]
    table = dated(pd.DataFrame([*rows, *_unused(plans, settings)]), outlook.forecast["ds"])
    steps = pd.concat([_steps(name, plan) for name, plan in plans.items()], ignore_index=True)
    return Types(table.astype({"gpu_type": STRING}), steps.astype({"gpu_type": STRING}))


def first_short(table: pd.DataFrame) -> dict[str, Any] | None:
    """Row of the type that runs short first; None if none is known to."""
    short = table[table["first_crossing"].notna() & (table["gpu_type"] != ALL)]
    return None if short.empty else short.sort_values("first_crossing", kind="stable").iloc[0].to_dict()


def types_numbers(types: Types | None) -> dict[str, object]:
    """Collect what the headline says on types: which runs short first, when, and by when to order.

    Returns
    -------
    dict
        ``first_short_type``, ``type_first_crossing`` and ``type_order_by`` (in ISO form); None where there is nothing
        to say.
    """
    first = {} if types is None else first_short(types.table) or {}
    dates = {f"type_{name}": first[name].isoformat() if first else None for name in ("first_crossing", "order_by")}
    return {"first_short_type": first.get("gpu_type"), **dates}


def _plans(jobs: pd.DataFrame, model: str, outlook: Outlook, settings: Settings) -> dict[str, Need]:
    """Plans by the name of the type, the one that requires most first."""
    usage = {basis: _usage(jobs, value, settings) for basis, value in ((MEAN, "gpus"), (PEAK, "gpus_peak"))}
    forecast = pd.concat([_forecast(series, basis, model, outlook, settings) for basis, series in usage.items()])
    most_held = usage[PEAK].groupby("unique_id")["y"].max()
    plans = {}
    for name, most in most_held[most_held > 0].items():
        mine = forecast[forecast["gpu_type"] == name].drop(columns="gpu_type")
        plans[str(name)] = plan_need(mine, most, replace(settings, installed=None))
    return dict(sorted(plans.items(), key=lambda item: -item[1].required))


def _usage(jobs: pd.DataFrame, value: str, settings: Settings) -> pd.DataFrame:
    usage = usage_series(
        jobs, by="gpu_type", freq=settings.freq, value=value, until=settings.until, tz=settings.tz, partial=False
    )
    return usage.assign(unique_id=usage["unique_id"].map(tables.written_names(jobs, "gpu_type")).astype(STRING))


def _forecast(usage: pd.DataFrame, basis: str, model: str, outlook: Outlook, settings: Settings) -> pd.DataFrame:
    """Forecast every type, as `plan_need` takes it, with the name in the column ``gpu_type``."""
    rows = named(model).fit(usage).predict(settings.horizon, level=levels_for(settings.service_level))
    if basis == MEAN:
        rows = scaled(rows, model, outlook.forecast, outlook.model)
    above = outlook.forecast[outlook.forecast["unique_id"] == basis].set_index("ds")
    rows = _raised(rows, model, above.rename(columns=lambda name: str(name).replace(outlook.model, model)))
    return rows.rename(columns={"unique_id": "gpu_type"}).assign(unique_id=basis)


def _raised(rows: pd.DataFrame, model: str, above: pd.DataFrame) -> pd.DataFrame:
    """Raise medians and upper bounds where together they fall below those of the total."""
    upper = [name for name in rows.columns if name == model or str(name).startswith(f"{model}-hi-")]
    together = rows.groupby("ds")[upper].sum()
    factor = (above[upper] / together.where(together > 0)).clip(lower=1.0).fillna(1.0)
    return rows.assign(**{name: rows[name] * rows["ds"].map(factor[name]) for name in upper})


def _installed(name: str, plan: Need, settings: Settings) -> float | None:
    """GPUs of a type: those given, the most that were held if nothing was; None if only their sum is known."""
    if isinstance(settings.installed, Mapping):
        return settings.installed.get(name)
    return plan.installed if settings.installed is None else None


def _row(name: str, plan: Need, installed: float | None) -> dict[str, object]:
    counts = zip(SHARES, risk_table(plan)["required"], strict=True)
    row: dict[str, object] = {"gpu_type": name, **{f"required_{share}": count for share, count in counts}}
    row["required"] = plan.required
    if installed is None:
        return row
    steps = plan.larger()
    first = steps.loc[steps["required"] > installed, "ds"].min()
    dates = {"first_crossing": first, "order_by": first - plan.plans[MEAN].lead_time}
    return row | {"installed": installed, "shortfall": max(plan.required - installed, 0.0)} | dates


def _unused(plans: dict[str, Need], settings: Settings) -> list[dict[str, object]]:
    """Rows of the types that are said to be there and that no job held: their GPUs count in the pool of all."""
    given = settings.installed if isinstance(settings.installed, Mapping) else {}
    none = dict.fromkeys([*(f"required_{share}" for share in SHARES), "required", "shortfall"], 0.0)
    never = dict.fromkeys(("first_crossing", "order_by"), pd.NaT)
    rows = ({"gpu_type": name, "installed": float(count)} for name, count in given.items() if name not in plans)
    return [{**row, **none, **never} for row in rows]


def _steps(name: str, plan: Need) -> pd.DataFrame:
    steps = plan.larger().drop(columns="installed")
    steps.insert(0, "gpu_type", name)
    return steps
