"""The plan file of a recurring report: the keys that may stand in it, and what they mean."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import tomllib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

import pandas as pd
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    PrivateAttr,
    RootModel,
    StringConstraints,
    Tag,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from gpudemand._files import replace_file
from gpudemand._validation import InputError, TomlError, check_choice, nearest, shorten, spelled
from gpudemand.forecast.events import Calendar
from gpudemand.jobs.read import FORMATS, USAGE_ONLY
from gpudemand.jobs.schema import EARLIEST, LATEST
from gpudemand.jobs.times import parse_timezone
from gpudemand.planning.programmes import Programme
from gpudemand.planning.purchases import Purchase
from gpudemand.study.settings import EACH, Installed, Settings
from gpudemand.study.speeds import of_device
from gpudemand.units import parse_duration

if TYPE_CHECKING:
    from gpudemand.cost.job import TrainingJob
    from gpudemand.cost.model import CostModel
    from gpudemand.cost.module_path import NetworkTracer
    from gpudemand.cost.parallel import LoRA, Parallel

_TEMPLATE = Path(__file__).with_name("plan.toml")
#: Parts of places in errors that do not stand in the file: which of two kinds of value it is.
_ONE, _OTHER = "<one>", "<other>"
#: What a value must be, by the first word of pydantic's name for the error.
_MUST = {
    "string": "text in quotes",
    "int": "a whole number of at least 1",
    "float": "a number of at least 0",
    "greater": "a number of at least {ge:g}",
    "finite": "a number that is finite",
    "bool": "true or false",
    "list": "tables, each under a line [[{key}]]",
    "tuple": 'a list of texts, such as ["alps"]',
    "model": "a table",
    "dict": 'a table of texts, such as {{ "1g.10gb" = "A100" }}',
    "too": "one value, or a table of such by GPU type",
}


class _Table(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, content: Any) -> Any:
        unknown = [key for key in content if key not in cls.model_fields] if isinstance(content, dict) else []
        if unknown:
            raise PydanticCustomError("unknown_key", "", {"key": unknown[0], "known": [*cls.model_fields]})
        return content

    def given(self) -> dict[str, Any]:
        """Values of the keys that stand in the file."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


def _path(text: Any, info: Any) -> Path:
    """Path, relative to the file."""
    if not isinstance(text, str) or not text.strip():
        raise PydanticCustomError("must", "text in quotes")
    try:
        return Path(info.context["file"].parent, Path(text).expanduser())
    except RuntimeError:
        raise PydanticCustomError("must", "a path, and nobody here has that home") from None


def _time(value: Any, info: Any) -> pd.Timestamp:
    """Time with a zone."""
    if not isinstance(value, dt.date):
        raise PydanticCustomError("must", "a date without quotes, such as 2026-07-01")
    if not EARLIEST.year <= value.year < LATEST.year:
        raise PydanticCustomError("must", f"a date from {EARLIEST.year} to {LATEST.year - 1}")
    time, zone = pd.Timestamp(value), info.context["zone"]
    if time.tzinfo is not None:
        return time.tz_convert(zone or dt.UTC)
    if zone is None:
        hint = f'set tz = "Europe/Berlin" above, or write {time:%Y-%m-%dT%H:%M}Z'
        raise PydanticCustomError("must", f"a time with a zone: {hint}")
    return time.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")


def _duration(text: str) -> str:
    """Length of time, not negative, as text."""
    with suppress(InputError, OverflowError):
        if parse_duration(text) >= pd.Timedelta(0):
            return text
    raise PydanticCustomError("must", "a length of time such as '90D', '36h' or '15min'")


def _either(one: Any, other: Any, is_other: Callable[[Any], bool]) -> Any:
    """One kind of value, or another one where that is told by its form; errors are of that alone."""
    tags = Discriminator(lambda value: _OTHER if is_other(value) else _ONE)
    return Annotated[Annotated[one, Tag(_ONE)] | Annotated[other, Tag(_OTHER)], tags]


def _or_by_type(kind: Any, is_table: Callable[[Any], bool] = lambda value: isinstance(value, dict)) -> Any:
    """One value, or a table of such by GPU type."""
    return _either(kind, Annotated[dict[str, kind], Field(min_length=1)], is_table)


def _is_of_tables(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(entry, dict) for entry in value.values())


Text = Annotated[str, StringConstraints(pattern=r"\S")]
Duration = Annotated[Text, AfterValidator(_duration)]
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
Whole = Annotated[int, BeforeValidator(lambda n: int(n) if isinstance(n, float) and n.is_integer() else n), Field(ge=1)]
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Time = Annotated[Any, PlainValidator(_time)]
RelativePath = Annotated[Path, PlainValidator(_path)]


