"""`pull_prometheus`: usage of GPUs from Prometheus into a store."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import pandas as pd
import requests
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_environ_proxies, select_proxy

from gpudemand._files import in_time
from gpudemand._validation import LOGGER, InputError, check_number, shorten
from gpudemand.jobs.schema import EARLIEST, LATEST, MAX_GPUS, OUTSIDE
from gpudemand.jobs.table import warn_doubts
from gpudemand.jobs.times import parse_timestamp
from gpudemand.pull import kubernetes
from gpudemand.store import Store, arrow_table, covered, open_store
from gpudemand.units import parse_duration

#: A server answers at most this many points of a series.
MAX_POINTS = 11_000
_RETRIES = 5
#: The largest answer that is read, in bytes of JSON, which take up to twenty times as many in memory.
MAX_BYTES = 1 << 25
#: What systems say of a host that does not exist, and of other reasons why none answers.
_NO_HOST = ("name or service not known", "no address associated", "nodename nor servname", "getaddrinfo failed")
_NO_ANSWER = (
    *("Temporary failure in name resolution", "Connection refused", "No route to host", "timed out"),
    "Connection reset",
)
_CLOCKS_APART = pd.Timedelta("5min")
_DAY_S = 86_400
_TEMPORARY = (429, 500, 502, 503, 504)
#: Words of warnings that say that an answer lacks something; Prometheus', Thanos', Cortex' and M3's have some of them.
_LACKING = (
    *("partial", "truncat", "incomplete", "missing", "limit", "exceeded", "error", "fail", "unavailable"),
    *("unreachable", "not reach", "cannot", "could not", "refused", "reset", "timeout", "timed out", "cancel"),
)
#: Words of warnings that change no number, which servers before Prometheus 2.54 do not keep apart.
_HARMLESS = ("promql info", "metric might not be a counter")
#: More sentences of a server are not kept.
_MAX_WARNINGS = 10
_TOO_MUCH = ("too many samples", "timed out", "timeout", "exceeded maximum resolution", "query_timeout", "canceled")


class _Bearer(AuthBase):
    """Send a token, or nothing: without any, requests would take the name and password of ``~/.netrc``."""

    def __init__(self, token: str | None) -> None:
        self.token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the header."""
        if self.token:
            request.headers["Authorization"] = f"Bearer {self.token}"
        return request


def _checked_token(token: str | None) -> str | None:
    """Token as it is sent, without the line end of the file that it came from; messages never repeat it."""
    token = (token or "").strip() or None
    if token and not re.fullmatch("[!-~]+", token):
        problem = "holds a blank or another character that no bearer token has"
        raise InputError(f"the token {problem}; pass it as it was issued (--token, or PROMETHEUS_TOKEN).")
    return token


class _TooMuchError(InputError):
    """The server could not answer a query over so long a time; it may for a shorter one."""


class _TemporaryError(InputError):
    """The query may be answered when it is asked again."""


