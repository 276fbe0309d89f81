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
from gpudemand.planning.need import NeedForecast
from gpudemand.planning.programmes import PlannedWork, add_programmes_by_type
from gpudemand.study.parts import Parts, scale_to_total
from gpudemand.study.pools import NOUNS, check_names
from gpudemand.study.requirement import (
    Order,
    Requirement,
    order_numbers,
    plan_requirement,
    risk_table,
    shortage_numbers,
    with_date_dtype,
)
from gpudemand.study.selection import SelectedForecast, forecast_with, levels_for
from gpudemand.study.settings import Settings
from gpudemand.study.source import Source
from gpudemand.study.usage_tables import MEAN, usual_most_held, whole_gpus
from gpudemand.study.waits import Need, as_forecast, needed_gpus
from gpudemand.units import parse_duration

#: The row above the types.
ALL = "all, as one pool"
_DAY = pd.Timedelta("1D")
_REQUIRED = [f"required_{share}" for share in SHARES]


@dataclass(frozen=True)
class GpuTypePlans:
    """Capacity plans by GPU type.

    `table`: all types as one pool, then a row per type, the largest requirement first; ``shortfall`` is of the four
    weeks after an order could arrive, ``to_order`` the same or of a later order. What depends on the GPUs installed of
    a type is missing where only their sum is given. Types that were given and never used come last, with zero required.
    `by_bin`: quantiles of the requirement by type and ``ds``. `plans`: by type, with what is installed of it (NaN where
    only the sum is known).
    """

    table: pd.DataFrame
    by_bin: pd.DataFrame
    plans: dict[str, Requirement]
    pools: Pools


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
    need: Need,
    settings: Settings,
    by: str = "gpu_type",
    programmes: Sequence[PlannedWork] = (),
) -> GpuTypePlans:
    """Plan capacity for each GPU type (or cluster) as a pool of its own: jobs do not move between types.

    Each needs what its own jobs need; their means are scaled to the forecast of the total. Programmes with a type are
    added to it; others (of clusters, all) are spread over the types as the rest is. `selected`, `requirement`, `need`:
    of the total, `selected` without programmes; if the parts of `parts` are the GPU types, its model is used.
    """
    if len(_names(source, by, programmes)) < 2:
        raise InputError(f"the log names fewer than two {NOUNS[by]}s, so the plan is for one pool.")
    model = parts.model if parts is not None and parts.by == by else selected.model
    # A number by name is one of these, or else only their sum is known.
    known = settings.as_one_pool() if by != settings.pool else settings
    pools = Pools.of(source, selected, model, need, known, by)
    plans = pools.plans(selected, known, programmes)
    ds = requirement.envelope()["ds"]
    rows = [_row(name, plan) for name, plan in {ALL: requirement, **plans}.items()]
    rows = [{by: row.pop("pool"), **row} for row in [*rows, *_unused_types(plans, known, ds)]]
    table = with_date_dtype(pd.DataFrame(rows), selected.forecast["ds"])
    by_bin = pd.concat({name: plan.envelope().drop(columns="installed") for name, plan in plans.items()})
    by_bin = by_bin.reset_index(level=0, names=by).reset_index(drop=True)
    return GpuTypePlans(table.astype({by: STRING}), by_bin.astype({by: STRING}), plans, pools)


def first_shortfall(table: pd.DataFrame) -> dict[str, Any] | None:
    """Row of the type with the earliest crossing; None if there is none."""
    short = table[table["first_crossing"].notna() & (table.iloc[:, 0] != ALL)]
    return None if short.empty else short.sort_values("first_crossing", kind="stable").iloc[0].to_dict()


def gpu_type_numbers(types: GpuTypePlans | None) -> dict[str, object]:
    """Headline numbers on types, in ISO form or None: the first one to be ordered as it runs short, and its dates."""
    orders = [] if types is None else orders_of_types(types.plans)
    first = orders[0] if orders else {}
    plan = types.plans[first["name"]] if types is not None and orders else None
    return {
        "first_short_type": first.get("name"),
        "type_first_crossing": None if plan is None else plan.first_crossing().isoformat(),
        **{f"type_{name}": first.get(name) for name in ("order_by", "lead_time")},
        "type_to_order": first.get("gpus"),
        "type_shortages": [] if plan is None else shortage_numbers(plan),
        "types_to_order": orders,
    }