class _Pair(_Table):
    reserved: Number
    on_demand: Number


class _Event(_Table):
    name: Text
    start: Time
    end: Time
    effect: Annotated[float | None, Field(ge=-1, allow_inf_nan=False)] = None


class _Parallel(_Table):
    data: Whole | None = None
    tensor: Whole | None = None
    pipeline: Whole | None = None
    virtual_pipeline: Whole | None = None
    context: Whole | None = None
    expert: Whole | None = None
    expert_tensor: Whole | None = None
    sharding: Text | None = None
    sequence: bool | None = None

    def layout(self) -> Parallel:
        """The layout; only a plan with a job of a network needs the code of costs."""
        from gpudemand.cost.parallel import Parallel

        return Parallel(**self.given())


class _Adapter(_Table):
    rank: Whole | None = None
    targets: _either(Text, Texts, lambda value: isinstance(value, list)) | None = None  # type: ignore[valid-type]
    bits: Whole | None = None
    quantizer: Text | None = None
    dora: bool | None = None

    def adapter(self) -> LoRA:
        """The adapter."""
        from gpudemand.cost.parallel import LoRA

        return LoRA(**self.given())


def _network(text: str, info: Any) -> str:
    """Published name, module path, or path of a configuration, relative to the file."""
    path = _path(text, info)
    return str(path) if path.suffix == ".json" or path.exists() else text


class _Job(_Table):
    model: Annotated[Text, AfterValidator(_network)]
    seq_len: Whole | None = None
    input: Annotated[tuple[Whole, ...], Field(strict=False)] | None = None
    input_dtype: Text | None = None
    device: Text
    n_gpus: Whole
    batch_size: Whole | None = None
    global_batch: Whole | None = None
    micro_batch: Whole | None = None
    accumulate: Whole | None = None
    precision: Text | None = None
    optimizer: Text | None = None
    offload: Text | None = None
    attention: Text | None = None
    cross_entropy: Text | None = None
    execution: Text | None = None
    kernels: Text | None = None
    experts: Text | None = None
    stack_year: Number | None = None
    checkpointing: _either(Text, bool, lambda value: isinstance(value, bool)) | None = None  # type: ignore[valid-type]
    parallel: Annotated[_Parallel, AfterValidator(_Parallel.layout)] | None = None
    lora: Annotated[_Adapter, AfterValidator(_Adapter.adapter)] | None = None

    def training(self, info: Any) -> TrainingJob:
        """The job, of which what is not given is unknown."""
        from gpudemand.cost.job import TrainingJob
        from gpudemand.cost.module_path import is_module_path

        given = self.given()
        model = given.pop("model")
        if is_module_path(model):
            graph = _tracer(info).trace(model, given.pop("input", None), given.pop("input_dtype", None))
            return TrainingJob(graph, **given)
        if self.seq_len is None:
            raise PydanticCustomError("lacks", "", {"key": "seq_len"})
        adapter = {"adapter": given.pop("lora")} if "lora" in given else {}
        return TrainingJob.from_config(model, given.pop("seq_len"), **given, **adapter)


def _predictor(folder: Path) -> CostModel:
    """The predictor that was saved in a folder."""
    from gpudemand.cost.model import CostModel

    return CostModel.load(folder)


class _Programme(_Table):
    name: Text
    user: Text | None = None
    group: Text | None = None
    gpu_type: Text | None = None
    runs: Whole
    start: Time
    end: Time
    hours: Number | None = None
    gpus: Number | None = None
    tokens: Number | None = None
    samples: Number | None = None
    steps: Number | None = None
    costs: Annotated[RelativePath, AfterValidator(_predictor)] | None = None
    ratio: tuple[Number, Number, Number] | None = Field(None, strict=False)
    job: Annotated[_Job, AfterValidator(_Job.training)] | None = None

    def work(self) -> Programme:
        """The programme; no time is predicted yet."""
        given = self.given()
        job, amounts = given.get("job"), [name for name in _AMOUNTS if name in given]
        if job is None:
            lacking = [name for name in ("hours", "gpus") if name not in given] or ["job"] * bool(amounts)
            if lacking:
                raise PydanticCustomError("lacks", "", {"key": lacking[0]})
        elif "gpus" in given or "hours" in given or len(amounts) != 1:
            raise InputError(f"a programme with a job has one of {', '.join(_AMOUNTS)}, and neither hours nor gpus.")
        else:
            given["steps"] = _steps(job, amounts[0], given.pop(amounts[0]))
        return Programme(**given)


