"""`plan_waits`: GPUs with which jobs start in time, at the level of a forecast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray
from gpudemand._validation import InputError, check_choice, check_number, told
from gpudemand.jobs.table import check_jobs
from gpudemand.jobs.times import parse_timestamp
from gpudemand.metrics import check_forecast
from gpudemand.planning.need import WaitTarget, forecast_need, wait_target
from gpudemand.planning.quantiles import QuantileTable, mean_demand, time_step
from gpudemand.planning.queue_kernels import POLICIES
from gpudemand.planning.waits import with_expected_ends
from gpudemand.units import format_count, format_number_of, format_seconds
from gpudemand.usage.series import end_of_record, series_codes

#: GPUs of the curve, relative to the requirement.
_CURVE = (0.6, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25)
#: A node more or less than the requirement, whose chances the curve also tells.
_STEP = 8


def curve_gpus(required: float, others: Sequence[float]) -> FloatArray:
    """Numbers of GPUs of a curve, ascending: around those required, and others."""
    near = [max(required - _STEP, 1.0), required + _STEP]
    return np.unique(np.ceil(np.r_[np.multiply(_CURVE, required), near, others]))


def wait_curve(at: FloatArray, needed: FloatArray, outcomes: pd.DataFrame) -> pd.DataFrame:
    """Medians and bands over windows that need as many GPUs as `needed`, a row a number of GPUs.

    `outcomes`: of a window, by the ratio of GPUs to its need, as `NeedForecast.outcomes` returns them: one that needs
    more has them at as many more GPUs.
    """
    beyond = np.append(at, at[-1] + _STEP)  # what 8 GPUs beyond the last number save takes one more
    met = {name: _met(outcomes, name, beyond[:, None] / np.maximum(needed, 1.0)) for name in outcomes.columns[1:]}
    curve = pd.DataFrame({"gpus": beyond})
    for name in ("share_in_time", "mean_wait_s"):
        low, middle, high = np.quantile(met[name], [0.1, 0.5, 0.9], axis=1)
        curve = curve.assign(**{name: middle, f"{name}-lo-80": low, f"{name}-hi-80": high})
    waited = met["waited_hours"].mean(axis=1)
    later = np.interp(beyond + _STEP, beyond, waited)
    curve = curve.assign(waited_hours=waited, saved_hours=waited - later)
    curve.insert(4, "p_met", [float((needed <= gpus).mean()) for gpus in beyond])
    return curve.iloc[:-1]


def _met(outcomes: pd.DataFrame, name: str, ratio: FloatArray) -> FloatArray:
    known = np.log(outcomes["ratio"].to_numpy())
    return np.interp(np.log(np.maximum(ratio, 1e-9)), known, outcomes[name].to_numpy())


@dataclass(frozen=True)
class WaitPlan:
    """GPUs required against installed so that jobs start in time; prints the answer and the curve around it.

    Printed are medians over the windows that may come, and of the mean wait also the 90 % quantile.

    Attributes
    ----------
    required, installed : float
        GPUs.
    target : WaitTarget
    service_level : float
    curve : DataFrame
        See `to_frame`.
    needed : ndarray of shape (n_windows,)
        GPUs that equally likely windows to come need.
    attrs : dict
        Metadata of the forecast.
    unique_id : str
        Name of the series: of the pool, or ``total``.
    outcomes : DataFrame, optional
        What the last window of the log would have met on other numbers of GPUs; see `NeedForecast.outcomes`.
    """

    required: float
    installed: float
    target: WaitTarget
    service_level: float
    curve: pd.DataFrame = field(repr=False)
    needed: FloatArray = field(repr=False)
    attrs: dict[str, object] = field(default_factory=dict, repr=False)
    unique_id: str = "total"
    outcomes: pd.DataFrame | None = field(default=None, repr=False)

    @property
    def required_range(self) -> tuple[float, float]:
        """The 5 and 95 % quantiles of the GPUs needed."""
        low, high = np.quantile(self.needed, [0.05, 0.95], method="higher")
        return float(np.ceil(low)), float(np.ceil(high))

    def to_frame(self) -> pd.DataFrame:
        """Waits by number of GPUs.

        Returns
        -------
        DataFrame
            ``gpus``; ``share_in_time``, the median over windows, and its band ``share_in_time-lo-80``, ``-hi-80``;
            ``p_met``, the share of windows in which the target is met; ``mean_wait_s`` with its band;
            ``waited_hours``, the sum of the waits of a week's jobs, and ``saved_hours``, what the next 8 GPUs save of
            it (in between linearly).
        """
        return self.curve.copy()

    def expected(self, name: str, gpus: float, needed: FloatArray) -> float:
        """Mean of an outcome, such as ``mean_wait_s``, on some GPUs over windows that need as many as `needed`."""
        assert self.outcomes is not None
        return float(_met(self.outcomes, name, gpus / np.maximum(needed, 1.0)).mean())

    @property
    def summary(self) -> pd.DataFrame:
        """Installed and required GPUs, shortfall, and the probability to meet the target with those installed."""
        row = {
            "installed": self.installed,
            "required": self.required,
            "shortfall": max(self.required - self.installed, 0.0),
            "p_met_installed": float((self.needed <= self.installed).mean()),
        }
        return pd.DataFrame([row], index=pd.Index([self.unique_id], name="unique_id"))

    def __repr__(self) -> str:
        low, high = self.required_range
        between = f"{format_count(low)} to {format_number_of('GPU', high)}"
        return (
            f"Wait plan: {format_number_of('GPU', self.required)} so that {self.target}, with probability "
            f"{100 * self.service_level:.4g} % ({between}); {format_count(self.installed)} installed\n"
            f"{self._printed().to_string(index=False)}"
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


@told("Planning for waits")
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
    availability: float = 1.0,
    n_futures: int = 100,
    random_state: int = 0,
    until: object = None,
) -> WaitPlan:
    """GPUs required so that a share of the jobs starts within a time.

    The GPUs that past windows of four weeks needed, by a simulated queue, over their mean demand say how much headroom
    the bursts of this log take. That ratio, of a window drawn at random, times a level drawn from the forecast is what
    the time ahead needs; the requirement suffices in more than a share `service_level` of `n_futures` draws.

    Parameters
    ----------
    forecast : DataFrame
        GPUs wanted (``usage_series(jobs, value="wanted")``): ``unique_id``, ``ds``, and one model's point and interval
        columns, of one series: a pool of interchangeable GPUs, such as the total or a GPU type.
    jobs : DataFrame
        Job table of some weeks before the forecast; those of its series count.
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
    availability : float in (0, 1], default=1.0
        Share of the GPUs that runs jobs; nodes are down, reserved or limited. `effective_capacity` over the GPUs
        installed is what a log's waits tell of it.
    n_futures : int, default=100
    random_state : int, default=0
        Seed of the draws.
    until : time-like, optional
        End of the log, where `jobs` may have expected ends after it; by default where the log stops being complete.

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
    share = check_number("availability", availability, 0, 1, open_low=True)
    target = wait_target(wait, wait_share, of, largest)
    log, forecast = check_jobs(jobs), check_forecast(forecast)
    end = end_of_record(log) if until is None else parse_timestamp(until, name="until")
    there = _one_pool(forecast, installed)
    pool = with_expected_ends(log, until=end)
    name = str(forecast["unique_id"].iloc[0])
    pool = pool[series_codes(pool, [name]) == 0]
    need = forecast_need(pool, target, end, policy)
    chances = np.random.default_rng(random_state).permutation((np.arange(n_futures) + 0.5) / n_futures)
    quantiles = QuantileTable.from_forecast(forecast.sort_values("ds"), model)
    levels = mean_demand(quantiles, chances, pool, end, time_step(forecast["ds"]))
    needed = np.ceil(np.ceil(levels * np.exp(np.resize(need.headroom, len(levels)))) / share)
    required = float(np.quantile(needed, service_level, method="higher"))
    outcomes = need.outcomes(target, policy)
    curve = wait_curve(curve_gpus(required, [there]), needed, outcomes)
    return WaitPlan(required, there, target, service_level, curve, needed, dict(forecast.attrs), name, outcomes)


def _one_pool(forecast: pd.DataFrame, installed: object) -> float:
    """GPUs installed; raises for a plan of several pools."""
    count = forecast["unique_id"].nunique()
    if count > 1 or isinstance(installed, (Mapping, pd.Series)):
        series = f", and the forecast has {count} series" if count > 1 else ""
        raise InputError(
            f"waits are planned for one pool{series}; give the forecast of one, and the number of GPUs installed in it."
        )
    return check_number("installed", installed, 0, open_low=True)
