"""What the page can be asked: whose demand it is, the requirement for other targets, what orders lead to.

The page holds all answers, as numbers and sentences of the study; its script chooses among them and computes none.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand.planning.capacity import SHARES
from gpudemand.plotting import base
from gpudemand.report import text
from gpudemand.report.tables import (
    MISSING,
    format_date,
    format_level,
    format_risk,
    format_share,
    format_wait,
    signed_count,
    truncate,
)
from gpudemand.study.selection import SCORED_LEVELS
from gpudemand.study.usage_tables import MEAN, held_and_wanted
from gpudemand.units import SECONDS_PER_HOUR, format_count, format_number_of, format_seconds, parse_duration
from gpudemand.usage.series import to_wide

if TYPE_CHECKING:
    from gpudemand.study.study import Study
    from gpudemand.study.waits import Need

_HERE = Path(__file__).parent
#: Names that are shown of a period, and days of the log.
_TOP, _MOST_DAYS = 10, 800


def explore(study: Study, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Choices of each panel of the page, and the answers to them; a panel that the log does not allow is missing."""
    panels = {"outlook": _outlook(study, tables.get("orders"))}
    if "demand_by_period" in tables:
        panels["demand"] = _demand(study, tables["demand_by_period"])
    return panels


def scripts() -> list[tuple[str, str]]:
    """Scripts of the page, each with the hash by which the page's policy allows it."""
    texts = [(_HERE / name).read_text(encoding="utf-8") for name in ("uplot.min.js", "explore.js")]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in texts]
    return [(script, f"sha256-{digest}") for script, digest in zip(texts, digests, strict=True)]


