"""`compare_purchases`: which GPUs to buy, or whether to rent the peaks, from the jobs of a study."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
from joblib import cpu_count
from scipy.stats import norm

from gpudemand._array import STRING, FloatArray, IntArray
from gpudemand._validation import InputError, nearest, shorten, spelled, told
from gpudemand.planning.capacity import broadcast_by_time
from gpudemand.planning.need import WINDOW
from gpudemand.planning.purchases import HOURS_A_YEAR, FleetOutcome, FleetWindow, Purchase, least
from gpudemand.planning.quantiles import Z95
from gpudemand.study.pools import UNKNOWN, installed_changes
from gpudemand.study.speeds import RunTimes, Speeds, of_device
from gpudemand.study.usage_tables import usual_most_held, whole_gpus
from gpudemand.units import format_number_of, parse_duration, plural

if TYPE_CHECKING:
    from gpudemand.study.study import Study

_T = TypeVar("_T")
#: Quantiles of the need, and deviations of run times, between which numbers of GPUs are interpolated.
_NEEDS, _DEVIATIONS = np.array([0.05, 0.5, 0.95]), np.array([-Z95, 0.0, Z95])
#: Equally likely needs over which outcomes are averaged, and deviations.
_LIKELY, _Z = (np.arange(10) + 0.5) / 10, norm.ppf((np.arange(21) + 0.5) / 21)
#: Probability that may be beyond the one promised: numbers of GPUs are interpolated.
_TOLERATED = 0.03
#: GPUs of a type of which there are none: the queue divides by them.
_NONE = 1e-9
#: What prices are changed by where no range of theirs is known.
_PRICE_CHANGE = 0.1
#: Columns whose names tell whose jobs are meant.
_WHO = ("group", "partition", "user")
#: Inputs that are the same for all options.
_SHARED = ("work", "price_kwh")
#: Multiples of the work between which an option that wins later is looked for.
_WORK = np.array([0.5, 0.75, 1.0, 1.5, 2.0])


@told("Comparing purchases")
def compare_purchases(
    study: Study,
    options: Mapping[str, Purchase | Mapping[str, Any]],
) -> pd.DataFrame:
    """Compare purchases by the GPUs that they need for the same target for waits, their cost and their energy.

    The jobs of the last four weeks are queued again on the fleet of each option, and come as much faster as they must
    for the GPUs that the study requires of today's types to be needed. On another type they run as much longer or
    shorter as the log shows for the same work, or else as is predicted for their networks, or for a reference mix of
    networks (`mix_ratios`); jobs of a fixed length stay as long as they are. Jobs of known networks that do not fit on
    a card, and all jobs on one that is smaller than any of the log, stay on their type where that is kept, or take more
    cards. Of what is installed, the fewest count that are there at once in the four weeks after the arrival of an order
    of now; what is known to come or leave later does not.

    Of a type that is there already, about as many are bought as the study orders: the queue is searched once for
    the work that needs so many GPUs, and once for the GPUs that this work needs, and each jumps by about one percent.

    Parameters
    ----------
    study : Study
        Of a job log.
    options : mapping of str to Purchase or mapping
        Name -> option, or its parameters.

    Returns
    -------
    DataFrame
        A row an option: ``option``; ``to_buy`` (GPUs) with its 90 % interval (``-lo-90``, ``-hi-90``: of what will have
        been needed), ``gpus_`` and each type: GPUs there; ``order_by`` and ``order_arrives``, a lead time later (NaT
        for nothing to order); ``run_time`` (on the type that is bought, relative to that in the log) with its interval,
        and ``run_time_from``; ``risk`` (probability that the target for waits is missed), ``late_share`` (of the jobs),
        ``idle_share`` (of the GPU-hours there); ``rented_gpu_hours`` and ``energy_mwh`` a year (NaN where the power of
        a type is not known: ``power_w``, which a price of energy needs); ``cost_year``, ``cost`` (over the longest time
        over which an option spreads its price, or a year) with their 90 % intervals, of all that is paid from now on,
        and ``cost_gpu_hour`` of an hour of work as the log counts it. Money is missing where a price is.
        ``attrs["notes"]``: sentences on what is left out or taken for granted.

    Raises
    ------
    InputError
        For usage without jobs, clusters that are pools of their own, unknown types and options that cannot be met.

    Examples
    --------
    >>> from gpudemand import Study
    >>> from gpudemand.datasets import make_cluster
    >>> jobs, _ = make_cluster(n_users=8, n_days=60, random_state=0)
    >>> study = Study(jobs.assign(gpu_type="A100"), installed=16, lead_time="28D")
    >>> same = {"price": 10_000, "years": 4}
    >>> options = {"as now": {"buy": "A100", **same}, "twice as fast": {"buy": "H100", "speed": 0.5, **same}}
    >>> found = compare_purchases(study, options).set_index("option")
    >>> bool(found.loc["twice as fast", "to_buy"] < found.loc["as now", "to_buy"])
    True
    """
    return PurchaseComparison(study, options).table


class PurchaseComparison:
    """Options of a purchase side by side, what decides between them, and where another one begins to win."""

    def __init__(self, study: Study, options: Mapping[str, Purchase | Mapping[str, Any]]) -> None:
        if not hasattr(type(study), "need"):
            raise InputError(f"study must be a Study; got {type(study).__name__}.")
        if study.need.target is None or study.need.forecast.window is None or not study.need.forecast.last:
            raise InputError("purchases are compared by queues of jobs, and this study has none.")
        if study.settings.pool == "cluster":
            raise InputError(
                "purchases are compared for one pool of GPUs, and each cluster is one of its own here; study one of "
                "them (cluster=), or all of them as one."
            )
        purchases = check_options(options)
        check_types(study, purchases)
        self.years = max(each.years or 0.0 for each in purchases.values()) or 1.0
        speeds = Speeds(study)
        self.options = [Option(name, study, purchase, speeds) for name, purchase in purchases.items()]

    @cached_property
    def table(self) -> pd.DataFrame:
        """See `compare_purchases`."""
        rows = _each(lambda option: option.row(self.years), self.options)
        types = dict.fromkeys(name for row in rows for name in row if name.startswith("gpus_"))
        rows = [dict.fromkeys(types, 0.0) | row for row in rows]
        table = pd.DataFrame(rows)
        first = ["option", "to_buy", "to_buy-lo-90", "to_buy-hi-90", *types]
        table = table[[*first, *table.columns.difference(first, sort=False)]]
        zone = self.options[0].log_end.tz
        for name in ("order_by", "order_arrives"):
            table[name] = pd.Series([row[name] for row in rows], dtype=pd.DatetimeTZDtype("ns", zone))
        table = table.astype({"option": STRING, "run_time_from": STRING})
        table.attrs["notes"] = list(self._notes())
        return table

    def _notes(self) -> Iterator[str]:
        """What the table leaves out or takes for granted, in sentences."""
        study, until = self.options[0].study, self.options[0].counted_until
        by_type = isinstance(study.settings.installed, Mapping) and len(study.source.names("gpu_type")) > 1
        if by_type and any(option.purchase.moves for option in self.options):
            yield (
                "Jobs are taken to move to any GPU type that they fit on, where an order by type counts each type for "
                "itself; moves = false keeps them on their own."
            )
        if installed_changes(study.settings.installed, until, study.requirement.end):
            yield f"GPUs that come or leave later than {until:%Y-%m-%d} are not counted."
        for option in self.options:
            if option.to_buy and option.order_arrives > option.needed:
                yield (
                    f"{shorten(option.name)}: its GPUs are there on {option.order_arrives:%Y-%m-%d}, and missing from "
                    f"{option.needed:%Y-%m-%d} until then, which neither its risk nor its cost counts."
                )
            if option.too_large:
                largest = max(option.too_large)
                yield (
                    f"{shorten(option.name)}: {format_number_of('job', len(option.too_large))} of up to {largest:g} "
                    f"{plural('GPU', largest)} in the last four weeks can never start on it, as no GPU type that they "
                    "may take has so many; they count as late."
                )

    @cached_property
    def decides(self) -> pd.DataFrame:
        """Cost a year of each option as one input at a time is at the end of its range, the others as in the table.

        ``low`` and ``high`` are what the input is changed to, ``cost-low`` and ``cost-high`` NaN where a number of GPUs
        that the option states misses the target for waits then.
        """
        self._check_prices()
        return pd.DataFrame([row for rows in _each(Option.changes, self.options) for row in rows])

    @cached_property
    def break_even(self) -> pd.DataFrame:
        """From which amount of work, and up to which price of its GPU, another option costs less than the cheapest one.

        Options that miss the target for waits more often than the study allows are no rivals, nor are they at more work
        where the number of GPUs that they state misses it then (``attrs["notes"]``). ``work``: multiple of the work
        expected, between .5 and 2; ``price``: of one GPU, or an hour of it, above 0. NaN if at none.
        """
        self._check_prices()
        columns = ["option", "against", "work", "price"]
        rivals = [option for option in self.options if option.keeps_promise]
        if len(rivals) < 2:
            return pd.DataFrame(columns=columns)
        by_work = dict(zip((each.name for each in rivals), _each(Option.cost_by_work, rivals), strict=True))
        cheapest = min(rivals, key=lambda option: option.row(self.years)["cost_year"])
        rows = []
        for option in rivals:
            if option is not cheapest:
                gap = by_work[option.name] - by_work[cheapest.name]
                price = option.price_at(cheapest.row(self.years)["cost_year"])
                rows.append((option.name, cheapest.name, _crossing(_WORK, gap), price))
        table = pd.DataFrame(rows, columns=columns)
        table.attrs["notes"] = [
            f"{shorten(option.name)} misses the target for waits at {_WORK[missed][0]:.3g} times the work."
            for option in rivals
            if (missed := ~np.array([option.holds(multiple) for multiple in _WORK])).any()
        ]
        return table

    @cached_property
    def lead(self) -> pd.DataFrame:
        """What decides: by how much a year the cheapest option is ahead of the next, one input changed at a time.

        Below 0, the next one costs less; NaN where the number of GPUs that one of them states misses the target for
        waits. Work and the price of energy change for both options at once. The input that moves it most is first;
        ``attrs`` has the names ``cheapest`` and ``next``.
        """
        self._check_prices()
        rivals = sorted(filter(attrgetter("keeps_promise"), self.options), key=lambda each: each.row(1.0)["cost_year"])
        if len(rivals) < 2:
            raise InputError(
                "fewer than two of the options keep the target for waits, so nothing decides between them."
            )
        first, second = ({row["input"]: row for row in rows} for rows in _each(Option.changes, rivals[:2]))
        rows = []
        for name in dict.fromkeys([*first, *second]):
            is_shared = name in _SHARED and name in first and name in second
            for option, own in (("", first),) if is_shared else ((rivals[0].name, first), (rivals[1].name, second)):
                if name in own:
                    costs = [_costs(each, name if is_shared or each is own else None) for each in (first, second)]
                    label = f"{name} of {option}" if option else name
                    rows.append((label, own[name]["low"], own[name]["high"], *(costs[1] - costs[0])))
        table = pd.DataFrame(rows, columns=["input", "low", "high", "lead", "lead-low", "lead-high"])
        width = (table["lead-high"] - table["lead-low"]).abs().fillna(np.inf)  # an option is no longer one
        table = table.loc[width.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)
        table.attrs = {"cheapest": rivals[0].name, "next": rivals[1].name}
        return table

    def _check_prices(self) -> None:
        lacking = [option.name for option in self.options if not option.purchase.has_prices]
        if lacking:
            raise InputError(f"option {lacking[0]!r} has no price, so nothing is said of money.")


def _each(function: Callable[[Option], _T], options: Sequence[Option]) -> list[_T]:
    """Results of a function of options, side by side: most of it are queues, which run without Python's lock."""
    for option in options:  # what they have in common is found once
        _ = option.fleet
    with ThreadPoolExecutor(min(cpu_count(), len(options))) as pool:
        return list(pool.map(function, options))


