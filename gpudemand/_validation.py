"""Validation of arguments, with error messages of one style."""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager, suppress
from datetime import date
from decimal import Decimal
from functools import wraps
from numbers import Real
from traceback import walk_stack
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from gpudemand._array import STRING, FloatArray

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_PACKAGE = os.path.dirname(__file__) + os.sep


def stack_level() -> int:
    """Return the ``stacklevel`` by which a warning names the line that called this package, not one inside it."""
    outermost, frames = 0, walk_stack(sys._getframe(1))
    for level, (frame, _) in enumerate(frames, 1):
        file = frame.f_code.co_filename
        # A context manager that decorates a method lies between it and what calls it.
        if file.startswith(_PACKAGE) or (level == outermost + 1 and file == contextlib.__file__):
            outermost = level
    return outermost + 1


class InputError(ValueError):
    """An argument or file cannot be used; the message says why, and how to correct it."""


class TomlError(InputError):
    """A plan or another TOML file cannot be used; the message has the keys as they stand there."""


class OutOfMemoryError(MemoryError):
    """There is not enough memory; the message says what to do."""


class RejectedRowsWarning(UserWarning):
    """Rows of a log were left out; the message counts them by reason."""


class UnlikelyJobsWarning(UserWarning):
    """A log does not add up: jobs that are likely entered wrong, or names that are not understood; what to do."""


class UnlikelyCostWarning(UserWarning):
    """A measured time or memory is so far off what is predicted that its unit is likely another; what to do."""


class UnlikelyUsageWarning(UserWarning):
    """A table of usage is likely incomplete or wrong; the message names one place, and says what to do."""


def nearest(name: str, options: Iterable[str]) -> str:
    """Return a ``Did you mean ...?`` clause, or an empty string when nothing is near."""
    known = {option.lower(): option for option in options}
    close = difflib.get_close_matches(str(name).lower(), list(known), n=1, cutoff=0.5)
    return f" Did you mean {known[close[0]]!r}?" if close else ""


def spelled(name: str) -> str:
    """Letters and digits of a name, by which spellings of it are alike.

    >>> spelled("A100-SXM4") == spelled("a100 sxm4")
    True
    """
    return "".join(filter(str.isalnum, name)).casefold()


def check_choice(name: str, value: object, options: Collection[str]) -> str:
    """Return `value` if it is one of `options`; otherwise raise and suggest the nearest one."""
    if isinstance(value, str) and value in options:
        return value
    hint = nearest(value, options) if isinstance(value, str) else ""
    raise InputError(f"{name}={shorten(value)!r} is not known.{hint} Choose one of: {', '.join(sorted(options))}.")


