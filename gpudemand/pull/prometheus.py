"""`pull_prometheus`: usage of GPUs from Prometheus into a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import pandas as pd
import requests
from requests.auth import HTTPBasicAuth

from gpudemand._validation import InputError, check_number, shorten
from gpudemand.jobs.schema import EARLIEST, LATEST, OUTSIDE
from gpudemand.jobs.times import parse_timestamp
from gpudemand.store import Store, arrow_table, open_store
from gpudemand.units import gpu_share, parse_duration

#: A server answers at most this many points of a series.
MAX_POINTS = 11_000
_RETRIES = 5
#: What systems say of a host that does not exist, and of other reasons why none answers.
_NO_HOST = ("name or service not known", "no address associated", "nodename nor servname", "getaddrinfo failed")
_NO_ANSWER = (
    *("Temporary failure in name resolution", "Connection refused", "No route to host", "timed out"),
    "Connection reset",
)
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

    `url`: address before ``/api/v1``. `user`, `password`: for basic authentication. `token`: bearer token. `ca`:
    certificate authorities of the server, a PEM file. `certificate`, `key`: own certificate and key, PEM files.
    `timeout_s`: of one request. `first_pause_s`: pause before a request is repeated for the first time; it doubles
    each time.

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

        `query`: promQL. `times`: at least one, at most `MAX_POINTS`; of more than the server manages at once, each
        half is asked for. Returns a row a sample: the labels, ``ds`` (UTC) and ``y``.
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
        except requests.exceptions.RequestException as error:
            raise self._failure(error) from error
        content = self._content(answer)
        self._check_clock(answer)
        return content

    def _failure(self, error: requests.exceptions.RequestException) -> InputError:
        """Why a request got no answer."""
        said, kinds = str(error), requests.exceptions
        if isinstance(error, kinds.SSLError):
            return InputError(
                f"the certificate of {self.place} cannot be verified; name its authority with ca= (--ca)."
            )
        if isinstance(error, kinds.Timeout):
            waited = f"{self.place} did not answer within {self.timeout_s:g} s"
            return _TooMuchError(f"{waited}; wait longer with timeout_s= (--timeout).")
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

    def _content(self, answer: requests.Response) -> Any:
        try:
            content = answer.json()
        except ValueError as error:
            content = {}
            if answer.ok and answer.text.lstrip().startswith("{"):
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
        return stacked([_series(series) for series in content["data"]["result"]])
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
        raise InputError(f"the answer of {place} is not that of a range query ({error!r}).") from error


def stacked(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Put frames of samples below one another; those without a sample have no columns to add."""
    some = [frame for frame in frames if len(frame)]
    return pd.concat(some, ignore_index=True) if some else pd.DataFrame({"ds": _as_times([]), "y": np.zeros(0)})


def _series(series: dict[str, Any]) -> pd.DataFrame:
    stamps, values = zip(*series["values"], strict=True)
    y = np.array(values, dtype=float)
    frame = pd.DataFrame({**{str(k): str(v) for k, v in series["metric"].items()}, "ds": _as_times(stamps), "y": y})
    return frame[np.isfinite(y)]


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
_COLUMNS = ["measure", "namespace", "node", "gpu_type"]
#: Not nvidia.com/gpumem and gpucores, which count memory and cores.
_GPUS = '{resource=~"(nvidia|amd)_com_(gpu|(gpu|mig)_.+)"}'
#: Requests stay listed for pods that wait and for those that have completed; and more than one exporter may run.
_REQUESTS = f"max by (namespace, pod, uid, container, node, resource) (kube_pod_container_resource_requests{_GPUS})"
_PHASES = 'max by (namespace, pod, uid, phase) (kube_pod_status_phase{phase=~"Pending|Running"}) == 1'
_PODS = (
    f"sum by (namespace, node, resource, phase) ({_REQUESTS} * on (namespace, pod, uid) group_left (phase) ({_PHASES}))"
)
_ALLOCATABLE = f"max by (node, resource) (kube_node_status_allocatable{_GPUS})"
_UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
_BY_TENANT = "by (exported_namespace, namespace, modelName)"
#: Of the utilization of GPUs with a pod, their number, its sum, and how many are below some per cent are stored.
IDLE_PERCENT = (5, 20, 50)
_UTILIZATIONS = {
    "used": f"sum {_BY_TENANT} ({_UTILIZATION}) / 100",
    "measured": f"count {_BY_TENANT} ({_UTILIZATION})",
    **{f"under_{percent}": f"count {_BY_TENANT} ({_UTILIZATION} < {percent})" for percent in IDLE_PERCENT},
}
_TYPE_STEP = pd.Timedelta("1h")
_TYPES = {
    "modelName": "count by (Hostname, modelName) "
    f"(max by (Hostname, UUID, modelName) (max_over_time({_UTILIZATION}[1h])))",
    "label_nvidia_com_gpu_product": "count by (node, label_nvidia_com_gpu_product, label_nvidia_com_gpu_replicas) "
    '(max_over_time(kube_node_labels{label_nvidia_com_gpu_product!=""}[1h]))',
}
#: What was scraped late is read again.
_OVERLAP = pd.Timedelta("1h")