@dataclass
class PrometheusClient:
    """An address that answers Prometheus' HTTP API (also Thanos, Mimir, VictoriaMetrics).

    `url`: address before ``/api/v1``. `user`, `password`: for basic authentication. `token`: bearer token. `ca`:
    certificate authorities of the server, a PEM file. `certificate`, `key`: own certificate and key, PEM files.
    `timeout_s`: of one request, from its begin to the end of the answer; after twice as long without an answer, the
    client gives up. `first_pause_s`: pause before a request is repeated for the first time; it doubles each time.
    `warned`: sentences on what the server warned of in answers that count; a pull clears them first.

    Proxies of the environment (``http_proxy``, ``https_proxy``, ``no_proxy``) are used; credentials are never given to
    one in clear text, so with them an http address behind a proxy is refused.

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
    first_pause_s: float = 1.0
    warned: set[str] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        check_number("timeout_s", self.timeout_s, 0, _DAY_S, open_low=True)
        check_number("first_pause_s", self.first_pause_s, 0, _DAY_S)
        self.token = _checked_token(self.token)
        try:
            parts = urlsplit(self.url)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            shown = self.url.rpartition("@")[2].partition("?")[0]  # nobody's password
            raise InputError(f"url={shorten(shown)!r} is no address; write one like http://prometheus:9090.")
        proxy = select_proxy(self.url, get_environ_proxies(self.url))
        if proxy and parts.scheme == "http" and (self.token or self.user):  # of https it sees the name of the host only
            raise InputError(
                f"the proxy that the environment names (http_proxy) could read the credentials for {self.place}; give "
                f"an https address, or add {parts.hostname} to NO_PROXY."
            )
        for name in ("ca", "certificate", "key"):
            file = getattr(self, name)
            if file is not None and not Path(file).is_file():
                raise InputError(f"there is no file {str(file)!r} for {name}=.")
        self._session = requests.Session()
        self._session.auth = _Bearer(self.token)
        if self.user and not self.token:
            # As bytes, which are sent as they are; requests would refuse text beyond Latin-1. A line end is of a file.
            words = [
                text.rstrip("\r\n").encode("utf-8", "surrogateescape") for text in (self.user, self.password or "")
            ]
            self._session.auth = HTTPBasicAuth(*words)
        self._session.verify = str(self.ca) if self.ca else True
        if self.certificate:
            own = str(self.certificate)
            self._session.cert = (own, str(self.key)) if self.key else own

    @property
    def place(self) -> str:
        """The address without a user's name and password."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))

    def samples(self, query: str, times: pd.DatetimeIndex, refused: Counter[str] | None = None) -> pd.DataFrame:
        """Evaluate a query at equally spaced times, at most `MAX_POINTS`: labels, ``ds`` (UTC), ``y``, a row a sample.

        Of more times than the server manages at once, each half is asked for. Samples that cannot be are counted in
        `refused`.
        """
        self._answered_at = time.monotonic()
        return plausible(self._parts(query, times), times, Counter() if refused is None else refused)

    def _parts(self, query: str, times: pd.DatetimeIndex) -> pd.DataFrame:
        try:
            return _table(self._ask(query, times), self.place)
        except _TooMuchError:
            if len(times) == 1 or self._patience_s() <= 0:
                raise
        half = len(times) // 2
        return stacked([self._parts(query, part) for part in (times[:half], times[half:])])

    def _patience_s(self) -> float:
        """Seconds from now until the server, which has not answered since some time, is given up."""
        return self._answered_at + 2 * self.timeout_s - time.monotonic()

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
                content = self._once(fields)
            except _TemporaryError as error:
                pause = self.first_pause_s * 2**attempt
                if attempt == _RETRIES - 1 or pause >= self._patience_s():
                    times_asked = f"{attempt + 1} times in a row"
                    raise InputError(f"{str(error)[:-1]}, {times_asked}; try again later.") from error
                time.sleep(pause)
            else:
                self._answered_at = time.monotonic()
                return content
        raise AssertionError("unreachable")

    def _once(self, fields: dict[str, str]) -> Any:
        seconds = max(min(self.timeout_s, self._patience_s()), 1e-3)
        try:
            answer, body = in_time(lambda: self._get(fields, seconds), seconds)
        except TimeoutError as error:
            raise self._too_slow() from error
        except requests.exceptions.RequestException as error:
            raise self._failure(error) from error
        content = self._content(answer, body)
        if isinstance(content, dict) and content.get("isPartial"):  # VictoriaMetrics: sums are too low
            raise _TemporaryError(f"{self.place} answers with a part of what it stores only.")
        self._check_warnings(content)
        self._check_clock(answer)
        return content

    def _check_warnings(self, content: Any) -> None:
        """Raise if a server warns that its answer lacks something; keep other warnings, but for harmless ones."""
        told = content.get("warnings") if isinstance(content, dict) else None
        texts = [str(text) for text in told] if isinstance(told, list) else []
        for text in texts:
            said, small = shorten(" ".join(text.split()).rstrip("."), 200), text.lower()
            if any(words in small for words in _HARMLESS):
                continue
            if any(words in small for words in _LACKING):
                raise _TemporaryError(f"{self.place} warns that its answer lacks something ({said}).")
            if len(self.warned) < _MAX_WARNINGS:
                self.warned.add(f"Prometheus warned of an answer: {said}.")

    def _get(self, fields: dict[str, str], seconds: float) -> tuple[requests.Response, bytes]:
        body, end = bytearray(), time.monotonic() + seconds
        address = f"{self.place}/api/v1/query_range"
        # Where a server sends on to, the credentials are not sent, and another cluster may answer.
        options: dict[str, Any] = {"timeout": seconds, "stream": True, "allow_redirects": False}
        with self._session.get(address, params=fields, **options) as answer:
            for part in answer.iter_content(1 << 16):
                body += part
                if len(body) > MAX_BYTES:
                    raise _TooMuchError(f"an answer of {self.place} is longer than {MAX_BYTES >> 20} MiB.")
                if time.monotonic() > end:
                    raise TimeoutError
        return answer, bytes(body)

    def _too_slow(self) -> InputError:
        waited = f"{self.place} did not answer within {self.timeout_s:g} s"
        return _TooMuchError(f"{waited}; wait longer with timeout_s= (--timeout), or ask for less with points=.")

    def _failure(self, error: requests.exceptions.RequestException) -> InputError:
        """Why a request got no answer."""
        said, kinds = str(error), requests.exceptions
        if isinstance(error, kinds.SSLError):
            return InputError(
                f"the certificate of {self.place} cannot be verified; name its authority with ca= (--ca)."
            )
        if isinstance(error, kinds.Timeout):
            return self._too_slow()
        if isinstance(error, kinds.ChunkedEncodingError):
            return _TemporaryError(f"the answer of {self.place} was cut off.")
        if not isinstance(error, kinds.ConnectionError):
            return InputError(f"{self.place} cannot be asked ({shorten(said, 120)}).")
        if any(words in said.lower() for words in _NO_HOST):
            host = urlsplit(self.url).hostname
            return InputError(f"there is no host {host!r} (of {self.place}); correct the address.")
        reason = next((words for words in _NO_ANSWER if words.lower() in said.lower()), shorten(said, 120))
        return _TemporaryError(f"{self.place} cannot be reached ({reason}).")

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

    def _content(self, answer: requests.Response, body: bytes) -> Any:
        if answer.is_redirect:
            place = shorten(str(answer.headers["Location"]).partition("?")[0])
            raise InputError(f"{self.place} sends on to {place!r}; give that address, if it is that of Prometheus.")
        try:
            content = json.loads(body)
        except (ValueError, RecursionError) as error:
            content = {}
            if answer.ok and body.lstrip().startswith(b"{") and isinstance(error, json.JSONDecodeError):
                raise _TemporaryError(f"the answer of {self.place} was cut off.") from error
            if answer.ok:
                problem = f"what {self.place} answers is not Prometheus' JSON"
                raise InputError(f"{problem}; give the address before /api/v1.") from error
        said = str(shorten(str(content.get("error", "")) if isinstance(content, dict) else "", 200))
        status = f"{answer.status_code} {answer.reason}"
        if answer.status_code in (401, 403):
            credentials = "pass --token, or --user with a password"
            raise InputError(f"{self.place} refuses the credentials ({status}); {credentials}.")
        if answer.status_code == 404:
            raise InputError(f"there is no Prometheus at {self.place} ({status}); give the address before /api/v1.")
        if said and any(words in said.lower() for words in _TOO_MUCH):
            raise _TooMuchError(f"{self.place} could not answer: {said}.")
        if answer.status_code in _TEMPORARY:
            raise _TemporaryError(f"{self.place} is not ready ({status}{': ' + said if said else ''}).")
        if not answer.ok or said:
            raise InputError(f"{self.place} refuses the query ({status}): {said}.")
        return content