def check_number(
    name: str,
    value: object,
    low: float = -np.inf,
    high: float = np.inf,
    *,
    integer: bool = False,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return `value` as a number in ``[low, high]`` (without the ends that `open_low` and `open_high` leave out)."""
    number = np.nan
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        with suppress(OverflowError):  # an integer of hundreds of digits
            number = float(value)
    if np.isfinite(number):
        above = number > low if open_low else number >= low
        below = number < high if open_high else number <= high
        if above and below and (not integer or number == int(number)):
            return number
    kind = "a whole number" if integer else "a number"
    bounds = [f"{'above' if open_low else 'of at least'} {low:g}"] if np.isfinite(low) else []
    bounds += [f"{'below' if open_high else 'at most'} {high:g}"] if np.isfinite(high) else []
    allowed = " and ".join(bounds) or "that is finite"
    raise InputError(f"{name} must be {kind} {allowed}; got {shorten(value)!r}.")


def check_levels(level: Sequence[float] | float | None) -> list[float]:
    """Return interval levels in percent, ascending, each inside (0, 100)."""
    if level is None:
        return []
    wanted: list[float] = list(np.atleast_1d(np.asarray(level, dtype=object)))
    for value in wanted:
        check_number("level", value, 0, 99.9, open_low=True)
    if wanted and max(wanted) <= 1:
        raise InputError(f"a level of {level!r} looks like a share; levels are percents, such as 80 and 95.")
    return sorted(float(value) for value in wanted)


def check_seed(random_state: object) -> int:
    """Return a seed, a whole number of 32 bits; as in scikit-learn, None and generators of NumPy draw one."""
    if random_state is None or isinstance(random_state, np.random.Generator):
        return int(np.random.default_rng(random_state).integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return int(check_number("random_state", random_state, 0, 2**32 - 1, integer=True))


def check_list(name: str, values: object, of: str, *, empty: bool = False) -> list[Any]:
    """Return what a sequence or an iterator holds, at least one thing unless it may be `empty`; text is neither.

    >>> check_list("capacities", iter([8, 16]), "numbers")
    [8, 16]
    """
    try:
        listed = list(cast("Iterable[Any]", None if isinstance(values, str) else values))
    except TypeError:
        raise InputError(f"{name} must be a list of {of}; got {type(values).__name__}.") from None
    if not listed and not empty:
        raise InputError(f"{name} is empty; it must hold {of}.")
    return listed


def check_length(name: str, given: Sized, expected: int, of: str = "jobs") -> None:
    """Raise an `InputError` unless there is one value for each of what is counted."""
    if len(given) != expected:
        raise InputError(f"{name} has {len(given)} values for {expected} {of}; give one for each.")


def check_labels(name: str, given: object, rows: pd.Index, of: str = "a user") -> NDArray[Any]:
    """Return one value for each of some rows; those of a Series are found by its index, in any order.

    >>> check_labels("labels", pd.Series({"bob": 1, "ada": 0}), pd.Index(["ada", "bob"])).tolist()
    [0, 1]
    """
    values = np.asarray(given)
    if values.shape != (len(rows),):
        raise InputError(f"{name} must be one {of}; got {values.shape} for {len(rows)}.")
    if isinstance(given, pd.Series) and not given.index.equals(rows):
        place = given.index.get_indexer(rows) if given.index.is_unique else np.full(len(rows), -1)
        if (place < 0).any():
            lacks = shorten(str(rows[place.argmin()]))
            raise InputError(
                f"{name} is a Series whose index is not that of the rows it labels (it lacks {lacks!r}); give it their "
                "index, or an array if it has their order."
            )
        values = values[place]
    if pd.isna(values).any():
        raise InputError(f"{name} has {int(pd.isna(values).sum())} missing values; give one for each.")
    return values


def as_pandas(table: object, what: str) -> pd.DataFrame:
    """Return a table of any library as a pandas DataFrame of NumPy values, with text as Arrow strings.

    `table`: of pandas (nullable, Arrow-backed and categorical columns included), or anything that exports the Arrow
    PyCapsule interface: polars, pyarrow, DuckDB, narwhals ... `what`: name of the table, for messages.
    """
    if isinstance(table, pd.DataFrame):
        frame = _with_plain_columns(table)
    elif isinstance(table, pd.Series):
        raise InputError(f"{what} is one column, not a table; make one with its index as columns: .reset_index().")
    elif hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__"):
        # pyarrow 24 can crash on a stream of its own string views.
        try:
            arrow = table if isinstance(table, pa.Table) else pa.table(table)
        except (pa.ArrowInvalid, TypeError):
            raise InputError(f"{what} is one column, not a table; make one of it.") from None
        columns = [_from_arrow(column) for column in arrow.columns]
        frame = pd.DataFrame(dict(enumerate(columns)), index=range(arrow.num_rows)).set_axis(arrow.column_names, axis=1)
    else:
        raise InputError(f"{what} must be a table (pandas, polars, pyarrow ...); got {type(table).__name__}.")
    _check_one_level(frame, what)
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InputError(f"{what} has the column {shorten(twice)!r} more than once; rename or drop one.")
    # As set_index(..., drop=False) leaves it; pandas groups and sorts by no name that is both.
    names = [None if name in frame.columns else name for name in frame.index.names]
    return frame if names == list(frame.index.names) else frame.rename_axis(index=names)


def _check_one_level(frame: pd.DataFrame, what: str) -> None:
    """Raise an `InputError` for columns of several levels, as a pivot makes them."""
    if isinstance(frame.columns, pd.MultiIndex):
        raise InputError(f"{what} has columns of several levels; keep one: {what}.droplevel(0, axis=1), for example.")


def as_wide(table: object) -> pd.DataFrame:
    """Return a wide table of usage as pandas: a row a user, and times as columns where these are times.

    Users may be named in the column ``unique_id``, and times be periods, dates or ISO text, as in a table from a file.
    """
    frame = table if isinstance(table, pd.DataFrame) else as_pandas(table, "usage")
    _check_one_level(frame, "usage")
    if "unique_id" in frame.columns and "ds" in frame.columns:
        raise InputError("usage is a long table, a row a series and time; make it wide: gpudemand.to_wide(usage).")
    frame = frame.set_index("unique_id") if "unique_id" in frame.columns else frame
    if (times := _times(frame.columns)) is not None:
        return frame.set_axis(times, axis=1)
    if any(isinstance(name, (date, pd.Period)) for name in frame.columns):
        raise InputError(
            "the columns of usage are not all times of one zone; keep those that are, with the users as index."
        )
    # Users may be called by eight digits, or by a year and a number.
    texts = [name for name in frame.index if isinstance(name, str)]
    if all(map(_ISO_DAY.match, texts)) and _times(frame.index) is not None:
        raise InputError("usage has times as rows, and must have them as columns; transpose it: usage.T.")
    return frame


#: Text that is a date: a year alone, or "today", is none.
_ISO_DATE = re.compile(r"\d{4}-\d|\d{8}")
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_UTC_OFFSET = re.compile(r":\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)$")


def _times(names: pd.Index) -> pd.DatetimeIndex | None:
    """Names of columns or rows as times, None where they are not times."""
    if isinstance(names, pd.MultiIndex) or names.empty:
        return None
    if isinstance(names, pd.CategoricalIndex):
        names = names.astype(names.categories.dtype)
    names = names.infer_objects()
    if isinstance(names, pd.PeriodIndex):
        return names.to_timestamp()
    if names.inferred_type == "date":
        names = pd.Index(map(str, names))
    elif pd.api.types.is_datetime64_any_dtype(names.dtype):
        return pd.DatetimeIndex(names)
    if not all(isinstance(name, str) and _ISO_DATE.match(name) for name in names):
        return None
    if len({found and found[2] for found in map(_UTC_OFFSET.search, names)}) > 1:
        cure = "pd.to_datetime(..., utc=True).tz_convert(zone)"
        raise InputError(f"the times of usage are text with several offsets from UTC; give them one zone: {cure}.")
    try:
        return pd.DatetimeIndex(pd.to_datetime(names, format="ISO8601"))
    except ValueError:
        return None


def _with_plain_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame itself if its columns are NumPy arrays or Arrow strings, otherwise one that shares those that are."""
    plain = frame.copy(deep=False)
    for place, dtype in enumerate(frame.dtypes):
        if isinstance(dtype, pd.CategoricalDtype):  # Arrow's dictionaries may lose the zone of times
            dtype = dtype.categories.dtype
            plain.isetitem(place, frame.iloc[:, place].astype(dtype))
        if isinstance(dtype, pd.SparseDtype):
            plain.isetitem(place, frame.iloc[:, place].sparse.to_dense())
        elif dtype != STRING and (
            isinstance(dtype, (pd.ArrowDtype, pd.StringDtype))
            or (pd.api.types.is_extension_array_dtype(dtype) and dtype.kind in "iufb")
        ):
            values = _from_arrow(pa.array(plain.iloc[:, place], from_pandas=True))
            plain.isetitem(place, values.set_axis(frame.index))
    return plain


def _from_arrow(array: Any) -> pd.Series:
    """Series of NumPy values, or of text, from an Arrow array or chunked array."""
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    if pa.types.is_dictionary(array.type):
        plain = _plain_type(array.type.value_type)
        # Arrow decodes no views, and polars exports nothing else.
        decoded = [pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(plain)) for chunk in chunks]
        array = pa.chunked_array([chunk.dictionary_decode() for chunk in decoded], type=plain)
    array = array.cast(_plain_type(array.type))
    return pd.Series(array.to_pandas(types_mapper={pa.large_string(): STRING}.get, date_as_object=False))


