"""GPUs so that jobs start in time: coming weeks drawn from a log, at the level of a forecast, through the queue."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.jobs.table import check_jobs
from gpudemand.planning.capacity.mean_demand import mean_demand, time_step
from gpudemand.planning.capacity.quantiles import QuantileTable
from gpudemand.planning.capacity.wait_target import WaitTarget, gpus_needed
from gpudemand.planning.queue.events import POLICIES
from gpudemand.planning.queue.futures import WEEK_S, Future, Weeks, draw_future
from gpudemand.units import format_count, format_seconds, parse_duration
from gpudemand.usage.membership import series_codes

#: GPUs of the curve, relative to the requirement.
_CURVE = (0.5, 0.65, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4)
#: Futures behind the curve; the requirement and the probabilities rest on all.
_CURVE_FUTURES = 40


def plan_waits(
    forecast: pd.DataFrame,
    jobs: pd.DataFrame,
    *,
    installed: float,
    wait: str | pd.Timedelta = "1h",
    wait_share: float = 0.9,
    of: str = "jobs",
    largest: float | None = None,
    service_level: float = 0.95,
    policy: str = "easy",
    model: str | None = None,
    n_futures: int = 100,
    random_state: int = 0,
) -> WaitPlan:
    """GPUs required so that a share of the jobs starts within a time.

    Futures are weeks drawn from the log with all jobs of all users, so that bursts and quiet stay, with as many jobs as
    make the GPUs wanted equal to a level drawn from the forecast. Each is simulated at several numbers of GPUs; the
    requirement is what meets the target in a share `service_level` of the futures.

    Parameters
    ----------
    forecast : DataFrame
        GPUs wanted (``usage_series(jobs, value="wanted")``): ``unique_id``, ``ds``, and one model's point and interval
        columns, of one series.
    jobs : DataFrame
        Job table of at least two weeks before the forecast; the newest 26 are used.
    installed : float
        GPUs installed.
    wait : str or Timedelta, default="1h"
        Longest wait that is in time.
    wait_share : float in (0, 1), default=0.9
        Share that is to start in time.
    of : {"jobs", "gpu_hours"}, default="jobs"
        Share of jobs, or of their GPU-hours.
    largest : float, optional
        Only jobs of at most so many GPUs count.
    service_level : float in (0.5, 1), default=0.95
        Probability with which the target is met over the weeks of the forecast.
    policy : {"easy", "conservative", "fifo", "eager"}, default="easy"
        See `simulate_queue`.
    model : str, optional
        Model to use, if the forecast has several.
    n_futures : int, default=100
    random_state : int, default=0
        Seed; futures are the same at every number of GPUs.

    Returns
    -------
    WaitPlan

    Raises
    ------
    InputError
        For a target that cannot be met, such as a wait of nothing, and other arguments that cannot be used.

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> from gpudemand.forecast import SeasonallyAdjustedNaive
    >>> from gpudemand.usage import usage_series
    >>> jobs, _ = make_cluster(n_users=10, n_days=56, random_state=0)
    >>> usage = usage_series(jobs, by=None, value="wanted", partial=False)
    >>> forecast = SeasonallyAdjustedNaive().fit(usage).predict(14, level=[80, 95])
    >>> plan = plan_waits(forecast, jobs, installed=64, wait="1h", n_futures=20)
    >>> curve = plan.to_frame()
    >>> bool(curve["share_in_time"].is_monotonic_increasing)
    True
    """
    check_choice("policy", policy, POLICIES)
    check_choice("of", of, ("jobs", "gpu_hours"))
    check_number("service_level", service_level, 0.5, 0.9999, open_low=True)
    n_futures = int(check_number("n_futures", n_futures, 2, 100_000, integer=True))
    gpus = check_number("installed", installed, 0, open_low=True)
    target = _target(wait, wait_share, of, largest)
    rng = np.random.default_rng(random_state)
    futures = _futures(forecast, jobs, model, n_futures, rng)
    needed = gpus_needed(futures, target, policy)
    required = float(np.quantile(needed, service_level, method="higher"))
    at = np.unique(np.ceil(np.r_[np.multiply(_CURVE, required), gpus, required + 8]))
    curve = _curve(at, futures[:_CURVE_FUTURES], target, policy)
    curve.insert(4, "p_met", [float((needed <= count).mean()) for count in at])
    return WaitPlan(required, gpus, target, service_level, curve, needed, dict(forecast.attrs))


@dataclass(frozen=True)
class WaitPlan:
    """GPUs required against installed so that jobs start in time; prints the answer and the curve around it.

    Printed are medians over the futures, and of the mean wait also the 90 % quantile.

    Attributes
    ----------
    required, installed : float
        GPUs.
    target : WaitTarget
    service_level : float
    curve : DataFrame
        See `to_frame`.
    needed : ndarray of shape (n_futures,)
        GPUs that meet the target in each future.
    attrs : dict
        Metadata of the forecast.
    """

    required: float
    installed: float
    target: WaitTarget
    service_level: float
    curve: pd.DataFrame = field(repr=False)
    needed: FloatArray = field(repr=False)
    attrs: dict[str, object] = field(default_factory=dict, repr=False)

    def to_frame(self) -> pd.DataFrame:
        """Waits by number of GPUs.

        Returns
        -------
        DataFrame
            ``gpus``; ``share_in_time``, the median over futures, and its band ``share_in_time-lo-80``, ``-hi-80``;
            ``p_met``, the share of futures in which the target is met; ``mean_wait_s`` with its band;
            ``waited_hours``, the sum of the waits of a week's jobs, and ``saved_hours``, what the next 8 GPUs save of
            it (in between linearly).
        """
        return self.curve.copy()

    @property
    def summary(self) -> pd.DataFrame:
        """Installed and required GPUs, shortfall, and the probability to meet the target with those installed."""
        met = self.curve.set_index("gpus")["p_met"].loc[np.ceil(self.installed)]
        row = {
            "installed": self.installed,
            "required": self.required,
            "shortfall": max(self.required - self.installed, 0.0),
            "p_met_installed": met,
        }
        return pd.DataFrame([row], index=pd.Index(["total"], name="unique_id"))

    def __repr__(self) -> str:
        of = "jobs" if self.target.of == "jobs" else "GPU-hours"
        return (
            f"Wait plan: {format_count(self.required)} GPUs so that {100 * self.target.share:.4g} % of the {of} start "
            f"within {format_seconds(self.target.wait_s)}, with probability {100 * self.service_level:.4g} %; "
            f"{format_count(self.installed)} installed\n{self._printed().to_string(index=False)}"
        )

    def _repr_html_(self) -> str:
        headline, *_ = repr(self).splitlines()
        return f"<p>{headline}</p>{self._printed().to_html(index=False)}"

    def _printed(self) -> pd.DataFrame:
        percent = "{:.0%}".format
        return pd.DataFrame(
            {
                "GPUs": self.curve["gpus"].map(format_count),
                "in time": self.curve["share_in_time"].map(percent),
                "target met": self.curve["p_met"].map(percent),
                "mean wait, P50": self.curve["mean_wait_s"].map(format_seconds),
                "P90": self.curve["mean_wait_s-hi-80"].map(format_seconds),
                "next 8 save, h/week": self.curve["saved_hours"].map(format_count),
            }
        )


def _target(wait: str | pd.Timedelta, share: float, of: str, largest: float | None) -> WaitTarget:
    wait_s = parse_duration(wait).total_seconds()
    if wait_s <= 0:
        raise InputError(f"wait must be longer than 0 s; got {wait!r}. No number of GPUs starts every job at once.")
    check_number("wait_share", share, 0, 0.9999, open_low=True)
    most = np.inf if largest is None else check_number("largest", largest, 0, open_low=True)
    return WaitTarget(wait_s, share, of, most)


def _futures(
    forecast: pd.DataFrame, jobs: pd.DataFrame, model: str | None, n: int, rng: np.random.Generator
) -> list[Future]:
    """Futures at levels at evenly spaced probabilities of the forecast, in random order."""
    quantiles = QuantileTable.from_forecast(forecast, model)
    names = forecast["unique_id"].unique()
    if len(names) > 1:
        raise InputError(f"waits are planned for one series; the forecast has {len(names)}. Plan each by itself.")
    log = check_jobs(jobs)
    log = log[series_codes(log, list(names)) == 0]
    past = Weeks.from_log(log)
    step = time_step(forecast["ds"])
    n_weeks = max(int(np.ceil(len(forecast) * step / pd.Timedelta(seconds=WEEK_S))), 1)
    levels = mean_demand(quantiles, rng.permutation((np.arange(n) + 0.5) / n), log, step)
    return [draw_future(past, n_weeks, float(level), own) for level, own in zip(levels, rng.spawn(n), strict=True)]


def _curve(at: FloatArray, futures: list[Future], target: WaitTarget, policy: str) -> pd.DataFrame:
    """Medians and bands over the futures, a row a number of GPUs."""
    rows = [_curve_row([(future, future.waits_s(gpus, policy)) for future in futures], target) for gpus in at]
    curve = pd.DataFrame({"gpus": at}).join(pd.DataFrame(rows))
    later = np.interp(at + 8, at, curve["waited_hours"])
    return curve.assign(saved_hours=curve["waited_hours"] - later)


def _curve_row(outcomes: list[tuple[Future, FloatArray]], target: WaitTarget) -> dict[str, float]:
    share = [target.share_in_time(future, waits) for future, waits in outcomes]
    # Jobs that are too large wait for ever; the others' waits are told without them.
    able = [waits[np.isfinite(waits)] for _, waits in outcomes]
    mean = [float(waits.mean()) if waits.size else 0.0 for waits in able]
    weeks = [max(future.jobs.submit.max(initial=0) / 1e6 / WEEK_S - 1, 1e-9) for future, _ in outcomes]
    waited = [waits.sum() / 3600 / max(round(n), 1) for waits, n in zip(able, weeks, strict=True)]
    row: dict[str, float] = {}
    for name, values in (("share_in_time", share), ("mean_wait_s", mean)):
        low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
        row |= {name: float(middle), f"{name}-lo-80": float(low), f"{name}-hi-80": float(high)}
    return row | {"waited_hours": float(np.mean(waited))}
