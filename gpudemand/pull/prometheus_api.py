"""Range queries to Prometheus over HTTP: in chunks, retried with back-off, each failure one sentence."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import pandas as pd
import requests
from requests.auth import HTTPBasicAuth

from gpudemand._validation import InputError, shorten
from gpudemand.jobs.schema import EARLIEST, LATEST, OUTSIDE

#: A server answers at most this many points of a series.
MAX_POINTS = 11_000
_RETRIES = 5
_FIRST_PAUSE_S = 1.0
#: What systems say of a host that does not exist.
_NO_HOST = ("name or service not known", "no address associated", "nodename nor servname", "getaddrinfo failed")
_CLOCKS_APART = pd.Timedelta("5min")
_TEMPORARY = (429, 500, 502, 503, 504)
_TOO_MUCH = ("too many samples", "timed out", "timeout", "exceeded maximum resolution", "query_timeout", "canceled")


class _TooMuchError(InputError):
    """The server could not answer a query over so long a time; it may for a shorter one."""


class _TemporaryError(InputError):
    """The query may be answered when it is asked again."""


@dataclass
class PrometheusClient:
    """An address that answers Prometheus' HTTP API (also Thanos, Mimir, VictoriaMetrics).

    Parameters
    ----------
    url : str
        Address before ``/api/v1``.
    user, password : str, optional
        For basic authentication.
    token : str, optional
        Bearer token.
    ca : Path, optional
        Certificate authorities of the server, a PEM file.
    certificate, key : Path, optional
        Own certificate and key, PEM files.
    timeout_s : float
        Of one request.
    first_pause_s : float
        Pause before a request is repeated for the first time; it doubles each time.

    Examples
    --------
    >>> PrometheusClient("https://ada:secret@prometheus.example:9090/").place
    'https://prometheus.example:9090'
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    timeout_s: float = 120.0
    first_pause_s: float = _FIRST_PAUSE_S

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"url={shorten(self.place)!r} is no address; write one like http://prometheus:9090.")
        for name in ("ca", "certificate", "key"):
            file = getattr(self, name)
            if file is not None and not Path(file).is_file():
                raise InputError(f"there is no file {str(file)!r} for {name}=.")
        self._session = requests.Session()
        if self.token:
            self._session.headers["Authorization"] = f"Bearer {self.token}"
        elif self.user:
            # As bytes, which are sent as they are; requests would refuse text beyond Latin-1.
            self._session.auth = HTTPBasicAuth(self.user.encode(), (self.password or "").encode())
        self._session.verify = str(self.ca) if self.ca else True
        if self.certificate:
            own = str(self.certificate)
            self._session.cert = (own, str(self.key)) if self.key else own

    @property
    def place(self) -> str:
        """The address without a user's name and password."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))

    def samples(self, query: str, times: pd.DatetimeIndex) -> pd.DataFrame:
        """Evaluate a query at equally spaced times.

        Parameters
        ----------
        query : str
            PromQL.
        times : DatetimeIndex
            At least one, at most `MAX_POINTS`; of more than the server manages at once, each half is asked for.

        Returns
        -------
        DataFrame
            A row a sample: the labels, ``ds`` (UTC) and ``y``.

        Raises
        ------
        InputError
            If the server cannot be reached, refuses, or does not answer as Prometheus does.
        """
        try:
            return _table(self._ask(query, times), self.place)
        except _TooMuchError:
            if len(times) == 1:
                raise
        half = len(times) // 2
        return stacked([self.samples(query, part) for part in (times[:half], times[half:])])

    def _ask(self, query: str, times: pd.DatetimeIndex) -> Any:
        step = (times[1] - times[0]).total_seconds() if len(times) > 1 else 1.0
        fields = {
            "query": query,
            "start": f"{times[0].timestamp():.3f}",
            "end": f"{times[-1].timestamp():.3f}",
            "step": f"{step:g}",
            "partial_response": "false",  # Thanos would leave out what it cannot reach
        }
        for attempt in range(_RETRIES):
            try:
                return self._once(fields)
            except _TemporaryError as error:
                if attempt == _RETRIES - 1:
                    raise InputError(f"{str(error)[:-1]}, {_RETRIES} times in a row; try again later.") from error
                time.sleep(self.first_pause_s * 2**attempt)
        raise AssertionError("unreachable")

    def _once(self, fields: dict[str, str]) -> Any:
        try:
            answer = self._session.get(f"{self.place}/api/v1/query_range", params=fields, timeout=self.timeout_s)
        except requests.exceptions.SSLError as error:
            raise InputError(
                f"the certificate of {self.place} cannot be verified; name its authority with ca= (--ca)."
            ) from error
        except requests.exceptions.Timeout as error:
            raise _TooMuchError(
                f"{self.place} did not answer within {self.timeout_s:g} s; wait longer with timeout_s= (--timeout)."
            ) from error
        except requests.exceptions.ChunkedEncodingError as error:
            raise _TemporaryError(f"the answer of {self.place} was cut off.") from error
        except requests.exceptions.ConnectionError as error:
            if any(words in str(error).lower() for words in _NO_HOST):
                host = urlsplit(self.url).hostname
                raise InputError(f"there is no host {host!r} (of {self.place}); correct the address.") from error
            raise _TemporaryError(f"{self.place} cannot be reached ({_reason(error)}).") from error
        except requests.exceptions.RequestException as error:
            raise InputError(f"{self.place} cannot be asked ({shorten(str(error), 120)}).") from error
        content = self._content(answer)
        self._check_clock(answer)
        return content

    def _check_clock(self, answer: requests.Response) -> None:
        """Raise if the server's clock, where it says its time, and this machine's are far apart."""
        try:
            theirs = pd.Timestamp(parsedate_to_datetime(answer.headers["Date"]))
        except (KeyError, TypeError, ValueError):
            return
        now = pd.Timestamp.now(tz="UTC")
        if theirs.tzinfo is not None and "Age" not in answer.headers and abs(now - theirs) > _CLOCKS_APART:
            raise InputError(
                f"the clock of this machine says {now:%Y-%m-%d %H:%M} and that of {self.place} {theirs:%Y-%m-%d %H:%M} "
                "(UTC); set the one that is off."
            )

    def _content(self, answer: requests.Response) -> Any:
        try:
            content = answer.json()
        except ValueError as error:
            content = {}
            if answer.ok and answer.text.lstrip().startswith("{"):
                raise _TemporaryError(f"the answer of {self.place} was cut off.") from error
            if answer.ok:
                raise InputError(
                    f"what {self.place} answers is not Prometheus' JSON; give the address before /api/v1."
                ) from error
        said = str(shorten(str(content.get("error", "")) if isinstance(content, dict) else "", 200))
        status = f"{answer.status_code} {answer.reason}"
        if answer.status_code in (401, 403):
            raise InputError(
                f"{self.place} refuses the credentials ({status}); pass --token, or --user with a password."
            )
        if answer.status_code == 404:
            raise InputError(f"there is no Prometheus at {self.place} ({status}); give the address before /api/v1.")
        if said and any(words in said.lower() for words in _TOO_MUCH):
            raise _TooMuchError(f"{self.place} could not answer: {said}.")
        if answer.status_code in _TEMPORARY:
            raise _TemporaryError(f"{self.place} is not ready ({status}{': ' + said if said else ''}).")
        if not answer.ok or said:
            raise InputError(f"{self.place} refuses the query ({status}): {said}.")
        return content


def _reason(error: requests.exceptions.ConnectionError) -> str:
    """The innermost reason, without the objects around it."""
    text = str(error)
    known = (
        "Temporary failure in name resolution",
        "Connection refused",
        "No route to host",
        "timed out",
        "Connection reset",
    )
    return next((words for words in known if words.lower() in text.lower()), str(shorten(text, 120)))


def _table(content: Any, place: str) -> pd.DataFrame:
    try:
        return stacked([_series(series) for series in content["data"]["result"]])
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
        raise InputError(f"the answer of {place} is not that of a range query ({error!r}).") from error


def stacked(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Put frames of samples below one another; those without a sample have no columns to add."""
    some = [frame for frame in frames if len(frame)]
    return pd.concat(some, ignore_index=True) if some else pd.DataFrame({"ds": _times([]), "y": np.zeros(0)})


def _series(series: dict[str, Any]) -> pd.DataFrame:
    stamps, values = zip(*series["values"], strict=True)
    y = np.array(values, dtype=float)
    frame = pd.DataFrame({**{str(k): str(v) for k, v in series["metric"].items()}, "ds": _times(stamps), "y": y})
    return frame[np.isfinite(y)]


def _times(stamps: Any) -> pd.DatetimeIndex:
    seconds = np.array(stamps, dtype=float)
    if not ((seconds >= EARLIEST.timestamp()) & (seconds <= LATEST.timestamp())).all():
        raise ValueError(OUTSIDE)
    return pd.DatetimeIndex(np.round(seconds * 1e3).astype("int64").astype("datetime64[ms]"), tz="UTC").as_unit("us")


def chunks(times: pd.DatetimeIndex, points: int) -> Iterator[pd.DatetimeIndex]:
    """Cut times into parts of at most so many points."""
    for first in range(0, len(times), points):
        yield times[first : first + points]
