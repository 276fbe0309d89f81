"""Numbers of a report for programs: what ``report.json`` holds beside the list of files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

import gpudemand
from gpudemand.report.history.earlier import FORMAT, KEPT, MADE_BY
from gpudemand.report.history.settings import plain, settings_of
from gpudemand.report.page.sentences import first_order, is_due
from gpudemand.stages.chain import Chain
from gpudemand.stages.gpu_types import ALL


def report_numbers(chain: Chain, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Collect the numbers of a report as plain JSON; ``report.schema.json`` beside this file describes them.

    Parameters
    ----------
    chain : Chain
    tables : mapping of str to DataFrame
        Of the report, by the stem of their files.

    Returns
    -------
    dict
    """
    gpu_type, order = first_order(chain.numbers)
    return {
        "made_by": MADE_BY,
        "format": FORMAT,
        "version": gpudemand.__version__,
        "headline": plain(chain.numbers),
        "order": {"due": is_due(chain.numbers, order), "by": order, "gpu_type": gpu_type},
        "settings": settings_of(chain),
        "tables": dict(KEPT),
        "gpu_types": _gpu_types(tables.get("gpu_type_plans", pd.DataFrame())),
        "since": _since(tables),
    }


def _gpu_types(table: pd.DataFrame) -> dict[str, Any]:
    """Requirement by GPU type; null where the number installed of the type is not known."""
    names = ("required", "installed", "shortfall")
    return {
        str(row["gpu_type"]): {name: plain(row.get(name)) for name in names}
        for row in table.to_dict("records")
        if row["gpu_type"] != ALL
    }


def _since(tables: Mapping[str, pd.DataFrame]) -> dict[str, Any] | None:
    """The earlier report that this one is compared with, and how its forecast did."""
    if "since_requirement" not in tables:
        return None
    then = tables["since_requirement"].iloc[0]
    scores = tables.get("since_scores", pd.DataFrame()).to_dict("records")
    return {
        "log_end": then["log_end"].isoformat(),
        "required": plain(then["required"]),
        "forecast": [{str(name): plain(value) for name, value in row.items()} for row in scores],
    }
