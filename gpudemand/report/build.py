"""Build the report: measure, forecast, plan, draw, write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from gpudemand.report.analysis.gpu_types import Types, check_installed, plan_types, types_numbers
from gpudemand.report.analysis.parts import Parts, forecast_parts
from gpudemand.report.analysis.requirement import Need, headline, plan_need
from gpudemand.report.analysis.risk import money, past_plans, risk_numbers, risk_table
from gpudemand.report.analysis.scenarios import Scenarios, try_scenarios
from gpudemand.report.analysis.selection import Outlook, look_ahead
from gpudemand.report.analysis.settings import Settings
from gpudemand.report.analysis.skipped_sections import Gaps
from gpudemand.report.analysis.usage import Measured, measure
from gpudemand.report.analysis.user_segments import Crowd, find_segments
from gpudemand.report.page.caveats import trust
from gpudemand.report.page.figures import draw_all
from gpudemand.report.page.page import render
from gpudemand.report.page.summary import brief
from gpudemand.usage.series import recorded_until


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
    tz: str = "UTC",
    until: object = None,
    prices: tuple[float, float] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Write a report on a job log: how many GPUs it will take, and when, and how far to trust that.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table, as `read_jobs` returns it.
    out_dir : str or Path
        Folder to write into; made if absent. Gets ``index.html`` (one page that loads nothing), ``figures/*.svg`` and
        ``*.png``, ``tables/*.csv`` and ``*.parquet``, and ``headline.json``.
    by : {"user", "group", "cluster", "gpu_type", "total"}, default="user"
        Whom the usage is split by.
    freq : str, default="D"
        Width of a bin of the forecast: ``"h"``, ``"D"``, ``"W-MON"``, ...
    horizon : int, default=28
        How many bins to look ahead. The log must be four times as long.
    installed : float or mapping of str to float, optional
        GPUs that are there, of all types together or by ``gpu_type`` (0 where none are left); by default the most that
        the log ever held at once, and the page says so.
    target_utilization : float, default=0.85
        Share of the GPUs that the mean demand of a bin may take, in (0, 1].
    service_level : float, default=0.95
        Probability with which demand shall fit, above 0.5, at most 0.999.
    lead_time : str, default="90D"
        From ordering GPUs to using them.
    tz : str, default="UTC"
        Zone of the calendar.
    until : time-like, optional
        End of the period; where the log stops being complete by default (see `gpudemand.usage.series.recorded_until`).
    prices : (float, float), optional
        Prices of a GPU-hour, reserved and on demand, in any currency: the report then says what the plan costs.
    progress : callable, optional
        Called with the name of each step as it begins.

    Returns
    -------
    Path
        Of ``index.html``.

    Raises
    ------
    InputError
        If the table or a parameter cannot be used, or the log is too short for the horizon.
    OSError
        If the folder cannot be written.

    Notes
    -----
    The forecaster is chosen on rolling origins and scored on later ones. Two series are forecast and planned for: the
    mean of GPUs held in a bin, at the target utilization, and the most held at once, which may use every GPU; the
    larger requirement is the answer. Segments, parts of the total, scenarios and money need more of a log than its
    total does; where it does not say enough, the section says so in one sentence.

    Examples
    --------
    >>> from gpudemand.datasets import load_jobs_sample
    >>> build_report(load_jobs_sample(), "report")  # doctest: +SKIP
    PosixPath('report/index.html')
    """
    settings = Settings(by, freq, horizon, installed, target_utilization, service_level, lead_time, tz, until, prices)
    begin, gaps = progress or _silent, Gaps()
    begin("Adding up what was used")
    if until is None:
        settings = replace(settings, until=recorded_until(jobs))
    measured = measure(jobs, settings)
    check_installed(jobs, settings)
    begin("Comparing forecasters on past windows")
    outlook = look_ahead(measured.total, settings.horizon, settings.service_level)
    begin("Planning capacity")
    need = plan_need(outlook.forecast, measured.most_held, settings)
    begin("Finding segments of users")
    crowd = gaps.attempt("segments", lambda: find_segments(jobs, settings))
    begin("Forecasting the parts of the total")
    parts = gaps.attempt("parts", lambda: forecast_parts(jobs, crowd, outlook, settings))
    types = gaps.attempt("types", lambda: plan_types(jobs, outlook, parts, need, settings))
    begin("Trying scenarios")
    scenarios = gaps.attempt("scenarios", lambda: try_scenarios(jobs, outlook.forecast, need, crowd, settings))
    folder = Path(out_dir)
    begin("Drawing figures")
    pictures = draw_all(measured, outlook, need, crowd, parts, folder / "figures")
    begin("Writing page and tables")
    return _write(folder, _Findings(settings, measured, outlook, need, crowd, parts, types, scenarios, gaps), pictures)