def _table(content: Any, place: str) -> pd.DataFrame:
    try:
        found = content["data"]["result"]
        pairs = list(chain.from_iterable(series["values"] for series in found))
        if not pairs:
            return stacked([])
        stamps, values = zip(*pairs, strict=True)
        lengths = [len(series["values"]) for series in found]
        labels = {name: [series["metric"].get(name) for series in found] for name in kubernetes.LABELS}
        columns = {
            name: np.repeat(np.array([None if text is None else str(text) for text in texts], dtype=object), lengths)
            for name, texts in labels.items()
            if any(text is not None for text in texts)
        }
        return pd.DataFrame({**columns, "ds": _as_times(stamps), "y": [_number(value) for value in values]})
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
        reason = shorten(repr(error), 120)
        raise InputError(f"the answer of {place} is not that of a range query ({reason}).") from error


def _number(value: object) -> float:
    """Value of a sample, NaN for what Prometheus would not write (Python reads ``1_000``)."""
    text = str(value)
    return float(text) if re.fullmatch(r"[-+0-9.eEINafn]+", text) else np.nan


def plausible(found: pd.DataFrame, times: pd.DatetimeIndex, refused: Counter[str]) -> pd.DataFrame:
    """Leave out samples that cannot be, and count them by reason."""
    y = found["y"].to_numpy()
    rules = {
        "no finite number": ~np.isfinite(y),
        "below zero": y < 0,
        f"more than {MAX_GPUS:,}": y > MAX_GPUS,
        "at a time that was not asked for": ~found["ds"].isin(times).to_numpy(),
        "sent twice": found.duplicated(list(found.columns.drop("y"))).to_numpy(),
    }
    reason = np.select(list(rules.values()), list(rules), default="")
    refused.update(reason[reason != ""].tolist())
    return found[reason == ""]


