"""Serving to come: replicas of a model that follow its requests."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_number
from gpudemand.jobs.time_parser import parse_timestamp
from gpudemand.planning.capacity.inputs import bin_hours, check_steps

#: What a quotient may exceed a whole number of replicas by, from rounding.
_ROUNDING = 1e-9
_DAY = pd.Timedelta(days=1)


@dataclass(frozen=True)
class Serving:
    """Replicas of a model that serve requests between two dates, each with a stated throughput.

    There are as many replicas as the requests take, with headroom; they follow the requests, and latency is not
    modelled: state the throughput at the latency that is wanted.

    Parameters
    ----------
    name : str
    requests_per_second : float or Series
        Mean requests; a Series has times with a zone as index, and each number holds until the next.
    start, end : str or Timestamp
        UTC where no zone is stated.
    throughput : float
        Requests a second that one replica serves.
    gpus_per_replica : float, default=1
        Parts of a GPU too.
    headroom : float, default=0.0
        Share of the requests that is kept free beyond them, for bursts and for replicas that fail.
    min_replicas : int, default=1
        Also without requests.
    spread : float in [0, 1], default=0.0
        Half-width of the 90 % interval of requests over throughput, relative to it.
    user, group : str, optional
        Who serves.
    gpu_type : str, optional
        Type that it runs on, as for `Programme`.

    Raises
    ------
    InputError
        For numbers out of range, a Series without zoned times, or an end before the start.

    Examples
    --------
    >>> day = pd.date_range("2026-03-02", periods=3, freq="12h", tz="UTC")
    >>> chat = Serving("chat", pd.Series([20.0, 90.0, 20.0], day), "2026-03-02", "2026-03-09",
    ...                throughput=10, gpus_per_replica=2, headroom=0.2)
    >>> ds = pd.Series(pd.date_range("2026-03-01", periods=3, tz="UTC"))
    >>> chat.mean_gpus(ds).tolist(), chat.peak_gpus(ds).tolist()
    ([0.0, 14.0, 6.0], [0.0, 22.0, 6.0])
    """

    name: str
    requests_per_second: Any
    start: Any
    end: Any
    _: KW_ONLY
    throughput: float
    gpus_per_replica: float = 1.0
    headroom: float = 0.0
    min_replicas: int = 1
    spread: float = 0.0
    user: str | None = None
    group: str | None = None
    gpu_type: str | None = None

    def __post_init__(self) -> None:
        for key in ("throughput", "gpus_per_replica"):
            check_number(f"{key} of {self.name!r}", getattr(self, key), 0, open_low=True)
        check_number(f"headroom of {self.name!r}", self.headroom, 0)
        check_number(f"min_replicas of {self.name!r}", self.min_replicas, 0, integer=True)
        check_number(f"spread of {self.name!r}", self.spread, 0, 1)
        if self.period[1] <= self.period[0]:
            raise InputError(f"serving {self.name!r} ends ({self.end}) before it starts ({self.start}).")
        self.gpus()  # raises for requests that cannot be used

    @cached_property
    def period(self) -> tuple[pd.Timestamp, pd.Timestamp]:
        """Start and end, in UTC."""
        start, end = (parse_timestamp(time, "UTC").tz_convert("UTC") for time in (self.start, self.end))
        return start, end

    @cached_property
    def _steps(self) -> pd.Series:
        """Requests a second from each time on, from the start to the end of the period."""
        begin, end = self.period
        what = f"requests_per_second of {self.name!r}"
        if not isinstance(self.requests_per_second, pd.Series):
            return pd.Series([check_number(what, self.requests_per_second, 0)], index=pd.DatetimeIndex([begin]))
        given = check_steps(what, self.requests_per_second)
        # What is in force at the start began before it; before the first step the first one holds.
        at_start = given.iloc[max(int(given.index.searchsorted(begin, side="right")) - 1, 0)]
        later = given[(given.index > begin) & (given.index < end)]
        return pd.concat([pd.Series([at_start], index=pd.DatetimeIndex([begin])), later])

    def gpus(self, factor: float = 1.0) -> pd.Series:
        """GPUs held from each time on, at so many times the requests."""
        wanted = factor * (1.0 + self.headroom) * self._steps / self.throughput
        replicas = np.maximum(np.ceil(wanted - _ROUNDING), self.min_replicas)
        return replicas * self.gpus_per_replica

    def mean_gpus(self, ds: pd.Series, factor: float = 1.0) -> FloatArray:
        """Mean GPUs held in each bin, shape (n_bins,).

        Parameters
        ----------
        ds : Series of datetime
            Starts of bins, ascending, with a zone.
        factor : float, default=1.0
            Requests over those stated.
        """
        held, (start, stop) = self.gpus(factor), _bins(ds)
        seconds = _seconds(held.index.append(pd.DatetimeIndex([self.period[1]])))
        so_far = np.r_[0.0, np.cumsum(np.diff(seconds) * held.to_numpy(dtype=float))]
        within = np.interp(_seconds(stop), seconds, so_far) - np.interp(_seconds(start), seconds, so_far)
        return np.asarray(within / (_seconds(stop) - _seconds(start)))

    def peak_gpus(self, ds: pd.Series, factor: float = 1.0) -> FloatArray:
        """Most GPUs held at a time in each bin; parameters are as of `mean_gpus`."""
        held, (start, stop) = self.gpus(factor), _bins(ds)
        ends = held.index[1:].append(pd.DatetimeIndex([self.period[1]]))
        shared = (held.index.to_numpy() < stop.to_numpy()[:, None]) & (ends.to_numpy() > start.to_numpy()[:, None])
        return np.asarray(np.where(shared, held.to_numpy(dtype=float), 0.0).max(axis=1))

    def gpus_range(self, ds: pd.Series, *, peak: bool = False) -> tuple[FloatArray, FloatArray, FloatArray]:
        """GPUs in each bin, and the bounds of their 90 % interval."""
        find = self.peak_gpus if peak else self.mean_gpus
        return find(ds), find(ds, 1.0 - self.spread), find(ds, 1.0 + self.spread)

    @property
    def gpu_hours(self) -> float:
        """GPU-hours held in all."""
        begin, end = self.period
        return float(self.mean_gpus(pd.Series([begin, end]))[0] * (end - begin).total_seconds() / 3600)

    def jobs(self) -> pd.DataFrame:
        """Replicas as jobs of a day at most, which start when they are submitted.

        Returns
        -------
        DataFrame
            ``user``, ``group``, ``submit``, ``start``, ``end``, ``gpus``.
        """
        begin, end = self.period
        held = self.gpus()
        days = pd.date_range(begin, end, freq=_DAY, inclusive="left")
        every = held.reindex(held.index.union(days)).ffill()
        ends = every.index[1:].append(pd.DatetimeIndex([end]))
        replicas = (every / self.gpus_per_replica).round().to_numpy(dtype=int)
        about = {"user": self.user or self.name, "group": self.group or self.name}
        submit, stop = every.index.repeat(replicas), ends.repeat(replicas)
        times = {"submit": submit, "start": submit, "end": stop}
        return pd.DataFrame({**about, **times, "gpus": float(self.gpus_per_replica)})


def _bins(ds: pd.Series) -> tuple[pd.DatetimeIndex, pd.DatetimeIndex]:
    """Starts and ends of bins, in UTC."""
    start = pd.DatetimeIndex(ds).tz_convert("UTC")
    return start, start + pd.to_timedelta(bin_hours(pd.DataFrame({"ds": ds})), "h")


def _seconds(times: pd.DatetimeIndex) -> FloatArray:
    return np.asarray((times - pd.Timestamp(0, tz="UTC")).total_seconds(), dtype=float)
