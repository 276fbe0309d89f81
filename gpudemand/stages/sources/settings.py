"""Validated parameters of a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pandas as pd

from gpudemand._validation import InputError, check_choice, check_number, shorten
from gpudemand.planning.capacity.inputs import check_lead_time, check_steps
from gpudemand.units import parse_duration
from gpudemand.usage.bins import parse_freq

#: GPUs installed: of all types, by type, or a Series whose index are the times from which on there are so many.
Installed: TypeAlias = float | Mapping[str, float] | pd.Series | None
BY = ("user", "group", "cluster", "gpu_type", "partition", "qos", "namespace", "node", "total")


@dataclass(frozen=True)
class Settings:
    """Parameters of `Study`, under the same names; a horizon of 0 is yet to be derived.

    ``installed_from`` is ``"pulled"`` where the number installed is what the nodes said rather than given; ``pool`` is
    what a number installed by name is the number of: a ``"gpu_type"``, or a ``"cluster"`` that is a pool of its own;
    ``clusters`` are those that were selected, ``("each",)`` if each is a pool of its own.

    Raises
    ------
    InputError
        If a parameter is out of range.

    Examples
    --------
    >>> Settings(service_level=2)
    Traceback (most recent call last):
        ...
    gpudemand._validation.InputError: service_level must be a number above 0.5 and at most 0.999; got 2.
    """

    by: str = "user"
    freq: str = "D"
    horizon: int = 0
    installed: Installed = None
    target_utilization: float = 0.85
    service_level: float = 0.95
    lead_time: str = "90D"
    wait: str | None = None
    wait_share: float = 0.9
    tz: str = "UTC"
    until: object = None
    prices: tuple[float, float] | None = None
    installed_from: str = "given"
    pool: str = "gpu_type"
    clusters: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_choice("by", self.by, BY)
        parse_freq(self.freq)
        check_number("horizon", self.horizon, 0, 100_000, integer=True)
        _check_installed(self.installed)
        check_number("target_utilization", self.target_utilization, 0, 1, open_low=True)
        check_number("service_level", self.service_level, 0.5, 0.999, open_low=True)
        check_lead_time(self.lead_time)
        if self.wait is not None:
            parse_duration(self.wait)
        check_number("wait_share", self.wait_share, 0, 0.9999, open_low=True)
        _check_zone(self.tz)
        _check_prices(self.prices)

    @property
    def total_installed(self) -> float | pd.Series | None:
        """GPUs installed, summed over types, a number or a Series in time; None if not given."""
        if isinstance(self.installed, Mapping):
            return float(sum(self.installed.values()))
        given = self.installed
        return given if given is None or isinstance(given, pd.Series) else float(given)


def parse_installed(text: str) -> float | dict[str, float]:
    """Parse the option ``--installed``: one number, or one number per GPU type.

    Examples
    --------
    >>> parse_installed("96"), parse_installed("A100=64,H100=32")
    (96.0, {'A100': 64.0, 'H100': 32.0})
    """
    try:
        if "=" not in text:
            return float(text)
        pairs = [pair.rsplit("=", 1) for pair in text.split(",")]
        counts = {name.strip(): float(count) for name, count in pairs}
    except ValueError as error:
        raise InputError(
            f"installed={shorten(text)!r} is no number of GPUs; write 96, or A100=64,H100=32 by type."
        ) from error
    if len(counts) < len(pairs):
        raise InputError(f"installed={shorten(text)!r} names a GPU type twice; give one number for each.")
    return counts


def _check_installed(installed: Installed) -> None:
    if isinstance(installed, pd.Series):
        check_steps("installed", installed)
    elif isinstance(installed, Mapping):
        if not installed:
            raise InputError("installed names no GPU type; give a number, or one for each type.")
        for name, count in installed.items():
            check_number(f"installed[{name!r}]", count, 0)
        check_number("installed, summed over types,", sum(installed.values()), 0, open_low=True)
    elif installed is not None:
        check_number("installed", installed, 0, open_low=True)


def _check_prices(prices: object) -> None:
    if prices is None:
        return
    if not isinstance(prices, (tuple, list)) or len(prices) != 2:
        raise InputError(f"prices must be two numbers, (reserved, on_demand) per GPU-hour; got {shorten(prices)!r}.")
    reserved = check_number("prices (reserved)", prices[0], 0, open_low=True)
    on_demand = check_number("prices (on demand)", prices[1], 0, open_low=True)
    if reserved > on_demand:
        raise InputError(
            f"prices: the reserved price {reserved:g} exceeds the on-demand price {on_demand:g}; the reserved price "
            "comes first."
        )


def _check_zone(tz: str) -> None:
    try:
        pd.Timestamp(0, tz=tz)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise InputError(f"tz={shorten(tz)!r} is no time zone; write 'UTC' or 'Europe/Berlin'.") from error
