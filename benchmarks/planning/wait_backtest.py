"""Waits of coming windows, predicted from those before."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.jobs.table import check_jobs, gave_up, seconds_since
from gpudemand.planning.queue import simulate_queue
from gpudemand.planning.queue_kernels import POLICIES
from gpudemand.planning.waits import effective_capacity, mean_and_p95, with_expected_ends
from gpudemand.units import parse_duration

_STATISTICS = ("mean_wait_s", "p95_wait_s")
PARTS = ("persistence", "simulated", "effective", "factor", "average")
#: Prediction that is chosen where no errors are known.
_DEFAULT = "average"
#: Seconds added to waits before their logarithm is taken, so that the shortest do not decide.
_ADDED_S = 60.0


def wait_backtest(
    jobs: pd.DataFrame,
    installed: float,
    *,
    window: str | pd.Timedelta = "28D",
    policy: str = "easy",
    level: float = 80,
) -> WaitBacktest:
    """Predict the waits of each window of a log from those before it, and from simulations of its own jobs.

    Predictions are ``persistence`` (as in the window before), ``simulated`` on all GPUs installed, ``effective`` (on
    the `effective_capacity` of the window before), ``factor`` (simulated, times the geometric mean of what was recorded
    over what was simulated in all windows before), and ``average`` (the geometric mean of persistence and factor).
    ``chosen`` is the average, unless another's errors in the windows before were smaller by more than a standard error;
    its band rests on its errors there. At another capacity persistence says nothing: simulate on the effective share.

    Parameters
    ----------
    jobs : DataFrame
        Job table with ``submit`` and ``start``.
    installed : float
        GPUs installed throughout.
    window : str or Timedelta, default="28D"
    policy : {"easy", "conservative", "fifo", "eager"}, default="easy"
        See `simulate_queue`.
    level : float, default=80
        Percent of windows that the band is to cover.

    Returns
    -------
    WaitBacktest

    Raises
    ------
    InputError
        If the log covers fewer than three windows, or one has no waits.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> seconds = np.sort(rng.integers(0, 7 * 86400, 2000))
    >>> submit = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(seconds, unit="s")
    >>> log = pd.DataFrame({"submit": submit, "end": submit + pd.Timedelta("1h"), "gpus": 1.0})
    >>> log = simulate_queue(log, 13)
    >>> backtest = wait_backtest(log, 16, window="1D")
    >>> errors = backtest.summary["mean_wait_s"]
    >>> bool(errors["factor"] < errors["simulated"])
    True
    """
    check_choice("policy", policy, POLICIES)
    most, share = check_number("installed", installed, 0, open_low=True), check_number("level", level, 1, 99) / 100
    log = with_expected_ends(check_jobs(jobs))
    log = log[(log["gpus"] > 0) & ~gave_up(log)]
    edges = pd.date_range(log["submit"].min(), log["submit"].max(), freq=parse_duration(window))
    if len(edges) < 4:
        raise InputError(f"the log covers fewer than three windows of {window}; choose a shorter one.")
    # The first window is none: which jobs ran or waited when it began is not in the log.
    spans = list(pairwise(edges[1:]))
    effective = [effective_capacity(log, most, start=begin, until=end, policy=policy) for begin, end in spans[:-1]]
    waits = {
        "recorded": [_recorded(log, *span) for span in spans],
        "simulated": [_simulated(log, most, *span, policy) for span in spans],
        "effective": [_simulated(log, gpus, *span, policy) for gpus, span in zip(effective, spans[1:], strict=True)],
    }
    table = _score_waits({name: pd.DataFrame(rows) for name, rows in waits.items()}, share)
    return WaitBacktest(table.assign(effective_gpus=effective * len(_STATISTICS)), 100 * share)


@dataclass(frozen=True)
class WaitBacktest:
    """Waits of windows, recorded and predicted; prints the errors of each prediction.

    Attributes
    ----------
    table : DataFrame
        See `to_frame`.
    level : float
        Percent.
    """

    table: pd.DataFrame = field(repr=False)
    level: float

    def to_frame(self) -> pd.DataFrame:
        """Waits by statistic and window.

        Returns
        -------
        DataFrame
            ``statistic`` (``mean_wait_s`` or ``p95_wait_s``), ``window`` (its begin), ``recorded``, the predictions,
            ``chosen``, its band ``lo`` and ``hi`` (NaN in the first two rows), ``part`` (the prediction that was
            chosen), and what was calibrated on the windows before: ``recorded_over_simulated`` and ``effective_gpus``.
            The first two windows of the log have no row: the first begins with a cluster whose jobs are unknown.
        """
        return self.table.copy()

    @property
    def summary(self) -> pd.DataFrame:
        """Errors by prediction.

        Returns
        -------
        DataFrame
            Index: the predictions and ``chosen``. Of the mean and of the 95 % quantile of waits, the mean absolute
            difference of logarithms (``mean_wait_s``, ``p95_wait_s``); ``within_2``, the share of both within a factor
            of two; ``windows``, how many; and of ``chosen`` the ``coverage`` of the band.
        """
        log = np.log(self.table[["recorded", *PARTS, "chosen"]] + _ADDED_S)
        errors = log[[*PARTS, "chosen"]].sub(log["recorded"], axis=0).abs()
        table = errors.groupby(self.table["statistic"]).mean().T.rename_axis(columns=None)
        banded = self.table.dropna(subset=["lo"])
        covered = banded["recorded"].between(banded["lo"], banded["hi"]).mean()
        return table.assign(
            within_2=(errors <= np.log(2)).mean(),
            windows=self.table["window"].nunique(),
            coverage=pd.Series({"chosen": covered}),
        )

    def __repr__(self) -> str:
        return f"{self._headline()}\n{self._printed().to_string()}"

    def _repr_html_(self) -> str:
        return f"<p>{self._headline()}</p>{self._printed().to_html()}"

    def _headline(self) -> str:
        last, gpus = self.table.iloc[-1], self.table["effective_gpus"]
        return (
            f"Waits of {self.table['window'].nunique()} windows, mean absolute log error; chosen last: {last['part']}; "
            f"effective GPUs {gpus.min():.0f} to {gpus.max():.0f}"
        )

    def _printed(self) -> pd.DataFrame:
        table = self.summary
        return pd.DataFrame(
            {
                "mean": table["mean_wait_s"].map("{:.2f}".format),
                "p95": table["p95_wait_s"].map("{:.2f}".format),
                "within factor 2": table["within_2"].map("{:.0%}".format),
                f"{self.level:.4g} % band covers": table["coverage"].map("{:.0%}".format).replace("nan%", ""),
            }
        ).rename_axis(None)


def _recorded(jobs: pd.DataFrame, begin: pd.Timestamp, end: pd.Timestamp) -> dict[str, object]:
    counted = jobs[(jobs["submit"] >= begin) & (jobs["submit"] < end) & jobs["start"].notna()]
    if counted.empty:
        raise InputError(f"no job submitted from {begin} to {end} has started; choose longer windows.")
    return {"window": begin, **mean_and_p95(seconds_since(counted["start"], counted["submit"]))}


def _simulated(
    jobs: pd.DataFrame, gpus: float, begin: pd.Timestamp, end: pd.Timestamp, policy: str
) -> dict[str, object]:
    log = jobs[(jobs["submit"] < end) & ((jobs["end"] > begin) | (jobs["submit"] >= begin))]
    return _recorded(
        simulate_queue(log.assign(gpus=np.minimum(log["gpus"], gpus)), gpus, policy, start=begin), begin, end
    )


def _score_waits(waits: dict[str, pd.DataFrame], share: float) -> pd.DataFrame:
    """Recorded and predicted waits by statistic and window."""
    log = {name: np.log(table[list(_STATISTICS)].to_numpy() + _ADDED_S) for name, table in waits.items()}
    before, recorded, simulated = log["recorded"][:-1], log["recorded"][1:], log["simulated"][1:]
    ratio = before - log["simulated"][:-1]
    factor = np.cumsum(ratio, axis=0) / np.arange(1, len(ratio) + 1)[:, None]
    scaled = simulated + factor
    parts = np.stack([before, simulated, log["effective"], scaled, (before + scaled) / 2])
    error = parts - recorded
    part = _best_so_far(error)
    chosen = parts[part, np.arange(len(part))]
    half = np.stack([_half_width(error[which, :n], share) for n, which in enumerate(part)])
    tables = []
    for place, statistic in enumerate(_STATISTICS):
        columns = dict(zip(PARTS, parts[:, :, place], strict=True))
        columns |= {"recorded": recorded[:, place], "chosen": chosen[:, place]}
        columns |= {"lo": (chosen - half)[:, place], "hi": (chosen + half)[:, place]}
        table = pd.DataFrame({name: np.maximum(np.exp(column) - _ADDED_S, 0) for name, column in columns.items()})
        window = waits["recorded"]["window"].to_numpy()[1:]
        used = {"part": np.array(PARTS)[part], "recorded_over_simulated": np.exp(factor[:, place])}
        tables.append(table.assign(statistic=statistic, window=window, **used))
    return pd.concat(tables, ignore_index=True)


def _best_so_far(error: FloatArray) -> IntArray:
    """Place of the prediction chosen in each window, by errors (n_parts, n_windows, 2) in the windows before alone.

    The default, unless another's errors were smaller by more than a standard error of the difference.
    """
    loss, default = np.abs(error).mean(axis=2), PARTS.index(_DEFAULT)
    gain, part = loss[default] - loss, np.full(loss.shape[1], default)
    for n in range(2, len(part)):
        mean, deviation = gain[:, :n].mean(axis=1), gain[:, :n].std(axis=1, ddof=1)
        part[n] = np.where((mean > deviation / np.sqrt(n)) | (np.arange(len(gain)) == default), mean, -np.inf).argmax()
    return part


def _half_width(error: FloatArray, share: float) -> FloatArray:
    """Half of a prediction interval, symmetric around 0, from errors of (n_windows, 2); NaN for fewer than two."""
    n = len(error)
    if n < 2:
        return np.full(2, np.nan)
    return np.sqrt((1 + 1 / n) * (error**2).mean(axis=0)) * student_t.ppf((1 + share) / 2, n)