@dataclass(frozen=True)
class _Findings:
    """All that the page and its tables are made of; what a log does not allow is None, and `gaps` says why."""

    settings: Settings
    measured: Measured
    outlook: Outlook
    need: Need
    crowd: Crowd | None
    parts: Parts | None
    types: Types | None
    scenarios: Scenarios | None
    gaps: Gaps


def _silent(step: str) -> None:
    pass


def _write(folder: Path, found: _Findings, pictures: dict[str, str]) -> Path:
    risk = risk_table(found.need)
    numbers = headline(found.need, found.outlook, found.measured.tables["log"], found.settings)
    numbers |= risk_numbers(found.need, found.outlook, risk) | types_numbers(found.types)
    tables = _tables(found, numbers) | {"risk": risk}
    write_tables(tables, folder / "tables")
    (folder / "headline.json").write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    story = brief(numbers, found.parts, found.scenarios, found.types)
    doubts = trust(numbers, found.outlook.windows, tables, found.gaps, found.scenarios)
    page = render(numbers, tables, pictures, story, doubts, found.gaps, found.settings, _parted(found.parts))
    index = folder / "index.html"
    index.write_text(page, encoding="utf-8")
    return index


def _parted(parts: Parts | None) -> tuple[str, str]:
    """What a part is, and the method that forecast it."""
    return ("", "") if parts is None else (parts.by, parts.model)


def _tables(found: _Findings, numbers: dict[str, object]) -> dict[str, pd.DataFrame]:
    outlook, need = found.outlook, found.need
    tables = {
        **found.measured.tables,
        "headline": pd.DataFrame([numbers]),
        "usage": found.measured.total,
        "usage_groups": found.measured.groups,
        "models": outlook.models,
        "backtest": outlook.backtest,
        "forecast": _beside(outlook.forecast, outlook.baseline),
        "plan": need.steps(),
        "plan_summary": need.table,
        "past_plans": past_plans(outlook),
    }
    if found.crowd is not None:
        tables |= {"segments": found.crowd.profiles, "segment_members": found.crowd.members}
    if found.parts is not None:
        tables |= {"parts": found.parts.table, "parts_forecast": found.parts.forecast}
    if found.types is not None:
        tables |= {"types": found.types.table, "types_plan": found.types.steps}
    if found.scenarios is not None:
        tables["scenarios"] = found.scenarios.table
    costs = found.gaps.attempt("money", lambda: money(need, found.settings))
    return tables if costs is None else tables | {"money": costs}


def _beside(forecast: pd.DataFrame, baseline: pd.DataFrame) -> pd.DataFrame:
    return forecast.merge(baseline, on=["unique_id", "ds"], suffixes=("", "_baseline"))


def write_tables(tables: dict[str, pd.DataFrame], folder: Path) -> None:
    """Write every table twice, as ``.csv`` and as ``.parquet``.

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
        # Attributes would have to be JSON to go into a Parquet file, and the figures have them already.
        plain.attrs = {}
        plain.to_csv(folder / f"{name}.csv", index=False)
        plain.to_parquet(folder / f"{name}.parquet", index=False)
