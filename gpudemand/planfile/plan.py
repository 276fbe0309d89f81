"""The plan of a recurring report: log, targets, inventory with its changes, prices, and work to come."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import pandas as pd

from gpudemand._atomic import replace_file
from gpudemand._validation import InputError, check_choice
from gpudemand.jobs.registry import FORMATS, USAGE_ONLY
from gpudemand.jobs.time_parser import parse_timezone
from gpudemand.planfile.events import read_events
from gpudemand.planfile.programmes import read_programmes
from gpudemand.planfile.values import Value, read_toml, require, whole
from gpudemand.planning.scenarios.programme import Programme
from gpudemand.stages.sources.by_pool import Installed, LeadTime, PricePair, Prices
from gpudemand.stages.sources.clusters import EACH
from gpudemand.stages.sources.settings import Settings
from gpudemand.study.report import StudyOptions

_STUDY = ("target_utilization", "prices", "programmes", "tz", "holidays", "events", "type_aliases")
_TEMPLATE = Path(__file__).with_name("plan.toml")


@dataclass(frozen=True)
class Change:
    """A delivery (positive) or retirement (negative) of GPUs.

    Parameters
    ----------
    date : Timestamp
    gpus : float
    gpu_type : str, optional
    """

    date: pd.Timestamp
    gpus: float
    gpu_type: str | None = None


@dataclass(frozen=True)
class ReportPlan:
    """What a recurring report needs, as a plan file states it.

    Parameters
    ----------
    file : Path
        The plan file; paths in it are relative to it.
    log : Path, optional
        Job log or store.
    format, tz, origin : str
        Of the log; see `read_jobs`.
    clusters : tuple of str
        Clusters that are reported on together, all by default; or ``"each"``: all, each a pool of its own.
    installed : float or dict of str to float, optional
        GPUs before the first of `changes`: of all types together, or by GPU type.
    changes : tuple of Change
        Deliveries and retirements.
    out : Path
        Folder of the report.
    previous : Path, optional
        Folder of an earlier report to compare with.
    metrics : Path, optional
        File of metrics for Prometheus' textfile collector.
    style : Path, optional
        File of CSS for the page.
    by, freq, horizon, until, lead_time, wait, wait_share, service_level, target_utilization
        As for `Study`.
    prices, programmes, type_aliases, holidays, events
        As for `Study`.

    Examples
    --------
    >>> import tempfile
    >>> plan = read_plan(write_plan(Path(tempfile.mkdtemp(), "plan.toml"), log="jobs.parquet"))
    >>> plan.lead_time, plan.service_level, plan.log.name
    ('90D', 0.95, 'jobs.parquet')
    """

    file: Path
    log: Path | None = None
    format: str = "canonical"
    tz: str | None = None
    origin: str | None = None
    clusters: tuple[str, ...] = ()
    by: str = "user"
    freq: str = "D"
    horizon: int | None = None
    until: pd.Timestamp | None = None
    installed: float | dict[str, float] | None = None
    changes: tuple[Change, ...] = ()
    lead_time: LeadTime = "90D"
    wait: str | None = None
    wait_share: float = 0.9
    service_level: float = 0.95
    target_utilization: float = 0.85
    prices: Prices = None
    programmes: tuple[Programme, ...] = ()
    type_aliases: dict[str, str] | None = None
    holidays: str | None = None
    events: pd.DataFrame | None = field(default=None, compare=False)
    out: Path = field(default=Path("gpudemand-report"))
    previous: Path | None = None
    metrics: Path | None = None
    style: Path | None = None

    @property
    def gpus(self) -> Installed:
        """GPUs installed, as `Study` takes them: a Series in time where there are deliveries or retirements."""
        if not isinstance(self.installed, dict):
            return None if self.installed is None else _in_time(self.installed, self.changes)
        types = dict.fromkeys([*self.installed, *(str(change.gpu_type) for change in self.changes)], 0.0)
        of_type = {name: tuple(change for change in self.changes if change.gpu_type == name) for name in types}
        return {name: _in_time((types | self.installed)[name], changes) for name, changes in of_type.items()}

    def study_options(self) -> StudyOptions:
        """Keyword arguments of `Study`, but the zone of times, which is UTC where the plan has none."""
        same = ("by", "freq", "horizon", "until", "lead_time", "wait", "wait_share", "service_level")
        options = {name: getattr(self, name) for name in (*same, *_STUDY)}
        clusters = EACH if self.clusters == (EACH,) else self.clusters or None
        return cast("StudyOptions", {**options, "installed": self.gpus, "cluster": clusters})


def read_plan(path: str | os.PathLike[str]) -> ReportPlan:
    """Read the plan of a recurring report from a TOML file, as ``gpudemand report --plan`` does.

    Parameters
    ----------
    path : path-like
        The file; `write_plan` writes one that explains each key.

    Returns
    -------
    ReportPlan

    Raises
    ------
    InputError
        For a file that is missing or no TOML, an unknown key, a value of the wrong type or out of range, a time without
        a zone, and more GPUs retired than installed; names file and key.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "plan.toml")
    >>> _ = file.write_text("lead_tim = '60D'")
    >>> read_plan(file)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
        ...
    gpudemand._validation.InputError: plan.toml: there is no key 'lead_tim'. Did you mean 'lead_time'? ...
    """
    file = Path(path)
    content = read_toml(file)
    zone = Value(file, "tz", content["tz"]).text() if "tz" in content else None
    try:
        given = Value(file, "", content, parse_timezone(zone)).table(_KEYS)
        changes = _changes(given.pop("deliveries", ()), 1) + _changes(given.pop("retirements", ()), -1)
        given["changes"] = tuple(sorted(changes, key=lambda change: (change.date, -change.gpus)))
        return _checked(ReportPlan(**{"file": file, "out": file.parent / "gpudemand-report", **given}))
    except InputError as error:
        if str(error).startswith(f"{file}: "):
            raise
        raise InputError(f"{file}: {error}") from error


def write_plan(
    path: str | os.PathLike[str],
    *,
    log: str = "jobs.parquet",
    format: str = "canonical",  # noqa: A002
    tz: str = "UTC",
) -> Path:
    """Write a plan file to begin with, whose comments explain each key; never over another file.

    Parameters
    ----------
    path : path-like
    log, format, tz : str
        As the plan is to state them.

    Returns
    -------
    Path
        Of the file.

    Raises
    ------
    InputError
        If there is a file already, or a value is not valid.
    """
    file = Path(path)
    if file.exists():
        raise InputError(f"{str(file)!r} is there already; choose another name, or remove it.")
    text = _TEMPLATE.read_text(encoding="utf-8")
    for key, value in {"log": log, "format": format, "tz": tz}.items():
        before, found, after = text.partition(f"\n{key} = ")
        text = before + found + json.dumps(value, ensure_ascii=False) + "  " + after[after.index("#") :]
    with replace_file(file) as new:
        new.write_text(text, encoding="utf-8")
        read_plan(new)
    return file


def _in_time(start: float, changes: tuple[Change, ...]) -> float | pd.Series:
    """GPUs before the first change and from each on; one number where there is none."""
    if not changes:
        return start
    steps = pd.Series([change.gpus for change in changes], [change.date for change in changes])
    steps = start + steps.groupby(level=0).sum().cumsum()
    before = pd.Series([start], steps.index[:1] - pd.Timedelta("1D"))
    return pd.concat([before, steps]).astype(float)


def _changes(rows: tuple[dict[str, Any], ...], sign: int) -> list[Change]:
    name = "deliveries" if sign > 0 else "retirements"
    for number, row in enumerate(rows, 1):
        require(row, ("date", "gpus"), f"{name}[{number}]")
    return [Change(row["date"], sign * row["gpus"], row.get("gpu_type")) for row in rows]


def _checked(plan: ReportPlan) -> ReportPlan:
    """The plan, after a look at what its values mean together."""
    check_choice("format", plan.format, (*FORMATS, USAGE_ONLY))
    if plan.changes and plan.installed is None:
        raise InputError("there are deliveries or retirements, but no installed; state the GPUs before the first one.")
    by_type = isinstance(plan.installed, dict)
    if by_type and any(change.gpu_type is None for change in plan.changes):
        raise InputError("installed is by GPU type, so each delivery and retirement needs gpu_type.")
    changes = sorted(plan.changes, key=lambda change: (str(change.gpu_type) if by_type else "", change.date))
    for name, of_type in groupby(changes, lambda change: change.gpu_type if by_type else None):
        _check_enough(name, plan, list(of_type))
    options: Any = plan.study_options()
    del options["programmes"], options["cluster"]
    Settings(**{**options, "horizon": plan.horizon or 0, "tz": plan.tz or "UTC"})
    return plan


def _check_enough(name: str | None, plan: ReportPlan, changes: list[Change]) -> None:
    start = plan.installed.get(str(name), 0.0) if isinstance(plan.installed, dict) else float(plan.installed or 0)
    left = pd.Series([change.gpus for change in changes], [change.date for change in changes]).groupby(level=0).sum()
    left = start + left.cumsum()
    if (left < 0).any():
        date, of_type = left.index[left < 0][0], f" of type {name!r}" if name else ""
        raise InputError(
            f"retirements up to {date:%Y-%m-%d} take {-left[date]:g} more GPUs{of_type} than are installed; correct "
            "installed, deliveries or retirements."
        )


def _prices(value: Value) -> PricePair | dict[str, PricePair]:
    """Two prices, or a table of such by GPU type."""
    if isinstance(value.raw, dict) and value.raw and all(isinstance(raw, dict) for raw in value.raw.values()):
        return {name: _price_pair(pair) for name, pair in value.by_name().items()}
    return _price_pair(value)


def _price_pair(value: Value) -> PricePair:
    prices = value.table({"reserved": Value.number, "on_demand": Value.number})
    require(prices, ("reserved", "on_demand"), value.key)
    return prices["reserved"], prices["on_demand"]


def _change_rows(value: Value) -> tuple[dict[str, Any], ...]:
    return tuple(row.table(_CHANGE) for row in value.tables())


_CHANGE: dict[str, Callable[[Value], Any]] = {"date": Value.time, "gpu_type": Value.text, "gpus": Value.number}
#: Keys of a plan file, and what reads their values.
_KEYS: dict[str, Callable[[Value], Any]] = {
    **dict.fromkeys(("log", "out", "previous", "metrics", "style"), Value.path),
    **dict.fromkeys(("format", "tz", "origin", "by", "freq", "holidays"), Value.text),
    "clusters": Value.texts,
    "type_aliases": Value.texts_by_name,
    "horizon": whole,
    "until": Value.time,
    "installed": Value.counts,
    **dict.fromkeys(("deliveries", "retirements"), _change_rows),
    "lead_time": Value.durations,
    "wait": Value.duration,
    **dict.fromkeys(("wait_share", "service_level", "target_utilization"), Value.number),
    "prices": _prices,
    "programmes": read_programmes,
    "events": read_events,
}