def _plain_type(dtype: Any) -> Any:
    """Type that every version of pandas reads: one type of text, and floats for decimals."""
    if str(dtype) in ("string", "string_view"):
        return pa.large_string()
    return pa.float64() if pa.types.is_decimal(dtype) else dtype


def check_columns(frame: object, required: Iterable[str], what: str) -> pd.DataFrame:
    """Return `frame` as pandas if it is a table that has every column of `required`; see `as_pandas`."""
    table = as_pandas(frame, what)
    require_names(table.columns, required, what)
    return table


def check_features(X: object, required: Iterable[str] = ()) -> pd.DataFrame:
    """Return features as pandas that have some columns; numbers are numbers also where they are stored as objects.

    >>> check_features(pd.DataFrame({"batch": [8, 16], "optimizer": ["sgd", "adam"]}, dtype=object)).dtypes["batch"]
    dtype('int64')
    """
    table = as_pandas(X, "X").infer_objects()
    require_names(table.columns, required, "X")
    for name in table.columns[[dtype.kind == "O" for dtype in table.dtypes]]:
        known = table[name].dropna()
        if len(known) and all(isinstance(value, (Real, Decimal)) for value in known):
            table[name] = as_numbers(table[name].map(float, na_action="ignore"), f"X[{name!r}]")
    return table


