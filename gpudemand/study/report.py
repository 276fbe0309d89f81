"""`build_report`: a study as a page, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import pandas as pd

from gpudemand._atomic import check_replaceable
from gpudemand.planning.scenarios.changes import NetworkCosts
from gpudemand.planning.scenarios.programme import PlannedWork
from gpudemand.report.history.earlier import MANIFEST
from gpudemand.stages.sources.by_pool import Installed, LeadTime, Prices
from gpudemand.study.study import Study


class StudyOptions(TypedDict, total=False):
    """Keyword arguments of `Study`."""

    installed: Installed
    lead_time: LeadTime
    wait: str | None
    wait_share: float
    horizon: int | None
    by: str
    freq: str
    target_utilization: float
    service_level: float
    tz: str | None
    until: object
    cluster: str | Sequence[str] | None
    prices: Prices
    programmes: Sequence[PlannedWork]
    events: pd.DataFrame | None
    holidays: str | None
    type_aliases: Mapping[str, str] | None
    forecasters: Sequence[object]
    step_costs: NetworkCosts | None
    progress: Callable[[str], None] | None


def build_report(
    jobs: pd.DataFrame,
    out_dir: str | Path,
    *,
    previous: str | Path | None = None,
    style: str | Path | None = None,
    **options: Unpack[StudyOptions],
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
        but a report that was written by this function.
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
    check_replaceable(out_dir, MANIFEST)
    return Study(jobs, **options).report(out_dir, previous=previous, style=style)