def orders_of_types(plans: Mapping[str, Requirement]) -> list[dict[str, Any]]:
    """Orders of each type, the first due first; of those due at once, the largest."""
    orders = [
        order
        for name, plan in plans.items()
        for order in order_numbers(name, orders_of(plan), f"{plan.plans[MEAN].lead_time / _DAY:g}D")
    ]
    return sorted(orders, key=lambda order: (pd.Timestamp(order["order_by"]), -order["gpus"], order["name"]))


def leading_orders(pool: list[dict[str, Any]], types: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Orders of types, each for itself, if these are of more GPUs or due earlier than those of all as one pool.

    GPUs of another type do not run the jobs of one that is short, however many are idle.

    >>> pool, types = [{"gpus": 2, "order_by": "2026-03-09"}], [{"gpus": 28, "order_by": "2026-03-16"}]
    >>> leading_orders(pool, types) is types, leading_orders(pool, [{"gpus": 1, "order_by": "2026-03-16"}]) is pool
    (True, True)
    """
    every, apart = (sum(order["gpus"] for order in orders) for orders in (pool, types))
    earlier = pool and types and pd.Timestamp(types[0]["order_by"]) < pd.Timestamp(pool[0]["order_by"])
    return types if apart > every or earlier else pool


def order_of_pools(numbers: dict[str, Any], *, apart: bool) -> dict[str, Any]:
    """The orders that count, and the first of them where they are those of types.

    `apart`: whether GPUs installed are given by type; else what is there of each is a guess, and all are one pool.

    >>> numbers = {"first_crossing": None, "orders_as_one_pool": []}
    >>> order = {"name": "A100", "gpus": 28, "begin": "2026-04-01", "order_by": "2026-03-02"}
    >>> numbers["types_to_order"] = [order, {**order, "order_by": "2026-03-09"}]
    >>> {name: value for name, value in order_of_pools(numbers, apart=True).items() if name != "orders"}
    {'to_order': 28, 'order_by': '2026-03-02', 'first_crossing': '2026-04-01'}
    >>> order_of_pools(numbers, apart=False)
    {'orders': []}
    """
    pool, types = numbers["orders_as_one_pool"], numbers["types_to_order"]
    orders = leading_orders(pool, types) if apart else pool
    if orders is pool:
        return {"orders": pool}
    due = orders[0]["order_by"]
    crossings = [numbers["first_crossing"], numbers.get("type_first_crossing"), *(each["begin"] for each in orders)]
    return {
        "orders": orders,
        "to_order": sum(each["gpus"] for each in orders if each["order_by"] == due),
        "order_by": due,
        "first_crossing": min(filter(None, crossings), key=pd.Timestamp),
    }


@dataclass(frozen=True)
class Pools:
    """What is known of each pool by its name, without programmes: mean (`forecast`), need, and GPUs.

    `held`: see `usual_most_held`. `every`: need of all as one pool.
    """

    by: str
    model: str
    forecast: pd.DataFrame
    needs: Mapping[str, Need]
    held: Mapping[str, float]
    every: Need

    @classmethod
    def of(
        cls, source: Source, selected: SelectedForecast, model: str, every: Need, settings: Settings, by: str
    ) -> Pools:
        """Forecast the mean of each pool, and the need of each."""
        usage, level = source.usage(by, settings.freq, source.demand), levels_for(settings.service_level)
        # One by one, as the total is: errors of a type that is seldom used would widen those of the others.
        parts = [part for _, part in usage.groupby("unique_id")]
        rows = pd.concat([forecast_with(model, part, settings.horizon, level, selected.candidates) for part in parts])
        held = {str(name): whole_gpus(most) for name, most in usual_most_held(source, by).items() if most > 0}
        needs = {name: needed_gpus(source, (), settings.of_one(name), by, name) for name in held}
        return cls(by, model, rows.reset_index(drop=True), needs, held, every.with_programmes(()))

    def changed(self, hours: Mapping[str, float], ratios: Mapping[str, float], new: Sequence[str]) -> Pools:
        """The pools with other work: by name, the GPU-hours and the need, in parts of what they are now.

        Those of `new` pools, without work so far, are in parts of all as one pool.
        """
        total = self.forecast.groupby("ds", as_index=False).sum(numeric_only=True)
        known = self.forecast[~self.forecast["unique_id"].isin(new)]
        rows = pd.concat([known, *(total.assign(unique_id=name) for name in new)], ignore_index=True)
        factor = rows["unique_id"].astype(str).map(lambda name: hours.get(name, 1.0))
        values = [name for name in rows.columns if str(name).startswith(self.model)]
        rows[values] = rows[values].mul(factor, axis=0)
        needs = {**self.needs, **dict.fromkeys(new, self.every)}
        needs = {name: replace(need, ratio=ratios.get(name, 1.0)) for name, need in needs.items()}
        return replace(self, forecast=rows, needs=needs)

    def plans(
        self, selected: SelectedForecast, settings: Settings, programmes: Sequence[PlannedWork]
    ) -> dict[str, Requirement]:
        """Plans by the name of the pool, the largest requirement first; `selected` is without programmes."""
        own = [each for each in programmes if each.gpu_type is not None and self.by == "gpu_type"]
        shared = [each for each in programmes if each not in own]
        forecast, plans = self._together(selected.with_programmes(shared), own), {}
        for name, need in self._with_programmes(own, shared).items():
            of_one, most = settings.of_one(name), self.held.get(name, 0.0)
            need = replace(need, lead_time=parse_duration(of_one.longest_lead_time))
            mean = forecast[forecast["pool"] == name].drop(columns="pool")
            both = pd.concat([mean, as_forecast(need, mean, settings.freq)])
            # A plan needs some GPUs to compare with; of a type that no job has held yet there are none.
            plan = replace(plan_requirement(both, most or 1.0, of_one), installed=most)
            plans[name] = _with_installed(name, plan, settings)
        return dict(sorted(plans.items(), key=lambda item: -item[1].required))

    def _with_programmes(self, own: Sequence[PlannedWork], shared: Sequence[PlannedWork]) -> dict[str, Need]:
        """Needs with programmes; needs of pools sum to more than that of all, their parts of what is spread to all."""
        none = replace(self.every, forecast=NeedForecast.none())
        needs = {**dict.fromkeys((str(each.gpu_type) for each in own), none), **self.needs}
        total = sum(need.forecast.recent for need in needs.values())
        every = self.every.with_programmes(shared) if shared and total else None
        return {
            name: replace(
                need.with_programmes([each for each in own if each.gpu_type == name]),
                shared=every,
                share=need.forecast.recent / total if total else 0.0,
            )
            for name, need in needs.items()
        }

    def _together(self, selected: SelectedForecast, programmes: Sequence[PlannedWork]) -> pd.DataFrame:
        """Means of every pool, with the name in the column ``pool``, and sums equal to that of the total."""
        model = self.model
        rows = scale_to_total(self.forecast, model, selected.forecast, selected.model)
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
    """A plan with the GPUs installed of its type: given, or held if nothing was; NaN if only their sum is."""
    if settings.installed is None:
        return plan
    # Of a type that only a scenario names there is none.
    given = settings.installed.get(name, 0.0) if isinstance(settings.installed, Mapping) else math.nan
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
    orders = orders_of(plan) if name != ALL else plan.orders()
    order = {"to_order": float(orders[0].gpus if orders else 0), "order_by": plan.order_by() if orders else pd.NaT}
    return row | {
        "installed": plan.installed,
        "shortfall": plan.shortfall,
        "first_crossing": plan.first_crossing(),
        **order,
    }


def orders_of(plan: Requirement) -> list[Order]:
    """Orders of a type; nothing is ordered of one that retires."""
    return [] if plan.installed > plan.installed_at(pd.Series([plan.end]))[0] == 0 else plan.orders()


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