def _costs(changes: Mapping[str, Mapping[str, Any]], name: str | None) -> FloatArray:
    """Cost a year of an option, and at both ends of an input; without one, it stays."""
    row = changes["work" if name is None else name]
    return np.array([row["cost"]] * 3 if name is None else [row["cost"], row["cost-low"], row["cost-high"]])


def check_options(options: Mapping[str, Purchase | Mapping[str, Any]]) -> dict[str, Purchase]:
    """Options by name, from their parameters where these are given."""
    if not isinstance(options, Mapping) or not options:
        raise InputError('options must be a mapping of names to Purchase, such as {"more": Purchase(buy="H100")}.')
    known, found = [each.name for each in fields(Purchase)], {}
    for name, given in options.items():
        if isinstance(given, Mapping):
            for key in given:
                if key not in known:
                    hint = nearest(str(key), known)
                    raise InputError(f"option {name!r} has no {shorten(str(key))!r}.{hint} It has {', '.join(known)}.")
            try:
                given = Purchase(**given)
            except InputError as error:
                raise InputError(f"option {name!r}: {error}") from error
        if not isinstance(given, Purchase):
            raise InputError(f"option {name!r} must be a Purchase, or a mapping of its parameters.")
        found[str(name)] = given
    return found


def check_types(study: Study, purchases: Mapping[str, Purchase]) -> None:
    """Check that names of GPU types are those of the log, of what is installed, or of what is known otherwise."""
    given, logged = study.settings.installed, study.source.names("gpu_type")
    there = {*(logged or [UNKNOWN]), *(map(str, given) if isinstance(given, Mapping) else ())}
    for name, purchase in purchases.items():
        for named, speed in ((purchase.buy, purchase.speed), (purchase.rent, None)):
            if named is None or named in there:
                continue
            _check_spelling(f"option {name!r}", named, there)
            if speed is None and logged and np.isnan(of_device(named, "memory_gib")):
                raise InputError(
                    f"option {name!r} names the type {shorten(named)!r}, which neither the log nor a data sheet "
                    f"knows.{nearest(named, there)} Correct it, state the speed of what is bought, or add a data sheet "
                    "with save_device (in the shell a row in data/devices.csv)."
                )
    known = there | {str(named) for each in purchases.values() for named in (each.buy, each.rent)}
    for name, purchase in purchases.items():
        for field in ("power_w", "idle_power_w"):
            powers = getattr(purchase, field)
            for named in powers if isinstance(powers, Mapping) else ():
                if named not in known:
                    raise InputError(
                        f"option {name!r}: {field} names the type {shorten(named)!r}, which is neither there nor "
                        f"bought by any option.{nearest(named, known)}"
                    )


