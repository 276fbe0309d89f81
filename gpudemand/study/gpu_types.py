"""Capacity plans by GPU type or by cluster, beside the plan for all of them as one pool."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import STRING, FloatArray
from gpudemand._validation import InputError, nearest
from gpudemand.planning.capacity import SHARES, broadcast_by_time
from gpudemand.planning.programmes import PlannedWork, add_programmes_by_type
from gpudemand.study.parts import Parts, scale_to_total
from gpudemand.study.pools import NOUNS, check_names
from gpudemand.study.requirement import Requirement, plan_requirement, risk_table, shortage_numbers, with_date_dtype
from gpudemand.study.selection import SelectedForecast, forecast_with, levels_for
from gpudemand.study.settings import Settings
from gpudemand.study.source import Source
from gpudemand.study.usage_tables import MEAN, whole_gpus
from gpudemand.study.waits import Need, as_forecast, needed_gpus
from gpudemand.units import parse_duration

#: The row above the types.
ALL = "all, as one pool"
_DAY = pd.Timedelta("1D")
_REQUIRED = [f"required_{share}" for share in SHARES]


@dataclass(frozen=True)
class GpuTypePlans:
    """Capacity plans by GPU type.

    `table`: all types as one pool, then a row per type, the largest requirement first: ``gpu_type``, ``installed``,
    ``required_p50`` ... ``required_p99``, ``required`` (at the service level), ``shortfall`` (in the four weeks after
    an order could arrive), ``to_order`` (the same, or of a later order), ``first_crossing``, ``order_by`` (NaT if
    nothing is to be ordered) and ``lead_time_days``. The columns that depend on the GPUs
    installed of a type are missing where only their sum is given. Types that were given and never used come last,
    with zero required. `by_bin`: ``gpu_type``, ``ds``, ``required_p50`` ... ``required_p99``, ``required``. `plans`:
    by type, with what is installed of it (NaN where only the sum is known).
    """

    table: pd.DataFrame
    by_bin: pd.DataFrame
    plans: dict[str, Requirement]


def check_pools(source: Source, programmes: Sequence[PlannedWork] = ()) -> None:
    """Check that GPUs installed, lead times and prices by type cover every type of the log and of the programmes."""
    settings, names = source.settings, source.names(source.settings.pool)
    if settings.pool == "gpu_type":
        given = settings.installed if isinstance(settings.installed, Mapping) else {}
        _check_types(programmes, [*names, *given])
        names = _names(source, "gpu_type", programmes)
    for parameter in ("installed", "lead_time", "prices"):
        check_names(parameter, getattr(settings, parameter), names, settings.pool)


def _check_types(programmes: Sequence[PlannedWork], known: Sequence[str]) -> None:
    for programme in programmes:
        name = programme.gpu_type
        if name is not None and name not in known:
            raise InputError(
                f"programme {programme.name!r} is on GPU type {name!r}, which neither the log nor installed "
                f"names.{nearest(name, known)} Give installed by GPU type, with 0 for one that is yet to come."
            )


def _names(source: Source, by: str, programmes: Sequence[PlannedWork]) -> list[str]:
    """Names in the log, and of programmes."""
    typed = [str(each.gpu_type) for each in programmes if each.gpu_type] if by == "gpu_type" else []
    return sorted({*source.names(by), *typed})


def plan_gpu_types(
    source: Source,
    selected: SelectedForecast,
    parts: Parts | None,
    requirement: Requirement,
    settings: Settings,
    by: str = "gpu_type",
    programmes: Sequence[PlannedWork] = (),
) -> GpuTypePlans:
    """Plan capacity for each GPU type (or cluster) as a pool of its own: jobs do not move between types.

    Each needs what its own jobs need; their means are scaled to the forecast of the total. Programmes with a type are
    added to it; others (of clusters, all) are spread over the types as the rest is.

    `selected`: forecast of the total. `parts`: if its parts are the GPU types, its model is used; otherwise that of
    the total. `requirement`: of the total. `by`: {"gpu_type", "cluster"}; what a pool is, and the name of its column.
    `programmes`: work that is not in the forecast of the total yet.
    """
    if len(_names(source, by, programmes)) < 2:
        raise InputError(f"the log names fewer than two {NOUNS[by]}s, so the plan is for one pool.")
    model = parts.model if parts is not None and parts.by == by else selected.model
    # A number by name is one of these, or else only their sum is known.
    known = settings.as_one_pool() if by != settings.pool else settings
    plans = _plans(source, model, selected, known, by, programmes)
    plans = {name: _with_installed(name, plan, known) for name, plan in plans.items()}
    ds = requirement.envelope()["ds"]
    rows = [_row(name, plan) for name, plan in {ALL: requirement, **plans}.items()]
    rows = [{by: row.pop("pool"), **row} for row in [*rows, *_unused_types(plans, known, ds)]]
    table = with_date_dtype(pd.DataFrame(rows), selected.forecast["ds"])
    by_bin = pd.concat({name: plan.envelope().drop(columns="installed") for name, plan in plans.items()})
    by_bin = by_bin.reset_index(level=0, names=by).reset_index(drop=True)
    return GpuTypePlans(table.astype({by: STRING}), by_bin.astype({by: STRING}), plans)


def first_shortfall(table: pd.DataFrame, date: str = "first_crossing") -> dict[str, Any] | None:
    """Row of the type with the earliest crossing, or the earliest of another date; None if there is none."""
    short = _by_date(table, date)
    return None if short.empty else short.iloc[0].to_dict()


def _by_date(table: pd.DataFrame, date: str) -> pd.DataFrame:
    """Rows of the types that have a date, the earliest first."""
    return table[table[date].notna() & (table.iloc[:, 0] != ALL)].sort_values(date, kind="stable")


def gpu_type_numbers(types: GpuTypePlans | None) -> dict[str, object]:
    """Collect the headline numbers on types: the first one to be ordered as it runs short, and its dates.

    Returns ``first_short_type``, ``type_first_crossing`` and ``type_order_by`` (in ISO form), ``type_lead_time`` and
    ``type_to_order`` (GPUs); None where not known. ``types_to_order``: ``name`` and ``gpus`` of all that run short.
    ``type_shortages``: see `gpudemand.study.requirement.shortage_numbers`.
    """
    short = [] if types is None else _short_types(types.table)
    first = {} if types is None else first_shortfall(types.table, "order_by") or {}
    dates = {f"type_{name}": first[name].isoformat() if first else None for name in ("first_crossing", "order_by")}
    lead_time = f"{first['lead_time_days']:g}D" if first else None
    gpus = math.ceil(first["to_order"]) if first else None
    name = next(iter(first.values()), None)
    plan = None if types is None else types.plans.get(str(name))
    return {
        "first_short_type": name,
        **dates,
        "type_lead_time": lead_time,
        "type_to_order": gpus,
        "type_shortages": [] if plan is None else shortage_numbers(plan),
        "types_to_order": short,
    }


def _short_types(table: pd.DataFrame) -> list[dict[str, object]]:
    """GPUs to order of each type, the earliest order first."""
    due = _by_date(table, "order_by")
    return [
        {"name": str(name), "gpus": math.ceil(gpus)} for name, gpus in zip(due.iloc[:, 0], due["to_order"], strict=True)
    ]


def order_of_pools(numbers: dict[str, Any]) -> dict[str, Any]:
    """The order where GPUs installed are given by type: what all types need, each for itself, if that is more.

    GPUs of another type do not run the jobs of one that is short, however many are idle.

    >>> pool = {"to_order": 2, "order_by": "2026-03-09", "type_order_by": "2026-03-02"}
    >>> order_of_pools({**pool, "types_to_order": [{"name": "A100", "gpus": 28}]})
    {'to_order': 28, 'order_by': '2026-03-02'}
    >>> order_of_pools({**pool, "types_to_order": []})
    {}
    """
    apart = sum(each["gpus"] for each in numbers["types_to_order"])
    if apart <= numbers["to_order"]:
        return {}
    dates = [date for date in (numbers["order_by"], numbers["type_order_by"]) if date is not None]
    return {"to_order": apart, "order_by": min(dates, key=pd.Timestamp)}


def _plans(
    source: Source,
    model: str,
    selected: SelectedForecast,
    settings: Settings,
    by: str,
    programmes: Sequence[PlannedWork],
) -> dict[str, Requirement]:
    """Plans by the name of the type, the largest requirement first."""
    own = [each for each in programmes if each.gpu_type is not None and by == "gpu_type"]
    shared = [each for each in programmes if each not in own]
    usage = source.usage(by, settings.freq, source.demand)
    forecast = _forecast(usage, model, selected.with_programmes(shared), settings, own)
    every = needed_gpus(source, shared, settings) if shared else None
    held = {str(name): whole_gpus(most) for name, most in source.most_held(by).items() if most > 0}
    needs = {
        name: needed_gpus(source, [each for each in own if each.gpu_type == name], settings.of_one(name), by, name)
        for name in {**held, **dict.fromkeys(str(each.gpu_type) for each in own)}
    }
    plans = {}
    for name, need in _with_shares(needs, every).items():
        mean, most = forecast[forecast["pool"] == name].drop(columns="pool"), held.get(name, 0.0)
        both = pd.concat([mean, as_forecast(need, mean, settings.freq)])
        # A plan needs some GPUs to compare with; of a type that no job has held yet there are none.
        plans[name] = replace(plan_requirement(both, most or 1.0, settings.of_one(name)), installed=most)
    return dict(sorted(plans.items(), key=lambda item: -item[1].required))


def _with_shares(needs: dict[str, Need], every: Need | None) -> dict[str, Need]:
    """Needs with their parts of work that is spread; needs of pools sum to more than that of all, parts to all."""
    total = sum(need.forecast.recent for need in needs.values())
    if every is None or not total:
        return needs
    return {name: replace(need, shared=every, share=need.forecast.recent / total) for name, need in needs.items()}


def _forecast(
    usage: pd.DataFrame,
    model: str,
    selected: SelectedForecast,
    settings: Settings,
    programmes: Sequence[PlannedWork],
) -> pd.DataFrame:
    """Forecast the mean of every type, with the name in the column ``pool``, and sums equal to that of the total."""
    level = levels_for(settings.service_level)
    # One by one, as the total is: errors of a type that is seldom used would widen those of the others.
    parts = [part for _, part in usage.groupby("unique_id")]
    rows = pd.concat([forecast_with(model, part, settings.horizon, level, selected.candidates) for part in parts])
    rows = scale_to_total(rows.reset_index(drop=True), model, selected.forecast, selected.model)
    total = selected.forecast[selected.forecast["unique_id"] == MEAN].set_index("ds")
    total = total.rename(columns=lambda name: str(name).replace(selected.model, model))
    # Medians and upper bounds are raised where their sum falls below that of the total.
    upper = [name for name in rows.columns if name == model or str(name).startswith(f"{model}-hi-")]
    together = rows.groupby("ds")[upper].sum()
    factor = (total[upper] / together.where(together > 0)).clip(lower=1.0).fillna(1.0)
    rows = rows.assign(**{name: rows[name] * rows["ds"].map(factor[name]) for name in upper})
    # Work of its own widens a type by at least as much as it widens the total, so the sums stay above it.
    rows = add_programmes_by_type(rows, programmes, peak=False)
    return rows.rename(columns={"unique_id": "pool"}).assign(unique_id=MEAN)


def _with_installed(name: str, plan: Requirement, settings: Settings) -> Requirement:
    """A plan with the GPUs installed of its type: given, or the most held if nothing was; NaN if only their sum is."""
    if settings.installed is None:
        return plan
    given = settings.installed.get(name, math.nan) if isinstance(settings.installed, Mapping) else math.nan
    if not isinstance(given, pd.Series):
        return replace(plan, installed=float(given))
    return replace(plan, installed=float(_by_bin(given, plan.envelope()["ds"])[0]), steps=given)


def _by_bin(installed: float | pd.Series, ds: pd.Series) -> FloatArray:
    given = isinstance(installed, pd.Series)
    return broadcast_by_time(installed, ds) if given else np.full(len(ds), float(installed))


def _row(name: str, plan: Requirement) -> dict[str, object]:
    counts = dict(zip(_REQUIRED, risk_table(plan)["required"], strict=True))
    lead_time = plan.plans[MEAN].lead_time
    row: dict[str, object] = {"pool": name, **counts, "required": plan.required, "lead_time_days": lead_time / _DAY}
    if math.isnan(plan.installed):
        return row
    # Nothing is ordered of a type that retires.
    retires = name != ALL and plan.installed > plan.installed_at(pd.Series([plan.end]))[0] == 0
    dates = {"first_crossing": plan.first_crossing, "order_by": pd.NaT if retires else plan.order_by}
    to_order = 0.0 if retires else float(plan.to_order())
    return row | {"installed": plan.installed, "shortfall": plan.shortfall, "to_order": to_order} | dates


def _unused_types(plans: dict[str, Requirement], settings: Settings, ds: pd.Series) -> list[dict[str, object]]:
    """Rows of the types that are installed and that no job held: their GPUs count in the pool of all types."""
    given = settings.installed if isinstance(settings.installed, Mapping) else {}
    zeros = dict.fromkeys([*_REQUIRED, "required", "shortfall", "to_order"], 0.0)
    never = dict.fromkeys(("first_crossing", "order_by"), pd.NaT)
    unused = {name: float(_by_bin(count, ds)[0]) for name, count in given.items() if name not in plans}
    leads = {name: parse_duration(str(settings.of_one(name).lead_time)) / _DAY for name in unused}
    return [
        {"pool": name, "installed": unused[name], "lead_time_days": leads[name], **zeros, **never} for name in unused
    ]