def require_names(names: Iterable[object], required: Iterable[str], what: str, hint: str = "") -> None:
    """Raise an `InputError`, with a hint at what to do, if a required column is not among the names of the columns."""
    present = list(names)
    missing = [name for name in required if name not in present]
    if missing:
        has = ", ".join(str(shorten(name)) for name in present[:12]) or "no columns"
        raise InputError(f"{what} lacks the column(s) {', '.join(missing)}; it has {has}.{hint}")


def check_usage(usage: object, *, allow_missing: bool = False) -> pd.DataFrame:
    """Validate a long frame of series and sort it by ``unique_id, ds``.

    `usage`: columns ``unique_id``, ``ds`` (datetime) and ``y`` (float); others are dropped. `allow_missing`: whether
    NaN in ``y`` (a value that was not recorded) is allowed.
    """
    given = as_pandas(usage, "usage")
    in_index = {"unique_id", "ds"} & set(given.index.names)
    hint = " Take what is in the index: usage.reset_index()." if in_index else ""
    require_names(given.columns, ("unique_id", "ds", "y"), "usage", hint)
    frame = check_keys(given[["unique_id", "ds", "y"]], "usage")
    y = as_numbers(frame["y"], "usage['y']")
    if not allow_missing and np.isnan(y).any():
        raise InputError(
            f"the column y of usage holds {int(np.isnan(y).sum())} missing values; fill them "
            "(a true zero is data) or use an estimator that takes missing values."
        )
    frame = frame.assign(y=y)
    frame = frame.sort_values(["unique_id", "ds"], kind="stable", ignore_index=True)
    duplicated = frame.duplicated(["unique_id", "ds"])
    if duplicated.any():
        first = frame.loc[duplicated.idxmax()]
        raise InputError(
            f"usage has {int(duplicated.sum())} duplicate stamps, the first at "
            f"{first['ds']} of {shorten(first['unique_id'])!r}; sum or drop them."
        )
    frame.attrs = dict(given.attrs)
    return frame