class _Network(_Table):
    model: Text
    input: Annotated[tuple[Whole, ...], Field(strict=False)] | None = None
    input_dtype: Text | None = None
    optimizer: Text | None = None
    layout: Text | None = None
    execution: Text | None = None

    def arguments(self, info: Any) -> tuple[Any, ...]:
        """Arguments of `TrainingJob`, the network traced."""
        given = self.given()
        place = (given.pop("model"), given.pop("input", None), given.pop("input_dtype", None))
        return _tracer(info).trace(*place), None, given


def _tracer(info: Any) -> NetworkTracer:
    """What traces the networks of the file, all of them in one process."""
    from gpudemand.cost.module_path import NetworkTracer

    context = info.context
    if "tracer" not in context:
        context["tracer"] = context["stack"].enter_context(NetworkTracer(context["file"].parent))
    tracer: NetworkTracer = context["tracer"]
    return tracer


class _Networks(RootModel[dict[str, Annotated[_Network, AfterValidator(_Network.arguments)]]]):
    """Networks by the names that a log gives them."""


#: How long a run trains, stated by one of these.
_AMOUNTS = ("tokens", "samples", "steps")


def _steps(job: TrainingJob, name: str, amount: float) -> float:
    """Steps of a run from its tokens, samples or steps."""
    if name == "tokens":
        if job.run is None:
            raise InputError("tokens are of large models; state the samples or steps of a run.")
        return amount / job.run.tokens
    if job.run is not None and job.run.global_batch is None:
        raise InputError(f"{name} need the samples of one step: add global_batch to the job, or state tokens instead.")
    return amount if name == "steps" else amount / job.samples_per_step


class Change(_Table):
    """A delivery (positive) or retirement (negative) of GPUs."""

    date: Time
    gpus: Number
    gpu_type: Text | None = None


def _event_table(events: list[_Event]) -> pd.DataFrame:
    """Events as `EventForecaster` takes them."""
    rows = [(each.name, each.start, each.end, each.effect) for each in events]
    table = pd.DataFrame(rows, columns=["event", "start", "end", "effect"])
    Calendar.of(table)
    return table


#: How options of a study are written, by the name of their type.
_WRITTEN: dict[str, Any] = {
    "str": Text,
    "str | None": Text,
    "int": Whole,
    "float": Number,
    "object": Time,
    "Installed": _or_by_type(Number),
    "Duration | None": Duration,
    "LeadTime": _or_by_type(Duration),
    "Prices": _or_by_type(
        Annotated[_Pair, AfterValidator(lambda pair: (pair.reserved, pair.on_demand))], _is_of_tables
    ),
    "Aliases": dict[str, Text],
    "pd.DataFrame | None": Annotated[list[_Event], AfterValidator(_event_table)],
}
_OPTIONS = {each.name: each for each in fields(Settings) if each.name not in ("cluster", "installed_from")}
_KEYS: dict[str, Any] = {
    name: (_WRITTEN[str(each.type)] if each.default is not None else _WRITTEN[str(each.type)] | None, each.default)
    for name, each in _OPTIONS.items()
}
_Options: Any = create_model("_Options", __base__=_Table, **_KEYS)
#: How parameters of a purchase are written, by their type; each may stand in one option, or in what all share.
_OF_PURCHASE: dict[str, Any] = {
    "str | None": Text,
    "float": Number,
    "float | None": Number,
    "bool": bool,
    "Sequence[str] | Mapping[str, Any]": _either(Texts, dict[str, Time], lambda value: isinstance(value, dict)),
    "Mapping[str, str]": dict[str, Duration],
    "Mapping[str, float]": dict[str, Number],
    "Mapping[str, float] | None": dict[str, Number],
    "float | Mapping[str, float] | None": _or_by_type(Number),
    "float | tuple[float, float, float] | None": _either(
        Number, Annotated[tuple[Number, Number, Number], Field(strict=False)], lambda value: isinstance(value, list)
    ),
}
_PURCHASE: dict[str, Any] = {each.name: (_OF_PURCHASE[str(each.type)] | None, None) for each in fields(Purchase)}
_PURCHASE["lead_time"] = (Duration | None, None)
_Compared: Any = create_model("_Compared", __base__=_Table, **_PURCHASE)
_Option: Any = create_model("_Option", __base__=_Compared, name=(Text, ...))


