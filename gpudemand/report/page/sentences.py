"""The sentences of the report, made from the same numbers that its tables hold."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gpudemand.units import format_count, parse_duration
from gpudemand.usage.bins import bin_name

#: Share of demand above which an error is worth a warning of its own.
_LARGE_ERROR = 0.5
_BASIS = {
    "mean": "the mean GPUs held per {bin} at {target} target utilization",
    "peak": "the most GPUs held at once in a {bin}",
}


def day(iso: Any) -> str:
    """Write a moment as a date.

    Examples
    --------
    >>> day("2026-03-01T00:00:00+00:00")
    '1 Mar 2026'
    """
    moment = pd.Timestamp(iso)
    return f"{moment.day} {moment:%b %Y}"


def moment(value: Any) -> str:
    """Write a moment as a date, with its time of day where that is not midnight.

    Examples
    --------
    >>> moment("2026-03-01T00:00:00+00:00"), moment("2026-03-01T09:30:00+00:00")
    ('1 Mar 2026', '1 Mar 2026 09:30')
    """
    stamp = pd.Timestamp(value)
    return day(stamp) if stamp == stamp.normalize() else f"{day(stamp)} {stamp:%H:%M}"


def percent(share: float, digits: int = 0) -> str:
    """Write a share.

    Examples
    --------
    >>> percent(0.0815, 1), percent(float("nan"))
    ('8.2%', 'unknown')
    """
    return "unknown" if pd.isna(share) else f"{100 * share:.{digits}f}%"


def level(share: float) -> str:
    """Write a probability that somebody chose, with all its digits.

    Examples
    --------
    >>> level(0.95), level(0.975)
    ('95%', '97.5%')
    """
    return f"{100 * share:.4g}%"


def short(value: object, width: int = 40) -> str:
    """Cut text that a log or a reader supplied, so that it does not fill the page.

    Examples
    --------
    >>> short("a name", 4), short("a name")
    ('a n…', 'a name')
    """
    text = str(value)
    return text if len(text) <= width else text[: width - 1] + "…"


def span(lead_time: str) -> str:
    """Write a length of time in whole days where it is one.

    Examples
    --------
    >>> span("90D"), span("36h")
    ('90 days', '1.5 days')
    """
    days = parse_duration(lead_time) / pd.Timedelta("1D")
    return f"{days:.3g} day{'' if days == 1 else 's'}"


def answer(numbers: dict[str, Any]) -> str:
    """Say in one sentence how many GPUs are required, by when, and how many there are.

    Parameters
    ----------
    numbers : dict
        As `gpudemand.report.analysis.requirement.headline` returns it.
    """
    required, installed = format_count(numbers["required"]), format_count(numbers["installed"])
    compared = f"{format_count(numbers['shortfall'])} more than" if numbers["shortfall"] else "no more than"
    there = "installed" if numbers["installed_from"] == "given" else "that it ever held at once"
    return f"By {day(numbers['plan_end'])} this cluster requires {required} GPUs, {compared} the {installed} {there}."


def timing(numbers: dict[str, Any]) -> str:
    """Say when the GPUs run short and by when to order."""
    there = "installed GPUs" if numbers["installed_from"] == "given" else "most GPUs held so far"
    if numbers["first_crossing"] is None:
        return _enough(numbers, there)
    crossing = f"Required GPUs first exceed the {there} on {day(numbers['first_crossing'])}; "
    name, order = first_order(numbers)
    if name is not None:
        crossing += f"{short(name)} by itself runs short earlier, on {day(numbers['type_first_crossing'])}; "
    return crossing + _due(numbers, order)


def first_order(numbers: dict[str, Any]) -> tuple[str | None, str | None]:
    """Find the type of GPU to be ordered first and its date; no type where all of them as one pool are due as early.

    Examples
    --------
    >>> pool = {"order_by": "2026-03-09", "first_short_type": "H100", "type_order_by": "2026-03-02"}
    >>> first_order(pool), first_order({**pool, "type_order_by": "2026-03-09"})
    (('H100', '2026-03-02'), (None, '2026-03-09'))
    """
    order, order_type = numbers["order_by"], numbers.get("type_order_by")
    if order_type is not None and (order is None or pd.Timestamp(order_type) < pd.Timestamp(order)):
        return numbers["first_short_type"], order_type
    return None, order


def _due(numbers: dict[str, Any], order: str | None) -> str:
    lead = f"with a lead time of {span(numbers['lead_time'])}"
    if pd.Timestamp(order) <= pd.Timestamp(numbers["log_end"]):
        return f"{lead} the order was due by {day(order)}, before the log ends: order now."
    return f"{lead}, order by {day(order)}."


def _enough(numbers: dict[str, Any], there: str) -> str:
    at = f"throughout, at a service level of {level(numbers['service_level'])}"
    name = numbers.get("first_short_type")
    if name is None:
        return f"The {there} suffice {at}."
    return (
        f"As one pool the {there} suffice {at}; type by type they do not: {short(name)} runs short from "
        f"{day(numbers['type_first_crossing'])}; {_due(numbers, numbers['type_order_by'])}"
    )


def what_decides(numbers: dict[str, Any]) -> str:
    """Name the quantity that requires most."""
    target = percent(numbers["target_utilization"])
    return _BASIS[numbers["basis"]].format(bin=bin_name(numbers["freq"]), target=target)


def types_note(numbers: dict[str, Any]) -> str:
    """Say how the plan by type of GPU is to be read."""
    installed = {
        "log": "the most of each type that the log ever held at once",
        "given": "as given; a dash where no number was given for the type",
    }[numbers["installed_from"]]
    return (
        "A job that asks for one type does not move to another, so each type needs its own reserve, and together they "
        "require at least as many as one pool of all of them. The forecasts of the means add up to that of the total. "
        f"Installed: {installed}. Shortfall and dates: at {level(numbers['service_level'])}."
    )


def basis(numbers: dict[str, Any]) -> str:
    """Say what decides: the mean or the peak."""
    source = (
        "as given"
        if numbers["installed_from"] == "given"
        else "taken as the most the log ever held at once, since no number was given"
    )
    return (
        f"What decides is {what_decides(numbers)}; demand stays within the required number with a probability of "
        f"{level(numbers['service_level'])}. Installed: {source}."
    )


def model(numbers: dict[str, Any]) -> str:
    """Say which model was used and how it did against the best naive method."""
    own, naive = numbers["wape"], numbers["best_naive_wape"]
    if own is None or naive is None:
        return f"Forecast by {numbers['model']}; the scored windows hold no demand, so no error can be given."
    if numbers["model"] == numbers["best_naive"]:
        error = f"on the newest windows its error was {percent(own, 1)} of demand (WAPE)"
        return f"Forecast by {numbers['model']}, a naive method that no candidate beat on the earlier windows; {error}."
    verdict = "better than" if own < naive else "no better than"
    return (
        f"Forecast by {numbers['model']}: on the newest windows, which it was not chosen on, its error was "
        f"{percent(own, 1)} of demand (WAPE), {verdict} the best naive method's {percent(naive, 1)} "
        f"({numbers['best_naive']})."
    )


def caution(numbers: dict[str, Any]) -> list[str]:
    """Warn where the backtest says that the answer should not be believed."""
    if numbers["wape"] is None or numbers["wape"] <= _LARGE_ERROR:
        return []
    return [
        f"Take care: on the newest windows the forecast was wrong by {percent(numbers['wape'])} of demand. Look at how "
        "the log ends; where recording wound down before the last job did, cut it off there with until."
    ]
