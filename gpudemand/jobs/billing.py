"""Cloud bills and cost allocations, whose charges are jobs that hold GPUs through their period."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import BoolArray
from gpudemand.jobs.columns import LogColumns, map_unique
from gpudemand.units import SECONDS_PER_HOUR, format_number_of

FOCUS_COLUMNS = ("ChargePeriodStart", "ChargePeriodEnd", "ConsumedQuantity", "ConsumedUnit")
#: FOCUS writes units as ``GPU-Hours`` or, with a factor, ``1000 Hours``.
_UNIT = re.compile(
    r"(?:(?P<times>[\d.,]+) )?(?P<gpu>(?:gpus?|accelerators?)[- _])?"
    r"(?P<time>h|hrs?|hours?|mins?|minutes?|s|secs?|seconds?|days?)"
)
_HOURS = {"h": 1.0, "m": 1 / 60, "s": 1 / 3600, "d": 24.0}
#: Google bills cores, memory and GPUs of a machine apart: "Nvidia Tesla A100 GPU running in Iowa".
_GOOGLES = r"\bGPU (?:running|attached)"
_OWNERS = ("user", "owner", "team")


def focus(log: LogColumns) -> pd.DataFrame:
    """Charges as jobs that hold GPUs through their charge period.

    The number of GPUs is the time consumed over that of the period, times the GPUs of the resource, as a column
    ``x_GPUs`` (or ``x_GpuCount``, ``GPUs``) or the ``GpuCount`` in ``SkuPriceDetails`` gives them; a unit such as
    ``GPU-Hours`` counts GPUs already. Where such properties or units tell the GPUs of any charge, one without has none
    and is excluded; where nothing tells them of any, or a cell of the column is empty, a charge counts as one GPU.
    Corrections are netted with the charges of their resource and period. The user is the first tag ``user``, ``owner``
    or ``team`` of the allocated resource, or else of the resource, and else the sub-account, which is also the group.
    Charges other than usage, unused commitments and usage not measured in time are excluded and counted.
    ``effective_cost`` is in the currency of the bill.
    """
    category, unit = log.text("ChargeCategory"), log.text("ConsumedUnit")
    if len(currencies := sorted(log.text("BillingCurrency").dropna().unique())) > 1:
        log.doubts.append(f"this bill has costs in several currencies ({', '.join(currencies)}): do not add them up.")
    log.exclude(category.notna() & (category != "Usage"), "charge that is no usage")
    for name in ("CommitmentDiscountStatus", "CapacityReservationStatus"):
        log.exclude(log.text(name) == "Unused", "unused commitment")
    per_unit = map_unique(unit, lambda text: _unit(text)[0], "float64")
    log.exclude(unit.notna() & per_unit.isna(), "usage not measured in hours")
    start, end = (log.time(name, required=True) for name in FOCUS_COLUMNS[:2])
    hours = (end - start).dt.total_seconds() / SECONDS_PER_HOUR
    log.reject(hours == 0, "empty charge period")
    # Two that are the same may both be right, unless a resource cannot be used for so long within the period.
    fills = log.number("ConsumedQuantity") * per_unit > 0.5 * hours
    log.exclude(_repeated(log) & fills.to_numpy() & ~_counts_gpus(unit), "charge that the bill has already")
    quantity, cost = _net(log, pd.DataFrame({"start": start, "end": end}))
    log.reject(unit.isna(), "without ConsumedUnit")
    gpus = quantity * per_unit / hours.where(hours > 0, 1.0) * _gpus_per_resource(log)
    account, owner = _accounts(log)
    return pd.DataFrame(
        {
            "user": owner.fillna(account),
            "group": account,
            "submit": start,
            "start": start,
            "end": end,
            "gpus": gpus,
            "effective_cost": cost,
            **log.texts(cluster="RegionId", resource_id="ResourceId", sku_id="SkuId"),
        }
    )


def _counts_gpus(unit: pd.Series) -> BoolArray:
    return map_unique(unit, lambda text: float(_unit(text)[1]), "float64").eq(1).to_numpy(dtype=bool)


def _repeated(log: LogColumns) -> BoolArray:
    """Charges of a named resource that are the same as one before."""
    names = (
        *(*FOCUS_COLUMNS, "ResourceId", "SkuId", "SkuPriceId", "ChargeClass", "EffectiveCost", "BilledCost", "Tags"),
        *("AllocatedResourceId", "ChargeCategory", "CommitmentDiscountStatus", "CapacityReservationStatus"),
    )
    rows = pd.DataFrame({name: log.text(name) for name in names})
    return rows.duplicated().to_numpy() & log.text("ResourceId").notna().to_numpy()


def _unit(text: str) -> tuple[float, bool]:
    """Hours in a unit, NaN where it is of no time, and whether it counts GPUs."""
    match = _UNIT.fullmatch(text.strip().lower())
    if match is None:
        return np.nan, False
    return float((match["times"] or "1").replace(",", "")) * _HOURS[match["time"][0]], match["gpu"] is not None


def _gpus_per_resource(log: LogColumns) -> pd.Series:
    """GPUs of which a charge consumes the time; those without any are excluded where the bill tells others'."""
    counts_gpus = pd.Series(_counts_gpus(log.text("ConsumedUnit")))
    counts_gpus |= log.text("ChargeDescription").str.contains(_GOOGLES, case=False).fillna(False).astype(bool)
    column = next((name for name in ("x_GPUs", "x_GpuCount", "GPUs") if name in log), None)
    known = map_unique(log.text("SkuPriceDetails"), _gpu_count, "float64")
    if column:
        known = log.number(column).fillna(known).fillna(1.0)
    if known.notna().any() or counts_gpus.any():
        log.exclude(~counts_gpus & ~known.gt(0), "charge without GPUs")
        return known.fillna(0.0).mask(counts_gpus, 1.0)
    if log.usable().any():
        log.doubts.append(
            "nothing in this bill tells how many GPUs a charge is for, so each hour counts as one GPU-hour: add a "
            "column x_GPUs with the GPUs of each resource (0 of machines without), or SkuPriceDetails with GpuCount."
        )
    return known.fillna(1.0)