class ReportPlan(_Options):
    """What a recurring report needs, as a plan file states it.

    Parameters
    ----------
    log : Path, optional
        Job log or store; paths in the file are relative to it.
    format, origin : str
        Of the log; see `read_jobs`.
    clusters : tuple of str
        Clusters that are reported on together, all by default; or ``"each"``: all, each a pool of its own.
    installed : float or dict of str to float, optional
        GPUs before the first of `changes`: of all types together, or by GPU type.
    deliveries, retirements : list of Change
        GPUs that come and go.
    out : Path
        Folder of the report.
    previous : Path, optional
        Folder of an earlier report to compare with.
    metrics : Path, optional
        File of metrics for Prometheus' textfile collector.
    style : Path, optional
        File of CSS for the page.
    options : list
        Purchases that are compared, each with a name; `compare` holds what they have in common.
    lead_time, prices, programmes, events and other options
        As for `Study`, under the same names.

    Examples
    --------
    >>> import tempfile
    >>> plan = read_plan(write_plan(Path(tempfile.mkdtemp(), "plan.toml"), log="jobs.parquet"))
    >>> plan.lead_time, plan.service_level, plan.log.name
    ('90D', 0.95, 'jobs.parquet')
    """

    log: RelativePath | None = None
    format: Text = "canonical"
    origin: Text | None = None
    clusters: Texts = ()
    deliveries: list[Change] = Field(default_factory=list)
    retirements: list[Change] = Field(default_factory=list)
    programmes: list[Annotated[_Programme, AfterValidator(_Programme.work)]] = Field(default_factory=list)
    compare: _Compared | None = None
    options: list[_Option] = Field(default_factory=list)
    out: RelativePath = Field("gpudemand-report", validate_default=True)
    previous: RelativePath | None = None
    metrics: RelativePath | None = None
    style: RelativePath | None = None
    _file: Path = PrivateAttr()

    @model_validator(mode="before")
    @classmethod
    def _check_file(cls, content: Any, info: Any) -> Any:
        if info.context is None:
            raise InputError("a plan is read from a file: read_plan(path).")
        return content

    def model_post_init(self, context: Any) -> None:
        """Keep the place of the file."""
        self._file = context["file"]

    def __eq__(self, other: object) -> bool:
        """Whether file and content are the same; tables of events do not compare as a whole."""
        if not isinstance(other, ReportPlan) or (self.events is None) != (other.events is None):
            return False
        same = self.events is None or self.events.equals(other.events)
        return same and self.file == other.file and self._content() == other._content()

    __hash__ = None  # type: ignore[assignment]

    def _content(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields if name != "events"}

    @property
    def file(self) -> Path:
        """The plan file."""
        return self._file

    @property
    def changes(self) -> tuple[Change, ...]:
        """Deliveries and retirements by date."""
        less = [each.model_copy(update={"gpus": -each.gpus}) for each in self.retirements]
        return tuple(sorted([*self.deliveries, *less], key=lambda change: (change.date, -change.gpus)))

    @property
    def gpus(self) -> Installed:
        """GPUs installed, as `Study` takes them: a Series in time where there are deliveries or retirements."""
        if not isinstance(self.installed, dict):
            return None if self.installed is None else _in_time(self.installed, self.changes)
        types = dict.fromkeys([*self.installed, *(str(change.gpu_type) for change in self.changes)], 0.0)
        of_type = {name: tuple(change for change in self.changes if change.gpu_type == name) for name in types}
        return {name: _in_time((types | self.installed)[name], changes) for name, changes in of_type.items()}

    @property
    def purchases(self) -> dict[str, Purchase]:
        """Options of a purchase by name, with what they have in common."""
        common, found = {} if self.compare is None else self.compare.given(), {}
        for option in self.options:
            own = option.given()
            name = own.pop("name")
            if name in found:
                raise InputError(f"two options are called {name!r}; give each a name of its own.")
            shared = {key: value for key, value in common.items() if Purchase.applies(key, own)}
            try:
                found[name] = Purchase(**(shared | own))
            except InputError as error:
                raise InputError(f"option {name!r}: {error}") from error
        return found

    def study_options(self) -> dict[str, Any]:
        """Keyword arguments of `Study`, but the zone of times, which is UTC where the plan has none."""
        clusters = EACH if self.clusters == (EACH,) else self.clusters or None
        options = {name: getattr(self, name) for name in (*_OPTIONS, "programmes")}
        return {**options, "installed": self.gpus, "cluster": clusters, "options": self.purchases}

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_choice("format", self.format, (*FORMATS, USAGE_ONLY))
        if self.changes and self.installed is None:
            raise InputError(
                "there are deliveries or retirements, but no installed; state the GPUs before the first one."
            )
        by_type = isinstance(self.installed, dict)
        if by_type and any(change.gpu_type is None for change in self.changes):
            raise InputError("installed is by GPU type, so each delivery and retirement needs gpu_type.")
        if by_type:
            _check_types(self)
        changes = sorted(self.changes, key=lambda change: (str(change.gpu_type) if by_type else "", change.date))
        for name, of_type in groupby(changes, lambda change: change.gpu_type if by_type else None):
            _check_enough(name, self, list(of_type))
        options = self.study_options()
        del options["programmes"], options["options"]
        Settings(**options)
        return self


