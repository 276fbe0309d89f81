"""What the total is made of: the forecast by segment, group, cluster or type of GPU, rolled up under the total."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.metrics import evaluate
from gpudemand.report.analysis import tables
from gpudemand.report.analysis.selection import LEVELS, NAIVE_NAMES, Outlook, best_of, named, past_windows
from gpudemand.report.analysis.settings import Settings
from gpudemand.report.analysis.usage import MEAN
from gpudemand.report.analysis.user_segments import Crowd
from gpudemand.usage.series import usage_series

#: As many as a figure has colours for, with one more for the rest.
_MOST_PARTS = 6
_FEWEST_BINS = 8


@dataclass(frozen=True)
class Parts:
    """Forecasts of the parts of the total.

    Parameters
    ----------
    by : str
        What a part is: ``"segment"``, ``"group"``, ``"cluster"`` or ``"gpu_type"``.
    model : str
        The method used for every part.
    usage, forecast : DataFrame
        ``unique_id`` (the part), ``ds`` and ``y`` or the columns of the model: mean GPUs held per bin. The forecasts
        add up to that of the total.
    table : DataFrame
        The total, then a row a part, the largest first: ``part``, ``last`` and ``next`` (mean GPUs held over one
        horizon before and after the end of the log), ``change``, and on the scored windows ``wape``, ``best_naive``,
        ``best_naive_wape``, ``coverage_80``, ``coverage_95``.
    """

    by: str
    model: str
    usage: pd.DataFrame
    forecast: pd.DataFrame
    table: pd.DataFrame


def forecast_parts(jobs: pd.DataFrame, crowd: Crowd | None, outlook: Outlook, settings: Settings) -> Parts:
    """Forecast the parts of the total, and scale them so that they add up to its forecast.

    Parts are shares of a total that is forecast by itself (top-down by forecast proportions): what a plan rests on and
    what its parts add up to is one number. Scores are of the scaled forecasts, on the windows that score the total.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    crowd : Crowd or None
        Segments of the users, if there are any.
    outlook : Outlook
        Forecast and backtest of the total.
    settings : Settings

    Returns
    -------
    Parts

    Raises
    ------
    InputError
        If the log does not say what the total is made of.

    References
    ----------
    Athanasopoulos, Ahmed and Hyndman, "Hierarchical forecasts for Australian domestic tourism", International Journal
    of Forecasting 25 (2009).
    """
    by, names = _split(jobs, crowd, settings)
    usage = _usage(jobs, names, settings)
    backtest, scores = past_windows(usage, settings.horizon, outlook.windows)
    model = best_of(backtest[~scores])
    forecast = named(model).fit(usage).predict(settings.horizon, level=list(LEVELS))
    forecast = scaled(forecast, model, outlook.forecast, outlook.model)
    scored = scaled(backtest[scores], model, outlook.backtest, outlook.model)
    return Parts(by, model, usage, forecast, _table(usage, forecast, model, outlook, scored))


def _split(jobs: pd.DataFrame, crowd: Crowd | None, settings: Settings) -> tuple[str, pd.Series]:
    """Choose what a part is, and return the part of each job."""
    columns = [settings.by] if settings.by in ("group", "cluster", "gpu_type") else []
    if not columns and crowd is not None and len(crowd.profiles) > 1:
        return "segment", jobs["user"].astype(str).map(crowd.segment_of).astype(STRING)
    for column in [*columns, "group", "cluster", "gpu_type"]:
        if len(jobs[column].dropna().unique()) > 1:
            return column, jobs[column]
    raise InputError(
        "the log shows one segment, group, cluster and type of GPU at most, so the total has no parts to forecast."
    )


def _usage(jobs: pd.DataFrame, names: pd.Series, settings: Settings) -> pd.DataFrame:
    # Whatever a part is, the column of groups carries it: usage is summed by the canonical columns only.
    parts = jobs.assign(group=names)
    parts.attrs = dict(jobs.attrs)
    usage = usage_series(
        parts, by="group", freq=settings.freq, value="gpus", until=settings.until, tz=settings.tz, partial=False
    )
    attrs, written = dict(usage.attrs), tables.written_names(parts, "group")
    wide = usage.pivot(index="ds", columns="unique_id", values="y").fillna(0.0).rename(columns=written)
    if len(wide) < _FEWEST_BINS:
        raise InputError(f"forecasts of parts need at least {_FEWEST_BINS} bins; the log has {len(wide)}.")
    wide = _largest(wide[wide.columns[(wide > 0).any()]])
    long = wide.rename_axis(columns="unique_id").unstack().rename("y").reset_index()
    long["unique_id"] = long["unique_id"].astype(STRING)
    long.attrs = attrs
    return long


def _largest(wide: pd.DataFrame) -> pd.DataFrame:
    """Keep the parts that are used most, and sum the rest."""
    wide = wide[wide.sum().sort_values(ascending=False, kind="stable").index]
    rest = wide.iloc[:, _MOST_PARTS:]
    if rest.shape[1] < 2:
        return wide
    kept = wide.iloc[:, :_MOST_PARTS].copy()
    kept[f"{rest.shape[1]:,} others"] = rest.sum(axis=1)
    return kept


def scaled(parts: pd.DataFrame, model: str, total: pd.DataFrame, total_model: str) -> pd.DataFrame:
    """Scale the forecasts of parts, with their bounds, to what the total is forecast at.

    Parameters
    ----------
    parts : DataFrame
        ``unique_id``, ``ds``, ``cutoff`` if it is a backtest, and the columns of `model`, among others.
    model : str
    total : DataFrame
        The same for the series ``mean``, by `total_model`.
    total_model : str

    Returns
    -------
    DataFrame
        Like `parts`; where the parts sum to nothing they stay as they are.

    Examples
    --------
    >>> day = pd.Timestamp("2026-03-01")
    >>> parts = pd.DataFrame({"unique_id": ["a", "b"], "ds": day, "Naive": [1.0, 3.0]})
    >>> total = pd.DataFrame({"unique_id": ["mean"], "ds": day, "ETS": [8.0]})
    >>> scaled(parts, "Naive", total, "ETS")["Naive"].tolist()
    [2.0, 6.0]
    """
    when = [name for name in ("cutoff", "ds") if name in parts.columns]
    above = total[total["unique_id"] == MEAN].set_index(when)[total_model]
    own = parts.groupby(when)[model].sum()
    ratio = above.reindex(own.index).div(own.where(own > 0)).fillna(1.0).clip(lower=0.0).rename("ratio")
    factor = parts[when].join(ratio, on=when)["ratio"].to_numpy(dtype=float)
    columns = [
        name for name in parts.columns if name == model or str(name).startswith((f"{model}-lo-", f"{model}-hi-"))
    ]
    out = parts.copy()
    out[columns] = parts[columns].mul(factor, axis=0)
    out.attrs = dict(parts.attrs)
    return out


def _table(
    usage: pd.DataFrame, forecast: pd.DataFrame, model: str, outlook: Outlook, scored: pd.DataFrame
) -> pd.DataFrame:
    parts = pd.DataFrame({"last": _last(usage, forecast), "next": forecast.groupby("unique_id")[model].mean()})
    parts = parts.sort_values("last", ascending=False, kind="stable")
    table = pd.concat([parts.sum().rename("total").to_frame().T, parts])
    table["change"] = (table["next"] / table["last"].where(table["last"] > 0)) - 1
    scores = pd.concat([_total_scores(outlook), _scores(scored, model)])
    table = table.join(scores).rename_axis("part").reset_index()
    return table.astype({"part": STRING, "best_naive": STRING})


def _last(usage: pd.DataFrame, forecast: pd.DataFrame) -> pd.Series:
    newest = np.sort(usage["ds"].unique())[-forecast["ds"].nunique() :]
    return usage[usage["ds"].isin(newest)].groupby("unique_id")["y"].mean()


def _scores(scored: pd.DataFrame, model: str) -> pd.DataFrame:
    scores = evaluate(scored, ["wape", "coverage"], by="unique_id")
    own = scores.loc[model][["wape", "coverage_80", "coverage_95"]]
    naive = scores["wape"].unstack("model")[NAIVE_NAMES]
    best = naive.fillna(np.inf).idxmin(axis=1)
    return own.assign(best_naive=best, best_naive_wape=naive.min(axis=1))


def _total_scores(outlook: Outlook) -> pd.DataFrame:
    own, naive = outlook.score(MEAN), outlook.best_naive(MEAN)
    best = {"best_naive": naive["model"], "best_naive_wape": naive["wape"]}
    return pd.DataFrame({**own[["wape", "coverage_80", "coverage_95"]], **best}, index=["total"])
