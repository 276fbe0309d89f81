"""How long jobs waited, as the report shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gpudemand._array import STRING
from gpudemand._validation import InputError
from gpudemand.metrics import levels
from gpudemand.planning.capacity import broadcast_by_time
from gpudemand.planning.programmes import PlannedWork
from gpudemand.planning.quantiles import pick_model
from gpudemand.planning.wait_plan import WaitPlan, plan_waits
from gpudemand.planning.waits import effective_capacity, with_expected_ends
from gpudemand.study.selection import SelectedForecast
from gpudemand.study.settings import Settings
from gpudemand.study.source import tells_waits
from gpudemand.study.usage_tables import MEAN, WAIT, UsageTables, period_end
from gpudemand.units import SECONDS_PER_HOUR
from gpudemand.usage.series import recorded_until
from gpudemand.usage.waits import checked_wait_tables

_NO_TARGET = "no target for waits was given; add --wait 1h (wait='1h'), the time within which jobs are to start."
#: Period whose waits tell how many of the GPUs run jobs.
_RECENT = pd.Timedelta("56D")
#: Between this share of a future and the rest of it no quantile is interpolated, so that the probability to meet the
#: target is the share of the futures that do, as it is printed.
_STEP = 0.04
_SECONDS = ("median_wait_s", "mean_wait_s", "p95_wait_s")


@dataclass(frozen=True)
class Waits:
    """Waits of the jobs of a log.

    `by_size`: as `wait_table` returns it, by size. `table`: ``size`` (GPUs of the job; the first row ``all``),
    ``jobs``, ``median_wait_h``, ``mean_wait_h``, ``p95_wait_h``, ``share_over_1h``, ``waited_gpu_hours``, ``waiting``
    and ``gave_up``.
    """

    by_size: pd.DataFrame
    table: pd.DataFrame


def compute_waits(jobs: pd.DataFrame, usage: UsageTables, settings: Settings) -> Waits:
    """Sum up the waits until the end of the period.

    `jobs`: canonical job table. `usage`: ``total`` is read. `settings`: ``tz`` is read.
    """
    _check_tells_waits(jobs)
    attrs = jobs.attrs
    jobs = jobs[jobs["submit"] <= period_end(usage.total)].reset_index(drop=True)
    jobs.attrs = attrs
    every, by_size = checked_wait_tables(jobs, [None, "size"], settings.tz)
    table = pd.concat([every, by_size.set_axis(by_size.index.astype(STRING))])
    hours = (table[list(_SECONDS)] / SECONDS_PER_HOUR).rename(columns=lambda name: name.replace("_s", "_h"))
    others = table.drop(columns=["jobs", *_SECONDS])
    table = pd.concat([table[["jobs"]], hours, others], axis=1).rename_axis("size").reset_index()
    return Waits(by_size, table)


def _check_tells_waits(jobs: pd.DataFrame) -> None:
    if not tells_waits(jobs):
        raise InputError("the log tells no waits: it has no submit times, or every job started when it was submitted.")


def plan_for_waits(
    jobs: pd.DataFrame,
    programmes: Sequence[PlannedWork],
    selected: SelectedForecast,
    installed: float,
    settings: Settings,
) -> WaitPlan:
    """GPUs so that jobs start in time, at the demand that is forecast.

    `jobs`: canonical job table. `programmes`: their jobs come when they are stated to, besides those that are drawn.
    `selected`: its forecast of the series ``mean`` is read. `installed`: GPUs installed. `settings`: ``wait``,
    ``wait_share``, ``service_level`` and ``installed`` are read.
    """
    if settings.wait is None:
        raise InputError(_NO_TARGET)
    _check_tells_waits(jobs)
    mean = selected.forecast[selected.forecast["unique_id"] == MEAN].assign(unique_id="total")
    given = settings.total_installed
    steps = broadcast_by_time(given, mean["ds"]) if isinstance(given, pd.Series) else np.empty(0)
    until = recorded_until(jobs)
    log = with_expected_ends(jobs)
    # By type or in time it is not known which of the GPUs the waits of the log had.
    availability = _availability(log, given, until) if isinstance(given, float) else 1.0
    plan = plan_waits(
        mean,
        log,
        installed=installed,
        wait=settings.wait,
        wait_share=settings.wait_share,
        service_level=settings.service_level,
        availability=availability,
        until=until,
        capacities=np.unique(steps[steps > 0]).tolist(),
        work=pd.concat([work.jobs() for work in programmes], ignore_index=True) if programmes else None,
    )
    assert isinstance(plan, WaitPlan)  # one number of GPUs, so one pool
    return plan


def _availability(jobs: pd.DataFrame, installed: float, until: pd.Timestamp) -> float:
    """Share of the GPUs installed on which a simulated queue gives the mean wait of the last weeks."""
    begin = max(until - _RECENT, jobs["submit"].min())
    return effective_capacity(jobs, installed, start=begin, until=until) / installed


def as_forecast(plan: WaitPlan, forecast: pd.DataFrame) -> pd.DataFrame:
    """GPUs that the target for waits needs, as a forecast with the bins, model and levels of another, and further ones.

    Each bin has the quantiles over the simulated futures: they are of the whole time ahead.
    """
    model, n = pick_model(forecast, None), len(plan.needed)
    # The distribution rises in steps, one a future: at each share it is the number that more of the futures need.
    finest = np.abs(np.arange(n)[:, None] + [_STEP, 1 - _STEP] - n / 2) * 200 / n
    shares = {model: 0.5}
    for level in sorted({*levels(forecast, model), *finest.round(9).ravel().tolist()}):
        shares |= {f"{model}-lo-{level:g}": 0.5 - level / 200, f"{model}-hi-{level:g}": 0.5 + level / 200}
    beyond = np.minimum(np.array([*shares.values()]) + _STEP / 2 / n, 1.0)
    needed = dict(zip(shares, np.quantile(plan.needed, beyond, method="inverted_cdf").tolist(), strict=True))
    bins = forecast.loc[forecast["unique_id"] == MEAN, ["unique_id", "ds"]].assign(unique_id=WAIT)
    result = pd.concat([bins, pd.DataFrame(needed, index=bins.index)], axis=1)
    result.attrs = dict(forecast.attrs)
    return result
