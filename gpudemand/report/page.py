"""The page of the report."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpudemand._files import open_to_read
from gpudemand._validation import InputError
from gpudemand.planning.capacity import SHARES
from gpudemand.report import limitations, text
from gpudemand.report.explore import as_json, explore, scripts
from gpudemand.report.figures import Drawing
from gpudemand.report.history import EarlierReport, changed_settings, since_sentences
from gpudemand.report.tables import (
    format_date,
    format_days,
    format_level,
    format_share,
    format_table,
    format_time,
    truncate,
    unbroken,
)
from gpudemand.study.gpu_types import ALL, first_shortfall
from gpudemand.study.scenarios import BASE
from gpudemand.study.settings import BY
from gpudemand.units import format_count, format_number_of, plural
from gpudemand.usage.bins import bin_name

if TYPE_CHECKING:
    from jinja2 import Template

    from gpudemand.study.study import Study


def summarize(
    numbers: dict[str, Any], tables: Mapping[str, pd.DataFrame], part: str, *, ended: bool = False
) -> list[str]:
    """Sentences of the summary; `part`: what a part is, such as ``"segment"``. `ended`: see `times_without_use`."""
    result = [
        text.basis(numbers),
        text.programmes(numbers, tables.get("programmes")),
        log_span(tables.get("log")),
        held_beyond(numbers, tables.get("log")),
    ]
    result += [*limitations.times_without_use(numbers, tables, ended=ended), limitations.short_horizon(numbers)]
    earlier = text.earlier_plans(tables.get("order_backtest"), numbers["service_level"])
    result += [earlier, text.slower_than_simulated(numbers)]
    if "waits" in tables:
        result += text.waits(tables["waits"].iloc[0], numbers)
    if "gpu_type_plans" in tables:
        result.append(gpu_types_sentence(tables["gpu_type_plans"], numbers, tables.get("gpu_types")))
    if "cluster_plans" in tables:
        result.append(gpu_types_sentence(tables["cluster_plans"], numbers))
    result += [risk_sentence(numbers), demand_sentence(numbers)]
    if "drivers" in tables:
        result.append(drivers_sentence(tables["drivers"]))
    if "parts" in tables:
        result += [parts_sentence(tables["parts"], part), uncertain_sentence(tables["parts"], part)]
    if len(tables.get("scenarios", ())) > 1:
        result.append(scenarios_sentence(tables["scenarios"]))
    return [*filter(None, result), text.model_accuracy(numbers)]


def log_span(log: pd.DataFrame | None) -> str:
    """What the forecast rests on: the length of the log, and what its GPUs are where they may be none.

    >>> first, last = pd.to_datetime(["1996-09-30", "1997-08-29"], utc=True)
    >>> log = pd.DataFrame({"first": [first], "last": last, "jobs": 9, "processors": True, "unknown_start": 0})
    >>> print(log_span(log))
    The log spans 333 days, from 30 Sep 1996 to 29 Aug 1997. It counts processors, which are called GPUs here.
    >>> print(log_span(log.assign(processors=False, running=40)))
    The log spans 333 days, from 30 Sep 1996 to 29 Aug 1997. As it ends, 40 jobs without an end count as running.
    """
    if log is None:
        return ""
    row: Any = log.iloc[0]
    days = format_number_of("day", (row["last"] - row["first"]) / pd.Timedelta("1D"))
    said = f"The log spans {days}, from {format_date(row['first'])} to {format_date(row['last'])}."
    if pd.isna(row["jobs"]):
        said += " It holds no jobs, but usage over time, whose numbers count as mean GPUs held."
    if row["processors"]:
        said += " It counts processors, which are called GPUs here."
    if row.get("running"):
        said += f" As it ends, {format_number_of('job', row['running'])} without an end count as running."
    if row["unknown_start"]:
        said += (
            f" Of {format_number_of('job', row['unknown_start'])} it does not tell the start: they count as held from "
            "their submission, so that more GPUs may seem held at once than there were."
        )
    return said


def held_beyond(numbers: dict[str, Any], log: pd.DataFrame | None) -> str:
    """Warn of more GPUs held at once in the log than are said to be installed.

    >>> log = pd.DataFrame({"max_held": [120.0]})
    >>> print(held_beyond({"installed": 96.0, "installed_from": "given"}, log))
    Up to 120 GPUs were held at once in the log, more than the 96 installed: unless GPUs have left since, check both.
    """
    most = 0.0 if log is None else float(log.iloc[0].get("max_held", 0.0))
    if numbers["installed_from"] == "log" or not most > numbers["installed"]:
        return ""
    return (
        f"Up to {format_number_of('GPU', most)} were held at once in the log, more than the "
        f"{format_count(numbers['installed'])} installed: unless GPUs have left since, check both."
    )


def drivers_sentence(table: pd.DataFrame) -> str:
    """Change since the period before, and the users and GPU types behind it."""
    total: Any = table.iloc[0]
    parts = [_driver(row) for row in table.iloc[1:].itertuples() if abs(row.change_gpus) >= 0.5]
    digits = 0 if min(total["before"], total["after"]) >= 10 else 1
    before, after = (format_count(total[name], digits) for name in ("before", "after"))
    days = format_number_of("day", table.attrs["days"])
    said = f"Mean demand was {after} GPUs in the last {days}, and {before} in as many before"
    return f"{said}: {', '.join(parts)}." if parts else f"{said}."


def _driver(row: Any) -> str:
    noun = next((row.driver.split(f"s {word} ")[0] for word in ("who", "that") if f"s {word} " in row.driver), None)
    most = "" if noun is None else f" (most of all {noun} {truncate(row.most)})"
    return f"{truncate(row.driver)} {row.change_gpus:+,.0f}{most}"


def demand_sentence(numbers: dict[str, Any]) -> str:
    """Forecast of the bin with the largest mean demand, with its 95% interval."""
    low, high = format_count(numbers["peak_bin_lo_95"]), format_count(numbers["peak_bin_hi_95"])
    median = format_number_of("GPU", numbers["peak_bin_median"])
    begin = numbers["peak_bin"]
    begun = ", in which the log ends" * (pd.Timestamp(begin) < pd.Timestamp(numbers["log_end"]))
    return (
        f"The {bin_name(numbers['freq'])} with the largest demand ahead is {format_time(begin)}{begun}: the "
        f"median forecast is a mean of {median}, the 95% interval {low} to {high}."
    )


def risk_sentence(numbers: dict[str, Any]) -> str:
    """GPUs required by probability."""
    counts = {p: format_count(numbers[f"required_p{p}"]) for p in (90, 95, 99)}
    median = numbers["required_p50"]
    return (
        f"{format_number_of('GPU', median)} suffice{'s' * (median == 1)} with probability 50%, {counts[90]} with 90%, "
        f"{counts[95]} with 95% and {counts[99]} with 99%."
    )


def parts_sentence(table: pd.DataFrame, part: str) -> str:
    """The part with the largest forecast and the one with the largest change."""
    rows = table.iloc[1:]
    total = float(table["next"].iloc[0])
    largest: Any = rows.loc[rows["next"].idxmax()]
    changing: Any = rows.loc[(rows["next"] - rows["last"]).abs().idxmax()]
    if not total:
        return f"No {part} is forecast to hold a GPU."
    change = f"from {format_count(changing['last'])} to {format_number_of('GPU', changing['next'])}"
    said = f"{part} {truncate(largest['part'])} is {format_share(largest['next'] / total)} of the mean demand forecast"
    said = said[0].upper() + said[1:]
    if abs(changing["next"] - changing["last"]) < 1:
        return f"{said}; no {part} changes by a whole GPU."
    if changing["part"] == largest["part"]:
        return f"{said}, and has the largest change, {change}."
    return f"{said}; the largest change is that of {part} {truncate(changing['part'])}, {change}."


def uncertain_sentence(table: pd.DataFrame, part: str) -> str:
    """The three parts with the widest intervals, where there are more."""
    if len(table) < 5:
        return ""
    rows = table.iloc[1:].nlargest(3, "width_80")
    named = "; ".join(f"{truncate(row.part)} ({format_count(row.width_80)})" for row in rows.itertuples())
    return f"The most uncertain {part}s, by the width of a bin's 80% interval in GPUs: {named}."


def gpu_types_sentence(table: pd.DataFrame, numbers: dict[str, Any], types: pd.DataFrame | None = None) -> str:
    """GPUs required by type, with the jobs of each, or by cluster, and the first to run short."""
    by, rows = table.columns[0], table[table.iloc[:, 0] != ALL]
    noun = "type" if by == "gpu_type" else by
    jobs = {} if types is None or "jobs" not in types else types.set_index("gpu_type")["jobs"].to_dict()
    by_type = ", ".join(_required(str(row[1]), row, jobs.get(row[1])) for row in rows.itertuples())
    said = (
        f"{format_number_of('GPU', numbers['required'])} are required as one pool, in which a job may run on any GPU. "
        f"By {noun}, each a pool of its own, at the {format_level(numbers['service_level'])} "
        f"service level: {by_type}; {format_count(rows['required'].sum())} in total"
    )
    first = first_shortfall(table)
    if first is None:
        return f"{said}."
    return f"{said}; {truncate(first[by])} runs short first, on {format_date(first['first_crossing'])}."


def _required(name: str, row: Any, jobs: float | None) -> str:
    notes = [] if jobs is None else [f"from {format_number_of('job', jobs)}"]
    notes += [f"{format_count(math.ceil(row.shortfall))} short"] if row.shortfall > 0 else []
    return f"{truncate(name)} {format_count(row.required)}" + (f" ({', '.join(notes)})" if notes else "")


def scenarios_sentence(table: pd.DataFrame) -> str:
    """GPUs required in each scenario."""
    rows = table[table["scenario"] != BASE]
    required = [f"{truncate(row.scenario, 80)}: {format_count(row.required)}" for row in rows.itertuples()]
    return f"GPUs required in scenarios (base case {format_count(table['required'].iloc[0])}): {'; '.join(required)}."


_HERE = Path(__file__).parent
_POOL = f"installed {' '.join(f'required_{share}' for share in SHARES)} shortfall first_crossing order_by"
#: Columns of tables on the page, where not all that have a heading are shown.
_SOME = {
    "segments": "segment users gpu_hours share active_share span_share weekday_excess trend idle_days",
    "parts": "part last next change width_80 wape best_naive best_naive_wape coverage_80 coverage_95",
    "gpu_type_plans": f"gpu_type {_POOL}",
    "cluster_plans": f"cluster {_POOL}",
    "purchases": "option to_buy order_by order_arrives risk late_share idle_share rented_gpu_hours energy_mwh "
    "cost_year cost_year-lo-90 cost_year-hi-90 cost_gpu_hour",
    "wait_plan": "gpus share_in_time p_met mean_wait_s mean_wait_s-hi-80 saved_hours",
}
_SHOWN = (
    "rejected gaps usage_shares concentration gpu_types slices waits models events run_time_ratios plan_summary risk "
    "purchase_mix break_even orders programmes order_range "
    "requirement_steps periods targets order_backtest drivers since_requirement since_scores since_drivers scenarios"
)


def render(
    study: Study,
    tables: dict[str, pd.DataFrame],
    figures: dict[str, Drawing],
    earlier: EarlierReport | None = None,
    style: str = "",
) -> str:
    """Render the template; text from the log is escaped."""
    from markupsafe import Markup  # of jinja2: figures are escaped already

    settings, panels = study.settings, explore(study, tables)
    rules = [(_HERE / name).read_text(encoding="utf-8") for name in ("uplot.min.css", "page.css")]
    return _load_template().render(
        css="\n".join(rules) + style,
        panels=panels,
        panels_json=Markup(as_json(panels)),
        scripts=scripts(),
        n=study.headline,
        log=tables["log"].iloc[0],
        sentences=text,
        tables={
            name: format_table(
                name,
                tables[name],
                _SOME.get(name, "").split(),
                limit=30 if name == "models" else 15,
            )
            for name in (*_SHOWN.split(), *_SOME, *(f"idle_{by}" for by in BY))
            if name in tables
        },
        top=_top_ten(tables["concentration"], tables["usage_shares"].iloc[:, 0], study.source.names(settings.by)),
        figures={name: Markup(drawing.element(name)) for name, drawing in figures.items()},
        prices=settings.prices,
        by_name=isinstance(settings.installed, Mapping),
        lead_time=settings.lead_time,
        by={"gpu_type": "GPU types", "qos": "QOS", "total": ""}.get(settings.by, f"{settings.by}s"),
        unit=study.source.unit,
        demand="wanted" if study.source.demand == "wanted" else "held",
        bin=bin_name(settings.freq),
        files=sorted(tables),
        **tables["requirement_steps"].attrs,
        **_texts(study, tables, earlier),
    )


def _texts(study: Study, tables: dict[str, pd.DataFrame], earlier: EarlierReport | None) -> dict[str, Any]:
    numbers, attempt = study.headline, study.attempt
    parts = attempt("parts", lambda: study.parts)
    part = "" if parts is None else parts.by.replace("gpu_type", "GPU type")
    segments = attempt("segments", lambda: study.user_segments)
    scenarios = attempt("scenarios", lambda: study.scenario_plans)
    since = [] if earlier is None else since_sentences(tables, earlier, changed_settings(earlier, study))
    # Held and wanted are the same where a log tells no starts.
    wanted = "wanted" in tables and ("waits" in tables or numbers["jobs"] is None)
    return {
        "summary": [
            *(said[:1].upper() + said[1:] for said in study.source.unlikely()),
            *summarize(numbers, tables, part, ended=bool(study.source.silence())),
            *since,
        ],
        "since": since,
        "caveats": limitations.caveats(numbers, study.demand.windows, tables, study.skipped, scenarios),
        "skipped": study.skipped,
        "purchases": text.purchases(tables.get("purchases"), tables.get("break_even")),
        "segment_notes": () if segments is None else segments.notes,
        "part": part,
        "part_model": "" if parts is None else parts.model,
        "idle": text.idle(attempt("idle", lambda: study.idle_tables)),
        "wanted": text.wanted(tables["wanted"], study.settings.freq, jobs=numbers["jobs"] is not None)
        if wanted
        else "",
    }


def _load_template() -> Template:
    """Template of the page: escapes by default, and raises an error for an undefined name."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    filters = {
        "count": format_count,
        "plural": plural,
        "date": format_date,
        "share": format_share,
        "level": format_level,
        "unbroken": unbroken,
    }
    environment.filters.update(filters, days=format_days, shorten=truncate)
    return environment.get_template("page.html.jinja")


