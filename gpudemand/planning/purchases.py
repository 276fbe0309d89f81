"""Options of a purchase: fleets of several GPU types, the GPUs that they need, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_number, shorten
from gpudemand.jobs.times import parse_timestamp
from gpudemand.planning.capacity import check_lead_time
from gpudemand.planning.fleet_kernels import simulate_fleet
from gpudemand.planning.need import RESOLUTION, WINDOW_S, WaitTarget, Window
from gpudemand.planning.queue import fewest_of, fleet_of
from gpudemand.planning.queue_kernels import NEVER
from gpudemand.units import WEEK, parse_duration

HOURS_A_YEAR = 8766.0
#: Times the work beyond which nothing is looked for.
_MOST_WORK = 1e4
#: Of a number, its least and its greatest value that it must not have.
_LIMITS = {
    "gpus": (0, np.inf, False),
    "price": (0, np.inf, False),
    "price_hour": (0, np.inf, False),
    "years": (0, 50, True),
    "overhead": (0, 10, False),
    "price_kwh": (0, np.inf, False),
    "pue": (1, 10, False),
    "rent_price": (0, np.inf, False),
    "interrupted": (0, 0.99, False),
}
#: Of numbers by name, an example.
_BY_NAME = {"largest": '{"A100": 8}', "mix": '{"vision_small": 1.0}'}


@dataclass(frozen=True)
class Purchase:
    """A change of a fleet: what is bought, reserved or rented, and which of the old GPUs are kept.

    Prices are in any currency, the same for all options; without them, nothing is said of money.

    Parameters
    ----------
    buy : str, optional
        GPU type that is bought or reserved; nothing by default.
    gpus : float, optional
        How many; by default the fewest with which jobs start in time, or, beside GPUs that are rented for peaks, the
        number that costs least.
    price : float, optional
        Of one, with its share of the server.
    years : float, optional
        Over which the price is spread.
    overhead : float, default=0.0
        Rack, network and staff: cost a year as a share of the price.
    price_hour : float, optional
        Of one that is reserved, an hour, busy or not.
    power_w : float or mapping of str to float, optional
        Power of one with its share of the server while it is busy, of the type that is bought, or by type; by default
        that of data sheets, of the board alone. A type without one needs it where energy has a price.
    idle_power_w : float or mapping of str to float, optional
        The same while it is idle; by default as busy.
    price_kwh : float, optional
    pue : float, default=1.0
        Power of the data centre over that of its machines.
    upkeep : float, default=0.0
        Cost a year of each old GPU that is kept, beside its energy.
    retire : sequence of str, or mapping of str to str, default=()
        Types whose GPUs leave as those that are bought arrive, or on a date (in the zone of the study where it names
        none); by default all stay. Numbers and costs are
        of the time when all have left.
    largest : mapping of str to float, optional
        GPU type -> largest job that it is kept for, in GPUs.
    moves : bool, default=True
        Whether jobs take any type that they fit on, the fastest first; or else their own wherever there is one.
    rent : str, optional
        GPU type that is rented, without limit, for jobs that have waited as long as they may: all start in time then,
        more than the target asks for.
    rent_price : float, optional
        Of a rented GPU-hour.
    interrupted : float in [0, 1), default=0.0
        Share of rented GPU-hours whose work is lost, as of spot instances, and done again.
    elastic : float or mapping of str to float, optional
        Share of its GPUs that a job can start on, where it runs for as much longer, of all jobs, or by group, partition
        or user; by default jobs wait for all.
    interruptible : mapping of str to str, optional
        Group, partition or user -> time of work that its jobs lose each time they are stopped: they come after all
        others, which take their GPUs, and go on later. By default no job is stopped.
    speed : float or (float, float, float), optional
        Run time on the type that is bought relative to that in the log, with its 90 % interval; predicted by default.
    mix : mapping of str to float, optional
        Share of GPU-hours by kind of network (``vision_small``, ``language_large``; see `mix_ratios`), for the speed of
        types that the log does not show; where none is stated, its interval is wider.
    lead_time : str, optional
        From the order to the first use; by default that of the study.

    Examples
    --------
    >>> more = Purchase(buy="H100", price=30_000, years=4, overhead=0.1, power_w=1_000, price_kwh=0.2, pue=1.25)
    >>> round(more.cost_of_one())
    10500
    """

    buy: str | None = None
    gpus: float | None = None
    price: float | None = None
    years: float | None = None
    overhead: float = 0.0
    price_hour: float | None = None
    power_w: float | Mapping[str, float] | None = None
    idle_power_w: float | Mapping[str, float] | None = None
    price_kwh: float | None = None
    pue: float = 1.0
    upkeep: float = 0.0
    retire: Sequence[str] | Mapping[str, Any] = ()
    largest: Mapping[str, float] = field(default_factory=dict)
    moves: bool = True
    rent: str | None = None
    rent_price: float | None = None
    interrupted: float = 0.0
    elastic: float | Mapping[str, float] | None = None
    interruptible: Mapping[str, str] = field(default_factory=dict)
    speed: float | tuple[float, float, float] | None = None
    mix: Mapping[str, float] | None = None
    lead_time: str | None = None

    def __post_init__(self) -> None:
        for name, (low, high, open_low) in _LIMITS.items():
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), low, high, open_low=open_low)
        for name in ("power_w", "idle_power_w"):
            given = getattr(self, name)
            for watts in given.values() if isinstance(given, Mapping) else [given or 0.0]:
                check_number(name, watts, 0)
        if isinstance(self.retire, str):
            object.__setattr__(self, "retire", (self.retire,))
        self._check_names()
        if self.lead_time is not None:
            check_lead_time(self.lead_time)
        shares = self.elastic if isinstance(self.elastic, Mapping) else {"all jobs": self.elastic}
        for name, share in shares.items():
            if share is not None:
                check_number(f"elastic of {name!r}", share, 0, 1, open_low=True)
        self.lost_s  # noqa: B018 (raises)
        self.retired_on()
        self._check_together()

    def _check_names(self) -> None:
        if not isinstance(self.retire, (Mapping, Sequence)) or not all(isinstance(name, str) for name in self.retire):
            raise InputError(f"retire must hold names of GPU types; got {shorten(repr(self.retire))}.")
        for name, example in _BY_NAME.items():
            if not isinstance(getattr(self, name) or {}, Mapping):
                raise InputError(
                    f"{name} must be a mapping, such as {example}; got {shorten(repr(getattr(self, name)))}."
                )
            for key, number in (getattr(self, name) or {}).items():
                check_number(f"{name} of {key!r}", number, 0)

    def _check_together(self) -> None:
        if self.buy is None and (self.gpus is not None or self.price is not None or self.price_hour is not None):
            raise InputError('a number of GPUs, or their price, needs the type that is bought, such as buy="H100".')
        if self.price is not None and self.price_hour is not None:
            raise InputError("GPUs have a price (bought, over years) or a price_hour (reserved), not both.")
        if (self.price is None) != (self.years is None):
            raise InputError("price, of what is bought, and years, over which it is spread, need each other.")
        if self.rent is None and self.rent_price is not None:
            raise InputError('rent_price needs the type that is rented, such as rent="H100".')
        if self.speed is not None:
            self.run_time  # noqa: B018 (raises)

    @staticmethod
    def applies(name: str, given: Mapping[str, Any]) -> bool:
        """Whether a parameter that options have in common concerns one with these others.

        >>> Purchase.applies("years", {"buy": "H100", "price": 1.0}), Purchase.applies("years", {"rent": "H100"})
        (True, False)
        """
        needed = {"years": "price", "rent_price": "rent", "interrupted": "rent"}.get(name)
        return needed is None or needed in given

    @property
    def lost_s(self) -> dict[str, float]:
        """Seconds of work lost by a stop, by group, partition or user."""
        if not isinstance(self.interruptible, Mapping):
            raise InputError(
                'interruptible names groups, partitions or users and the work that a stop costs, such as {"batch": '
                '"30min"}.'
            )
        return {str(name): parse_duration(lost).total_seconds() for name, lost in self.interruptible.items()}

    def retired_on(self, tz: object = "UTC") -> dict[str, pd.Timestamp]:
        """Types that leave, and when; NaT as those that are bought arrive. `tz`: of dates without a zone."""
        if not isinstance(self.retire, Mapping):
            return dict.fromkeys(self.retire, pd.NaT)
        return {name: parse_timestamp(date, tz, "retire") for name, date in self.retire.items()}

    @property
    def run_time(self) -> tuple[float, float, float] | None:
        """Stated run time, relative to that in the log, and its 90 % interval."""
        if self.speed is None:
            return None
        given = tuple(self.speed) if isinstance(self.speed, (tuple, list)) else (self.speed,) * 3
        for each in given:
            check_number("speed", each, 0, open_low=True)
        if len(given) != 3 or not given[1] <= given[0] <= given[2]:
            raise InputError(f"speed must be one number, or (ratio, low, high); got {shorten(repr(self.speed))}.")
        return float(given[0]), float(given[1]), float(given[2])

    @property
    def has_prices(self) -> bool:
        """Whether everything that the option pays for has a price."""
        paid = self.buy is None or self.price is not None or self.price_hour is not None
        return paid and (self.rent is None or self.rent_price is not None)

    def cost_of_one(self) -> float:
        """Cost a year of one GPU that is bought or reserved, without energy."""
        if self.price is not None and self.years is not None:
            return self.price / self.years + self.price * self.overhead
        return (self.price_hour or 0.0) * HOURS_A_YEAR

    def watts(self, gpu_type: str, board_w: float) -> tuple[float, float]:
        """Power of one GPU of a type, busy and idle; `board_w` where none is stated."""
        busy = _of_type(self.power_w, gpu_type, self.buy, board_w)
        return busy, _of_type(self.idle_power_w, gpu_type, self.buy, busy)


def _of_type(given: float | Mapping[str, float] | None, gpu_type: str, bought: str | None, otherwise: float) -> float:
    if isinstance(given, Mapping):
        return float(given.get(gpu_type, otherwise))
    return otherwise if given is None or gpu_type != bought else float(given)


class FleetOutcome(NamedTuple):
    """What the jobs of a window met: the share in time, and mean GPUs busy, by type, and rented."""

    share_in_time: float
    busy: FloatArray
    rented: float


@dataclass(frozen=True, eq=False)
class FleetWindow:
    """Jobs of a window on a fleet: what each takes of each type, and for how long."""

    window: Window
    target: WaitTarget
    types: tuple[str, ...]  # of GPUs
    run_time: FloatArray  # (n_jobs, n_types), relative to that in the log
    spread: FloatArray  # (n_jobs, n_types), standard deviation of the logarithm of its error, which all jobs share
    cards: FloatArray  # (n_jobs, n_types), GPUs in the place of one, infinite where a job may not run
    kind: IntArray  # as of `Fleet`
    order: IntArray  # as of `Fleet`
    rented: FloatArray  # (n_jobs,), run time on rented GPUs, NaN where none are
    least: FloatArray | float = 1.0  # (n_jobs,), share of its GPUs that a job can start on
    lost_s: FloatArray | None = None  # (n_jobs,), work lost by a stop, NaN for jobs that none stops

    @property
    def mean_work(self) -> float:
        """Mean GPUs that its jobs take, as long as they ran in the log."""
        jobs, counted = self.window.jobs, self.window.counted
        return float((jobs.gpus * jobs.run)[counted].sum()) / 1e6 / WINDOW_S

    def outcome(self, capacity: FloatArray, work: float = 1.0, deviation: float = 0.0) -> FleetOutcome:
        """Simulate the queue on some GPUs of each type.

        `work`: jobs come so many times as fast. `deviation`: standard deviations that run times are above expected.
        """
        jobs = self.window.jobs._replace(submit=np.round(self.window.jobs.submit / work).astype(np.int64))
        ratios = self.run_time * np.exp(deviation * self.spread)
        able, cards, ratios = self._within(capacity, ratios)
        least, lost = np.reshape(self.least, (-1, 1)), None if self.lost_s is None else 1e6 * self.lost_s
        fleet = fleet_of(jobs, capacity, ratios, self.kind, self.order, cards, least, lost)
        patience = NEVER if np.isnan(self.rented).all() else round(1e6 * self.target.wait_s)
        week_s, n_types = WEEK.total_seconds(), len(self.types)
        begin, end = (int(1e6 * seconds / work) for seconds in (week_s, week_s + WINDOW_S))
        found = simulate_fleet(fleet, jobs.submit, patience, (begin, end))
        began = (found.starts < NEVER) & (able | (found.types == n_types))
        waits = np.where(began, (found.starts - jobs.submit) / 1e6, np.inf)[self.window.counted]
        away = (found.types == n_types) & self.window.counted
        rented = float((jobs.gpus * jobs.run * np.nan_to_num(self.rented))[away].sum())
        in_time = self.target.share_in_time(self.window, waits)
        return FleetOutcome(in_time, found.busy / (end - begin), rented / (end - begin))

    def able(self, capacity: FloatArray) -> BoolArray:
        """Jobs that can start on some GPUs of each type, shape (n_jobs,)."""
        gpus = self.window.jobs.gpus[:, None] * self.cards
        return np.asarray(np.isfinite(fewest_of(gpus, np.reshape(self.least, (-1, 1)), capacity)).any(axis=1))

    def _within(self, capacity: FloatArray, ratios: FloatArray) -> tuple[BoolArray, FloatArray, FloatArray]:
        """Jobs that can start, and cards and run times: others take all of a type, as in `Window.waits_s`."""
        able, cards = self.able(capacity), self.cards.copy()
        rows = np.flatnonzero(~able & np.isnan(self.rented))  # others run on rented GPUs
        gpus = self.window.jobs.gpus[rows, None]
        if not len(rows):
            return able, cards, ratios
        there = np.isfinite(cards[rows]) & np.isfinite(ratios[rows]) & (capacity >= 1.0)
        longer = np.full(there.shape, np.inf)
        longer[there] = (ratios[rows] * gpus * np.where(there, cards[rows], 1.0) / np.maximum(capacity, 1.0))[there]
        on, places = longer.argmin(axis=1), np.arange(len(rows))
        known = np.isfinite(longer[places, on])
        cards[rows] = np.inf
        cards[rows[known], on[known]] = (capacity[on] / gpus[:, 0])[known]
        ratios = ratios.copy()
        ratios[rows[known], on[known]] = longer[places, on][known]
        return able, cards, ratios


def work_that_needs(window: Window, target: WaitTarget, gpus: float, guess: float) -> float:
    """How many times as fast the jobs of a window may come for a number of today's GPUs to suffice, within 0.2 %."""

    def suffices(work: float) -> bool:
        jobs = window.jobs._replace(submit=np.round(window.jobs.submit / work).astype(np.int64))
        faster = window._replace(jobs=jobs)
        return target.is_met(faster, gpus)

    low, high, step = 0.0, guess, 1.05
    while suffices(high) and high < _MOST_WORK:
        low, high, step = high, high * step, min(step**2, 4.0)
    while not low:
        below = high / step
        if suffices(below) or below < 1.0 / _MOST_WORK:
            low = below
        else:
            high, step = below, min(step**2, 4.0)
    while high > (1.0 + RESOLUTION) * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if suffices(middle) else (low, middle)
    return low


def least(is_met: Callable[[int], bool], guess: int, most: int) -> int:
    """Least number, within `RESOLUTION` of it, for which something holds that holds for all larger ones."""
    # Far below the answer queues grow all the time, and take the longest to simulate: from the guess outwards.
    low, high = 0, max(guess, 1)
    step = 1.05
    while not is_met(high):
        if high >= most:
            raise InputError(
                "however many GPUs it buys, too few jobs start in time: they may not run on that type, or are "
                "larger than what is there; see `largest`, `retire` and `moves`."
            )
        low, high, step = high, min(max(int(high * step), high + 1), most), min(step**2, 2.0)
    step = 1.05
    while low == 0 and high > 1:
        below = max(int(high / step), 1)
        low, high = (low, below) if is_met(below) else (below, high)
        step = min(step**2, 2.0)
    if high == 1:
        return int(not is_met(0))
    while high - low > max(1, RESOLUTION * high):
        middle = (low + high) // 2
        low, high = (low, middle) if is_met(middle) else (middle, high)
    return high
