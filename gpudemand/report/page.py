"""The page: one HTML file that loads nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand import units
from gpudemand.plotting._base import bin_name
from gpudemand.report import words
from gpudemand.report.cells import Cells, cells
from gpudemand.report.settings import Settings

_HERE = Path(__file__).parent
_WHO = {"user": "users", "group": "groups", "cluster": "clusters", "gpu_type": "GPU types", "total": ""}


def render(
    numbers: dict[str, Any],
    tables: dict[str, pd.DataFrame],
    pictures: dict[str, str],
    trust: list[str],
    settings: Settings,
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
    trust : list of str
        What a reader should know before believing the answer.
    settings : Settings

    Returns
    -------
    str
        The whole page.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters.update(count=units.format_count, day=words.day, percent=words.percent)
    return environment.get_template("page.html.jinja").render(
        css=(_HERE / "page.css").read_text(encoding="utf-8"),
        n=numbers,
        log=tables["log"].iloc[0],
        words=words,
        cells=_cells(tables),
        top=_top_ten(tables["concentration"]),
        pictures=pictures,
        trust=trust,
        who=_WHO[settings.by],
        bin=bin_name(settings.freq),
        files=sorted(tables),
    )


def _cells(tables: dict[str, pd.DataFrame]) -> dict[str, Cells]:
    shown = ("rejected", "who", "concentration", "gpu_types", "models", "plan_summary")
    return {name: cells(name, tables[name], limit=30 if name == "models" else 15) for name in shown}


def _top_ten(concentration: pd.DataFrame) -> dict[str, Any]:
    """Ten largest, or all where there are fewer."""
    rows = concentration[concentration["largest"] <= 10]
    row = rows.iloc[-1] if len(rows) else concentration.iloc[0]
    return {"largest": int(row["largest"]), "of": int(row["of"]), "share": float(row["share"])}
