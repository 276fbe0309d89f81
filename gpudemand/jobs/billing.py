"""FOCUS: the bills of cloud providers in one format (versions 1.0 to 1.2)."""

from __future__ import annotations

import json

import pandas as pd

from gpudemand.jobs.log import Log, map_distinct
from gpudemand.units import SECONDS_PER_HOUR

FOCUS_COLUMNS = ("ChargePeriodStart", "ChargePeriodEnd", "ConsumedQuantity", "ConsumedUnit")
_HOURS = ("hour", "hours", "hrs", "hr", "h")
_OWNER_KEYS = ("user", "owner", "team")
_GPU_COLUMNS = ("x_GPUs", "x_GpuCount", "GPUs")


def focus(log: Log) -> pd.DataFrame:
    """Charges as jobs that hold GPUs through their charge period.

    The number of GPUs is the hours consumed over the hours of the period, times the GPUs of the resource if a column
    ``x_GPUs`` (or ``x_GpuCount``, ``GPUs``) gives them; without it every hour counts as one GPU-hour, so the bill
    should then hold GPU resources only. The user is the tag ``user``, ``owner`` or ``team`` (the first that is there,
    whatever its case) and else the sub-account, which is also the group. Charges that are no usage (taxes, purchases,
    credits), unused commitments and usage that is not measured in hours are set aside and counted.
    ``effective_cost`` is in the currency of the bill.
    """
    _set_aside(log)
    account = log.text("SubAccountName").fillna(log.text("SubAccountId"))
    start, end = (log.time(name, needed=True) for name in FOCUS_COLUMNS[:2])
    hours = (end - start).dt.total_seconds() / SECONDS_PER_HOUR
    log.refuse(hours == 0, "empty charge period")
    each = log.number(log.first(*_GPU_COLUMNS)).fillna(1.0)
    return pd.DataFrame(
        {
            "user": map_distinct(log.text("Tags"), _owner).fillna(account),
            "group": account,
            "cluster": log.text("RegionId"),
            "submit": start,
            "start": start,
            "end": end,
            "gpus": log.number("ConsumedQuantity", needed=True) / hours.where(hours > 0, 1.0) * each,
            "effective_cost": log.number("EffectiveCost"),
            "resource_id": log.text("ResourceId"),
            "sku_id": log.text("SkuId"),
        }
    )


def _set_aside(log: Log) -> None:
    category, unit = log.text("ChargeCategory"), log.text("ConsumedUnit")
    log.set_aside(category.notna() & (category != "Usage"), "charge that is no usage")
    unused = (log.text(name) == "Unused" for name in ("CommitmentDiscountStatus", "CapacityReservationStatus"))
    for rows in unused:
        log.set_aside(rows, "unused commitment")
    log.set_aside(unit.notna() & ~unit.str.lower().isin(_HOURS), "usage not measured in hours")
    log.refuse(unit.isna(), "without ConsumedUnit")


def _owner(tags: str) -> str | None:
    """Return the value of the first key that names somebody, in tags written as JSON."""
    try:
        pairs = {str(key).lower(): value for key, value in dict(json.loads(tags)).items()}
    except (ValueError, TypeError):
        return None
    return next((str(pairs[key]) for key in _OWNER_KEYS if pairs.get(key)), None)
