"""The HTML page: one self-contained file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpudemand import units
from gpudemand.planning.capacity.required import SHARES
from gpudemand.report.history.comparison import changed_settings
from gpudemand.report.history.earlier import EarlierReport
from gpudemand.report.page import formats, sentences
from gpudemand.report.page.caveats import caveats
from gpudemand.report.page.figures import Drawing
from gpudemand.report.page.formatted_table import format_table
from gpudemand.report.page.since import since_sentences
from gpudemand.report.page.summary import summarize
from gpudemand.stages.chain import Chain
from gpudemand.stages.sources.settings import BY
from gpudemand.usage.bins import bin_name

if TYPE_CHECKING:
    from jinja2 import Template

_HERE = Path(__file__).parent
_BY_NOUNS = {name: f"{name}s" for name in BY} | {"gpu_type": "GPU types", "qos": "QOS", "total": ""}
_POOL = (*(f"required_{share}" for share in SHARES), "shortfall", "first_crossing", "order_by")
#: Tables on the page, and their columns where not all that have a heading are shown.
_SHOWN: dict[str, tuple[str, ...] | None] = {
    "rejected": None,
    "gaps": None,
    "usage_shares": None,
    "concentration": None,
    "gpu_types": None,
    "slices": None,
    "waits": None,
    "segments": (
        "segment",
        "users",
        "gpu_hours",
        "share",
        "active_share",
        "span_share",
        "weekday_excess",
        "trend",
        "idle_days",
    ),
    "models": None,
    "events": None,
    "parts": (
        "part",
        "last",
        "next",
        "change",
        "width_80",
        "wape",
        "best_naive",
        "best_naive_wape",
        "coverage_80",
        "coverage_95",
    ),
    "run_time_ratios": None,
    "plan_summary": None,
    "risk": None,
    "gpu_type_plans": ("gpu_type", "installed", *_POOL),
    "cluster_plans": ("cluster", "installed", *_POOL),
    "purchase_mix": None,
    "orders": None,
    "wait_plan": ("gpus", "share_in_time", "p_met", "mean_wait_s", "mean_wait_s-hi-80", "saved_hours"),
    "drivers": None,
    "since_requirement": None,
    "since_scores": None,
    "since_drivers": None,
    "scenarios": None,
    "plan_backtest": None,
}


def render(
    chain: Chain,
    tables: dict[str, pd.DataFrame],
    figures: dict[str, Drawing],
    earlier: EarlierReport | None = None,
    style: str = "",
) -> str:
    """Render the template; text from the log is escaped.

    Parameters
    ----------
    chain : Chain
    tables : dict of str to DataFrame
        By the stem of their files.
    figures : dict of str to Drawing
        By name.
    earlier : EarlierReport, optional
        The one that this one is compared with.
    style : str, default=""
        Rules of CSS after those of the page.

    Returns
    -------
    str
    """
    from markupsafe import Markup  # of jinja2: figures are escaped already

    settings = chain.settings
    return _load_template().render(
        css=(_HERE / "page.css").read_text(encoding="utf-8") + style,
        n=chain.numbers,
        log=tables["log"].iloc[0],
        sentences=sentences,
        formats=formats,
        tables={
            name: format_table(name, tables[name], columns, limit=30 if name == "models" else 15)
            for name, columns in (_SHOWN | dict.fromkeys((f"idle_{by}" for by in BY), None)).items()
            if name in tables
        },
        top=_top_ten(tables["concentration"], tables["usage_shares"].iloc[:, 0], chain.source.names(settings.by)),
        figures={name: Markup(drawing.element(name)) for name, drawing in figures.items()},
        prices=settings.prices,
        lead_time=settings.lead_time,
        by=_BY_NOUNS[settings.by],
        unit=chain.source.unit,
        demand="wanted" if chain.source.demand == "wanted" else "held",
        bin=bin_name(settings.freq),
        files=sorted(tables),
        **_texts(chain, tables, earlier),
    )


def _texts(chain: Chain, tables: dict[str, pd.DataFrame], earlier: EarlierReport | None) -> dict[str, Any]:
    numbers, attempt = chain.numbers, chain.skipped.attempt
    parts = attempt("parts", lambda: chain.parts)
    segments = attempt("segments", lambda: chain.segments)
    scenarios = attempt("scenarios", lambda: chain.scenarios)
    since = [] if earlier is None else since_sentences(tables, earlier, changed_settings(earlier, chain))
    return {
        "summary": [*chain.source.unlikely(), *summarize(numbers, tables, "" if parts is None else parts.by), *since],
        "since": since,
        "caveats": caveats(numbers, chain.demand.windows, tables, chain.skipped, scenarios),
        "skipped": chain.skipped,
        "segment_notes": () if segments is None else segments.notes,
        "part": "" if parts is None else parts.by.replace("gpu_type", "GPU type"),
        "part_model": "" if parts is None else parts.model,
        "idle": sentences.idle(attempt("idle", lambda: chain.idle)),
        "wanted": sentences.wanted(tables["wanted"], chain.settings.freq, jobs=numbers["jobs"] is not None)
        # Held and wanted are the same where a log tells no starts.
        if "wanted" in tables and ("waits" in tables or numbers["jobs"] is None)
        else "",
    }


def _load_template() -> Template:
    """Template of the page: escapes by default, and raises an error for an undefined name."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters.update(
        count=units.format_count,
        plural=units.plural,
        date=formats.format_date,
        share=formats.format_share,
        level=formats.format_level,
    )
    return environment.get_template("page.html.jinja")


def _top_ten(concentration: pd.DataFrame, users: pd.Series, named: list[str]) -> dict[str, Any]:
    """Share of the ten largest, or of all where there are fewer; and whether jobs without a name are one of them."""
    rows = concentration[concentration["largest"] <= 10]
    row = rows.iloc[-1] if len(rows) else concentration.iloc[0]
    of, share = int(row["of"]), float(row["share"])
    return {"largest": int(row["largest"]), "of": of, "share": share, "unnamed": "unknown" in {*users} - {*named}}
