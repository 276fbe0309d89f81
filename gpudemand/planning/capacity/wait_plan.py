"""GPUs required so that jobs start in time, and the waits on any number of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from scipy.stats import binom

from gpudemand._typing import FloatArray
from gpudemand.planning.capacity.wait_curve import mean_waits
from gpudemand.planning.capacity.wait_target import WaitTarget
from gpudemand.planning.queue.futures import Futures, Steps
from gpudemand.planning.queue.work import WEEK_S
from gpudemand.units import format_count, format_number_of, format_seconds


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
    unique_id : str
        Name of the pool, or ``total``.
    availability : float
        Share of the GPUs that runs jobs.
    ahead : Futures, optional
        Of `mean_waits`.
    policy : str
    until : Timestamp
        End of the log.
    """

    required: float
    installed: float
    target: WaitTarget
    service_level: float
    curve: pd.DataFrame = field(repr=False)
    needed: FloatArray = field(repr=False)
    attrs: dict[str, object] = field(default_factory=dict, repr=False)
    unique_id: str = "total"
    availability: float = 1.0
    ahead: Futures | None = field(default=None, repr=False)
    policy: str = "easy"
    until: pd.Timestamp = pd.NaT

    @property
    def required_range(self) -> tuple[float, float]:
        """The 80 % confidence interval of the requirement, of which only so many futures are a sample."""
        n = len(self.needed)
        low, high = (int(rank) for rank in binom.ppf([0.1, 0.9], n, self.service_level))
        order = np.sort(self.needed)
        return float(order[max(low - 1, 0)]), float(order[min(high, n - 1)])

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

    def mean_waits(
        self, installed: Sequence[pd.Series], spans: Sequence[tuple[pd.Timestamp, pd.Timestamp]]
    ) -> FloatArray:
        """Mean waits of the jobs to come behind those that run and wait as the log ends, with GPUs that change in time.

        Parameters
        ----------
        installed : sequence of Series
            GPUs installed, by the time from which on there are so many. Compared are the waits of the jobs that all of
            them have room for at some time.
        spans : sequence of (Timestamp, Timestamp)
            Times in which the jobs are submitted, after the end of the log.

        Returns
        -------
        ndarray of shape (n_installed, n_spans)
            Seconds, medians over the futures; NaN where some jobs never start, such as those of a larger programme.
        """
        assert self.ahead is not None
        steps = [Steps(self._seconds(gpus.index), gpus.to_numpy(dtype=float)) for gpus in installed]
        bounds = [(float(begin), float(end)) for begin, end in (self._seconds(pd.Index(span)) for span in spans)]
        weeks = max(int(np.ceil(max(end for _, end in bounds) / WEEK_S)), 1)
        return mean_waits(replace(self.ahead, n_weeks=weeks), steps, bounds, self.policy)

    def _seconds(self, times: pd.Index) -> FloatArray:
        return ((pd.DatetimeIndex(times) - self.until) / pd.Timedelta("1s")).to_numpy(dtype=float)

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


@dataclass(frozen=True)
class PooledWaitPlan:
    """Wait plans of several pools; prints a row a pool.

    Attributes
    ----------
    plans : dict of str to WaitPlan
        By name of the pool.
    """

    plans: dict[str, WaitPlan]

    def to_frame(self) -> pd.DataFrame:
        """The curves of `WaitPlan.to_frame`, with ``unique_id``, the name of the pool, before them."""
        curves = {name: plan.to_frame() for name, plan in self.plans.items()}
        return pd.concat(curves, names=["unique_id", None]).reset_index("unique_id").reset_index(drop=True)

    @property
    def summary(self) -> pd.DataFrame:
        """The summaries of `WaitPlan.summary`, a row a pool."""
        return pd.concat([plan.summary for plan in self.plans.values()])

    def __repr__(self) -> str:
        return f"{self._headline()}\n{self._printed().to_string()}"

    def _repr_html_(self) -> str:
        return f"<p>{self._headline()}</p>{self._printed().to_html()}"

    def _headline(self) -> str:
        plan = next(iter(self.plans.values()))
        return f"Wait plan: GPUs so that {plan.target}, in each pool with probability {100 * plan.service_level:.4g} %"

    def _printed(self) -> pd.DataFrame:
        summary = self.summary.rename_axis(None)
        counts = {name: summary[name].map(format_count) for name in ("installed", "required", "shortfall")}
        return pd.DataFrame(
            {**counts, "target met with those installed": summary["p_met_installed"].map("{:.0%}".format)}
        )
