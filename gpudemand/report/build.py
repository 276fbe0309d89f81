"""Write the report on a study: page, figures, tables, numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import gpudemand
from gpudemand._files import replace_folder
from gpudemand._tables import write_table
from gpudemand.report.figures import Drawing, draw_figures
from gpudemand.report.history import (
    FORMAT,
    KEPT,
    MADE_BY,
    MANIFEST,
    EarlierReport,
    compare_requirements,
    drivers_since,
    earlier_report,
    keep_history,
    past_forecast,
    plain,
    score_forecast,
    settings_of,
)
from gpudemand.report.page import read_style, render
from gpudemand.report.text import first_order, is_due
from gpudemand.study.chain import Chain
from gpudemand.study.gpu_types import ALL, GpuTypePlans
from gpudemand.study.requirement import backtest_plans, risk_table
from gpudemand.study.usage_tables import held_and_wanted


def report_numbers(chain: Chain, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Collect the numbers of a report as plain JSON; ``report.schema.json`` beside this file describes them.

    `tables`: of the report, by the stem of their files.
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


def write_report(
    chain: Chain, out_dir: str | Path, previous: str | Path | None = None, style: str | Path | None = None
) -> Path:
    """Write the stages of a study as a page, with its figures and tables as files; nothing is computed but them.

    `out_dir`: folder of the report. `previous`: folder of the report to compare with; by default see
    `gpudemand.report.history.earlier_report`. `style`: file of CSS; see `gpudemand.report.page.read_style`. Returns
    of ``index.html``.
    """
    css, out_dir, log_end = read_style(style), Path(out_dir), pd.Timestamp(str(chain.source.settings.until))
    earlier = (
        earlier_report(out_dir, Path(previous), log_end)
        if previous is not None
        else chain.skipped.attempt("since", lambda: earlier_report(out_dir, None, log_end))
    )
    tables = report_tables(chain) | since_tables(chain, earlier)
    chain.begin("Drawing figures")
    figures = draw_figures(chain, tables.get("since_forecast"))
    chain.begin("Writing page and tables")
    page, numbers = render(chain, tables, figures, earlier, css), report_numbers(chain, tables)
    with replace_folder(out_dir, MANIFEST, numbers) as folder:
        keep_history(out_dir, folder, log_end)
        _write(folder, page, tables, figures, chain.numbers)
    return out_dir / "index.html"


def since_tables(chain: Chain, earlier: EarlierReport | None) -> dict[str, pd.DataFrame]:
    """Tables of the comparison with an earlier report; none without one."""
    if earlier is None:
        return {}
    attempt = chain.skipped.attempt
    tables = {"since_requirement": compare_requirements(earlier, chain.numbers, chain.requirement)}
    if (past := attempt("since_forecast", lambda: past_forecast(earlier, chain))) is not None:
        tables |= {"since_forecast": past, "since_scores": score_forecast(past)}
    if (drivers := attempt("since_drivers", lambda: drivers_since(earlier, chain))) is not None:
        tables["since_drivers"] = drivers
    return tables


def report_tables(chain: Chain) -> dict[str, pd.DataFrame]:
    """Tables of the report by the stem of their files; those of stages that the log does not allow are missing."""
    selected, requirement, keys = chain.demand, chain.requirement, ["unique_id", "ds"]
    tables = {
        **chain.usage.tables,
        "usage": chain.usage.total,
        "usage_groups": chain.usage.groups,
        "models": selected.scores,
        "backtest": selected.backtest,
        "forecast": selected.forecast.merge(selected.baseline, on=keys, suffixes=("", "_baseline")),
        "plan": requirement.to_frame(),
        "plan_summary": requirement.summary,
        "plan_backtest": backtest_plans(selected),
        "headline": pd.DataFrame([chain.numbers]),
        "risk": risk_table(requirement),
    }
    if chain.source.demand == "wanted":
        tables["wanted"] = held_and_wanted(chain.usage)
    return tables | _optional_tables(chain)


def _optional_tables(chain: Chain) -> dict[str, pd.DataFrame]:
    """Tables of each stage that the log allows."""
    stages: dict[str, Callable[[], dict[str, pd.DataFrame]]] = {
        "waits": lambda: {"waits": chain.waits.table},
        "wait_plan": lambda: {"wait_plan": chain.wait_plan.to_frame()},
        "orders": lambda: {"orders": chain.orders},
        "idle": lambda: {f"idle_{by}": table for by, table in chain.idle.items()},
        "drivers": lambda: {"drivers": chain.drivers},
        "segments": lambda: {"segments": chain.segments.profiles, "segment_members": chain.segments.members},
        "parts": lambda: {"parts": chain.parts.table, "parts_forecast": chain.parts.forecast},
        "gpu_type_plans": lambda: _pools("gpu_type_plans", chain.gpu_type_plans),
        "run_time_ratios": lambda: {"run_time_ratios": chain.run_time_ratios},
        "scenarios": lambda: {"scenarios": chain.scenarios.table},
        "purchase_mix": lambda: {"purchase_mix": chain.costs},
    }
    if chain.settings.knows_events:
        stages["events"] = lambda: {"events": chain.events}
    if chain.settings.pool == "cluster":
        stages["cluster_plans"] = lambda: _pools("cluster_plans", chain.cluster_plans)
    found = (chain.skipped.attempt(name, compute) for name, compute in stages.items())
    return {name: table for tables in found for name, table in (tables or {}).items()}


def _pools(name: str, plans: GpuTypePlans) -> dict[str, pd.DataFrame]:
    return {name: plans.table, f"{name}_by_bin": plans.by_bin}


def _write(
    folder: Path,
    page: str,
    tables: dict[str, pd.DataFrame],
    figures: dict[str, Drawing],
    numbers: dict[str, object],
) -> None:
    write_tables(tables, folder / "tables")
    (folder / "figures").mkdir()
    for name, drawing in figures.items():
        (folder / "figures" / f"{name}.svg").write_bytes(drawing.svg)
        (folder / "figures" / f"{name}.png").write_bytes(drawing.png)
    (folder / "headline.json").write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(page, encoding="utf-8")


def write_tables(tables: dict[str, pd.DataFrame], folder: Path) -> None:
    """Write tables as ``.csv`` that is safe in spreadsheets, and as ``.parquet``.

    `tables`: by the stem of their files. `folder`: made if absent.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        plain = table.copy()
        # Parquet takes only attributes that are JSON; the figures hold them already.
        plain.attrs = {}
        for suffix in ("csv", "parquet"):
            write_table(plain, folder / f"{name}.{suffix}")
