"""Values of a TOML file by type; each error names the file and the key."""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand._validation import InputError, check_number, nearest, shorten
from gpudemand.jobs.schema import EARLIEST, LATEST
from gpudemand.units import parse_duration


@dataclass(frozen=True)
class Value:
    """A value, and where it stands.

    Parameters
    ----------
    file : Path
    key : str
        Such as ``deliveries[1].gpus``; empty for the whole file.
    raw : object
        As `tomllib` returns it.
    tz : tzinfo, optional
        Zone of times that are written without one.
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

        Parameters
        ----------
        keys : mapping of str to callable
            What reads the value of each key that may be there.

        Raises
        ------
        InputError
            If it is no table, or has another key; suggests the nearest.
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
    """Content of a TOML file.

    Raises
    ------
    InputError
        If there is no such file, or it is no TOML; names the line.
    """
    if not file.is_file():
        raise InputError(f"there is no file {str(file)!r}; `gpudemand init {file}` writes one to begin with.")
    try:
        # Some editors begin a file with a byte order mark.
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        said = str(shorten(str(error), 200)).rstrip(".")
        raise InputError(f"{file} is no valid TOML: {said}; correct it there.") from error
