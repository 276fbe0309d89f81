"""Write the report on a study: page, figures, tables."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from gpudemand._atomic import replace_folder
from gpudemand._tables import write_table
from gpudemand.report.history.comparison import compare_requirements, drivers_since, past_forecast, score_forecast
from gpudemand.report.history.earlier import MANIFEST, EarlierReport, earlier_report, keep_history
from gpudemand.report.numbers import report_numbers
from gpudemand.report.page.figures import Drawing, draw_figures
from gpudemand.report.page.render import render
from gpudemand.stages.chain import Chain
from gpudemand.stages.risk import backtest_plans, purchase_costs, risk_table


def write_report(chain: Chain, out_dir: str | Path, previous: str | Path | None = None) -> Path:
    """Write the stages of a study as a page, with its figures and tables as files; nothing is computed but them.

    Parameters
    ----------
    chain : Chain
    out_dir : str or Path
        Folder of the report.
    previous : str or Path, optional
        Folder of the report to compare with; by default see `gpudemand.report.history.earlier.earlier_report`.

    Returns
    -------
    Path
        Of ``index.html``.
    """
    out_dir, log_end = Path(out_dir), pd.Timestamp(str(chain.source.settings.until))
    earlier = (
        earlier_report(out_dir, Path(previous), log_end)
        if previous is not None
        else chain.skipped.attempt("since", lambda: earlier_report(out_dir, None, log_end))
    )
    tables = report_tables(chain) | since_tables(chain, earlier)
    chain.begin("Drawing figures")
    figures = draw_figures(chain, tables.get("since_forecast"))
    chain.begin("Writing page and tables")
    page, numbers = render(chain, tables, figures, earlier), report_numbers(chain, tables)
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
    return tables | _optional_tables(chain)


def _optional_tables(chain: Chain) -> dict[str, pd.DataFrame]:
    attempt = chain.skipped.attempt
    tables: dict[str, pd.DataFrame] = {}
    if (waits := attempt("waits", lambda: chain.waits)) is not None:
        tables |= {"waits": waits.table, "wanted": waits.wanted}
    if (wait_plan := attempt("wait_plan", lambda: chain.wait_plan)) is not None:
        tables["wait_plan"] = wait_plan.to_frame()
    if (orders := attempt("orders", lambda: chain.orders)) is not None:
        tables["orders"] = orders
    if (idle := attempt("idle", lambda: chain.idle)) is not None:
        tables |= {f"idle_{by}": table for by, table in idle.items()}
    if (drivers := attempt("drivers", lambda: chain.drivers)) is not None:
        tables["drivers"] = drivers
    if (segments := attempt("segments", lambda: chain.segments)) is not None:
        tables |= {"segments": segments.profiles, "segment_members": segments.members}
    if (parts := attempt("parts", lambda: chain.parts)) is not None:
        tables |= {"parts": parts.table, "parts_forecast": parts.forecast}
    if (types := attempt("gpu_type_plans", lambda: chain.gpu_type_plans)) is not None:
        tables |= {"gpu_type_plans": types.table, "gpu_type_plans_by_bin": types.by_bin}
    if (scenarios := attempt("scenarios", lambda: chain.scenarios)) is not None:
        tables["scenarios"] = scenarios.table
    costs = attempt("purchase_mix", lambda: purchase_costs(chain.requirement, chain.settings))
    return tables if costs is None else tables | {"purchase_mix": costs}


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