def _check_spelling(what: str, named: str, known: Iterable[str]) -> None:
    """Raise for a name that differs from a known one by case, spaces or hyphens only."""
    for other in known:
        if other != named and spelled(other) == spelled(named):
            raise InputError(f"{what} names the type {shorten(named)!r}, which is {other!r} elsewhere; write it so.")


def _crossing(at: FloatArray, gap: FloatArray) -> float:
    """Where a difference changes its sign, the place nearest to 1; NaN if nowhere."""
    turns = np.flatnonzero(gap[:-1] * gap[1:] < 0)
    where = at[turns] - gap[turns] * (at[turns + 1] - at[turns]) / (gap[turns + 1] - gap[turns])
    return float(where[np.argmin(np.abs(np.log(where)))]) if len(where) else float("nan")


class _Cached(cached_property[_T]):
    """A cached property without the lock, of all objects of a class, that one has before Python 3.12."""

    def __init__(self, function: Callable[[Any], _T]) -> None:
        super().__init__(function)
        self.lock = nullcontext()


class Option:
    """One option: its fleet when the fewest are installed after the study's order arrives, and the GPUs it needs."""

    def __init__(self, name: str, study: Study, purchase: Purchase, speeds: Speeds) -> None:
        self.name, self.study, self.purchase, self._speeds = name, study, purchase, speeds
        self.log_end = study.need.log_end.tz_convert(study.settings.tz)
        self.arrival = self.log_end + study.need.lead_time
        self.counted_until = self.arrival + WINDOW
        self.lead_time = study.need.lead_time if purchase.lead_time is None else parse_duration(purchase.lead_time)
        self._known: dict[Any, Any] = {}

    @_Cached
    def kept(self) -> dict[str, float]:
        """GPUs that are there when the fewest are in the four weeks planned for, by type, the bought one last."""
        there = installed_by_type(self.study, self.study.requirement.when_fewest(self.arrival, self.counted_until))
        for name in [*self.purchase.retire, *self.purchase.largest]:
            if name not in there and name != self.purchase.buy:
                raise InputError(
                    f"option {self.name!r} names the type {name!r}, and none of it is installed."
                    f"{nearest(name, there)} Installed are {', '.join(there) or 'none'}."
                )
        kept = {name: 0.0 if name in self.purchase.retire else gpus for name, gpus in there.items()}
        if self.purchase.buy is not None:
            kept[self.purchase.buy] = kept.pop(self.purchase.buy, 0.0)
        kept = {name: gpus for name, gpus in kept.items() if gpus or name == self.purchase.buy}
        self._check_power(kept)
        return kept

    @_Cached
    def fleet(self) -> FleetWindow:
        """Jobs of the last window on the types of the option."""
        need, types = self.study.need, tuple(self.kept)
        assert need.forecast.window is not None
        assert need.target is not None
        if not types:
            raise InputError(f"option {self.name!r} leaves no GPUs at all: it buys none and retires all.")
        found, own = self._run_times, self._own
        kinds, kind = np.unique(own, return_inverse=True)
        order = np.array([_preferred(found.ratio[kind == place]) for place in range(len(kinds))])
        rented = np.full(len(own), np.nan)
        if self.purchase.rent is not None:
            rented = self._ratios(self.purchase.rent, None)[0]
        least, lost_s = self._of_jobs("elastic", 1.0), self._of_jobs("lost_s", np.nan)
        return FleetWindow(
            need.forecast.window,
            need.target,
            types,
            found.ratio,
            found.spread,
            found.cards,
            kind,
            order,
            rented,
            least,
            None if np.isnan(lost_s).all() else lost_s,
        )

    def _of_jobs(self, name: str, otherwise: float) -> FloatArray:
        """Number of each job, of what the option says for all, or by group, partition or user."""
        given, jobs = getattr(self.purchase, name), self._speeds.jobs
        if not isinstance(given, Mapping):
            return np.full(len(jobs), otherwise if given is None else float(given))
        found = np.full(len(jobs), otherwise)
        for who, number in given.items():
            column = self._named(str(who))
            found[(jobs[column].astype(object) == who).to_numpy(dtype=bool, na_value=False)] = number
        return found

    def _named(self, who: str) -> str:
        """Column of the log that has a name."""
        names = {column: self.study.source.names(column) for column in _WHO}
        for column, known in names.items():
            if who in known:
                return column
        hint = nearest(who, [name for known in names.values() for name in known])
        raise InputError(
            f"option {self.name!r} names {shorten(who)!r}, which is no group, partition or user of the log.{hint}"
        )

    @_Cached
    def _own(self) -> Any:
        return own_types(self._speeds.jobs, self.kept)

    @_Cached
    def _run_times(self) -> RunTimes:
        shape = len(self._own), len(self.kept)
        ratio, spread, cards, source = np.ones(shape), np.zeros(shape), np.ones(shape), "the log"
        for place, name in enumerate(self.kept):
            stated = self.purchase.run_time if name == self.purchase.buy else None
            ratio[:, place], spread[:, place], told = self._ratios(name, stated)
            cards[:, place] = self._cards(name)
            source = told if name == self.purchase.buy else source
        return RunTimes(np.where(np.isinf(cards), np.nan, ratio), spread, cards, source)

    def _ratios(self, name: str, stated: tuple[float, float, float] | None) -> tuple[FloatArray, FloatArray, str]:
        """Run times of jobs on a type relative to those in the log, the spread of their errors, and where from."""
        own, fixed = self._own, self._speeds.fixed
        ratio, spread, told = np.ones(len(own)), np.zeros(len(own)), "the log"
        for source in np.unique(own[own != name]):
            rows = np.flatnonzero(own == source)
            if stated is not None:
                found, low, high = stated
                ratio[rows], spread[rows], told = found, math.log(high / low) / (2 * Z95), "stated"
            else:
                ratio[rows], spread[rows], told = self._speeds.ratios(rows, str(source), name, self.purchase.mix)
        return np.where(fixed, 1.0, ratio), np.where(fixed, 0.0, spread), told

    def _cards(self, name: str) -> FloatArray:
        """GPUs of a type that take the place of one of a job's, infinite where it may not run there."""
        jobs, own, measured = self._speeds.jobs, self._own, self._speeds.measured
        cards, memory = np.ones(len(jobs)), of_device(name, "usable_memory_gib")
        stays = np.isin(own, [each for each, gpus in self.kept.items() if gpus and each != name])
        # What is not known of a job is taken to fit where any job of the log ran, as one pool of all types takes it.
        smallest = np.fmin.reduce([of_device(str(source), "usable_memory_gib") for source in np.unique(own)])
        if smallest > memory:
            cards[own != name] = math.ceil(smallest / memory - 1e-9)
        known = measured.knows(jobs)
        if known.any():
            there = jobs[known].assign(gpu_type=pd.array([name] * int(known.sum()), dtype=STRING))
            costs = measured.costs(there)
            more = np.maximum(np.ceil(costs["memory_gib"].to_numpy() / memory), 2.0)
            cards[known] = np.where(costs["fits"].to_numpy() >= 0.5, 1.0, more)
        may_not = (cards > 1) & stays if self.purchase.moves else stays
        small = jobs["gpus"].to_numpy() <= self.purchase.largest.get(name, np.inf)
        return np.where((may_not & (own != name)) | ~small, np.inf, cards)

    @_Cached
    def works(self) -> FloatArray:
        """Equally likely amounts of work as the order arrives, in those of the last window, ascending."""
        return self.study.need.works(self.arrival)

    def outcome(self, bought: float, work: float, deviation: float = 0.0) -> FleetOutcome:
        """What jobs meet where so many GPUs are bought and there is so much work."""
        place = bought, work, deviation
        if place not in self._known:
            there = self._capacity(bought) * self.study.settings.availability
            self._known[place] = self.fleet.outcome(there, work, deviation)
        found: FleetOutcome = self._known[place]
        return found

    @_Cached
    def too_large(self) -> list[float]:
        """GPUs of the jobs that count and can never start on what will be there."""
        if self.purchase.rent is not None:
            return []
        window = self.fleet.window
        there = self._capacity(self.to_buy) * self.study.settings.availability
        return list(window.jobs.gpus[window.counted & ~self.fleet.able(there)])

    def _capacity(self, bought: float) -> FloatArray:
        there = np.array(list(self.kept.values()))
        if self.purchase.buy is not None:
            there[-1] += bought
        return np.maximum(there, _NONE)

    @_Cached
    def _numbers(self) -> FloatArray:
        """Fewest GPUs to buy, by quantile of the work and deviation of run times."""
        works = np.quantile(self.works, _NEEDS)
        numbers, guess = np.zeros((len(works), len(_DEVIATIONS))), 0
        for row, work in enumerate(works):
            for column, deviation in enumerate(_DEVIATIONS):
                guess = self._fewest(work, deviation, guess)
                numbers[row, column] = guess
        return numbers

    def _fewest(self, work: float, deviation: float, guess: int) -> int:
        def is_met(bought: int) -> bool:
            return self.outcome(bought, work, deviation).share_in_time >= self.study.settings.wait_share

        most = int(np.ceil(64 * work * max(self.fleet.window.jobs.gpus.sum(), 1.0)))
        try:
            return least(is_met, guess or max(round(work * self.study.need.forecast.last), 1), most)
        except InputError as error:
            raise InputError(f"option {self.name!r}: {error}") from error

    @_Cached
    def distribution(self) -> FloatArray:
        """Equally likely numbers of GPUs that will have been needed, ascending."""
        works = np.quantile(self.works, _NEEDS)
        if self.purchase.gpus is not None or self.purchase.buy is None or self.purchase.rent is not None:
            return np.array([self.to_buy])
        rows = np.array([[np.interp(z, _DEVIATIONS, row) for row in self._numbers] for z in _Z])
        found = [_along(works, row, self.works) for row in rows]
        return np.sort(np.maximum(np.concatenate(found), 0.0))

    @_Cached
    def to_buy(self) -> int:
        """GPUs to buy: as stated, or what suffices with the probability of the study, or what costs least with rent."""
        if self.purchase.buy is None:
            return 0
        if self.purchase.gpus is not None:
            return math.ceil(self.purchase.gpus)
        if self.purchase.rent is not None:
            return self._cheapest_beside_rent()
        return math.ceil(np.quantile(self.distribution, self.study.settings.service_level) - 1e-9)

    def _cheapest_beside_rent(self) -> int:
        if not self.purchase.has_prices:
            raise InputError(f"option {self.name!r} rents peaks beside GPUs to buy; state gpus, or the prices of both.")
        low, high = 0, math.ceil(max(self.works) * self.study.need.forecast.last)
        while high - low > max(2, high // 50):
            points = np.unique(np.linspace(low, high, 7).astype(int))
            best = int(np.argmin([self.expected_cost(int(point)) for point in points]))
            low, high = int(points[max(best - 1, 0)]), int(points[min(best + 1, len(points) - 1)])
        return min(range(low, high + 1), key=self.expected_cost)

    def expected_cost(self, bought: int) -> float:
        """Cost a year, averaged over the work that is expected."""
        return float(np.mean([self.cost(bought, work) for work in np.quantile(self.works, _LIKELY)]))

    def _watts(self, name: str) -> tuple[float, float]:
        """Power of one GPU of a type, busy and idle; NaN where neither the option nor a data sheet tells it."""
        return self.purchase.watts(name, of_device(name, "tdp_w"))

    def _check_power(self, kept: Mapping[str, float]) -> None:
        """Energy that is paid for needs the power of all types."""
        lacking = [name for name in kept if self.purchase.price_kwh and np.isnan(self._watts(name)).any()]
        if lacking:
            known = ", ".join(f'"{name}" = ...' for name in lacking)
            raise InputError(
                f"option {self.name!r} has a price of energy, and no data sheet tells the power of a "
                f"{shorten(lacking[0])!r}; state it in watts: power_w = {{ {known} }}."
            )

    def energy_mwh(self, bought: float, work: float, deviation: float = 0.0) -> float:
        """Energy of all GPUs there, a year; NaN where the power of one is not known."""
        busy, there = self.outcome(bought, work, deviation).busy, self._capacity(bought)
        watts = np.array([self._watts(name) for name in self.kept])
        power = busy * watts[:, 0] + np.maximum(there - busy, 0.0) * watts[:, 1]
        return float(power[there > _NONE].sum()) * self.purchase.pue * HOURS_A_YEAR / 1e6

    def cost(self, bought: float, work: float, deviation: float = 0.0) -> float:
        """Cost a year, of what is bought, of energy where it has a price, of rent and of upkeep."""
        purchase = self.purchase
        total = bought * purchase.cost_of_one() + sum(self.kept.values()) * purchase.upkeep
        if purchase.price_kwh:
            total += 1000 * purchase.price_kwh * self.energy_mwh(bought, work, deviation)
        return total + self.rented(bought, work, deviation) * (purchase.rent_price or 0.0)

    def rented(self, bought: float, work: float, deviation: float = 0.0) -> float:
        """GPU-hours rented a year, of which a share is lost."""
        return self.outcome(bought, work, deviation).rented * HOURS_A_YEAR / (1.0 - self.purchase.interrupted)

    @property
    def order_by(self) -> pd.Timestamp:
        """Latest date of the order; NaT for none."""
        return max(self.log_end, self.needed - self.lead_time) if self.to_buy else pd.NaT

    @property
    def order_arrives(self) -> pd.Timestamp:
        """When the GPUs are there that are ordered then; NaT for none."""
        return self.order_by + self.lead_time

    @property
    def needed(self) -> pd.Timestamp:
        """When GPUs that are bought have to be there, or those that retire are gone, but not before the log ends."""
        due = self.study.requirement.order_by()
        needed = list(self.purchase.retired_on(self.log_end.tz).values())
        if not needed or not pd.isna(due):
            needed.append(due + self.study.need.lead_time)
        at_once = self.log_end + self.lead_time
        there = min(at_once if pd.isna(time) else time for time in needed)
        return max(self.log_end, there.tz_convert(self.log_end.tz))

    @property
    def risk(self) -> float:
        """Probability that the jobs of four weeks do not start in time, with run times as expected."""

        def is_met(place: int) -> bool:
            return self.outcome(self.to_buy, self.works[place]).share_in_time < self.study.settings.wait_share

        places = range(len(self.works))
        return 1.0 - bisect_left(places, True, key=is_met) / len(places)

    @property
    def keeps_promise(self) -> bool:
        """Whether jobs start in time with the probability of the study, within what a simulation tells."""
        return bool(self._row["risk"] <= 1.0 - self.study.settings.service_level + _TOLERATED)

    @_Cached
    def _row(self) -> dict[str, Any]:
        gpus, likely = self.to_buy, np.quantile(self.works, _LIKELY)
        met = [self.outcome(gpus, work) for work in likely]
        busy = np.mean([each.busy.sum() for each in met])
        low, high = np.quantile(self.distribution, [0.05, 0.95])
        ends = [(math.ceil(low - 1e-9), self.works[5]), (math.ceil(high - 1e-9), self.works[-6])]
        names = dict(zip(self.kept, self._capacity(gpus).round(), strict=True))
        run_time = self._run_time_on_bought()
        row: dict[str, Any] = {"option": self.name, "to_buy": gpus, "to_buy-lo-90": ends[0][0]}
        row |= {"to_buy-hi-90": ends[1][0], **{f"gpus_{name}": count for name, count in names.items()}}
        row |= {"order_by": self.order_by, "order_arrives": self.order_arrives, **run_time}
        row |= {"risk": self.risk, "late_share": 1.0 - np.mean([each.share_in_time for each in met])}
        row |= {"idle_share": max(1.0 - busy / self._capacity(gpus).sum(), 0.0)}
        row |= {"rented_gpu_hours": np.mean([self.rented(gpus, work) for work in likely])}
        row |= {"energy_mwh": np.mean([self.energy_mwh(gpus, work) for work in likely])}
        cost = self.expected_cost(gpus) if self.purchase.has_prices else np.nan
        spans = [self.cost(number, work) if self.purchase.has_prices else np.nan for number, work in ends]
        row |= {"cost_year": cost, "cost_year-lo-90": min(cost, *spans), "cost_year-hi-90": max(cost, *spans)}
        return row | {"cost_gpu_hour": cost / (self.fleet.mean_work * np.mean(self.works) * HOURS_A_YEAR)}

    def row(self, years: float) -> dict[str, Any]:
        """Row of the table, with the cost over some years."""
        sums = {name.replace("cost_year", "cost"): years * self._row[name] for name in self._row if "cost_year" in name}
        return self._row | sums

    def _run_time_on_bought(self) -> dict[str, Any]:
        """Mean run time of the jobs on the type that is bought, by the GPU-hours of the log."""
        names, jobs = ("run_time", "run_time-lo-90", "run_time-hi-90"), self.fleet.window.jobs
        ratio, spread = self.fleet.run_time[:, -1], self.fleet.spread[:, -1]
        weight = np.where(np.isnan(ratio), 0.0, jobs.gpus * jobs.run)
        if self.purchase.buy is None or not weight.any():
            return dict.fromkeys(names, np.nan) | {"run_time_from": None}
        found = [np.nansum(weight * ratio * np.exp(z * spread)) / weight.sum() for z in (0.0, -Z95, Z95)]
        return dict(zip(names, found, strict=True)) | {"run_time_from": self._run_times.source}

    def cost_at(self, multiple: float, deviation: float = 0.0) -> float:
        """Cost a year, as in the table, at a multiple of the work, and with other run times."""
        bought = self._number_at(multiple, deviation)
        likely = multiple * np.quantile(self.works, _LIKELY)
        return float(np.mean([self.cost(bought, work, deviation) for work in likely]))

    def holds(self, multiple: float, deviation: float = 0.0) -> bool:
        """Whether the target for waits holds at a multiple of the work; where it takes more GPUs, more are bought."""
        if self.purchase.rent is not None or (self.purchase.buy is not None and self.purchase.gpus is None):
            return True
        work = float(np.quantile(self.works, self.study.settings.service_level - _TOLERATED))
        found = self.outcome(self.to_buy, multiple * work, deviation)
        return found.share_in_time >= self.study.settings.wait_share

    def _cost_held(self, multiple: float, deviation: float = 0.0) -> float:
        """`cost_at`; NaN where the target for waits is missed."""
        return self.cost_at(multiple, deviation) if self.holds(multiple, deviation) else float("nan")

    def _number_at(self, multiple: float, deviation: float = 0.0) -> int:
        """GPUs to buy at a multiple of the work, and with other run times: as many times more as the fewest are."""
        if self.purchase.buy is None or self.purchase.gpus is not None or self.purchase.rent is not None:
            return self.to_buy
        work = float(np.quantile(self.works, self.study.settings.service_level)) * multiple
        expected = self._fewest(work / multiple, 0.0, self.to_buy)  # from outcomes that are kept
        # Where queues grow all the time they take the longest to simulate, so the search begins above that.
        there = sum(self.kept.values())
        guess = max(round(multiple * (there + self.to_buy) - there), 1)
        if not expected:
            return self.to_buy if (multiple, deviation) == (1.0, 0.0) else self._fewest(work, deviation, guess)
        return math.ceil(self.to_buy * self._fewest(work, deviation, guess) / expected - 1e-9)

    def changes(self) -> list[dict[str, Any]]:
        """Rows of `PurchaseComparison.decides`."""
        low, middle, high = np.quantile(self.works, _NEEDS)
        ends = low / middle, high / middle
        rows = [("work", *ends, *map(self._cost_held, ends))]
        if self.purchase.buy is not None and self.fleet.spread[:, -1].any():
            run_time = self._run_time_on_bought()
            spans = (self._cost_held(1.0, deviation) for deviation in (-Z95, Z95))
            rows.append(("run time", run_time["run_time-lo-90"], run_time["run_time-hi-90"], *spans))
        if self.to_buy:
            rows.append(self._with_utilization())
        for name in ("price", "price_hour", "rent_price", "price_kwh"):
            if (price := getattr(self.purchase, name)) is not None:
                ends = price * (1 - _PRICE_CHANGE), price * (1 + _PRICE_CHANGE)
                rows.append((name, *ends, *(self._cost_with(name, each) for each in ends)))
        if self.to_buy and self.purchase.price_kwh:
            watts = self._watts(str(self.purchase.buy))[0]
            ends = watts * (1 - _PRICE_CHANGE), watts * (1 + _PRICE_CHANGE)
            rows.append(("power_w", *ends, *(self._cost_with("power_w", self._powers(each)) for each in ends)))
        names, cost = ("input", "low", "high", "cost-low", "cost-high"), self.cost_at(1.0)
        return [{"option": self.name, "cost": cost} | dict(zip(names, row, strict=True)) for row in rows]

    def _powers(self, watts: float) -> dict[str, float]:
        """Power by type, with another one of the type that is bought."""
        given = self.purchase.power_w
        return {**(given if isinstance(given, Mapping) else {}), str(self.purchase.buy): watts}

    def _with_utilization(self) -> tuple[str, float, float, float, float]:
        """Row of `changes` for a fleet of which a tenth less or more is busy, as more or fewer GPUs are bought.

        What the target for waits leaves idle depends on how jobs come, and how they are packed.
        """
        there = self._capacity(self.to_buy).sum()
        busy = 1.0 - self._row["idle_share"]
        ends = busy * (1 - _PRICE_CHANGE), min(busy * (1 + _PRICE_CHANGE), 1.0)
        more = [max(there * (busy / end - 1.0), -float(self.to_buy)) if end else 0.0 for end in ends]
        each = self.purchase.cost_of_one()
        if self.purchase.price_kwh:
            idle_kw = self._watts(str(self.purchase.buy))[1] * self.purchase.pue / 1000
            each += self.purchase.price_kwh * idle_kw * HOURS_A_YEAR
        return ("utilization", *ends, *(self.cost_at(1.0) + number * each for number in more))

    def _cost_with(self, name: str, value: Any) -> float:
        """Cost a year with another price, or power."""
        changed: dict[str, Any] = {name: value}
        before, self.purchase = self.purchase, replace(self.purchase, **changed)
        try:
            return self.cost_at(1.0)
        finally:
            self.purchase = before

    def cost_by_work(self) -> FloatArray:
        """Cost a year at multiples of the work; NaN where nothing would be bought, or what is stated is too little."""
        costs = np.array([self._cost_held(multiple) for multiple in _WORK])
        return np.where(
            [self.purchase.rent is None and not self._number_at(multiple) for multiple in _WORK], np.nan, costs
        )

    def price_at(self, cost_year: float) -> float:
        """Price of a GPU at which the option costs as much as another."""
        name = "price" if self.purchase.price is not None else "price_hour"
        price = getattr(self.purchase, name)
        if not price or not self.to_buy:
            return float("nan")
        rest = self._row["cost_year"] - self.to_buy * self.purchase.cost_of_one()
        found = price * (cost_year - rest) / (self.to_buy * self.purchase.cost_of_one())
        return float(found) if found > 0 else float("nan")


def _along(at: FloatArray, values: FloatArray, places: FloatArray) -> FloatArray:
    """Linear interpolation, continued beyond both ends."""
    found = np.interp(places, at, values)
    if at[1] > at[0]:
        slope = (values[1] - values[0]) / (at[1] - at[0])
        found = np.where(places < at[0], values[0] + slope * (places - at[0]), found)
    if at[-1] > at[-2]:
        slope = (values[-1] - values[-2]) / (at[-1] - at[-2])
        found = np.where(places > at[-1], values[-1] + slope * (places - at[-1]), found)
    return np.asarray(found)


def _preferred(ratio: FloatArray) -> IntArray:
    """Types that jobs of a kind may take, the fastest first, by the run times of each on them."""
    middle = np.array([np.median(known) if len(known := each[~np.isnan(each)]) else np.inf for each in ratio.T])
    order = np.argsort(middle, kind="stable")
    return np.where(np.isinf(middle[order]), -1, order)


def own_types(jobs: pd.DataFrame, there: Mapping[str, float]) -> Any:
    """Type of each job; of those without one, the type of most jobs, or else what is there most."""
    if "gpu_type" not in jobs or jobs["gpu_type"].isna().all():
        most = max(there, key=lambda name: there[name])
        return np.full(len(jobs), most, dtype=object)
    types = jobs["gpu_type"].astype(object)
    return types.fillna(types.mode().iloc[0]).to_numpy(dtype=object).astype(str)


def installed_by_type(study: Study, at: pd.Timestamp) -> dict[str, float]:
    """GPUs installed at a time, by type: as stated, or as `usual_most_held`, a stated total in proportion to it."""
    given, times = study.settings.installed, pd.Series([at])
    if isinstance(given, Mapping) and study.settings.pool == "gpu_type":
        counts = {
            name: float(broadcast_by_time(count, times)[0]) if isinstance(count, pd.Series) else float(count)
            for name, count in given.items()
        }
        return {str(name): count for name, count in counts.items() if count}
    known = study.source.names("gpu_type")
    most_held = usual_most_held(study.source, "gpu_type") if known else pd.Series(dtype=float)
    held = {str(name): whole_gpus(most) for name, most in most_held.items() if most > 0}
    if given is None and len(held) > 1:
        return held
    total = float(study.requirement.installed_at(times)[0])
    if not held:
        return {UNKNOWN: total}
    return {name: total * most / sum(held.values()) for name, most in held.items()}
