"""Build the report: usage, forecast, plan, figures, page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from gpudemand._atomic import check_replaceable, replace_folder
from gpudemand._tables import printable, write_table
from gpudemand.jobs.table import check_jobs
from gpudemand.report.analysis.gpu_types import GpuTypePlans, check_installed, gpu_type_numbers, plan_gpu_types
from gpudemand.report.analysis.parts import Parts, forecast_parts
from gpudemand.report.analysis.requirement import Requirement, headline, plan_requirement
from gpudemand.report.analysis.risk import backtest_plans, purchase_costs, risk_numbers, risk_table
from gpudemand.report.analysis.scenarios import Scenarios, plan_scenarios
from gpudemand.report.analysis.selection import SelectedForecast, select_and_forecast
from gpudemand.report.analysis.settings import Settings
from gpudemand.report.analysis.skipped_sections import SkippedSections
from gpudemand.report.analysis.usage_tables import UsageTables, compute_usage_tables
from gpudemand.report.analysis.user_segments import UserSegments, segment_users
from gpudemand.report.analysis.waits import Waits, compute_waits
from gpudemand.report.page.caveats import caveats
from gpudemand.report.page.figures import Drawing, draw_figures
from gpudemand.report.page.render import render
from gpudemand.report.page.summary import summarize
from gpudemand.usage.series import recorded_until

#: File of a report that lists the others, and what else stands in it.
MANIFEST, _ABOUT = "report.json", {"made_by": "gpudemand report", "format": 1}


def build_report(
    jobs: pd.DataFrame,
    out_dir: str | Path,
    *,
    by: str = "user",
    freq: str = "D",
    horizon: int = 28,
    installed: float | Mapping[str, float] | None = None,
    target_utilization: float = 0.85,
    service_level: float = 0.95,
    lead_time: str = "90D",
    tz: str | None = None,
    until: object = None,
    prices: tuple[float, float] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Path:
    r"""Write a report on a job log: usage, demand forecast, capacity plan and their backtests.

    Parameters
    ----------
    jobs : DataFrame
        Job table, as `read_jobs` returns it, or any with ``user``, ``start``, ``end`` and ``gpus``.
    out_dir : str or Path
        Folder of the report; made if absent. Gets ``index.html`` (one self-contained page), ``figures/*.svg`` and
        ``*.png``, ``tables/*.csv`` and ``*.parquet``, ``headline.json``, and ``report.json``, which lists all files. An
        older report in it is replaced as a whole: interrupted at any time, the old one or the new one is there.
    by : {"user", "group", "cluster", "gpu_type", "total"}, default="user"
        Key that usage is split by.
    freq : str, default="D"
        Width of a bin of the forecast: ``"h"``, ``"D"``, ``"W-MON"``, ...
    horizon : int, default=28
        Bins to forecast. The log must be four times as long.
    installed : float or mapping of str to float, optional
        GPUs installed, of all types together or by ``gpu_type`` (0 for a retired type); by default the maximum of the
        GPUs held at once in the log.
    target_utilization : float, default=0.85
        Share of the GPUs that the mean demand of a bin may take, in (0, 1].
    service_level : float, default=0.95
        Probability with which demand does not exceed the GPUs required, above 0.5, at most 0.999.
    lead_time : str, default="90D"
        From the order of GPUs to their first use.
    tz : str, optional
        Zone of the calendar, by default UTC, and of times of jobs that have none, which are refused without it.
    until : time-like, optional
        End of the period; by default where the log stops being complete (see
        `gpudemand.usage.series.recorded_until`).
    prices : (float, float), optional
        Prices of a GPU-hour, reserved and on demand, in any currency: adds the costs of the plan.
    progress : callable, optional
        Called with the name of each step as it begins.

    Returns
    -------
    Path
        Of ``index.html``.

    Raises
    ------
    InputError
        If the table or a parameter is not valid, the log is too short for the horizon, or the folder holds anything
        but a report that was written by this function.
    OSError
        If the folder cannot be written.

    Notes
    -----
    The forecaster is selected on rolling origins and evaluated on later ones. Two series are forecast and planned for:
    the mean of GPUs held per bin, at the target utilization, and the peak, at full utilization; the larger requirement
    counts. Sections that the log does not support (waits, segments, parts, GPU types, scenarios, costs) state the
    reason.

    Names come from users. Control characters in them are written as ``\x07``; in CSV files, text that a spreadsheet
    would take for a formula begins with an apostrophe (``'=1+1``). Parquet files have the names as they are otherwise.

    Examples
    --------
    >>> from gpudemand.datasets import load_jobs_sample
    >>> build_report(load_jobs_sample(), "report")  # doctest: +SKIP
    PosixPath('report/index.html')
    """
    zone = tz or "UTC"
    settings = Settings(by, freq, horizon, installed, target_utilization, service_level, lead_time, zone, until, prices)
    begin = progress or (lambda step: None)
    check_replaceable(out_dir, MANIFEST)  # before the minutes of computation
    results = _compute(printable(check_jobs(jobs, tz=tz, allow_unknown=True)), settings, begin)
    begin("Drawing figures")
    r = results
    figures = draw_figures(r.usage, r.selected, r.requirement, r.segments, r.parts, r.waits)
    begin("Writing page and tables")
    return _write(Path(out_dir), results, figures)


def _compute(jobs: pd.DataFrame, settings: Settings, begin: Callable[[str], None]) -> _Results:
    """The numbers of the report."""
    skipped = SkippedSections()
    begin("Computing usage")
    settings = _with_until(settings, jobs)
    usage = compute_usage_tables(jobs, settings)
    check_installed(jobs, settings)
    waits = skipped.attempt("waits", lambda: compute_waits(jobs, usage, settings))
    begin("Backtesting forecasters")
    selected = select_and_forecast(usage.total, settings.horizon, settings.service_level)
    begin("Planning capacity")
    requirement = plan_requirement(selected.forecast, usage.max_held, settings)
    begin("Segmenting users")
    segments = skipped.attempt("segments", lambda: segment_users(jobs, settings))
    begin("Forecasting by part and GPU type")
    parts = skipped.attempt("parts", lambda: forecast_parts(jobs, segments, selected, settings))
    types = skipped.attempt("gpu_type_plans", lambda: plan_gpu_types(jobs, selected, parts, requirement, settings))
    begin("Planning scenarios")
    scenarios = skipped.attempt(
        "scenarios", lambda: plan_scenarios(jobs, selected.forecast, requirement, segments, settings)
    )
    return _Results(settings, usage, waits, selected, requirement, segments, parts, types, scenarios, skipped)


def _with_until(settings: Settings, jobs: pd.DataFrame) -> Settings:
    """Fill in the end of the period, where none is given, with the time until which the log is complete."""
    return settings if settings.until is not None else replace(settings, until=recorded_until(jobs))


@dataclass(frozen=True)
class _Results:
    """Input of the page and its tables; skipped sections are None."""

    settings: Settings
    usage: UsageTables
    waits: Waits | None
    selected: SelectedForecast
    requirement: Requirement
    segments: UserSegments | None
    parts: Parts | None
    types: GpuTypePlans | None
    scenarios: Scenarios | None
    skipped: SkippedSections


def _write(out_dir: Path, results: _Results, figures: dict[str, Drawing]) -> Path:
    """Write the report and return the path of its page."""
    r = results
    risk = risk_table(r.requirement)
    numbers = headline(r.requirement, r.selected, r.usage.tables["log"], r.settings)
    numbers |= risk_numbers(r.requirement, r.selected, risk) | gpu_type_numbers(r.types)
    tables = {**_tables(r), "headline": pd.DataFrame([numbers]), "risk": risk}
    summary = summarize(numbers, r.parts, r.scenarios, r.types, r.waits)
    remarks = caveats(numbers, r.selected.windows, tables, r.skipped, r.scenarios)
    addresses = {name: drawing.address for name, drawing in figures.items()}
    page = render(numbers, tables, addresses, summary, remarks, r.skipped, r.settings, r.parts)
    with replace_folder(out_dir, MANIFEST, _ABOUT) as folder:
        write_tables(tables, folder / "tables")
        (folder / "figures").mkdir()
        for name, drawing in figures.items():
            (folder / "figures" / f"{name}.svg").write_bytes(drawing.svg)
            (folder / "figures" / f"{name}.png").write_bytes(drawing.png)
        (folder / "headline.json").write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
        (folder / "index.html").write_text(page, encoding="utf-8")
    return out_dir / "index.html"


def _tables(results: _Results) -> dict[str, pd.DataFrame]:
    selected, requirement, keys = results.selected, results.requirement, ["unique_id", "ds"]
    tables = {
        **results.usage.tables,
        "usage": results.usage.total,
        "usage_groups": results.usage.groups,
        "models": selected.scores,
        "backtest": selected.backtest,
        "forecast": selected.forecast.merge(selected.baseline, on=keys, suffixes=("", "_baseline")),
        "plan": requirement.to_frame(),
        "plan_summary": requirement.summary,
        "plan_backtest": backtest_plans(selected),
    }
    if results.waits is not None:
        tables |= {"waits": results.waits.table, "wanted": results.waits.wanted}
    if results.segments is not None:
        tables |= {"segments": results.segments.profiles, "segment_members": results.segments.members}
    if results.parts is not None:
        tables |= {"parts": results.parts.table, "parts_forecast": results.parts.forecast}
    if results.types is not None:
        tables |= {"gpu_type_plans": results.types.table, "gpu_type_plans_by_bin": results.types.by_bin}
    if results.scenarios is not None:
        tables["scenarios"] = results.scenarios.table
    costs = results.skipped.attempt("purchase_mix", lambda: purchase_costs(requirement, results.settings))
    return tables if costs is None else tables | {"purchase_mix": costs}


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
