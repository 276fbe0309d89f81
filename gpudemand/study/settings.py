"""Options of a study: each is declared here, with its type, its default, what it means and what it must be.

The command line and the plan file take them from here, and import this to say what they take: so it imports nothing
that is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pandas as pd

#: GPUs installed, or a Series whose index are the times from which on there are so many: of all types, or by type.
Installed: TypeAlias = "float | Mapping[str, float | pd.Series] | pd.Series | None"
#: A length of time, such as "1h".
Duration: TypeAlias = "str"
#: From an order to the first use: of all types, or by type.
LeadTime: TypeAlias = "Duration | Mapping[str, Duration]"
#: Of a GPU-hour, reserved and on demand.
PricePair: TypeAlias = "tuple[float, float]"
Prices: TypeAlias = "PricePair | Mapping[str, PricePair] | None"
#: Type of the log -> type that it counts as.
Aliases: TypeAlias = "Mapping[str, str] | None"
Clusters: TypeAlias = "str | Sequence[str] | None"
#: Instead of a name: all clusters, each a pool of its own.
EACH = "each"
#: Time within which jobs are to start, and the share of them that is to, where none is given.
DEFAULT_WAIT, DEFAULT_SHARE = "1h", 0.9
BY = ("user", "group", "cluster", "gpu_type", "partition", "qos", "namespace", "node", "total")
_ANY_DAY = "2026-01-01"


def option(default: Any, help: str, *, metavar: str | None = None, **about: bool) -> Any:  # noqa: A002
    """Declare an option of a study.

    `help`: what it is, for the command line. `metavar`: what stands for its value there. `about`: ``typed=False`` for
    one that is no option of ``gpudemand report``, ``headline=True`` for one that stands among the numbers of the page,
    ``recorded=False`` for one that ``report.json`` leaves out.
    """
    return field(default=default, metadata={"help": help, "metavar": metavar, **about})


@dataclass(frozen=True)
class Settings:
    """Options of `Study`, under the same names.

    ``installed_from`` is ``"pulled"`` where the number installed is what the nodes said rather than given.

    >>> Settings(service_level=2)
    Traceback (most recent call last):
        ...
    gpudemand._validation.InputError: service_level must be a number above 0.5 and at most 0.999; got 2.
    """

    cluster: Clusters = option(None, "Clusters, such as alpha,beta, as one pool; or each: all, each its own pool.")
    by: str = option(
        "user", "Split by user, group, cluster, partition, qos or gpu_type; or total, as of a log without users."
    )
    installed: Installed = option(
        None,
        "GPUs installed: 96, or A100=64,H100=32; by default those of the nodes where they were pulled, or else as "
        "many as were held at once on at least three days (of a log of under four weeks, the most).",
        metavar="GPUS",
    )
    service_level: float = option(
        0.95, "Probability with which demand does not exceed the GPUs required.", headline=True
    )
    target_utilization: float = option(0.85, "Share of the GPUs that mean demand may take.", headline=True)
    lead_time: LeadTime = option("90D", "Time from order to use, such as 90D.", headline=True)
    wait: Duration | None = option(
        None,
        "Time within which jobs are to start, such as 4h; by default 1h. GPUs are planned so that they do; of usage "
        "without jobs, for its peaks.",
        headline=True,
    )
    wait_share: float = option(DEFAULT_SHARE, "Share of the jobs that are to start within --wait.", headline=True)
    availability: float = option(
        1.0, "Share of the GPUs that runs jobs: nodes are down, reserved or drained.", headline=True
    )
    #: None until the study derives it.
    horizon: int = option(
        None, "Bins to forecast; by default the lead time and four weeks, if the log bears it.", headline=True
    )
    freq: str = option("D", "Width of a bin: h, D, W-MON, MS.", headline=True)
    prices: Prices = option(
        None,
        "Prices of a GPU-hour, in any currency: adds the cheapest purchase mix and its cost.",
        metavar="RESERVED ON_DEMAND",
    )
    until: object = option(None, "End of the period; by default where the log stops being complete.", recorded=False)
    tz: str = option(None, "Time zone of the log and of the calendar, such as Europe/Berlin.", typed=False)
    holidays: str | None = option(None, "Country or region whose public holidays are events.", typed=False)
    events: pd.DataFrame | None = field(default=None, compare=False, metadata={"typed": False})
    type_aliases: Aliases = option(None, "GPU types that count as another.", typed=False)
    installed_from: str = field(default="given", metadata={"typed": False, "recorded": False})

    def __post_init__(self) -> None:
        from gpudemand._validation import check_choice, check_number
        from gpudemand.forecast.events import Calendar, public_holidays
        from gpudemand.planning.need import wait_target
        from gpudemand.study import pools
        from gpudemand.usage.bins import parse_freq

        if self.by == "account":  # as Slurm calls it
            object.__setattr__(self, "by", "group")
        if self.tz is None:
            object.__setattr__(self, "tz", "UTC")
        check_choice("by", self.by, BY)
        parse_freq(self.freq)
        if self.horizon is not None:
            bins = check_number("horizon", self.horizon, 1, 100_000, integer=True)
            object.__setattr__(self, "horizon", int(bins))
        pools.check_installed(self.installed)
        check_number("target_utilization", self.target_utilization, 0, 1, open_low=True)
        check_number("service_level", self.service_level, 0.5, 0.999, open_low=True)
        pools.check_lead_times(self.lead_time)
        wait_target(self.wait or DEFAULT_WAIT, self.wait_share)
        check_number("availability", self.availability, 0, 1, open_low=True)
        pools.check_zone(self.tz)
        pools.check_prices(self.prices)
        pools.check_aliases(self.type_aliases)
        if self.events is not None:
            Calendar.of(self.events)
        if self.holidays is not None:
            public_holidays(self.holidays, _ANY_DAY, _ANY_DAY)

    @property
    def pool(self) -> str:
        """What is installed, ordered and paid for by name: a ``gpu_type``, or a ``cluster`` that is its own pool."""
        return "cluster" if self.cluster == EACH else "gpu_type"

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """Names of the clusters that were selected, ``("each",)`` if each is a pool of its own."""
        from gpudemand.study.pools import cluster_names

        return None if self.cluster is None else cluster_names(self.cluster)

    @property
    def end(self) -> pd.Timestamp:
        """End of the period, which a source of usage has stated, in the zone of the calendar."""
        import pandas as pd

        return pd.Timestamp(str(self.until)).tz_convert(self.tz)

    @property
    def knows_events(self) -> bool:
        """Whether events were stated, or a country of public holidays."""
        return self.events is not None or self.holidays is not None

    @property
    def stated_target(self) -> tuple[str, float]:
        """The wait and the share of jobs that are to start within it, as targets are named in tables."""
        return str(self.wait), self.wait_share

    @property
    def total_installed(self) -> float | pd.Series | None:
        """GPUs installed, summed over types, a number or a Series in time; None if not given."""
        from gpudemand.study.pools import total_installed

        return total_installed(self.installed)

    @property
    def longest_lead_time(self) -> str:
        """Lead time of all types together: an order may be of the one that takes longest.

        >>> Settings(lead_time={"A100": "60D", "H100": "20W"}).longest_lead_time
        '20W'
        """
        from gpudemand.units import parse_duration

        return (
            max(self.lead_time.values(), key=parse_duration) if isinstance(self.lead_time, Mapping) else self.lead_time
        )

    def with_pulled(self, attrs: Mapping[Any, object], names: Callable[[str], list[str]]) -> Settings:
        """These, with the GPUs of the nodes as they were pulled, where none are given and the data tell them."""
        from gpudemand.study.pools import pulled_installed

        if self.installed is not None:
            return self
        chosen = None if self.cluster == EACH else self.clusters
        found = pulled_installed(attrs, names, self.pool, chosen, self.type_aliases or {})
        return self if found is None else replace(self, installed=found, installed_from="pulled")

    def as_one_pool(self) -> Settings:
        """Parameters of all types together, where theirs by name do not apply; prices are then not known."""
        prices = None if isinstance(self.prices, Mapping) else self.prices
        return replace(self, installed=self.total_installed, lead_time=self.longest_lead_time, prices=prices)

    def of_one(self, name: str) -> Settings:
        """Parameters of one pool, such as a GPU type; what is installed of it is yet to be said.

        >>> one = Settings(lead_time={"A100": "60D", "H100": "7D"}, prices=(1.0, 2.0)).of_one("B200")
        >>> one.lead_time, one.prices
        ('60D', (1.0, 2.0))
        """
        lead_time, prices = self.lead_time, self.prices
        if isinstance(lead_time, Mapping):
            lead_time = lead_time.get(name, self.longest_lead_time)
        if isinstance(prices, Mapping):
            prices = prices.get(name)
        return replace(self, installed=None, lead_time=lead_time, prices=prices)