@dataclass
class PrometheusPull:
    """What one pull did.

    `begin`, `end`: period that was read. `samples`: rows that were stored. `gaps`: times within the period at which
    nothing was scraped; nothing is stored for them.
    """

    begin: pd.Timestamp
    end: pd.Timestamp
    samples: int = 0
    gaps: list[tuple[pd.Timestamp, pd.Timestamp]] = field(default_factory=list)


@dataclass(frozen=True)
class _Nodes:
    """Types of GPUs by node, and shares of one by node and resource."""

    types: Mapping[str, str]
    shares: Mapping[tuple[str, str], Fraction]

    def share(self, node: str, resource: str) -> float:
        """Share of a GPU that one unit of a resource is; on an unknown node, the largest that it is anywhere."""
        anywhere = [share for (_, name), share in self.shares.items() if name == resource]
        return float(self.shares.get((node, resource), max(anywhere, default=gpu_share(resource))))


def pull_prometheus(
    into: Path,
    client: PrometheusClient,
    *,
    since: object = None,
    until: object = None,
    step: str = "5min",
    points: int = 2000,
    progress: Callable[[str], None] = lambda step: None,
) -> PrometheusPull:
    """Pull the GPUs of a Kubernetes cluster into a store.

    Needed is kube-state-metrics (``kube_pod_container_resource_requests``, ``kube_pod_status_phase`` and
    ``kube_node_status_allocatable``); utilization and the types of GPUs are added where the DCGM exporter runs. A pod
    holds GPUs in the phase Running and waits for them in the phase Pending; slices, time-sliced GPUs and HAMi's virtual
    ones (where the DCGM exporter counts GPUs) are shares. A sample at t stands for the time until t + `step`.

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
    progress : callable
        Called with a text before each step.

    Returns
    -------
    PrometheusPull

    Raises
    ------
    InputError
        If the server cannot be asked or has no such metrics, or the store cannot be used.
    """
    width = parse_duration(step)
    check_number("step", width.total_seconds(), 1, 86400, integer=True)
    check_number("points", points, 1, MAX_POINTS, integer=True)
    with open_store(Path(into)) as store:
        times = _sample_times(store, since, until, width)
        done = PrometheusPull(times[0], times[-1] + width)
        progress("Reading the types of GPUs")
        nodes = _read_nodes(client, times, points)
        for part in chunks(times, points):
            progress(f"Reading {part[0]:%Y-%m-%d %H:%M} to {part[-1] + width:%Y-%m-%d %H:%M}")
            _put(store, done, client, nodes, part, width)
    return done


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


def _read_nodes(client: PrometheusClient, times: pd.DatetimeIndex, points: int) -> _Nodes:
    """Types and shares, of the whole period, so that they do not depend on how it is cut into requests."""
    hours = pd.date_range(times[0], times[-1] + _TYPE_STEP, freq=_TYPE_STEP).as_unit("us")
    cards, labels, units = (
        stacked(client.samples(query, part) for part in chunks(hours, points)).rename(columns={"Hostname": "node"})
        for query in (*_TYPES.values(), _ALLOCATABLE)
    )
    if units.empty:
        raise InputError(
            f"{client.place} has no GPUs of nodes from {times[0]} to {times[-1]} (kube_node_status_allocatable of "
            "kube-state-metrics); have it scraped, or check the period and the address."
        )
    types: dict[str, str] = {}
    for name, table in zip(_TYPES, (cards, labels), strict=True):
        if {"node", name} <= set(table.columns):
            types |= {str(node): "+".join(sorted(set(part[name]))) for node, part in table.groupby("node")}
    return _Nodes(types, _shares(cards, labels, units))


def _shares(cards: pd.DataFrame, labels: pd.DataFrame, units: pd.DataFrame) -> dict[tuple[str, str], Fraction]:
    """Shares of a GPU by node and resource; of time-sliced ones, by the replicas that the labels of their node name.

    Without labels, the number of GPUs of a node tells into how many parts they are sliced, where the resource is
    renamed or its units are a multiple of the GPUs (virtual GPUs of HAMi, MIG of a single profile).
    """
    frame = _labels(labels, "node", "label_nvidia_com_gpu_replicas")
    named = pd.to_numeric(frame["label_nvidia_com_gpu_replicas"], errors="coerce").groupby(frame["node"]).max()
    # Of all models of a node together.
    number = cards.groupby(["node", "ds"])["y"].sum().groupby("node").max() if "node" in cards else {}
    shares = {}
    for (node, resource), most in _labels(units, "node", "resource").groupby(["node", "resource"])["y"].max().items():
        parts, many = named.get(node, np.nan), most / number.get(node, np.nan)
        if not parts > 1 and (resource.endswith("_gpu_shared") or many % 1 == 0):
            parts = many
        shares[node, resource] = gpu_share(resource) / (round(parts) if parts > 1 and "_mig_" not in resource else 1)
    return shares