def read_plan(path: str | os.PathLike[str]) -> ReportPlan:
    """Read the plan of a recurring report from a TOML file, as ``gpudemand report --plan`` does.

    Parameters
    ----------
    path : path-like
        The file; `write_plan` writes one that explains each key.

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
    gpudemand._validation.TomlError: plan.toml: there is no key 'lead_tim'. Did you mean 'lead_time'? ...
    """
    return _validated(ReportPlan, Path(path))


def read_networks(path: str | os.PathLike[str]) -> dict[str, tuple[Any, ...]]:
    """Read networks by the names that a log gives them, as `CostStepTime` takes them, from a TOML file.

    Each has a table: ``model`` (``package.module:factory``, which is run), ``input`` (the shape of a sample), and
    options of `TrainingJob`.
    """
    found: Any = _validated(_Networks, Path(path))
    return dict(found.root)


_Model = TypeVar("_Model", bound=BaseModel)


def _validated(kind: type[_Model], file: Path) -> _Model:
    content = read_toml(file)
    try:
        zone = parse_timezone(content["tz"]) if isinstance(content.get("tz"), str) else None
        with ExitStack() as stack:
            return kind.model_validate(content, context={"file": file, "zone": zone, "stack": stack})
    except ValidationError as error:
        raise TomlError(f"{file}: {' '.join(map(_sentence, error.errors()))}") from error
    except InputError as error:
        raise TomlError(f"{file}: {error}") from error


def _sentence(error: Any) -> str:
    """What is wrong, and where."""
    kind, about, place = error["type"], error.get("ctx", {}), _place(error["loc"])
    if kind == "unknown_key":
        key, known, within = about["key"], about["known"], f" in {place}" if place else ""
        return (
            f"there is no key {shorten(key)!r}{within}.{nearest(key, known)} Keys{within or ' of a plan'}: "
            f"{', '.join(known)}; those of the whole plan stand above all [[...]]."
        )
    if kind in ("missing", "lacks"):
        *table, key = (*error["loc"], about["key"]) if kind == "lacks" else error["loc"]
        return f"{_place(table)} has no {key}; add it."
    if kind == "value_error":
        return f"{place}: {about['error']}" if place else str(about["error"])
    what = error["msg"] if kind == "must" else _MUST[kind.split("_")[0]].format(key=place, **about)
    value = error["input"]
    return f"{place} must be {what}; got {shorten(value if isinstance(value, (str, int, float)) else str(value))!r}."


def _place(parts: Any) -> str:
    """Place in the file, such as ``deliveries[1].gpus``."""
    names = [f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in parts if part not in (_ONE, _OTHER)]
    return "".join(names).removeprefix(".")


def read_toml(file: Path) -> dict[str, Any]:
    """Content of a TOML file."""
    if not file.is_file():
        raise TomlError(f"there is no file {str(file)!r}; `gpudemand init {file}` writes one to begin with.")
    try:
        # Some editors begin a file with a byte order mark.
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise TomlError(f"{file} is no valid TOML: it is not text in UTF-8; save it as such.") from error
    except (ValueError, RecursionError) as error:
        said = str(shorten(str(error), 200)).rstrip(".")
        raise TomlError(f"{file} is no valid TOML: {said}; correct it there.") from error


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


def _check_types(plan: ReportPlan) -> None:
    """A type that comes or goes is one that is installed, or a known one that is yet to come."""
    known = list(plan.installed) if isinstance(plan.installed, dict) else []
    for change in plan.changes:
        name = str(change.gpu_type)
        alike = name not in known and spelled(name) in map(spelled, known)
        if alike or (name not in known and math.isnan(of_device(name, "memory_gib"))):
            raise InputError(
                f"a delivery or retirement names the GPU type {shorten(name)!r}, which installed does not."
                f"{nearest(name, known)} Correct it, or write {{ {json.dumps(name)} = 0 }} there for a new one."
            )


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
