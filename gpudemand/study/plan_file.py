"""The plan file of a recurring report."""

from __future__ import annotations

import datetime as dt
import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import pandas as pd

from gpudemand._files import replace_file
from gpudemand._validation import InputError, check_choice, check_number, nearest, shorten
from gpudemand.forecast.events import Calendar
from gpudemand.jobs.read import FORMATS, USAGE_ONLY
from gpudemand.jobs.schema import EARLIEST, LATEST
from gpudemand.jobs.times import parse_timezone
from gpudemand.planning.programmes import Programme
from gpudemand.study.settings import EACH, Installed, LeadTime, PricePair, Prices, Settings
from gpudemand.study.study import StudyOptions
from gpudemand.units import parse_duration


@dataclass(frozen=True)
class Value:
    """A value, and where it stands.

    `key`: such as ``deliveries[1].gpus``; empty for the whole file. `raw`: as `tomllib` returns it. `tz`: zone of
    times that are written without one.
    """

    file: Path
    key: str
    raw: Any
    tz: dt.tzinfo | None = None

    def refused(self, what: str) -> InputError:
        """Error that says what the value must be."""
        return InputError(f"{self.file}: {self.key} must be {what}; got {shorten(str(self.raw))!r}.")

    def text(self) -> str:
        """Text that is not empty."""
        if isinstance(self.raw, str) and self.raw.strip():
            return self.raw
        raise self.refused("text in quotes")

    def path(self) -> Path:
        """Path, relative to the file."""
        return self.file.parent / Path(self.text()).expanduser()

    def number(self, *, integer: bool = False) -> Any:
        """Number of at least 0, of at least 1 if it is whole."""
        found = check_number(f"{self.file}: {self.key}", self.raw, float(integer), integer=integer)
        return int(found) if integer else found

    def duration(self) -> str:
        """Length of time, not negative, as text."""
        text = self.text()
        try:
            if parse_duration(text) >= pd.Timedelta(0):
                return text
        except (InputError, OverflowError):
            pass
        raise self.refused("a length of time such as '90D', '36h' or '15min'")

    def time(self) -> pd.Timestamp:
        """Time with a zone."""
        if isinstance(self.raw, str) or not isinstance(self.raw, dt.date):
            raise self.refused("a date without quotes, such as 2026-07-01")
        if not EARLIEST.year <= self.raw.year < LATEST.year:
            raise self.refused(f"a date from {EARLIEST.year} to {LATEST.year - 1}")
        time = pd.Timestamp(self.raw)
        if time.tzinfo is not None:
            return time.tz_convert(self.tz or dt.UTC)
        if self.tz is None:
            raise self.refused(f'a time with a zone: set tz = "Europe/Berlin" above, or write {time:%Y-%m-%dT%H:%M}Z')
        return time.tz_localize(self.tz, ambiguous=True, nonexistent="shift_forward")

    def texts(self) -> tuple[str, ...]:
        """List of texts."""
        return tuple(Value.text(value) for value in self._items('a list of texts, such as ["alps"]'))

    def counts(self) -> float | dict[str, float]:
        """Number of GPUs, or a table of numbers by GPU type."""
        if not isinstance(self.raw, dict):
            return float(self.number())
        if not self.raw:
            raise self.refused("a number of GPUs, or a table of such by GPU type")
        return {name: float(value.number()) for name, value in self.by_name().items()}

    def durations(self) -> str | dict[str, str]:
        """Length of time, or a table of such by GPU type."""
        if not isinstance(self.raw, dict):
            return self.duration()
        if not self.raw:
            raise self.refused("a length of time, or a table of such by GPU type")
        return {name: value.duration() for name, value in self.by_name().items()}

    def texts_by_name(self) -> dict[str, str]:
        """Table of texts."""
        if not isinstance(self.raw, dict):
            raise self.refused('a table of texts, such as { "1g.10gb" = "A100" }')
        return {name: value.text() for name, value in self.by_name().items()}

    def by_name(self) -> dict[str, Value]:
        """Values of a table whose keys are names."""
        return {name: self._at(f".{name}", raw) for name, raw in self.raw.items()}

    def flag(self) -> bool:
        """Either true or false."""
        if isinstance(self.raw, bool):
            return self.raw
        raise self.refused("true or false")

    def tables(self) -> list[Value]:
        """Tables of a list, ``[[name]]`` in the file."""
        return self._items(f"tables, each under a line [[{self.key}]]")

    @contextmanager
    def place(self) -> Iterator[None]:
        """Name the file and the key in errors that do not."""
        try:
            yield
        except InputError as error:
            if str(error).startswith(f"{self.file}: "):
                raise
            raise InputError(f"{self.file}: {self.key}: {error}") from error

    def table(self, keys: Mapping[str, Callable[[Value], Any]]) -> dict[str, Any]:
        """Values of a table.

        `keys`: what reads the value of each key that may be there.
        """
        if not isinstance(self.raw, dict):
            raise self.refused("a table")
        dot = "." if self.key else ""
        for name in self.raw:
            if name not in keys:
                place = f" in {self.key}" if self.key else ""
                raise InputError(
                    f"{self.file}: there is no key {shorten(name)!r}{place}.{nearest(name, keys)} "
                    f"Keys{place or ' of a plan'}: {', '.join(keys)}; those of the whole plan stand above all [[...]]."
                )
        return {name: read(self._at(dot + name, self.raw[name])) for name, read in keys.items() if name in self.raw}

    def _at(self, place: str, raw: Any) -> Value:
        return Value(self.file, self.key + place, raw, self.tz)

    def _items(self, what: str) -> list[Value]:
        if not isinstance(self.raw, list):
            raise self.refused(what)
        return [self._at(f"[{number}]", raw) for number, raw in enumerate(self.raw, 1)]