def check_keys(table: pd.DataFrame, what: str) -> pd.DataFrame:
    """Return a table whose ``unique_id`` are names and whose ``ds`` are datetimes, all present; raise if they are not.

    Python datetimes are datetimes; text is not parsed.
    """
    frame = table.assign(ds=table["ds"].infer_objects())
    if frame.empty:
        raise InputError(f"{what} has no rows; there is nothing to work on.")
    if missing := int(frame["unique_id"].isna().sum()):
        raise InputError(f"the column unique_id of {what} holds {missing} missing names; fill them.")
    _check_names(frame["unique_id"], what)
    if not pd.api.types.is_datetime64_any_dtype(frame["ds"]):
        raise InputError(f"the column ds of {what} must hold datetimes; {_how_to_convert(frame['ds'], what)}.")
    if missing := int(frame["ds"].isna().sum()):
        raise InputError(f"the column ds of {what} holds {missing} missing times; drop or repair those rows.")
    return frame


def _check_names(names: pd.Series, what: str) -> None:
    """Raise an `InputError` for names that are lists, and for two that differ by their type only."""
    if names.dtype != object:
        return
    try:
        distinct = pd.Series(names.unique(), dtype=object)
    except TypeError:
        raise InputError(
            f"the column unique_id of {what} holds values that are no names, such as lists; write text."
        ) from None
    alike = distinct[distinct.map(str).duplicated(keep=False)]
    if len(alike):
        raise InputError(
            f"the column unique_id of {what} holds {shorten(alike.iloc[0])!r} and the same name as another type; all "
            "must be text; sum the rows of one time."
        )


#: Numbers that are no counts of bins: the least, and what pd.to_datetime must be told of them.
_NUMBERED_TIMES = (
    (10**17, "unit='ns'"),
    (10**14, "unit='us'"),
    (10**11, "unit='ms'"),
    (10**9, "unit='s'"),
    (19_000_101, "format='%Y%m%d'"),
    (190_001, "format='%Y%m'"),
    (1_900, "format='%Y'"),
)


def _how_to_convert(ds: pd.Series, table: str = "usage") -> str:
    """What a column without datetimes holds, and the call that makes times of it, for a message.

    >>> _how_to_convert(pd.Series([1_767_225_600, 1_767_229_200]))
    "it holds numbers: pd.to_datetime(usage['ds'], unit='s')"
    """
    column = f"{table}['ds']"
    if isinstance(ds.dtype, pd.PeriodDtype):
        return f"it holds periods: {column}.dt.to_timestamp()"
    if pd.api.types.is_timedelta64_dtype(ds):
        return f"it holds durations: add them to a first time, pd.Timestamp('2026-01-01') + {column}"
    if pd.api.types.is_numeric_dtype(ds):
        known = next((told for least, told in _NUMBERED_TIMES if ds.min() >= least), None)
        if known is None:
            numbers = f"pd.to_timedelta({column}, unit='D')"
            return f"it holds numbers of bins: pd.Timestamp('2026-01-01') + {numbers}, with your first time and unit"
        text = ".astype(int).astype(str)" if known.startswith("format") else ""
        return f"it holds numbers: pd.to_datetime({column}{text}, {known})"
    zones = {getattr(value, "tzinfo", None) is None for value in ds.dropna() if hasattr(value, "hour")}
    if len(zones) > 1:
        cure = f"pd.to_datetime({column}.astype(str), utc=True, format='mixed')"
        return f"it holds times with a zone and without: {cure}"
    mixed = ", utc=True" if zones == {False} else ""
    return f"it holds {ds.dtype}: pd.to_datetime({column}{mixed})"


#: By the kind of the data type: what pandas would turn into numbers of nanoseconds, or cut off.
_NO_NUMBERS = {
    "m": "durations: {}.dt.total_seconds() / 3600 makes hours of them",
    "M": "times, not numbers",
    "c": "complex numbers",
}


