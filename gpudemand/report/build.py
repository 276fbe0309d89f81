"""Build the report: measure, forecast, plan, draw, write."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from gpudemand.report.figures import draw_all
from gpudemand.report.measured import Measured, measure
from gpudemand.report.need import Need, headline, plan_need
from gpudemand.report.outlook import Outlook, look_ahead
from gpudemand.report.page import render
from gpudemand.report.settings import Settings
from gpudemand.report.words import trust
from gpudemand.usage import recorded_until


def build_report(
    jobs: pd.DataFrame,
    out_dir: str | Path,
    *,
    by: str = "user",
    freq: str = "D",
    horizon: int = 28,
    installed: float | None = None,
    target_utilization: float = 0.85,
    service_level: float = 0.95,
    lead_time: str = "90D",
    tz: str = "UTC",
    until: object = None,
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
    installed : float, optional
        GPUs that are there; by default the most that the log ever held at once, and the page says so.
    target_utilization : float, default=0.85
        Share of the GPUs that the mean demand of a bin may take, in (0, 1].
    service_level : float, default=0.95
        Probability with which demand shall fit, above 0.5, at most 0.999.
    lead_time : str, default="90D"
        From ordering GPUs to using them.
    tz : str, default="UTC"
        Zone of the calendar.
    until : time-like, optional
        End of the period; where the log stops being complete by default (see `gpudemand.usage.recorded_until`).
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
    larger requirement is the answer.

    Examples
    --------
    >>> from gpudemand.datasets import load_jobs_sample
    >>> build_report(load_jobs_sample(), "report")  # doctest: +SKIP
    PosixPath('report/index.html')
    """
    settings = Settings(by, freq, horizon, installed, target_utilization, service_level, lead_time, tz, until)
    begin = progress or _silent
    begin("Adding up what was used")
    if until is None:
        settings = replace(settings, until=recorded_until(jobs))
    measured = measure(jobs, settings)
    begin("Comparing forecasters on past windows")
    outlook = look_ahead(measured.total, settings.horizon, settings.service_level)
    begin("Planning capacity")
    need = plan_need(outlook.forecast, measured.most_held, settings)
    folder = Path(out_dir)
    begin("Drawing figures")
    pictures = draw_all(measured, outlook, need, folder / "figures")
    begin("Writing page and tables")
    return _write(folder, settings, measured, outlook, need, pictures)


def _silent(step: str) -> None:
    pass


def _write(
    folder: Path, settings: Settings, measured: Measured, outlook: Outlook, need: Need, pictures: dict[str, str]
) -> Path:
    numbers = headline(need, outlook, measured.tables["log"], settings)
    tables = _tables(measured, outlook, need, numbers)
    write_tables(tables, folder / "tables")
    (folder / "headline.json").write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    page = render(numbers, tables, pictures, trust(numbers, outlook.windows, tables["log"].iloc[0]), settings)
    index = folder / "index.html"
    index.write_text(page, encoding="utf-8")
    return index


def _tables(measured: Measured, outlook: Outlook, need: Need, numbers: dict[str, object]) -> dict[str, pd.DataFrame]:
    return {
        **measured.tables,
        "headline": pd.DataFrame([numbers]),
        "usage": measured.total,
        "usage_groups": measured.groups,
        "models": outlook.models,
        "backtest": outlook.backtest,
        "forecast": outlook.forecast.merge(outlook.baseline, on=["unique_id", "ds"], suffixes=("", "_baseline")),
        "plan": need.steps(),
        "plan_summary": need.table,
    }


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
