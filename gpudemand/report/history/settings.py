"""Settings of a report as plain JSON, which say whether two reports can be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from gpudemand.stages.chain import Chain
from gpudemand.stages.sources.by_pool import Installed, Prices

_SAME = ("by", "freq", "horizon", "tz", "lead_time", "wait", "wait_share", "service_level", "target_utilization")


def settings_of(chain: Chain) -> dict[str, Any]:
    """Settings of a report; ``demand`` is what its forecast is of.

    Parameters
    ----------
    chain : Chain

    Returns
    -------
    dict
    """
    settings = chain.settings
    return {
        **{name: plain(getattr(settings, name)) for name in _SAME},
        "demand": chain.source.demand,
        "cluster": None if settings.clusters is None else list(settings.clusters),
        "installed": _installed(settings.installed),
        "prices": _prices(settings.prices),
        "type_aliases": plain(settings.type_aliases),
        "programmes": [programme.name for programme in chain.programmes],
        "holidays": settings.holidays,
        "events": None if settings.events is None else sorted(set(settings.events["event"].astype(str))),
    }


def plain(value: Any) -> Any:
    """Value as JSON has it: no types of NumPy, no NaN.

    Examples
    --------
    >>> plain({"gpus": np.float64(8), "wait": float("nan")})
    {'gpus': 8.0, 'wait': None}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _installed(installed: Installed) -> Any:
    if isinstance(installed, pd.Series):
        return {pd.Timestamp(str(time)).isoformat(): float(count) for time, count in installed.items()}
    if isinstance(installed, Mapping):
        return {str(name): _installed(count) for name, count in installed.items()}
    return plain(installed)


def _prices(prices: Prices) -> Any:
    if isinstance(prices, Mapping):
        return {str(name): _prices(pair) for name, pair in prices.items()}
    return None if prices is None else [float(price) for price in prices]
