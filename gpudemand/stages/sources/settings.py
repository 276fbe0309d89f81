"""Validated parameters of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from gpudemand._validation import InputError, check_choice, check_number, shorten
from gpudemand.forecast.calendar import Calendar, public_holidays
from gpudemand.planning.capacity.wait_target import wait_target
from gpudemand.stages.sources.by_pool import (
    Installed,
    LeadTime,
    Prices,
    check_installed,
    check_lead_times,
    check_prices,
    longest,
    of_pool,
    pulled_installed,
    total_installed,
)
from gpudemand.stages.sources.clusters import EACH
from gpudemand.stages.sources.type_aliases import Aliases, check_aliases
from gpudemand.usage.bins import parse_freq

BY = ("user", "group", "cluster", "gpu_type", "partition", "qos", "namespace", "node", "total")

_ANY_DAY = "2026-01-01"


@dataclass(frozen=True)
class Settings:
    """Parameters of `Study`, under the same names; a horizon of 0 is yet to be derived.

    ``installed_from`` is ``"pulled"`` where the number installed is what the nodes said rather than given; ``pool`` is
    what is installed, ordered and paid for by name: a ``"gpu_type"``, or a ``"cluster"`` that is a pool of its own;
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
    lead_time: LeadTime = "90D"
    wait: str | None = None
    wait_share: float = 0.9
    tz: str = "UTC"
    until: object = None
    prices: Prices = None
    installed_from: str = "given"
    pool: str = "gpu_type"
    clusters: tuple[str, ...] | None = None
    holidays: str | None = None
    events: pd.DataFrame | None = field(default=None, compare=False)
    type_aliases: Aliases = None

    def __post_init__(self) -> None:
        if self.by == "account":  # as Slurm calls it
            object.__setattr__(self, "by", "group")
        check_choice("by", self.by, BY)
        parse_freq(self.freq)
        check_number("horizon", self.horizon, 0, 100_000, integer=True)
        check_installed(self.installed)
        check_number("target_utilization", self.target_utilization, 0, 1, open_low=True)
        check_number("service_level", self.service_level, 0.5, 0.999, open_low=True)
        check_lead_times(self.lead_time)
        wait_target("1h" if self.wait is None else self.wait, self.wait_share)
        _check_zone(self.tz)
        check_prices(self.prices)
        check_aliases(self.type_aliases)
        if self.events is not None:
            Calendar.of(self.events)
        if self.holidays is not None:
            public_holidays(self.holidays, _ANY_DAY, _ANY_DAY)

    @property
    def knows_events(self) -> bool:
        """Whether events were stated, or a country of public holidays."""
        return self.events is not None or self.holidays is not None

    @property
    def total_installed(self) -> float | pd.Series | None:
        """GPUs installed, summed over types, a number or a Series in time; None if not given."""
        return total_installed(self.installed)

    @property
    def longest_lead_time(self) -> str:
        """Lead time of all types together: an order may be of the one that takes longest."""
        return longest(self.lead_time)

    def with_pulled(self, attrs: Mapping[Any, object], names: Callable[[str], list[str]]) -> Settings:
        """These, with the GPUs of the nodes as they were pulled, where none are given and the data tell them.

        Parameters
        ----------
        attrs : mapping
            Of the data; see `pulled_installed`.
        names : callable
            Names in the data of a key such as ``"gpu_type"``.
        """
        chosen = None if self.clusters == (EACH,) else self.clusters
        aliases = self.type_aliases or {}
        found = None if self.installed is not None else pulled_installed(attrs, names, self.pool, chosen, aliases)
        return self if found is None else replace(self, installed=found, installed_from="pulled")

    def as_one_pool(self) -> Settings:
        """Parameters of all types together, where theirs by name do not apply; prices are then not known."""
        prices = None if isinstance(self.prices, Mapping) else self.prices
        return replace(self, installed=self.total_installed, lead_time=self.longest_lead_time, prices=prices)

    def of_one(self, name: str) -> Settings:
        """Parameters of one pool, such as a GPU type; what is installed of it is yet to be said."""
        lead_time = of_pool(self.lead_time, name, self.longest_lead_time)
        return replace(self, installed=None, lead_time=lead_time, prices=of_pool(self.prices, name, None))


def _check_zone(tz: str) -> None:
    try:
        pd.Timestamp(0, tz=tz)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise InputError(f"tz={shorten(tz)!r} is no time zone; write 'UTC' or 'Europe/Berlin'.") from error
