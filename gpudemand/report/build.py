"""Write the report on a study: page, figures, tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from gpudemand._atomic import replace_folder
from gpudemand._tables import write_table
from gpudemand.report.history.comparison import compare_requirements, drivers_since, past_forecast, score_forecast
from gpudemand.report.history.earlier import MANIFEST, EarlierReport, earlier_report, keep_history
from gpudemand.report.numbers import report_numbers
from gpudemand.report.page.figures import Drawing, draw_figures
from gpudemand.report.page.render import render
from gpudemand.report.page.style import read_style
from gpudemand.stages.chain import Chain
from gpudemand.stages.gpu_types import GpuTypePlans
from gpudemand.stages.risk import backtest_plans, risk_table
from gpudemand.stages.usage_tables import held_and_wanted


def write_report(
    chain: Chain, out_dir: str | Path, previous: str | Path | None = None, style: str | Path | None = None
) -> Path:
    """Write the stages of a study as a page, with its figures and tables as files; nothing is computed but them.

    Parameters
    ----------
    chain : Chain
    out_dir : str or Path
        Folder of the report.
    previous : str or Path, optional
        Folder of the report to compare with; by default see `gpudemand.report.history.earlier.earlier_report`.
    style : str or Path, optional
        File of CSS; see `gpudemand.report.page.style.read_style`.

    Returns
    -------
    Path
        Of ``index.html``.
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

    Parameters
    ----------
    tables : dict of str to DataFrame
        By the stem of their files.
    folder : Path
        Made if absent.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        plain = table.copy()
        # Parquet takes only attributes that are JSON; the figures hold them already.
        plain.attrs = {}
        for suffix in ("csv", "parquet"):
            write_table(plain, folder / f"{name}.{suffix}")
