"""The page: one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand import units
from gpudemand.planning.capacity.plan import SHARES
from gpudemand.report.analysis.settings import Settings
from gpudemand.report.page import sentences
from gpudemand.report.page.cells import Cells, cells
from gpudemand.usage.bins import bin_name

_HERE = Path(__file__).parent
_WHO = {"user": "users", "group": "groups", "cluster": "clusters", "gpu_type": "GPU types", "total": ""}
_PARTS = {"gpu_type": "type of GPU"}
#: Tables on the page, and their columns where not all that have a heading are shown.
_SHOWN: dict[str, tuple[str, ...] | None] = {
    "rejected": None,
    "who": None,
    "concentration": None,
    "gpu_types": None,
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
    "parts": ("part", "last", "next", "change", "wape", "best_naive", "best_naive_wape", "coverage_80", "coverage_95"),
    "plan_summary": None,
    "risk": None,
    "types": (
        "gpu_type",
        "installed",
        *(f"required_{share}" for share in SHARES),
        "shortfall",
        "first_crossing",
        "order_by",
    ),
    "money": ("break_even_share", "reserve", "on_demand_gpu_hours", "cost", "cost_reserved", "cost_on_demand"),
    "scenarios": None,
    "past_plans": None,
}


def render(
    numbers: dict[str, Any],
    tables: dict[str, pd.DataFrame],
    pictures: dict[str, str],
    story: list[str],
    trust: list[str],
    gaps: Mapping[str, str],
    settings: Settings,
    parted: tuple[str, str] = ("", ""),
) -> str:
    """Fill the template; whatever a log supplied is escaped.

    Parameters
    ----------
    numbers : dict
        The headline.
    tables : dict of str to DataFrame
        By the stem of their files.
    pictures : dict of str to str
        Name -> ``data:`` address.
    story : list of str
        The answer in a few sentences.
    trust : list of str
        What a reader should know before believing the answer.
    gaps : mapping of str to str
        Sections that could not be made -> why.
    settings : Settings
    parted : (str, str)
        What a part of the total is (``"segment"``, ``"group"``, ...), and the method that forecast it.

    Returns
    -------
    str
        The whole page.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters.update(
        count=units.format_count, day=sentences.day, percent=sentences.percent, level=sentences.level
    )
    return environment.get_template("page.html.jinja").render(
        css=(_HERE / "page.css").read_text(encoding="utf-8"),
        n=numbers,
        log=tables["log"].iloc[0],
        sentences=sentences,
        cells=_cells(tables),
        top=_top_ten(tables["concentration"]),
        pictures=pictures,
        story=story,
        trust=trust,
        gaps=gaps,
        part=_PARTS.get(parted[0], parted[0]),
        part_model=parted[1],
        prices=settings.prices,
        who=_WHO[settings.by],
        bin=bin_name(settings.freq),
        files=sorted(tables),
    )


def _cells(tables: dict[str, pd.DataFrame]) -> dict[str, Cells]:
    return {
        name: cells(name, tables[name], columns, limit=30 if name == "models" else 15)
        for name, columns in _SHOWN.items()
        if name in tables
    }


def _top_ten(concentration: pd.DataFrame) -> dict[str, Any]:
    """Ten largest, or all where there are fewer."""
    rows = concentration[concentration["largest"] <= 10]
    row = rows.iloc[-1] if len(rows) else concentration.iloc[0]
    return {"largest": int(row["largest"]), "of": int(row["of"]), "share": float(row["share"])}