def as_json(panels: Mapping[str, Any]) -> str:
    r"""JSON that cannot end the element of a page in which it stands.

    >>> print(as_json({"name": "</script>"}))
    {"name":"\u003c/script>"}
    """
    return json.dumps(panels, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _outlook(study: Study, orders: pd.DataFrame | None) -> dict[str, Any]:
    """Demand so far and ahead, the requirement by target and probability, and GPUs installed by order."""
    settings, bins = study.settings, pd.DatetimeIndex(study.requirement.envelope()["ds"])
    stated = settings.stated_target
    needs = study.attempt("targets", lambda: study.target_needs) or {stated: study.need}
    waits, shares = (list(dict.fromkeys(each)) for each in zip(*needs, strict=True))
    levels = sorted({*SHARES.values(), settings.service_level})
    needed = {pair: need.quantiles(np.array(levels), bins).T for pair, need in needs.items()}
    # Needs are those of whole weeks; the last bin ends the last step.
    changes = np.flatnonzero((np.diff(np.concatenate([*needed.values()]), axis=1) != 0).any(axis=0)) + 1
    steps = np.unique([0, *changes, len(bins) - 1])
    choices = [
        _choice(
            "level", "With probability", [format_level(level) for level in levels], levels.index(settings.service_level)
        )
    ]
    if study.need.target is not None:
        names = [format_seconds(parse_duration(wait).total_seconds()) for wait in waits]
        choices = [
            _choice("wait", "Jobs start within", names, waits.index(stated[0])),
            _choice("share", "So many of them", [format_level(share) for share in shares], shares.index(stated[1])),
            *choices,
        ]
    labels, there, said = _orders(study, orders, bins)
    cells = [[(wait, share) for share in shares] for wait in waits]
    return {
        "choices": [*choices, _choice("order", "GPUs ordered", labels, 0)],
        "lines": _lines(study),
        "required": {
            "x": _times(bins[steps]),
            "y": [[[_numbers(np.ceil(line)) for line in needed[pair][:, steps]] for pair in row] for row in cells],
        },
        "said": [[[_said(study, needs[pair], *pair, level) for level in levels] for pair in row] for row in cells],
        "installed": {"x": _times(bins), "y": there},
        "orders": said,
    }


def _choice(name: str, title: str, options: Sequence[str], chosen: int) -> dict[str, Any]:
    return {"name": name, "title": title, "options": options, "chosen": chosen}


def _said(study: Study, need: Need, wait: str, share: float, level: float) -> str:
    """The first sentence of the page for another target and probability."""
    n = study.headline
    required = float(np.ceil(need.at(pd.Timestamp(str(n["order_arrives"])), level)))
    other = {"wait": wait, "wait_share": share, "service_level": level, "required": required}
    return text.requirement(n | other | {"shortfall": max(required - float(str(n["installed_later"])), 0.0)})


def _orders(study: Study, table: pd.DataFrame | None, bins: pd.DatetimeIndex) -> tuple[list[str], list[Any], list[str]]:
    """Names of the orders compared, GPUs installed by bin with each, and what it leads to."""
    n, installed = study.headline, study.requirement.installed_at(bins.to_series())
    if table is None:
        return ["none"], [_numbers(installed)], [""]
    there: list[list[float | None]] = []
    labels, said = [], []
    for row in table.itertuples():
        when = "" if pd.isna(row.order_on) else "now" if len(there) == 1 else f"on {format_date(row.order_on)}"
        labels.append(f"{format_count(row.order)} {when}" if when else "none")
        there.append(_numbers(installed + row.order * np.asarray(bins >= row.in_service)))
        order = f"With {format_number_of('GPU', row.order)} ordered {when}" if when else "Without an order"
        said.append(
            _leads_to(row, f"{order}, {text.missed(n)} in the four weeks from {format_date(n['order_arrives'])} on")
        )
    return labels, there, said


def _leads_to(row: Any, missed: str) -> str:
    """What is expected with an order.

    >>> row = pd.Series({"risk": 0.57, "share_in_time": 0.83, "mean_wait_h": 0.25, "idle_share": 0.4, "unmet_share": 0})
    >>> print(_leads_to(row, "Without an order, jobs wait"))
    Without an order, jobs wait with probability 57%. Expected: 83% of the jobs in time, a mean wait of 15 min,
    40% of the GPUs idle, 0.0% of the demand unmet.
    """
    expected = list[str]()
    if pd.notna(row.mean_wait_h):
        expected.append(f"{format_share(row.share_in_time)} of the jobs in time")
        expected.append(f"a mean wait of {format_wait(row.mean_wait_h * SECONDS_PER_HOUR)}")
    if pd.notna(row.idle_share):
        expected.append(f"{format_share(row.idle_share)} of the GPUs idle")
        expected.append(f"{format_share(row.unmet_share, 1)} of the demand unmet")
    if pd.notna(cost := getattr(row, "cost", np.nan)):
        expected.append(f"a cost of {format_count(cost)}")
    told = f" Expected: {', '.join(expected)}." if expected else ""
    return f"{missed} with probability {format_risk(row.risk)}.{told}"


def _lines(study: Study) -> list[dict[str, Any]]:
    """Demand so far, and as forecast with its intervals."""
    history, ahead, model = held_and_wanted(study.usage_tables), study.demand.forecast, study.demand.model
    ahead = ahead[ahead["unique_id"] == MEAN]
    past = ({"wanted": base.BASELINE} if study.source.demand == "wanted" else {}) | {"held": base.MEASURED}
    lines = [(history, name, name, color) for name, color in past.items()]
    lines.append((ahead, model, "forecast, median", base.PREDICTED))
    for level in SCORED_LEVELS[::-1]:
        for side, end in (("hi", "to"), ("lo", "from")):
            lines.append((ahead, f"{model}-{side}-{level}", f"{level}% interval {end}", ""))
    return [
        {"label": label, "color": color, "x": _times(frame["ds"]), "y": _numbers(frame[column])}
        for frame, column, label, color in lines
    ]


def _demand(study: Study, table: pd.DataFrame) -> dict[str, Any]:
    """Demand of the largest of each period by day, their rows, and a sentence on each period."""
    source, keys, periods = study.source, list(table["by"].unique()), table.drop_duplicates("period")
    total = source.usage(None, "D", source.demand).tail(_MOST_DAYS)
    days = pd.DatetimeIndex(total["ds"])
    return {
        "choices": [
            _choice("by", "By", [text.noun(key) for key in keys], 0),
            _choice("period", "Period", list(periods["period"]), 0),
        ],
        "what": f"GPUs {'wanted' if source.demand == 'wanted' else 'held'}",
        "colors": base.LINES,
        "x": _times(days),
        "total": _numbers(total["y"]),
        "spans": [[max(_time(row.begin), _time(days[0])), _time(row.end)] for row in periods.itertuples()],
        "answers": [_answers(source, table[table["by"] == key], key, list(periods["period"]), days) for key in keys],
    }


def _answers(source: Any, table: pd.DataFrame, by: str, periods: list[str], days: pd.DatetimeIndex) -> dict[str, Any]:
    """Series of all names that are among the largest of a period, and the rows and the sentence of each."""
    rows = {period: table[table["period"] == period] for period in periods}
    names = list(dict.fromkeys(name for part in rows.values() for name in part["name"].head(_TOP)))
    wide = to_wide(source.usage(by, "D", source.demand)).reindex(index=names, columns=days)
    return {
        "names": [truncate(name) for name in names],
        "y": [_numbers(values) for values in wide.to_numpy()],
        "rows": [_rows(part, names, text.noun(by)) for part in rows.values()],
        "said": [text.whose_demand(part, text.noun(by), source.demand) for part in rows.values()],
    }


def _rows(part: pd.DataFrame, names: list[str], noun: str) -> list[list[Any]]:
    """Index of a name (none of the others together), what it is called, mean, share and change."""
    first, others = part.head(_TOP), part.iloc[_TOP:]
    rows: list[tuple[int | None, str, Any]] = [
        (names.index(row["name"]), truncate(row["name"]), row) for _, row in first.iterrows()
    ]
    if len(others):
        sums = others[["gpus", "share", "change_gpus"]].sum(min_count=1)
        rows.append((None, format_number_of(f"other {noun}", len(others)), sums))
    changes = [MISSING if pd.isna(row["change_gpus"]) else signed_count(row["change_gpus"]) for _, _, row in rows]
    return [
        [place, name, format_count(row["gpus"], 1), format_share(row["share"], 1), change]
        for (place, name, row), change in zip(rows, changes, strict=True)
    ]


def _time(time: pd.Timestamp) -> int:
    """Seconds of a local time, as if it were in UTC, in which the page shows it."""
    return int(time.tz_localize(None).timestamp())


def _times(times: Any) -> list[int]:
    return [_time(time) for time in pd.DatetimeIndex(times)]


def _numbers(values: Any) -> list[float | None]:
    """Numbers with two digits after the point; none for NaN."""
    rounded = [round(float(value), 2) for value in values]
    return [None if value != value else int(value) if value.is_integer() else value for value in rounded]