def as_numbers(column: pd.Series, name: str) -> FloatArray:
    """Floats of a column, NaN where a value is missing.

    >>> as_numbers(pd.Series([8, "0.5", None]), "gpus")
    array([8. , 0.5, nan])
    """
    if (kind := _NO_NUMBERS.get(column.infer_objects().dtype.kind)) is not None:
        raise InputError(f"{name} holds {kind.format(name)}.")
    is_bool = column.map(type).isin([bool, np.bool_]) if column.dtype == object else column.dtype == bool
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    unreadable = (np.isnan(values) & column.notna().to_numpy()) | np.isinf(values) | np.asarray(is_bool)
    if unreadable.any():
        raise InputError(f"{name} holds {int(unreadable.sum())} values that are not finite numbers.")
    return values


def shorten(value: object, width: int = 60) -> object:
    """Truncate long text for a message: a log can hold a user name of a million characters."""
    return value[: width - 3] + "..." if isinstance(value, str) and len(value) > width else value


#: Tells the steps of what takes long, and the stages that a log does not allow.
LOGGER = logging.getLogger("gpudemand")
#: Seconds until a step is told; then until twice as many have passed and so on, at most so many apart.
_TOLD_AFTER, _APART = 2.0, 10.0


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, NumPy, Arrow or DuckDB says that there is not enough memory."""
    # Where Python has no memory for an object, Arrow raises its base class, with the value that it was making one of.
    no_object = type(error) is pa.ArrowException and re.search(r"Wrapping [\s\S]*failed", str(error)) is not None
    return isinstance(error, MemoryError) or no_object or type(error).__name__ == "OutOfMemoryException"


@contextmanager
def memory_errors() -> Iterator[None]:
    """Raise an `OutOfMemoryError`, which says what to do, wherever there is not enough memory."""
    try:
        yield
    except OutOfMemoryError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        said = f" ({shorten(str(error), 120)})" if str(error) else ""
        raise OutOfMemoryError(
            f"there is not enough memory{said}; take a coarser freq (--freq) or less of the log."
        ) from error


@contextmanager
def telling(step: str) -> Iterator[None]:
    """Tell the logger, where it listens, of a step that takes over two seconds, four, eight, then every ten.

    Where there is not enough memory for the step, an `OutOfMemoryError` says what to do.
    """
    if not LOGGER.isEnabledFor(logging.INFO):
        with memory_errors():
            yield
        return
    ended = threading.Event()
    threading.Thread(target=_tell, args=(step, ended), daemon=True).start()
    try:
        with memory_errors():
            yield
    finally:
        ended.set()


def _tell(step: str, ended: threading.Event) -> None:
    begin, passed = time.monotonic(), _TOLD_AFTER
    while not ended.wait(min(passed, _APART)):
        passed = time.monotonic() - begin
        LOGGER.info("%s, %.0f s so far", step, passed)


def told(step: str) -> Callable[[F], F]:
    """Decorate a function as a step of `telling`; ``{}`` is the class of a method's object.

    >>> told("Fitting {}")(lambda model: model + 1)(2)
    3
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with telling(step.format(type(args[0]).__name__ if args else "")):
                return function(*args, **kwargs)

        return cast("F", call)

    return decorate


class Skipped(dict[str, str]):
    """Mapping from the name of a skipped section to one sentence with the reason.

    >>> skipped = Skipped()
    >>> skipped.attempt("parts", lambda: 1), skipped
    (1, {})
    """

    def attempt(self, name: str, compute: Callable[[], T]) -> T | None:
        """Compute a section, or record the `InputError` by which it is skipped; None if it is, now or before."""
        if name in self:
            return None
        try:
            return compute()
        except InputError as error:
            text = str(error)
            self[name] = text[:1].upper() + text[1:].rstrip(".") + "."
            LOGGER.info("Skipping %s: %s", name, self[name])
            return None