def whole(value: Value) -> int:
    """Whole number of at least 1."""
    return int(value.number(integer=True))


def require(row: Mapping[str, Any], keys: tuple[str, ...], place: str) -> None:
    """Raise an error for the first of the keys that a table at a place lacks."""
    for key in keys:
        if key not in row:
            raise InputError(f"{place} has no {key}; add it.")


def read_toml(file: Path) -> dict[str, Any]:
    """Content of a TOML file."""
    if not file.is_file():
        raise InputError(f"there is no file {str(file)!r}; `gpudemand init {file}` writes one to begin with.")
    try:
        # Some editors begin a file with a byte order mark.
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        said = str(shorten(str(error), 200)).rstrip(".")
        raise InputError(f"{file} is no valid TOML: {said}; correct it there.") from error


_Keys = Mapping[str, Callable[[Value], Any]]


def read_programmes(value: Value) -> tuple[Programme, ...]:
    """Programmes of the blocks ``[[programmes]]``; no time is predicted yet."""
    return tuple(_programme(row) for row in value.tables())


def _programme(value: Value) -> Programme:
    given = value.table(_PROGRAMME)
    require(given, ("name", "runs", "start", "end"), value.key)
    tokens = given.pop("tokens", None)
    with value.place():
        if "job" not in given:
            require(given, ("hours", "gpus"), value.key)
        elif "gpus" in given or "hours" in given or ("steps" in given) == (tokens is not None):
            raise InputError("a programme with a job has either tokens or steps of a run, and neither hours nor gpus.")
        elif "steps" in given and given["job"].run.global_batch is None:
            raise InputError("steps need the samples of one: add global_batch to the job, or state tokens instead.")
        if tokens is not None:
            require(given, ("job",), value.key)
            given["steps"] = tokens / given["job"].run.tokens
        return Programme(**given)


def _job(value: Value) -> Any:
    """A `TrainingJob`; only a plan with one needs the code of costs."""
    from gpudemand.cost.job import TrainingJob

    given = value.table(_JOB)
    require(given, ("model", "seq_len", "device", "n_gpus"), value.key)
    adapter = {"adapter": given.pop("lora")} if "lora" in given else {}
    with value.place():
        return TrainingJob.from_config(given.pop("model"), given.pop("seq_len"), **given, **adapter)


def _model(value: Value) -> str:
    """Published name, or path of a configuration, relative to the file."""
    path = value.path()
    return str(path) if path.suffix == ".json" or path.exists() else value.text()


def _parallel(value: Value) -> Any:
    from gpudemand.cost.parallel import Parallel

    with value.place():
        return Parallel(**value.table(_PARALLEL))


def _lora(value: Value) -> Any:
    from gpudemand.cost.parallel import LoRA

    given = value.table({"rank": whole, "targets": _targets, "bits": whole, "quantizer": Value.text})
    with value.place():
        return LoRA(**given)


def _targets(value: Value) -> str | tuple[str, ...]:
    return value.texts() if isinstance(value.raw, list) else value.text()


def _checkpointing(value: Value) -> bool | str:
    return value.flag() if isinstance(value.raw, bool) else value.text()


_PARALLEL: _Keys = {
    **dict.fromkeys(("data", "tensor", "pipeline", "virtual_pipeline", "context", "expert"), whole),
    "sharding": Value.text,
    "sequence": Value.flag,
}
_JOB: _Keys = {
    "model": _model,
    **dict.fromkeys(("seq_len", "n_gpus", "global_batch", "micro_batch", "accumulate"), whole),
    **dict.fromkeys(("device", "precision", "optimizer", "offload", "attention", "cross_entropy"), Value.text),
    **dict.fromkeys(("execution", "kernels", "experts"), Value.text),
    "checkpointing": _checkpointing,
    "parallel": _parallel,
    "lora": _lora,
}
_PROGRAMME: _Keys = {
    **dict.fromkeys(("name", "user", "group", "gpu_type"), Value.text),
    "runs": whole,
    **dict.fromkeys(("start", "end"), Value.time),
    **dict.fromkeys(("hours", "gpus", "tokens", "steps"), Value.number),
    "job": _job,
}


def read_events(value: Value) -> pd.DataFrame:
    """Events of the blocks ``[[events]]``, as `EventForecaster` takes them."""
    rows = [row.table(_EVENT) for row in value.tables()]
    for number, row in enumerate(rows, 1):
        require(row, ("name", "start", "end"), f"{value.key}[{number}]")
    table = pd.DataFrame(rows, columns=list(_EVENT)).rename(columns={"name": "event"})
    with value.place():
        Calendar.of(table)
    return table


def _effect(value: Value) -> float:
    return check_number(f"{value.file}: {value.key}", value.raw, -1)


_EVENT: dict[str, Callable[[Value], Any]] = {
    "name": Value.text,
    **dict.fromkeys(("start", "end"), Value.time),
    "effect": _effect,
}


_STUDY = ("target_utilization", "prices", "programmes", "tz", "holidays", "events", "type_aliases")
_TEMPLATE = Path(__file__).with_name("plan.toml")


@dataclass(frozen=True)
class Change:
    """A delivery (positive) or retirement (negative) of GPUs."""

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
