"""FOCUS: cloud bills of any provider in one format (versions 1.0 to 1.2)."""

from __future__ import annotations

import json

import pandas as pd

from gpudemand.jobs.log_columns import LogColumns, map_unique
from gpudemand.units import SECONDS_PER_HOUR

FOCUS_COLUMNS = ("ChargePeriodStart", "ChargePeriodEnd", "ConsumedQuantity", "ConsumedUnit")
_HOURS = ("hour", "hours", "hrs", "hr", "h")
_OWNER_KEYS = ("user", "owner", "team")
_GPU_COLUMNS = ("x_GPUs", "x_GpuCount", "GPUs")


def focus(log: LogColumns) -> pd.DataFrame:
    """Charges as jobs that hold GPUs through their charge period.

    The number of GPUs is the hours consumed over the hours of the period, times the GPUs of the resource if a column
    ``x_GPUs`` (or ``x_GpuCount``, ``GPUs``) gives them; without it every hour counts as one GPU-hour, so the bill
    should then hold GPU resources only. The user is the tag ``user``, ``owner`` or ``team`` (the first present, in any
    case) and else the sub-account, which is also the group. Charges other than usage (taxes, purchases, credits),
    unused commitments and usage not measured in hours are excluded and counted. ``effective_cost`` is in the currency
    of the bill.
    """
    _exclude_charges(log)
    account = log.text("SubAccountName").fillna(log.text("SubAccountId"))
    start, end = (log.time(name, required=True) for name in FOCUS_COLUMNS[:2])
    hours = (end - start).dt.total_seconds() / SECONDS_PER_HOUR
    log.reject(hours == 0, "empty charge period")
    gpus_per_resource = log.number(log.first_present(*_GPU_COLUMNS)).fillna(1.0)
    return pd.DataFrame(
        {
            "user": map_unique(log.text("Tags"), _owner).fillna(account),
            "group": account,
            "submit": start,
            "start": start,
            "end": end,
            "gpus": log.number("ConsumedQuantity", required=True) / hours.where(hours > 0, 1.0) * gpus_per_resource,
            "effective_cost": log.number("EffectiveCost"),
            **log.texts(cluster="RegionId", resource_id="ResourceId", sku_id="SkuId"),
        }
    )


def _exclude_charges(log: LogColumns) -> None:
    category, unit = log.text("ChargeCategory"), log.text("ConsumedUnit")
    log.exclude(category.notna() & (category != "Usage"), "charge that is no usage")
    for name in ("CommitmentDiscountStatus", "CapacityReservationStatus"):
        log.exclude(log.text(name) == "Unused", "unused commitment")
    log.exclude(unit.notna() & ~unit.str.lower().isin(_HOURS), "usage not measured in hours")
    log.reject(unit.isna(), "without ConsumedUnit")


def _owner(tags: str) -> str | None:
    """Value of the first tag that names an owner, from tags written as JSON."""
    try:
        pairs = {str(key).lower(): value for key, value in dict(json.loads(tags)).items()}
    except (ValueError, TypeError):
        return None
    return next((str(pairs[key]) for key in _OWNER_KEYS if pairs.get(key)), None)