def _gpu_count(details: str) -> float:
    """GPUs in the properties of a price (``GpuCount``, also with a prefix)."""
    for name, value in _pairs(details).items():
        if re.fullmatch(r"(?:\w+_)?gpu_?count", name.lower()):
            return float(value) if re.fullmatch(r"\d+(\.\d+)?", str(value)) else np.nan
    return np.nan


def _net(log: LogColumns, period: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Quantities and costs of charges with their corrections, which are excluded as rows of their own."""
    quantity, cost = log.number("ConsumedQuantity"), log.number("EffectiveCost")
    correction = log.text("ChargeClass").eq("Correction").fillna(False).to_numpy(dtype=bool) | (quantity < 0).to_numpy()
    names = ("ResourceId", "SkuId", "SubAccountId", "RegionId")
    of_charge = period.assign(**{name: log.text(name).fillna("") for name in names})
    key = of_charge.groupby(list(of_charge.columns), dropna=False).ngroup()
    usable = log.usable()
    own = ~correction & usable & quantity.gt(0).to_numpy()
    applies = correction & usable & key.isin(set(key[own])).to_numpy()
    gross = quantity.where(own).groupby(key).transform("sum")
    change = quantity.where(applies).groupby(key).transform("sum")
    first = pd.Series(own) & ~key.where(own).duplicated()
    extra = cost.where(applies).groupby(key).transform("sum")
    log.exclude(applies, "correction, netted with its charge")
    log.reject(correction & ~applies & ~quantity.gt(0).to_numpy(), "correction without its charge")
    net = (quantity * (1 + change / gross)).where(own, quantity)
    log.exclude(own & (net <= 1e-9).to_numpy() & (change < 0).to_numpy(), "charge that was taken back")
    log.reject(quantity.isna(), "without ConsumedQuantity")
    return net, (cost + extra).where(first, cost)


def _accounts(log: LogColumns) -> tuple[pd.Series, pd.Series]:
    """Sub-account and owner of each charge."""
    account = log.text("SubAccountName").fillna(log.text("SubAccountId"))
    tags = log.text("Tags")
    unread = tags.notna() & map_unique(tags, lambda text: float(_pairs(text) is _NOT_READ), "float64").eq(1)
    if unread.any():
        log.doubts.append(
            f"the tags of {format_number_of('charge', unread.sum())} cannot be read (such as "
            f"{tags[unread].iloc[0]!r:.60}); they count for their sub-account. Export tags as JSON."
        )
    # Of a charge that is split, each part has the tags of its own resource beside those of what was split.
    return account, map_unique(log.text("AllocatedResourceTags"), _owner).fillna(map_unique(tags, _owner))


_NOT_READ: dict[str, Any] = {}


def _pairs(text: str) -> dict[str, Any]:
    """Names and values in a cell: a JSON object with or without braces, a list of pairs, or ``name=value;...``."""
    for read, cell in ((json.loads, text), (json.loads, f"{{{text}}}"), (ast.literal_eval, text)):
        try:
            found = read(cell)
            if isinstance(found, list) and found and isinstance(found[0], dict):
                lower = [{str(name).lower(): value for name, value in pair.items()} for pair in found]
                found = [(pair.get("key", pair.get("name")), pair.get("value")) for pair in lower]
            return {str(name): value for name, value in dict(found).items()}
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
    if marked := re.findall(r"key:(\S+) value:([^;,]*)", text):
        return dict(marked)
    parts = [part.partition("=") for part in re.split("[;,]", text) if part.strip()]
    if parts and all(mark for _, mark, _ in parts):
        return {name.strip(): value.strip() for name, _, value in parts}
    return _NOT_READ


def _owner(tags: str) -> str | None:
    """Value of the first tag that names an owner; clouds put prefixes before the names of tags."""
    pairs = {re.split("[:/.]", name.lower())[-1]: value for name, value in _pairs(tags).items()}
    return next((str(pairs[name]) for name in _OWNERS if pairs.get(name)), None)
