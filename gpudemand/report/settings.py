"""What a report is asked for, checked before any work begins."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gpudemand._bins import parse_freq
from gpudemand._validation import InputError, check_choice, check_number, shorten
from gpudemand.units import parse_duration

BY = ("user", "group", "cluster", "gpu_type", "total")


@dataclass(frozen=True)
class Settings:
    """Parameters of `build_report`, under the same names.

    Raises
    ------
    InputError
        If one of them is out of range.

    Examples
    --------
    >>> Settings(horizon=0)
    Traceback (most recent call last):
        ...
    gpudemand._validation.InputError: horizon must be a whole number of at least 1 and at most 100000; got 0.
    """

    by: str = "user"
    freq: str = "D"
    horizon: int = 28
    installed: float | None = None
    target_utilization: float = 0.85
    service_level: float = 0.95
    lead_time: str = "90D"
    tz: str = "UTC"
    until: object = None
    prices: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_choice("by", self.by, BY)
        parse_freq(self.freq)
        check_number("horizon", self.horizon, 1, 100_000, integer=True)
        if self.installed is not None:
            check_number("installed", self.installed, 0, open_low=True)
        check_number("target_utilization", self.target_utilization, 0, 1, open_low=True)
        check_number("service_level", self.service_level, 0.5, 0.999, open_low=True)
        parse_duration(self.lead_time)
        _check_zone(self.tz)
        _check_prices(self.prices)


def _check_prices(prices: object) -> None:
    if prices is None:
        return
    if not isinstance(prices, (tuple, list)) or len(prices) != 2:
        raise InputError(f"prices must be two numbers, (reserved, on_demand) per GPU-hour; got {shorten(prices)!r}.")
    for name, price in zip(("prices[0] (reserved)", "prices[1] (on demand)"), prices, strict=True):
        check_number(name, price, 0, open_low=True)


def _check_zone(tz: str) -> None:
    try:
        pd.Timestamp(0, tz=tz)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise InputError(f"tz={shorten(tz)!r} is no time zone; write 'UTC' or 'Europe/Berlin'.") from error
