"""Write the report on a study: page, figures, tables, numbers."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import gpudemand
from gpudemand._files import check_replaceable, replace_folder
from gpudemand._tables import write_table
from gpudemand._validation import stack_level
from gpudemand.report.figures import Drawing, draw_figures
from gpudemand.report.history import (
    FORMAT,
    KEPT,
    MADE_BY,
    MANIFEST,
    EarlierReport,
    check_same_log,
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
from gpudemand.study.gpu_types import ALL, GpuTypePlans
from gpudemand.study.requirement import risk_table
from gpudemand.study.study import Study
from gpudemand.study.usage_tables import held_and_wanted


def build_report(
    jobs: pd.DataFrame,
    out_dir: str | Path,
    *,
    previous: str | Path | None = None,
    style: str | Path | None = None,
    **options: Any,
) -> Path:
    r"""Write a report on a job log: usage, waits, demand forecast, capacity plan, orders, and their backtests.

    Parameters
    ----------
    jobs : DataFrame
        Job table, as `read_jobs` returns it, or any with ``user``, ``start``, ``end`` and ``gpus``.
    out_dir : str or Path
        Folder of the report; made if absent. Gets ``index.html`` (one self-contained page), ``figures/*.svg`` and
        ``*.png``, ``tables/*.csv`` and ``*.parquet``, ``headline.json``, and ``report.json``, which holds the numbers
        and lists all files. An older report in it is replaced as a whole: interrupted at any time, the old one or the
        new one is there. What later reports need of it is kept in ``history``.
    previous : str or Path, optional
        Folder of an earlier report: the page says what has changed since, and how its forecast did. By default, of
        those that `out_dir` holds, the newest whose log ends at least four weeks earlier, or else the oldest.
    style : str or Path, optional
        File of CSS whose rules come after those of the page, such as ``:root { --blue: #005a3c; }``.
    **options
        Parameters of `Study`, such as ``installed``, ``lead_time`` and ``wait``.

    Returns
    -------
    Path
        Of ``index.html``.

    Raises
    ------
    InputError
        If the table or a parameter is not valid, the log is too short for the horizon, or the folder holds anything
        but a report that was written by this function, or that of another log.
    OSError
        If the folder cannot be written.

    Notes
    -----
    Sections that the log does not support state the reason.

    Names come from users. Control characters in them are written as ``\x07``; in CSV files, text that a spreadsheet
    would take for a formula begins with an apostrophe (``'=1+1``). Parquet files have the names as they are otherwise.

    Examples
    --------
    >>> build_report(jobs, "report", wait="1h")  # doctest: +SKIP
    PosixPath('report/index.html')
    """
    return write_report(Study(jobs, **options), out_dir, previous, style)


def report_numbers(study: Study, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """The numbers of a report as plain JSON; ``report.schema.json`` beside this file describes them."""
    gpu_type, order = first_order(study.headline)
    return {
        "made_by": MADE_BY,
        "format": FORMAT,
        "version": gpudemand.__version__,
        "headline": plain(study.headline),
        "order": {"due": is_due(study.headline, order), "by": order, "gpu_type": gpu_type},
        "settings": settings_of(study),
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
    study: Study, out_dir: str | Path, previous: str | Path | None = None, style: str | Path | None = None
) -> Path:
    """Write a study as a page with its figures and tables as files, and return the path of ``index.html``."""
    check_replaceable(out_dir, MANIFEST)  # before the minutes of computation
    css, out_dir, log_end = read_style(style), Path(out_dir), study.source.settings.end
    earlier = (
        earlier_report(out_dir, Path(previous), log_end)
        if previous is not None
        else study.attempt("since", lambda: earlier_report(out_dir, None, log_end))
    )
    named = check_same_log(out_dir, study)
    tables = report_tables(study) | since_tables(study, earlier)
    study.begin("Drawing figures")
    figures = draw_figures(study, tables.get("since_forecast"))
    study.begin("Writing page and tables")
    page, numbers = render(study, tables, figures, earlier, css), report_numbers(study, tables)
    with replace_folder(out_dir, MANIFEST, numbers) as folder:
        kept = keep_history(out_dir, folder, log_end)
        _write(folder, page, tables, figures, study.headline)
    for sentence in (*named, *kept):
        warnings.warn(f"{str(out_dir)!r}: {sentence}", stacklevel=stack_level())
    return out_dir / "index.html"


def since_tables(study: Study, earlier: EarlierReport | None) -> dict[str, pd.DataFrame]:
    """Tables of the comparison with an earlier report; none without one."""
    if earlier is None:
        return {}
    attempt = study.attempt
    tables = {"since_requirement": compare_requirements(earlier, study.headline, study.requirement)}
    if (past := attempt("since_forecast", lambda: past_forecast(earlier, study))) is not None:
        tables |= {"since_forecast": past, "since_scores": score_forecast(past)}
    if (drivers := attempt("since_drivers", lambda: drivers_since(earlier, study))) is not None:
        tables["since_drivers"] = drivers
    return tables


def report_tables(study: Study) -> dict[str, pd.DataFrame]:
    """Tables of the report by the stem of their files; those of stages that the log does not allow are missing."""
    selected, requirement, keys = study.demand, study.requirement, ["unique_id", "ds"]
    tables = {
        **study.usage_tables.tables,
        "usage": study.usage_tables.total,
        "usage_groups": study.usage_tables.groups,
        "models": selected.scores,
        "backtest": selected.backtest,
        "forecast": selected.forecast.merge(selected.baseline, on=keys, suffixes=("", "_baseline")),
        "plan": requirement.to_frame(),
        "plan_summary": requirement.summary,
        "periods": study.periods,
        "requirement_steps": study.requirement_steps,
        "order_backtest": study.order_backtest,
        "headline": pd.DataFrame([study.headline]),
        "risk": risk_table(requirement),
    }
    if study.source.demand == "wanted":
        tables["wanted"] = held_and_wanted(study.usage_tables)
    return tables | _optional_tables(study)


def _optional_tables(study: Study) -> dict[str, pd.DataFrame]:
    """Tables of each stage that the log allows."""
    stages: dict[str, Callable[[], dict[str, pd.DataFrame]]] = {
        "waits": lambda: {"waits": study.waits},
        "wait_plan": lambda: {"wait_plan": study.wait_plan},
        "targets": lambda: {"targets": study.targets, "target_grid": study.target_grid},
        "demand_by_period": lambda: {"demand_by_period": study.demand_by_period},
        "orders": lambda: {"orders": study.orders},
        "idle": lambda: {f"idle_{by}": table for by, table in study.idle_tables.items()},
        "drivers": lambda: {"drivers": study.drivers},
        "segments": lambda: {"segments": study.segments, "segment_members": study.user_segments.members},
        "parts": lambda: {"parts": study.parts.table, "parts_forecast": study.parts.forecast},
        "gpu_type_plans": lambda: _pools("gpu_type_plans", study.gpu_type_plans),
        "run_time_ratios": lambda: {"run_time_ratios": study.run_time_ratios},
        "scenarios": lambda: {"scenarios": study.scenarios},
        "purchase_mix": lambda: {"purchase_mix": study.purchase_mix},
    }
    if study.programmes:
        stages["programmes"] = lambda: {"programmes": study.programme_parts}
        stages["order_range"] = lambda: {"order_range": study.order_range}
    if study.compares_purchases:
        stages["purchases"] = lambda: {"purchases": study.purchases}
        stages["break_even"] = lambda: {"break_even": study.purchase_comparison.break_even}
    if study.settings.knows_events:
        stages["events"] = lambda: {"events": study.events}
    if study.settings.pool == "cluster":
        stages["cluster_plans"] = lambda: _pools("cluster_plans", study.cluster_plans)
    found = (study.attempt(name, compute) for name, compute in stages.items())
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
    """Write tables, by the stem of their files, as ``.csv`` that is safe in spreadsheets, and as ``.parquet``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        plain = table.copy()
        # Parquet takes only attributes that are JSON; the figures hold them already.
        plain.attrs = {}
        for suffix in ("csv", "parquet"):
            write_table(plain, folder / f"{name}.{suffix}")
