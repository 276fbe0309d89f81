"""Sentences of the page, of which an empty one is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from gpudemand.planning.need import WINDOW
from gpudemand.report.tables import (
    format_date,
    format_days,
    format_level,
    format_risk,
    format_share,
    signed_count,
    truncate,
)
from gpudemand.study.settings import LeadTime, Prices
from gpudemand.units import SECONDS_PER_HOUR, format_count, format_number_of, format_seconds, parse_duration, plural
from gpudemand.usage.bins import bin_name

#: WAPE above which the page warns.
_LARGE_WAPE = 0.5
#: Deliveries and retirements that the answer names.
_FEW_CHANGES = 4
_INSTALLED = {
    "given": "as given",
    "pulled": "those of the nodes, as they were pulled",
}
_INSTALLED_OF_TYPES = {
    "given": "as given; a dash where no number was given for the type",
    "pulled": "those of the nodes; a dash where the types of the nodes are not known",
}


#: What is taken for the GPUs installed where they are not given; see `gpudemand.study.usage_tables.usual_most`.
HELD_AT_ONCE = "what was held at once on at least three days (of fewer than 28 days, the most)"


def _installed(numbers: dict[str, Any], told: Mapping[str, str]) -> str:
    """Where the number installed is from."""
    return told.get(numbers["installed_from"]) or f"not given; {HELD_AT_ONCE} is taken for it"


def requirement(numbers: dict[str, Any]) -> str:
    """GPUs required, what for and from when on, against GPUs installed."""
    required, installed = format_number_of("GPU", numbers["required"]), format_count(numbers["installed"])
    level, begin = format_level(numbers["service_level"]), format_date(numbers["order_arrives"])
    goal = f"So that {target(numbers)}" if numbers["basis"] == "wait" else "To hold what is wanted at once"
    said = f"{goal} from {begin} on, with probability {level}, this cluster requires {required},"
    if numbers["installed_later"] != numbers["installed"]:
        later, more = format_count(numbers["installed_later"]), numbers["shortfall"]
        compared = f"{format_count(more)} more than" if more else "no more than"
        when = "at least in those four weeks" if _changes_then(numbers) else "when an order could arrive"
        return f"{said} {compared} the {later} that are installed {when} ({installed} now)."
    compared = f"{format_count(numbers['shortfall'])} more than" if numbers["shortfall"] else "no more than"
    what = "held at once so far" if numbers["installed_from"] == "log" else "installed"
    return f"{said} {compared} the {installed} {what}."


def _changes_then(numbers: dict[str, Any]) -> bool:
    """Whether GPUs leave or arrive in the four weeks that the requirement is for."""
    begin = pd.Timestamp(numbers["order_arrives"])
    changes = (pd.Timestamp(change["on"]) for change in numbers.get("installed_changes", []))
    return any(begin < change < begin + WINDOW for change in changes)


def programmes(numbers: dict[str, Any], table: pd.DataFrame | None) -> str:
    """The part of the requirement that is of programmes.

    >>> table = pd.DataFrame({"programme": ["tuning"], "required": [27.0]})
    >>> programmes({"required": 769, "required_without_programmes": 742}, table)
    'Of the 769 GPUs required, 27 are for programmes (tuning 27): without them, 742 suffice.'
    """
    if table is None:
        return ""
    total, alone = numbers["required"], numbers["required_without_programmes"]
    each = ", ".join(f"{truncate(row.programme)} {format_count(row.required)}" for row in table.itertuples())
    part = format_count(max(total - alone, 0))
    return (
        f"Of the {format_number_of('GPU', total)} required, {part} are for programmes ({each}): without them, "
        f"{format_count(alone)} suffice."
    )


def purchases(table: pd.DataFrame | None, break_even: pd.DataFrame | None) -> str:
    """Which of the options that keep the target costs least, and from when another one does.

    >>> table = pd.DataFrame({"option": ["old", "new"], "to_buy": [48, 24], "cost_year": [9e5, 8e5]})
    >>> even = pd.DataFrame({"option": ["old"], "against": ["new"], "work": [0.8], "price": [None]})
    >>> purchases(table, even)
    'new costs least: 800,000 a year, for 24 GPUs. old costs less at under 0.80 times the work.'
    """
    if table is None:
        return ""
    notes = [note for each in (break_even, table) if each is not None for note in each.attrs.get("notes", [])]
    return " ".join([_cheapest(table, break_even), *notes])


def _cheapest(table: pd.DataFrame, break_even: pd.DataFrame | None) -> str:
    """The option that costs least, and from when another one does."""
    if (unpriced := table["cost_year"].isna()).any():
        return f"{truncate(table['option'][unpriced].iloc[0])} has no price, so nothing is said of which costs least."
    if break_even is None or break_even.empty:
        few = "Fewer than two of the options keep the target for waits as often as is wanted."
        return _cost(table.iloc[0], "costs ") if len(table) == 1 else few
    said = _cost(table[table["option"] == break_even["against"].iloc[0]].iloc[0], "costs least: ")
    for row in break_even.itertuples():
        side = "under" if row.work < 1 else "over"
        when = [] if pd.isna(row.work) else [f"at {side} {row.work:.2f} times the work"]
        if pd.notna(row.price):
            when.append(f"below a price of {format_count(row.price, 0 if row.price >= 100 else 2)}")
        if when:
            said += f" {truncate(row.option)} costs less {', or '.join(when)}."
    return said


def _cost(best: pd.Series, verb: str) -> str:
    """Cost a year of an option, and of what."""
    said = f"{truncate(best['option'])} {verb}{format_count(best['cost_year'])} a year, for "
    hours = best.get("rented_gpu_hours", 0.0)
    parts = [format_number_of("GPU", best["to_buy"])] if best["to_buy"] or not hours else []
    parts += [format_number_of("rented GPU-hour", hours)] if hours else []
    return said + " and ".join(parts) + "."


def target(numbers: dict[str, Any]) -> str:
    """The target for waits.

    >>> target({"wait": "1h", "wait_share": 0.9})
    '90% of the jobs start within 1 h'
    """
    wait = format_seconds(parse_duration(numbers["wait"]).total_seconds())
    return f"{format_level(numbers['wait_share'])} of the jobs start within {wait}"


def noun(by: str) -> str:
    """What a key of the log names, such as ``"GPU type"``."""
    return {"gpu_type": "GPU type", "qos": "QOS"}.get(by, by)


def whose_demand(period: pd.DataFrame, name: str, demand: str) -> str:
    """Who has most of the demand of a period, and whose changed most; `name`: noun of the key.

    >>> rows = pd.DataFrame({"name": ["ada", "bo"], "period": "May 2026", "gpus": [6.0, 2.0], "share": [0.75, 0.25]})
    >>> print(whose_demand(rows.assign(change_gpus=[-1.0, 2.0]), "user", "wanted"))
    May 2026: 8.0 GPUs wanted on average, +1.0 against the period before. Most by user ada (75%); the largest change is
    that of user bo (+2.0).
    >>> print(whose_demand(rows.assign(change_gpus=0.0), "user", "gpus"))
    May 2026: 8.0 GPUs held on average, as in the period before. Most by user ada (75%); no user's changed.
    """
    if period.empty or not period["gpus"].any():
        return "No GPU was wanted in this period."
    first, total = period.iloc[0], period["gpus"].sum()
    when = first["period"][0].upper() + first["period"][1:]
    said = f"{when}: {format_count(total, 0 if total >= 100 else 1)} GPUs {demand.replace('gpus', 'held')} on average"
    most = f"Most by {name} {truncate(first['name'])} ({format_share(first['share'])})"
    if period["change_gpus"].isna().all():
        return f"{said}. {most}."
    changing = period.loc[period["change_gpus"].abs().idxmax()]
    total_change, change = signed_count(period["change_gpus"].sum()), signed_count(changing["change_gpus"])
    said += ", as in the period before" if total_change == "0" else f", {total_change} against the period before"
    if change == "0":
        return f"{said}. {most}; no {name}'s changed."
    return f"{said}. {most}; the largest change is that of {name} {truncate(changing['name'])} ({change})."


def missed(numbers: dict[str, Any]) -> str:
    """What too few GPUs lead to.

    >>> missed({"basis": "wait", "wait": "1h", "wait_share": 0.9})
    'fewer than 90% of the jobs start within 1 h'
    """
    return f"fewer than {target(numbers)}" if numbers["basis"] == "wait" else "more is wanted at once than is there"


def dates(numbers: dict[str, Any]) -> str:
    """GPUs that leave and arrive, first crossing, and order date."""
    return _changes(numbers) + _crossing(numbers)


def _changes(numbers: dict[str, Any]) -> str:
    """GPUs that leave and arrive within the plan, the first few by their dates; empty where none do.

    >>> steps = [{"on": "2026-03-01", "gpus": -40.0, "name": "A100"}, {"on": "2026-04-01", "gpus": 1.0, "name": None}]
    >>> _changes({"installed_changes": steps})
    '40 A100 GPUs leave on 1 Mar 2026, 1 GPU arrives on 1 Apr 2026. '
    >>> _changes({"installed_changes": [{"on": "2026-03-01", "gpus": 0.5, "name": None}]})
    '0.5 GPUs arrive on 1 Mar 2026. '
    """
    changes = numbers.get("installed_changes", [])
    texts = [_change(**change) for change in changes[:_FEW_CHANGES]]
    if len(changes) > len(texts):
        texts.append(f"and {format_number_of('change', len(changes) - len(texts))} later")
    return ", ".join(texts) + ". " * bool(texts)


def _change(on: str, gpus: float, name: str | None) -> str:
    verb, size = "leave" if gpus < 0 else "arrive", abs(gpus)
    # A delivery may be part of a GPU.
    return f"{size:,.12g} {_gpu(name)}{'s' * (size != 1)} {verb}{'s' * (size == 1)} on {format_date(on)}"


def _crossing(numbers: dict[str, Any]) -> str:
    """The order, its date, and the risk without it."""
    what = "those held at once so far" if numbers["installed_from"] == "log" else "those installed"
    chance, orders = format_risk(numbers["risk_without_order"]), numbers["orders"]
    goal = "the target is missed" if numbers["basis"] == "wait" else "more is wanted"
    before = _short_before(numbers)
    if not orders:
        return f"{before}Order none: on {what}, {goal} with probability {chance}."
    said, until = _order_by(numbers, orders), _until(numbers, orders)
    if orders[0]["name"] is not None:
        alone = sum(order["gpus"] for order in numbers["orders_as_one_pool"])
        suffices = f"{format_count(alone)} more would do" if alone else f"{what} suffice (risk {chance})"
        return f"As one pool, {suffices}; {_types_short(numbers, orders)} {said}{until}"
    if not is_due(numbers, orders[0]["order_by"]):
        later = format_date(orders[0]["begin"])
        risked = f"Until then {what} suffice (risk {chance})."
        if numbers["shortfall"]:
            begin = format_date(numbers["order_arrives"])
            risked = f"Without an order, {goal} in the four weeks from {begin} on with probability {chance}."
        return f"{before}From {later} on GPUs are short. {said}{until} {risked}"
    return f"{before}{said} Without an order, {goal} then with probability {chance}.{until}"


def _short_before(numbers: dict[str, Any]) -> str:
    """When GPUs are short before an order could arrive; empty where they are not, or still are then.

    >>> short = {"begin": "2026-03-01", "end": "2026-03-08", "gpus": 4}
    >>> _short_before({"order_arrives": "2026-04-01", "shortages": [short]})
    'GPUs are short from 1 Mar 2026 until 8 Mar 2026, before what is ordered now could be there. '
    """
    times = [
        f"from {format_date(short['begin'])} until {format_date(short['end'])}"
        for short in numbers.get("shortages", [])
        if short["end"] is not None and pd.Timestamp(short["end"]) <= pd.Timestamp(numbers["order_arrives"])
    ]
    if not times:
        return ""
    listed = ", ".join(times[:_FEW_CHANGES]) + " and later" * (len(times) > _FEW_CHANGES)
    return f"GPUs are short {listed}, before what is ordered now could be there. "


def _until(numbers: dict[str, Any], orders: list[dict[str, Any]]) -> str:
    """When what the first order of each pool is for ends without one; empty where it does not.

    >>> changes = [{"on": "2026-04-20", "gpus": 9.0, "name": "H100"}]
    >>> orders = [{"name": "A100", "end": None}, {"name": "H100", "end": "2026-04-20"}]
    >>> _until({"installed_changes": changes}, orders)
    ' H100 GPUs are short until 20 Apr 2026, when others arrive: moving what leaves or arrives may do instead.'
    >>> _until({}, orders[1:])
    ' They are short until 20 Apr 2026, when fewer are required.'
    """
    first = {order["name"]: order["end"] for order in reversed(orders)}
    ending = [(name, end) for name, end in reversed(first.items()) if end is not None]
    changes = [change for change in numbers.get("installed_changes", []) if change["gpus"] > 0]
    arrivals = {(change["name"], pd.Timestamp(change["on"])) for change in changes}
    said = ""
    for name, end in ending[:_FEW_CHANGES]:
        whose = "They" if len(first) == 1 else f"{truncate(name)} GPUs"
        arrives = any(on == pd.Timestamp(end) and name in (None, of_type) for of_type, on in arrivals)
        why = "others arrive: moving what leaves or arrives may do instead" if arrives else "fewer are required"
        said += f" {whose} are short until {format_date(end)}, when {why}."
    return said


def lead_time(numbers: dict[str, Any]) -> str:
    """Lead time of the GPU type that is to be ordered first, or else of all types."""
    return str(next((order["lead_time"] for order in numbers["orders"]), numbers["lead_time"]))


def _arrival(numbers: dict[str, Any], lead: str) -> str:
    """When an order of now with a lead time is there; by the clock of its zone, as told."""
    sooner = parse_duration(numbers["lead_time"]) - parse_duration(lead)
    return format_date(pd.Timestamp(numbers["order_arrives"]) - sooner)


def _types_short(numbers: dict[str, Any], orders: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(truncate(order["name"]) for order in orders))
    listed = ", ".join(names[:_FEW_CHANGES]) + ", and others" * (len(names) > _FEW_CHANGES)
    verb = "runs" if len(names) == 1 else "run"
    return f"each {numbers.get('pool', 'GPU type')} for itself, {listed} {verb} short."


def _of_types(orders: list[dict[str, Any]], before: set[str | None]) -> str:
    """GPUs of some orders, of each type, and whether they are beyond those of orders before.

    >>> _of_types([{"name": "A100", "gpus": 28}, {"name": "H100", "gpus": 1}], {"H100"})
    '28 A100 GPUs and 1 more H100 GPU'
    """
    parts = [format_number_of("more " * (each["name"] in before) + _gpu(each["name"]), each["gpus"]) for each in orders]
    if len(parts) > _FEW_CHANGES:
        others = sum(each["gpus"] for each in orders[_FEW_CHANGES - 1 :])
        parts = [*parts[: _FEW_CHANGES - 1], f"{format_number_of('GPU', others)} of others"]
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _gpu(name: str | None) -> str:
    return "GPU" if name is None else f"{truncate(name)} GPU"


def first_order(numbers: dict[str, Any]) -> tuple[str | None, str | None]:
    """GPU type that must be ordered first, or none where the order is that of all as one pool, and the date.

    >>> first_order({"orders": [{"name": "A100", "gpus": 28, "order_by": "2026-03-09"}]}), first_order({"orders": []})
    (('A100', '2026-03-09'), (None, None))
    """
    return next(((order["name"], order["order_by"]) for order in numbers["orders"]), (None, None))


#: Mean wait in hours below which it does not matter what jobs waited for.
_SHORT_WAIT = 1 / 60


def waits(row: pd.Series, numbers: dict[str, Any]) -> list[str]:
    """How long jobs waited, from the row ``all`` of the table ``waits``, and for what.

    >>> row = pd.Series({"median_wait_h": 0.0, "mean_wait_h": 0.2, "p95_wait_h": 1.5, "share_over_1h": 0.0725})
    >>> waits(row, {"waits_beside_idle": None})[0]
    'Once submitted, half of the jobs started at once, 95% within 1.5 h; 7.2% waited for more than an hour.'
    >>> waits(row * 0, {"waits_beside_idle": 0.9})
    ['Once submitted, 95% of the jobs started at once; none waited for more than an hour.']
    """
    waited = (row[f"{name}_wait_h"] * SECONDS_PER_HOUR for name in ("median", "p95"))
    half, most = (f"within {format_seconds(seconds)}" if seconds else "at once" for seconds in waited)
    started = f"half of the jobs started {half}, 95% {most}" if half != most else f"95% of the jobs started {most}"
    over = format_share(row["share_over_1h"], 1) if row["share_over_1h"] else "none"
    said = f"Once submitted, {started}; {over} waited for more than an hour."
    return [said] if row["mean_wait_h"] < _SHORT_WAIT else [said, waits_beside_idle(numbers)]


def waits_beside_idle(numbers: dict[str, Any]) -> str:
    """What of the waits was not for want of GPUs in all; empty where next to none.

    >>> waits_beside_idle({"waits_beside_idle": 0.4})
    'Of the time that jobs waited, 40% was beside as many idle GPUs as they wanted: ...'
    """
    share = numbers.get("waits_beside_idle")
    if share is None or share < 0.01:
        return ""
    return (
        f"Of the time that jobs waited, {format_share(share)} was beside as many idle GPUs as they wanted: behind "
        "larger jobs, or for limits, dependencies or placement."
    )


#: Share of jobs in time by which a simulated queue may differ from that of the log without a word.
_TOLD = 0.05


def slower_than_simulated(numbers: dict[str, Any]) -> str:
    """By how much fewer jobs started in time than in the simulated queue that waits are told by.

    >>> shares = {"share_in_time_recorded": 0.02, "share_in_time_simulated": 0.44}
    >>> print(slower_than_simulated({**shares, "wait": "1h"}))
    Of the jobs of the last four weeks 2% started within 1 h; a simulated queue on the GPUs installed starts 44% so
    early. It backfills, and knows no limits, reservations or nodes out of service: expect fewer in time ...
    """
    recorded, simulated = numbers.get("share_in_time_recorded"), numbers.get("share_in_time_simulated")
    if recorded is None or simulated is None or simulated - recorded < _TOLD:
        return ""
    wait = format_seconds(parse_duration(numbers["wait"]).total_seconds())
    return (
        f"Of the jobs of the last four weeks {format_share(recorded)} started within {wait}; a simulated queue on the "
        f"GPUs installed starts {format_share(simulated)} so early. It backfills, and knows no limits, reservations or "
        "nodes out of service: expect fewer in time than it says, or state the share of the GPUs that runs jobs "
        "(--availability)."
    )


def wanted(table: pd.DataFrame, freq: str, *, jobs: bool = True) -> str:
    """GPUs held and wanted in the last four weeks, of jobs or of pods, from the table ``wanted``.

    >>> days = pd.date_range("2026-03-01", periods=60, tz="UTC")
    >>> wanted(pd.DataFrame({"ds": days, "held": 90.0, "wanted": 120.0}), "D")
    'In the last 28 days a mean of 90 GPUs was held; it would have been 120 with room for each job at its submission.'
    """
    last = table[table["ds"] > table["ds"].iloc[-1] - WINDOW]
    means = last[["held", "wanted"]].mean()
    held, more = (format_count(mean, 0 if means.min() >= 10 else 1) for mean in means)
    held += f" {plural('GPU', means['held'])}"
    text = f"In the last {format_number_of(bin_name(freq), len(last))} a mean of {held} was held"
    if held.split()[0] == more:
        return f"{text}, as many as were wanted."
    text += "; it would have been"
    if jobs:
        return f"{text} {more} with room for each job at its submission."
    return f"{text} {more} with those that pods waited for at the same time."


def idle(tables: Mapping[str, pd.DataFrame] | None) -> str:
    """GPU-hours that were held and hardly used, from a table of them by any key; empty where they are not known.

    >>> row = {"gpu_hours": [80.0], "measured": [40.0], "under_5": [10.0], "under_20": [20.0], "under_50": [30.0]}
    >>> print(idle({"user": pd.DataFrame(row)}))
    Of 40 GPU-hours with known utilization (50% of all), 25% were held at under 5%, 50% at under 20%, 75% at under 50%.
    """
    if not tables:
        return ""
    sums = next(iter(tables.values())).sum(numeric_only=True)
    share = format_share(sums["measured"] / sums["gpu_hours"])
    under = [format_share(sums[f"under_{limit}"] / sums["measured"]) for limit in (5, 20, 50)]
    return (
        f"Of {format_count(sums['measured'])} GPU-hours with known utilization ({share} of all), {under[0]} were held "
        f"at under 5%, {under[1]} at under 20%, {under[2]} at under 50%."
    )


def prices(given: Prices, side: int) -> str:
    """Price of a GPU-hour, reserved (0) or on demand (1), of all or by name.

    >>> prices((1.2, 3.0), 0), prices({"A100": (1.2, 3.0), "H100": (2, 5.0)}, 1)
    ('1.2', '3.0 (A100), 5.0 (H100)')
    """
    if isinstance(given, Mapping):
        return ", ".join(f"{pair[side]} ({truncate(name)})" for name, pair in given.items())
    return "" if given is None else str(given[side])


def _order_by(numbers: dict[str, Any], orders: list[dict[str, Any]]) -> str:
    """What to order by when, the orders of one date together."""
    dates = list(dict.fromkeys((order["order_by"], order["lead_time"]) for order in orders))
    lead, before, parts = dates[0][1], set[str | None](), list[str]()
    for by, days in dates[:_FEW_CHANGES]:
        now = [order for order in orders if (order["order_by"], order["lead_time"]) == (by, days)]
        what = _of_types(now, before)
        before |= {order["name"] for order in now}
        if is_due(numbers, by):
            there = f"{_arrival(numbers, days)} ({format_days(days)})"
            parts.append(f"{what} now{', ' if parts else ': what is ordered as the log ends is '}there on {there}")
        else:
            parts.append(f"{what} by {format_date(by)}")
            parts[-1] += f", with a lead time of {format_days(days)}" * (len(parts) == 1 or days != lead)
    return f"Order {'; '.join(parts)}{'; others later' * (len(dates) > _FEW_CHANGES)}."


def is_due(numbers: dict[str, Any], order: str | None) -> bool:
    """Whether an order is due as the log ends, or was before."""
    return order is not None and pd.Timestamp(order) <= pd.Timestamp(numbers["log_end"])


def binding_basis(numbers: dict[str, Any]) -> str:
    """What the requirement is for."""
    if numbers["basis"] == "wait":
        return f"the target that {target(numbers)}"
    return "the most GPUs held at once in four weeks"


def basis(numbers: dict[str, Any]) -> str:
    """Definition of the requirement, and source of the number installed."""
    level = format_level(numbers["service_level"])
    low, high = format_count(numbers["required_lo"]), format_count(numbers["required_hi"])
    how = " by a simulated queue of their jobs" if numbers["basis"] == "wait" else ""
    growth = "" if numbers["tells_growth"] else f" {_NO_GROWTH}"
    return (
        f"The requirement is what suffices with probability {level} for {binding_basis(numbers)}, in the four weeks "
        f"from {format_date(numbers['order_arrives'])} on: what past weeks needed{how}, the last eight above all, and "
        f"how needs have changed within as long, in this log and in others. Needed then are between {low} and "
        f"{high} (90%); a rule of one line, 1.15 times the need of {_recent_weeks(numbers)}, says "
        f"{format_count(numbers['rule'])}.{growth} "
        f"GPUs installed: {_installed(numbers, _INSTALLED)}."
    )


#: Two windows side by side say nothing of their scatter; see `gpudemand.planning.need`.
_NO_GROWTH = (
    "The log is too short to tell growth, for which it takes twelve weeks: none is expected, so where use grows, more "
    "is required."
)


def _recent_weeks(numbers: dict[str, Any]) -> str:
    """The weeks whose larger need the rule of one line takes."""
    windows = numbers["past_windows"]
    return "the last eight weeks" if windows > 4 else "the last four weeks" if windows > 1 else "the log"


def how_required(numbers: dict[str, Any], recent_weight: float, growth: float) -> str:
    """How the GPUs required follow from what the log needed.

    `recent_weight`, `growth`: see `gpudemand.study.waits.requirement_steps`.
    """
    what = "the most GPUs that were held at once"
    if numbers["basis"] == "wait":
        what = f"the fewest GPUs with which, in a simulated queue of its jobs, {target(numbers)}"
    days = format_days(numbers["lead_time"])
    weights = f"weights {format_share(recent_weight)} and {format_share(1 - recent_weight)}"
    between = f"between the recent and the usual one ({weights})" if recent_weight < 1 else "around the recent one"
    grown = "Past needs show no growth beyond their scatter" if numbers["tells_growth"] else _NO_GROWTH[:-1]
    if growth > 1:
        grown = (
            f"Past needs show a growth of {format_share(growth - 1)} until then, as far as it is beyond their scatter"
        )
    return (
        f"The need of four weeks is {what}. That of the four weeks that begin {days} after the log is expected "
        f"{between}. {grown}. How far needs were off in public logs, and in past windows of this one, gives the "
        f"probabilities; the last row is what is required."
    )


def earlier_plans(table: pd.DataFrame | None, service_level: float) -> str:
    """How plans at earlier times, the latest first, would have done, beside the rule of one line.

    >>> table = pd.DataFrame({"plan": [120.0, 110.0], "need": [100.0, 115.0], "rule": [115.0, 115.0]})
    >>> earlier_plans(table, 0.95).split(";")[0]
    'Of 2 plans at earlier times with this lead, 1 would have sufficed (95% were promised), with 1.08 times the ...'
    """
    if table is None:
        return ""
    if table.empty:
        return "The log is too short to test what would have been planned at earlier times with this lead."
    parts = [
        (int((table[name] >= table["need"]).sum()), f"{(table[name] / table['need']).mean():.2f}")
        for name in ("plan", "rule")
    ]
    said = (
        f"Of {format_number_of('plan', len(table))} at earlier times with this lead, {parts[0][0]} would have "
        f"sufficed ({format_level(service_level)} were promised), with {parts[0][1]} times the GPUs needed; 1.15 times "
        f"the need of the last eight weeks, {parts[1][0]}, with {parts[1][1]} times."
    )
    short = table[table["plan"] < table["need"]]
    if parts[0][0] >= len(table) / 2:
        if short.empty:
            return said
        least = format_share((1 - short["plan"] / short["need"]).max())
        latest = int((table["plan"] < table["need"]).to_numpy().argmax())  # the rows begin with the latest
        all_since = f", and the latest {latest} sufficed" if latest >= len(table) / 2 else ""
        return f"{said} Those that were too small were so by at most {least}{all_since}."
    growth = (1.15 * table["need"] / table["rule"]).median() - 1
    return (
        f"{said} They fell short as the need grew by {format_share(growth)} within that time, which they knew less of "
        "than this one does. Where growth may go on, state it as a programme, or order for a higher service level."
    )


def gpu_types_note(numbers: dict[str, Any], lead_time: LeadTime) -> str:
    """Assumptions of the plan by GPU type."""
    by_name = lead_time.items() if isinstance(lead_time, Mapping) else ()
    leads = ", ".join(f"{truncate(name)} {format_days(lead)}" for name, lead in by_name)
    return (
        "Jobs do not move between types: each type is a pool with its own reserve, and needs what its own jobs need. "
        "Forecasts of the means sum to that of the total. "
        f"Installed: {_installed(numbers, _INSTALLED_OF_TYPES)}. Shortfall and dates: at "
        f"{format_level(numbers['service_level'])}."
        + f" Lead times: {leads}; of all as one pool the longest."
        * bool(leads)
    )


def model_accuracy(numbers: dict[str, Any]) -> str:
    """The selected model and its WAPE beside that of the best naive method."""
    own, naive = numbers["wape"], numbers["best_naive_wape"]
    if own is None or naive is None:
        return f"Forecast by {numbers['model']}; the evaluation windows have zero demand, so WAPE is undefined."
    text = f"Forecast by {numbers['model']}: WAPE {format_share(own, 1)} on the evaluation windows"
    if numbers["model"] == numbers["best_naive"]:
        return f"{text}. It is a naive method; no other candidate had a smaller error on the selection windows."
    verdict = "better than" if round(own, 3) < round(naive, 3) else "not better than"
    return f"{text}, {verdict} the best naive method's {format_share(naive, 1)} ({numbers['best_naive']})."


def accuracy_warning(numbers: dict[str, Any]) -> str:
    """Warn of a large forecast error."""
    if numbers["wape"] is None or numbers["wape"] <= _LARGE_WAPE:
        return ""
    return (
        f"Warning: the WAPE on the evaluation windows is {format_share(numbers['wape'])}. Check the end of the log; "
        "where recording stopped before the last job did, cut it off there with until."
    )