def _put(
    store: Store,
    done: PrometheusPull,
    client: PrometheusClient,
    nodes: _Nodes,
    times: pd.DatetimeIndex,
    width: pd.Timedelta,
) -> None:
    """Read the samples of some times, and store them in the place of older ones."""
    allocatable = _labels(client.samples(_ALLOCATABLE, times), "node", "resource")
    installed = _counted(allocatable.assign(measure="installed", namespace=""), nodes)
    pods = _pods(client.samples(_PODS, times), nodes)
    tenants = set(pods.get("namespace", ()))
    used = [_utilization(client.samples(query, times), measure, tenants) for measure, query in _UTILIZATIONS.items()]
    rows = stacked([installed, pods, *used]).groupby([*_COLUMNS, "ds"], as_index=False, sort=True)["y"].sum()
    for month in times.strftime("%Y-%m").unique():
        own, grid = (frame[frame["ds"].dt.strftime("%Y-%m") == month] for frame in (rows, pd.DataFrame({"ds": times})))
        store.merge(TABLE, month, arrow_table(own), arrow_table(grid), ["ds", *_COLUMNS])
    state = store.about["pulls"].get(SOURCE, {"since": times[0].isoformat(), "until": times[0].isoformat()})
    first = min(pd.Timestamp(state["since"]), times[0])
    last = max(pd.Timestamp(state["until"]), times[-1] + width)
    step = f"{width.total_seconds():g}s"
    state = {"since": first.isoformat(), "until": last.isoformat(), "step": step, "url": client.place}
    store.about["pulls"][SOURCE] = state
    store.commit()
    done.samples += len(rows)
    scraped = pd.DatetimeIndex(rows.loc[rows["measure"] == "installed", "ds"].unique())
    done.gaps = joined([*done.gaps, *((time, time + width) for time in times.difference(scraped))])


def _pods(found: pd.DataFrame, nodes: _Nodes) -> pd.DataFrame:
    frame = _labels(found, "namespace", "node", "resource", "phase")
    counted = _counted(frame.assign(measure=frame["phase"].map({"Running": "held", "Pending": "pending"})), nodes)
    pairs = list(zip(frame["node"], frame["resource"], strict=True))
    # Shared by time-slicing.
    sliced = {pair for pair in set(pairs) if nodes.share(*pair) < float(gpu_share(pair[1]))}
    apart = counted["measure"].eq("held").to_numpy() & np.array([pair in sliced for pair in pairs], dtype=bool)
    shared = counted[apart].assign(measure="shared")
    # By namespace and type; by node there would be as many rows as pods.
    return stacked([counted, shared]).assign(node="")


def _counted(frame: pd.DataFrame, nodes: _Nodes) -> pd.DataFrame:
    pairs = list(zip(frame["node"], frame["resource"], strict=True))
    share = {pair: nodes.share(*pair) for pair in set(pairs)}
    slices = {name: name.rpartition("_mig_")[2].replace("_", ".") for name in set(frame["resource"]) if "_mig_" in name}
    types = [slices.get(resource, nodes.types.get(node, "")) for node, resource in pairs]
    y = frame["y"].to_numpy() * pd.Series([share[pair] for pair in pairs], dtype="float64").to_numpy()
    return frame.assign(gpu_type=pd.Series(types, index=frame.index, dtype=object), y=y)[[*_COLUMNS, "ds", "y"]]


def _utilization(found: pd.DataFrame, measure: str, tenants: set[str]) -> pd.DataFrame:
    """Utilization by namespace. A GPU without a pod has no namespace, or only that of the exporter itself."""
    frame = _labels(found, "exported_namespace", "namespace", "modelName")
    # An exporter whose own labels are kept calls the namespace of the pod by the other name.
    name = "exported_namespace" if frame["exported_namespace"].ne("").any() else "namespace"
    held = frame[frame[name].isin(tenants)]
    held = held.assign(measure=measure, namespace=held[name], node="", gpu_type=held["modelName"])
    return held[[*_COLUMNS, "ds", "y"]]


def _labels(found: pd.DataFrame, *names: str) -> pd.DataFrame:
    frame = found.reindex(columns=[*names, "ds", "y"])
    return frame.assign(**{name: frame[name].astype(object).fillna("") for name in names})


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