def stacked(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Put frames of samples below one another; those without a sample have no columns to add."""
    some = [frame for frame in frames if len(frame)]
    return pd.concat(some, ignore_index=True) if some else pd.DataFrame({"ds": _as_times([]), "y": np.zeros(0)})


def _as_times(stamps: Any) -> pd.DatetimeIndex:
    seconds = np.array(stamps, dtype=float)
    if not ((seconds >= EARLIEST.timestamp()) & (seconds <= LATEST.timestamp())).all():
        raise ValueError(OUTSIDE)
    return pd.DatetimeIndex(np.round(seconds * 1e3).astype("int64").astype("datetime64[ms]"), tz="UTC").as_unit("us")


def chunks(times: pd.DatetimeIndex, points: int) -> Iterator[pd.DatetimeIndex]:
    """Cut times into parts of at most so many points."""
    for first in range(0, len(times), points):
        yield times[first : first + points]


SOURCE = "prometheus"
TABLE = "usage"
#: An answer that has a namespace or a node at some time has all types of its GPUs, which may have got another name.
_KEY = ["ds", "measure", "namespace", "node"]
_TYPE_STEP = pd.Timedelta("1h")
#: What was scraped late is read again.
_OVERLAP = pd.Timedelta("1h")


@dataclass
class PrometheusPull:
    """What one pull did.

    `begin`, `end`: period that was read. `kept`: times that the server no longer has, and the store does. `refused`:
    reason -> samples that cannot be. `gaps`: times of which the store has nothing, since nothing was scraped.
    """

    begin: pd.Timestamp
    end: pd.Timestamp
    samples: int = 0
    kept: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    gaps: list[tuple[pd.Timestamp, pd.Timestamp]] = field(default_factory=list)


def pull_prometheus(
    into: Path,
    client: PrometheusClient,
    *,
    since: object = None,
    until: object = None,
    step: str = "5min",
    points: int = 2000,
    replace: bool = False,
    progress: Callable[[str], None] | None = None,
) -> PrometheusPull:
    """Pull the GPUs of a Kubernetes cluster into a store.

    Needed is kube-state-metrics (``kube_pod_container_resource_requests``, ``kube_pod_status_phase`` and
    ``kube_node_status_allocatable``); utilization and the types of GPUs are added where the DCGM exporter runs. A pod
    holds GPUs in the phase Running and waits for them in the phase Pending; slices, time-sliced GPUs and HAMi's virtual
    ones (where the DCGM exporter counts GPUs) are shares. A sample at t stands for the time until t + `step`.

    What the store has and the server no longer tells stays, so the same period can be asked for again at any time.

    Parameters
    ----------
    into : Path
        Folder of the store, made if absent.
    client : PrometheusClient
    since, until : time-like, optional
        Period (UTC): by default from the end of the last pull, or 30 days ago, until now.
    step : str
        Distance of samples, of whole seconds; all times are multiples of it.
    points : int
        Times of one request, at most 11,000; the result does not depend on it.
    replace : bool
        Let the samples of this pull take the place of all that the store has at the same times, also where those are of
        another address; other times stay.
    progress : callable, optional
        Called with a text before each step; by default the logger ``gpudemand``.

    Raises
    ------
    InputError
        If the server cannot be asked or has no such metrics, or the store cannot be used or is of another server.

    Warns
    -----
    UnlikelyJobsWarning
        For what does not add up, such as an exporter that shows a part of the cards, and what the server warns of;
        reports on the store say it, too.
    """
    progress = progress or LOGGER.info
    width = parse_duration(step)
    check_number("step", width.total_seconds(), 1, 86400, integer=True)
    check_number("points", points, 1, MAX_POINTS, integer=True)
    client.warned.clear()
    with open_store(Path(into)) as store:
        if not replace:
            _check_source(store, client.place)
        times = _sample_times(store, since, until, width)
        done = PrometheusPull(times[0], times[-1] + width)
        progress("Reading the types of GPUs")
        nodes = _read_nodes(client, times, points)
        for part in chunks(times, points):
            progress(f"Reading {part[0]:%Y-%m-%d %H:%M} to {part[-1] + width:%Y-%m-%d %H:%M}")
            scraped = _put(store, done, client, nodes, part, replace=replace)
            _note(store, done, client.place, part, scraped, width)
            _keep_doubts(store, nodes.doubts | client.warned)
        if SOURCE in store.about["pulls"]:
            warn_doubts(sorted(nodes.doubts | client.warned), client.place)
    return done


def _keep_doubts(store: Store, doubts: set[str]) -> None:
    """Keep what does not add up in the store, beside that of earlier pulls."""
    state = store.about["pulls"].get(SOURCE)
    if state is not None and not doubts <= set(state.get("doubts", ())):
        state["doubts"] = sorted({*state.get("doubts", ()), *doubts})
        store.commit()


def _check_source(store: Store, place: str) -> None:
    """Raise if the store is of another address."""
    known = store.about["pulls"].get(SOURCE, {}).get("url", place)
    if known != place:
        raise InputError(
            f"{str(store.path)!r} holds samples of {known}, and {place} may be another cluster; pull it into a store "
            "of its own, or add --replace (replace=True) if it is the same one."
        )


def _sample_times(store: Store, since: object, until: object, width: pd.Timedelta) -> pd.DatetimeIndex:
    state = store.about["pulls"].get(SOURCE, {})
    if state and pd.Timedelta(state["step"]) != width:
        raise InputError(f"{str(store.path)!r} holds samples every {state['step']}; go on with step={state['step']!r}.")
    now = pd.Timestamp.now(tz="UTC")
    end = (now if until is None else parse_timestamp(until, "UTC", "until")).tz_convert("UTC").floor(width)
    begin = now - pd.Timedelta("30D")
    if since is not None:
        begin = parse_timestamp(since, "UTC", "since").tz_convert("UTC")
    elif state:
        begin = pd.Timestamp(state["until"]) - _OVERLAP
    begin = begin.floor(width)
    if begin >= end:
        raise InputError(
            f"there is nothing to pull from {begin} to {end}; check since, until and this machine's clock."
        )
    return pd.date_range(begin, end, freq=width, inclusive="left").as_unit("us")


def _read_nodes(client: PrometheusClient, times: pd.DatetimeIndex, points: int) -> kubernetes.Nodes:
    """Types and shares, of the whole period, so that they do not depend on how it is cut into requests."""
    hours = pd.date_range(times[0], times[-1] + _TYPE_STEP, freq=_TYPE_STEP).as_unit("us")
    cards, labels, units, others = (
        stacked(client.samples(query, part) for part in chunks(hours, points))
        for query in (*kubernetes.TYPES.values(), kubernetes.ALLOCATABLE, kubernetes.OTHERS)
    )
    if units.empty:
        raise InputError(
            f"{client.place} has no GPUs of nodes from {times[0]} to {times[-1]} (kube_node_status_allocatable of "
            "kube-state-metrics); have it scraped, or check the period and the address."
        )
    nodes = kubernetes.read_nodes(cards, labels, units)
    if len(others):
        nodes.doubts.add(f"{', '.join(sorted(set(others['resource'])))} of nodes did not count: are these GPUs?")
    return nodes


def _put(
    store: Store,
    done: PrometheusPull,
    client: PrometheusClient,
    nodes: kubernetes.Nodes,
    times: pd.DatetimeIndex,
    *,
    replace: bool,
) -> pd.DatetimeIndex:
    """Store the samples of some times in the place of those of the same namespaces and nodes; return those scraped."""

    def samples(query: str) -> pd.DataFrame:
        return client.samples(query, times, done.refused)

    rows = kubernetes.rows_of(samples, nodes)
    if rows.empty:
        return pd.DatetimeIndex([], tz="UTC")
    if not replace:
        _check_names(store, rows, client.place)
    for month, own in rows.groupby(rows["ds"].dt.strftime("%Y-%m")):
        new = arrow_table(own)
        store.merge(TABLE, str(month), new, new.select(["ds"] if replace else _KEY), ["ds", *kubernetes.COLUMNS])
    done.samples += len(rows)
    return pd.DatetimeIndex(rows.loc[rows["measure"] == "installed", "ds"].unique())


def _check_names(store: Store, rows: pd.DataFrame, place: str) -> None:
    """Raise if all nodes, or all namespaces, at times that the store has are unknown to it: both would count."""
    within = f"ds BETWEEN '{rows['ds'].min().isoformat()}' AND '{rows['ds'].max().isoformat()}'"
    for measure, name in (("installed", "node"), ("held", "namespace")):
        of = f"FROM stored WHERE measure = '{measure}'"
        times = store.query(TABLE, f"SELECT DISTINCT ds {of} AND {within}")
        if times is None or not times.num_rows:
            continue
        now = rows.loc[(rows["measure"] == measure) & rows["ds"].isin(times.to_pandas()["ds"]), name]
        known = store.query(TABLE, f"SELECT DISTINCT {name} {of}")
        names = set() if known is None else set(known[name].to_pylist())
        if len(now) and not now.isin(names).any():
            raise InputError(
                f"{place} has {name}s like {now.iloc[0]!r} at times for which {str(store.path)!r} has others, such as "
                f"{min(names)!r}: it may be another cluster; pull it into a store of its own, or add --replace "
                "(replace=True) if they were renamed."
            )


def _note(
    store: Store,
    done: PrometheusPull,
    place: str,
    times: pd.DatetimeIndex,
    scraped: pd.DatetimeIndex,
    width: pd.Timedelta,
) -> None:
    """Make what was read of some times the contents of the store, and note at which of them something was scraped."""
    if len(scraped):
        # What was not scraped yet at the end is asked for again.
        state = store.about["pulls"].setdefault(SOURCE, {})
        state |= covered(state, done.begin, scraped.max() + width)
        state |= {"step": f"{width.total_seconds():g}s", "url": place}
    store.commit()
    since = f"ds BETWEEN '{times[0].isoformat()}' AND '{times[-1].isoformat()}'"
    held = store.query(TABLE, f"SELECT DISTINCT ds FROM stored WHERE measure = 'installed' AND {since}")
    known = times[:0] if held is None else pd.DatetimeIndex(held.to_pandas()["ds"])
    done.kept += len(known.difference(scraped))
    done.gaps = joined([*done.gaps, *((time, time + width) for time in times.difference(known))])


def joined(spans: list[tuple[pd.Timestamp, pd.Timestamp]]) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
    """Join intervals that touch.

    >>> joined([(1, 2), (2, 3), (5, 6)])
    [(1, 3), (5, 6)]
    """
    out: list[tuple[pd.Timestamp, pd.Timestamp]] = []
    for begin, end in spans:
        if out and out[-1][1] == begin:
            out[-1] = (out[-1][0], end)
        else:
            out.append((begin, end))
    return out