def _top_ten(concentration: pd.DataFrame, users: pd.Series, named: list[str]) -> dict[str, Any]:
    """Share of the ten largest, or of all where there are fewer; and whether jobs without a name are one of them."""
    rows = concentration[concentration["largest"] <= 10]
    row = rows.iloc[-1] if len(rows) else concentration.iloc[0]
    of, share = int(row["of"]), float(row["share"])
    return {"largest": int(row["largest"]), "of": of, "share": share, "unnamed": "unknown" in {*users} - {*named}}


_MAX_BYTES = 1_000_000
#: What would end the style's element, and what a browser would fetch: the page is one file.
_REFUSED = re.compile(r"</|@import|(?<![\w-])(?:src|url|image-set)\s*\((?!\s*[\"']?data:)", re.IGNORECASE)


def read_style(path: str | os.PathLike[str] | None) -> str:
    """Read rules of CSS that are put into the page, after its own; empty without a path.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "company.css")
    >>> _ = file.write_text(":root { --blue: #005a3c; }")
    >>> read_style(file)
    ':root { --blue: #005a3c; }'
    """
    if path is None:
        return ""
    try:
        with open_to_read(Path(path)) as file:
            content = file.read(_MAX_BYTES + 1)
        text = content.decode("utf-8-sig", "strict" if len(content) <= _MAX_BYTES else "replace")
    except (OSError, ValueError) as error:
        raise InputError(f"style {str(path)!r} cannot be read as text; name a file of CSS.") from error
    if len(content) > _MAX_BYTES:
        raise InputError(f"style {str(path)!r} has more than a megabyte; name a smaller file of CSS.")
    if (found := _REFUSED.search(text)) is not None:
        raise InputError(
            f"style {str(path)!r} holds {found[0]!r}, but the page is one file; put fonts and images in as data: URLs."
        )
    return text
