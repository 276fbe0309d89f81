"""The host of a GPU: it launches the kernels of a step one after the other, and a step is no faster than that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import InputError, check_number
from gpudemand.datasets.devices import device

#: Column of `gpudemand.cost.roofline.step_terms`: launches of a step, in units of that of a kernel.
LAUNCHES = "launches"
#: Launches that a tensor of parameters costs beside its kernels: gradient accumulation, cast and update (fitted to the
#: host's seconds of profiled steps: ``python -m benchmarks.cost.h200``).
TENSOR_LAUNCHES = 2.6
#: Launches that a training step costs besides: starting the backward pass, the optimizer, clearing gradients (median of
#: single operators that the host bounds, 13.5; same script).
STEP_LAUNCHES = 13.0
#: How sharply a step changes from being bound by the host to being bound by the device; the power of the mean of the
#: two that fits profiled steps best (same script).
_SHARPNESS = 4.0
#: Share of the step that the host takes, from which a step tells nothing of the device: up to half, it adds 2 %.
_BOUND = 0.5
#: Deviation of a log step time that a host and a device of known speed leave open.
_NOISE = 0.15
#: Deviation between hosts, until enough are known, and seconds a launch of a host of which nothing is.
_SPREAD, _SECONDS = 0.5, 1e-5
#: More than any host takes for a launch.
_MOST_SECONDS = 1e-3
#: Steps bound by their host, from which their scatter is estimated.
_FEW = 10
_LOGS = np.log(np.geomspace(5e-7, 2e-4, 241))


def step_seconds(device: FloatArray, host: FloatArray) -> FloatArray:
    """Seconds of steps from those of device and host, side by side: the slower decides, both count where alike.

    >>> step_seconds(np.array([0.010, 0.010]), np.array([0.002, 0.040])).round(3).tolist()
    [0.01, 0.04]
    """
    slower = np.maximum(device, host)
    ratio = np.divide(np.minimum(device, host), slower, out=np.zeros_like(slower), where=slower > 0)
    return np.asarray(slower * (1.0 + ratio**_SHARPNESS) ** (1.0 / _SHARPNESS))


def device_seconds(step: FloatArray, host: FloatArray) -> FloatArray:
    """Seconds of the device in measured steps; NaN where the host bounds the step, which then tells nothing of it."""
    share = np.asarray(host / step)
    left = np.maximum(1.0 - np.minimum(share, 1.0) ** _SHARPNESS, 0.0) ** (1.0 / _SHARPNESS)
    return np.where(share < _BOUND, step * left, np.nan)


def check_host_seconds(host: float) -> float:
    """Return the seconds a launch of a host, which are more than 0 and at most a millisecond."""
    return check_number("host", host, 0, _MOST_SECONDS, open_low=True)


class Hosts(NamedTuple):
    """Seconds a launch of hosts that are known from measured steps, and of others.

    `names`: GPU of each host. `logs`, `deviations`: of the log seconds a launch. `mean`, `between`, `within`: mean over
    hosts of all GPUs, deviation of a host of another GPU from it, and of a further host of the same GPU. `noise`: of
    steps that one host bounds. `here`: 1 of the machine that predictions are for, 0 of others with such a GPU.
    """

    names: tuple[str, ...] = ()
    logs: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()
    here: tuple[float, ...] = ()
    mean: float = float(np.log(_SECONDS))
    between: float = _SPREAD
    within: float = _SPREAD
    noise: float = _NOISE

    @classmethod
    def fit(cls, jobs: pd.DataFrame, seconds: FloatArray, device: FloatArray) -> Hosts:
        """Fit to steps of `seconds` whose kernels take the `device` so long.

        `jobs`: `LAUNCHES`, ``device_name`` and, where one GPU is in several machines, ``host``.
        """
        launches, found, groups = jobs[LAUNCHES].to_numpy(dtype=float), cls(), _machines(jobs)
        for _ in range(3):  # the population and its members
            posteriors = {
                key: _posterior(launches[rows], seconds[rows], device[rows], found.mean, found.between)
                for key, rows in groups.items()
            }
            found = _population(posteriors)
        host = np.zeros(len(launches))
        for key, rows in groups.items():
            host[rows] = launches[rows] * np.exp(posteriors[key][0])
        return found._replace(noise=_scatter(seconds, device, host) or _NOISE)

    def of(self, names: Sequence[Any]) -> tuple[FloatArray, FloatArray]:
        """Log seconds a launch on the hosts of GPUs, and their deviations, each of shape (n,)."""
        known = {name: self._of(str(name)) for name in set(names)}
        logs, deviations = np.array([known[name] for name in names], dtype=float).reshape(-1, 2).T
        return logs, np.hypot(deviations, self.noise)

    def _of(self, name: str) -> tuple[float, float]:
        own = [place for place, known in enumerate(self.names) if known == name]
        if not own:
            return self.mean, self.between
        logs, deviations, here = (np.array(values)[own] for values in (self.logs, self.deviations, self.here))
        # Of machines with such a GPU each counts by what is known of it; another one differs from all of them.
        weights = 1.0 / (deviations**2 + np.where(here > 0, 0.0, self.within) ** 2)
        another = 0.0 if here.any() else self.within
        return float(np.average(logs, weights=weights)), float(np.hypot(1.0 / np.sqrt(weights.sum()), another))

    def told(self, host: float | str) -> Hosts:
        """One host for all GPUs: of so many seconds a launch, or like those that were measured with a GPU."""
        if not isinstance(host, str):
            return Hosts(mean=float(np.log(check_host_seconds(host))), between=0.0, within=0.0, noise=self.noise)
        name = device(host).name
        if name not in self.names:
            known = ", ".join(sorted(set(self.names))) or "none"
            raise InputError(f"no host with a {name} was measured, only with: {known}; give seconds a launch.")
        log, deviation = self._of(name)
        return Hosts(mean=log, between=deviation, within=deviation, noise=self.noise)

    def alike(self) -> Hosts:
        """The same host for all GPUs, so that these compare; machines here that were measured keep theirs.

        It is like the machines here, or else of the mean of all: a GPU whose one measured machine was slow is not slow.

        >>> hosts = Hosts(("H100", "H200"), (-11.0, -10.5), (0.1, 0.1), (0.0, 0.0), mean=-10.8)
        >>> hosts.alike().of(["H100", "H200"])[0].tolist()
        [-10.8, -10.8]
        >>> hosts._replace(here=(1.0, 0.0)).alike().of(["H100", "H200"])[0].tolist()
        [-11.0, -11.0]
        """
        here = [host for host in zip(self.names, self.logs, self.deviations, self.here, strict=True) if host[-1] > 0]
        if not here:
            return self._with([])
        return self._replace(mean=float(np.mean([log for _, log, *_ in here])), between=self.within)._with(here)

    def measured(self, jobs: pd.DataFrame, seconds: FloatArray, device: FloatArray, *, here: bool) -> Hosts:
        """These hosts, with those of the GPUs of measured steps as these tell; earlier ones of them are replaced.

        The noise is that of these steps, if enough are bound by hosts. `here`: whether predictions are for them.
        """
        launches, host = jobs[LAUNCHES].to_numpy(dtype=float), np.zeros(len(jobs))
        found = []
        for (gpu, _), rows in _machines(jobs).items():
            posterior = _posterior(launches[rows], seconds[rows], device[rows], *self._of(gpu))
            host[rows] = launches[rows] * np.exp(posterior[0])
            found.append((gpu, *posterior, float(here)))
        new = {gpu for gpu, *_ in found}
        kept = [
            host for host in zip(self.names, self.logs, self.deviations, self.here, strict=True) if host[0] not in new
        ]
        noise = _scatter(seconds, device, host) or self.noise
        return self._with([*kept, *found])._replace(noise=noise)

    def _with(self, hosts: Sequence[tuple[str, float, float, float]]) -> Hosts:
        names, logs, deviations, here = zip(*hosts, strict=True) if hosts else ((), (), (), ())
        return self._replace(names=names, logs=logs, deviations=deviations, here=here)

    def to_arrays(self) -> dict[str, Any]:
        """Return plain arrays, for ``numpy.savez``; see `STORED`."""
        return {
            "host_names": np.array(self.names, dtype=str),
            "host_logs": np.array([self.logs, self.deviations, self.here], dtype=float).reshape(3, -1),
            "host_population": np.array([self.mean, self.between, self.within, self.noise]),
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> Hosts:
        """Restore what `to_arrays` returned."""
        logs, deviations, here = (tuple(row) for row in arrays["host_logs"].tolist())
        return cls(tuple(arrays["host_names"].tolist()), logs, deviations, here, *arrays["host_population"].tolist())


#: Types and shapes of the arrays of stored hosts.
STORED = {"host_names": "U hosts", "host_logs": "f 3 hosts", "host_population": "f 4"}


def _machines(jobs: pd.DataFrame) -> dict[tuple[str, str], IntArray]:
    """Rows with launches of each GPU and host."""
    launched = np.flatnonzero(jobs[LAUNCHES].to_numpy(dtype=float) > 0)
    gpus = jobs["device_name"].astype(str).to_numpy()[launched]
    hosts = jobs["host"].astype(str).to_numpy()[launched] if "host" in jobs.columns else np.full(len(launched), "")
    groups = pd.Series(launched).groupby([gpus, hosts])
    return {(str(gpu), str(host)): rows.to_numpy() for (gpu, host), rows in groups}


def _posterior(
    launches: FloatArray, seconds: FloatArray, device: FloatArray, mean: float, deviation: float
) -> tuple[float, float]:
    """Mean and deviation of the log seconds a launch of one host, on a grid, under a normal prior.

    Errors are of Student's t, so that a step whose device time is wrong does not count for all.
    """
    host = launches * np.exp(_LOGS)[:, None]
    error = np.log(seconds / step_seconds(np.broadcast_to(device, host.shape), host)) / _NOISE
    density = (
        -2.0 * np.log1p(error**2 / 3.0).sum(axis=1) / np.sqrt(len(seconds)) - ((_LOGS - mean) / deviation) ** 2 / 2
    )
    weights = np.exp(density - density.max())
    center = float(np.average(_LOGS, weights=weights))
    return center, float(np.sqrt(np.average((_LOGS - center) ** 2, weights=weights)))


def _scatter(seconds: FloatArray, device: FloatArray, host: FloatArray) -> float:
    """Deviation of the log seconds of steps that their host bounds; 0 if these are too few to tell."""
    bound = (host > 0.0) & (host > 2.0 * device)
    errors = np.abs(np.log(seconds[bound] / step_seconds(device[bound], host[bound])))
    return max(1.4826 * float(np.median(errors)), _NOISE) if len(errors) >= _FEW else 0.0


def _population(posteriors: dict[tuple[str, str], tuple[float, float]]) -> Hosts:
    """All hosts, and their mean and spread (empirical Bayes)."""
    if not posteriors:
        return Hosts()
    logs, deviations = np.array(list(posteriors.values())).T
    weights = 1.0 / (deviations**2 + _SPREAD**2)
    mean = float(np.average(logs, weights=weights))
    between = max(float(np.sqrt(np.average((logs - mean) ** 2 + deviations**2, weights=weights))), _NOISE)
    gpus = [gpu for gpu, _ in posteriors]
    by_gpu = pd.Series(logs).groupby(gpus)
    several = (by_gpu.transform("size") > 1).to_numpy()
    within = float(np.sqrt(by_gpu.transform("var")[several].mean())) if several.any() else between
    hosts = [(gpu, *posterior, 0.0) for gpu, posterior in zip(gpus, posteriors.values(), strict=True)]
    return Hosts(mean=mean, between=between, within=min(max(within, _NOISE), between))._with(hosts)
