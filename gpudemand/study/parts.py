"""Forecasts of the parts of demand: segments, groups, GPU types."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gpudemand._array import STRING
from gpudemand._validation import InputError
from gpudemand.forecast.clusterwise import ClusterwiseForecaster
from gpudemand.forecast.panel import fill_missing
from gpudemand.metrics import evaluate
from gpudemand.planning.programmes import PlannedWork, add_programmes
from gpudemand.segments import ExtrapolationWarning, TopologicalSegmenter, segment_profiles
from gpudemand.study.selection import (
    LEVELS,
    NAIVE_NAMES,
    Candidates,
    SelectedForecast,
    forecast_with,
    model_beyond_noise,
    run_backtest,
)
from gpudemand.study.settings import Settings
from gpudemand.study.source import Key, Source
from gpudemand.study.usage_tables import MEAN
from gpudemand.usage.series import to_wide

#: Smallest sample that is segmented.
_MIN_USERS, _MIN_DAYS, _WEEK = 8, 28, 7
_EXTRAPOLATED = (
    "Most {unit}s use GPUs unlike those on whose histories the distances between {unit}s were fitted: the segments may "
    "mean little."
)


@dataclass(frozen=True)
class UserSegments:
    """Users and their segments.

    `wide`: shape (n_users, n_days); GPU-hours per day of the users with non-zero usage. `labels`: segment number by
    user; 0 has the most GPU-hours. `profiles`: the largest segment first. `notes`: what to beware of.
    """

    wide: pd.DataFrame
    labels: pd.Series
    profiles: pd.DataFrame
    notes: tuple[str, ...] = ()

    @property
    def members(self) -> pd.DataFrame:
        """Membership table: ``user``, ``segment``."""
        names = self.profiles["segment"].to_numpy()[self.labels.to_numpy()]
        return pd.DataFrame({"user": self.labels.index, "segment": names}).astype(STRING)

    @property
    def segment_of(self) -> dict[str, str]:
        """Name of the segment by user."""
        members = self.members.astype(str)
        return dict(zip(members["user"], members["segment"], strict=True))


def segment_users(source: Source) -> UserSegments:
    """Cluster users by daily usage; days that were not recorded count like the same day of the week before."""
    names = source.names(source.unit)
    if not names:
        raise InputError("the log names no users, so there are no segments.")
    daily = to_wide(source.usage(source.unit, "D", "gpu_hours", partial=True))
    wide = daily[daily.index.isin(names) & (daily > 0).any(axis=1)].astype(float)
    wide = wide.set_axis(wide.index.astype(STRING)).where(wide.notna(), fill_missing(wide.to_numpy(), _WEEK))
    wide.attrs = dict(source.attrs) | {"value": "gpu_hours", "freq": "D"}
    n_users, n_days = wide.shape
    if n_users < _MIN_USERS:
        raise InputError(f"segments need at least {_MIN_USERS} {source.unit}s with usage; the log has {n_users}.")
    if n_days < _MIN_DAYS:
        raise InputError(f"segments need at least {_MIN_DAYS} days of history; the log has {n_days}.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ExtrapolationWarning)
        labels = TopologicalSegmenter(random_state=0).fit(wide).labels_
    extrapolates = any(warning.category is ExtrapolationWarning for warning in caught)
    profiles = segment_profiles(wide, labels).rename(columns={"name": "segment", "gpu_hours_share": "share"})
    notes = (_EXTRAPOLATED.format(unit=source.unit),) if extrapolates else ()
    return UserSegments(wide, pd.Series(labels, index=wide.index), profiles.reset_index(drop=True), notes)


#: Parts with a series of their own; smaller ones are summed. One fewer than a figure has colours.
_MAX_PARTS = 6
_MIN_BINS = 8


@dataclass(frozen=True)
class Parts:
    """Forecasts of the parts of the total, which sum to that of the total.

    `by`: what a part is: ``"segment"``, ``"group"``, ``"cluster"`` or ``"gpu_type"``. `usage`, `forecast`: mean GPUs
    held per bin. `table`: the total, then a row per part, the largest first: ``last`` and ``next`` (mean GPUs held over
    one horizon before and after the end of the log), ``width_80`` (mean width of the 80 % interval), and scores on the
    evaluation windows.
    """

    by: str
    model: str
    usage: pd.DataFrame
    forecast: pd.DataFrame
    table: pd.DataFrame


def forecast_parts(
    source: Source, segments: UserSegments | None, selected: SelectedForecast, settings: Settings
) -> Parts:
    """Forecast the parts of the total, scaled to sum to its forecast (top-down by forecast proportions).

    Scores are those of the scaled forecasts, on the evaluation windows of the total.

    References
    ----------
    Athanasopoulos, Ahmed and Hyndman, "Hierarchical forecasts for Australian domestic tourism", International Journal
    of Forecasting 25 (2009).
    """
    by, key = _key(source, segments, settings)
    usage, own = _usage_by_part(source, key, settings), Candidates(events=selected.candidates.events)
    backtest, evaluates = run_backtest(usage, settings.horizon, selected.windows, own)
    model = model_beyond_noise(backtest[~evaluates])
    forecast = forecast_with(model, usage, settings.horizon, list(LEVELS), own)
    forecast = scale_to_total(forecast, model, selected.forecast, selected.model)
    evaluated = scale_to_total(backtest[evaluates], model, selected.backtest, selected.model)
    return Parts(by, model, usage, forecast, _table(usage, forecast, model, selected, evaluated))


def forecast_users(source: Source, segments: UserSegments, settings: Settings) -> pd.DataFrame:
    """Forecast every user by a regression of the cluster, starting from the segments; see `Study.user_forecast`."""
    usage = source.usage(source.unit, settings.freq, source.demand)
    model = ClusterwiseForecaster(segments.labels, horizon=settings.horizon)
    found = model.fit(usage[usage["unique_id"].isin(segments.labels.index)]).predict(settings.horizon, LEVELS)
    clusters = {"segment": pd.Series(segments.segment_of), "cluster": model.labels_}
    return found.assign(**{name: found["unique_id"].map(of_user) for name, of_user in clusters.items()})


def with_programmes(parts: Parts, programmes: Sequence[PlannedWork]) -> Parts:
    """Add a part for each programme; its usage so far is zero."""
    for programme in programmes:
        if programme.name in set(parts.forecast["unique_id"]):
            raise InputError(f"programme {programme.name!r} is called like a part of the forecast; rename it.")
        ds = parts.forecast["ds"].drop_duplicates().sort_values()
        columns = [name for name in parts.forecast.columns if name not in ("unique_id", "ds")]
        zeros = pd.DataFrame(0.0, index=ds.index, columns=columns).assign(unique_id=programme.name, ds=ds)
        rows = add_programmes(zeros, [programme], programme.name)[parts.forecast.columns]
        past = parts.usage.drop_duplicates("ds").assign(unique_id=programme.name, y=0.0)
        row = {"part": programme.name, "last": 0.0, "next": rows[parts.model].mean()}
        row["width_80"] = float(_width(rows, parts.model).iloc[0])
        table = pd.concat([parts.table, pd.DataFrame([row])], ignore_index=True)
        table.loc[0, "next"] += row["next"]
        table.loc[0, "change"] = table.loc[0, "next"] / table.loc[0, "last"] - 1
        both = (pd.concat(pair, ignore_index=True) for pair in ((parts.usage, past), (parts.forecast, rows)))
        usage, forecast = (frame.astype({"unique_id": STRING}) for frame in both)
        usage.attrs, forecast.attrs = parts.usage.attrs, parts.forecast.attrs
        parts = replace(parts, usage=usage, forecast=forecast, table=table.astype({"part": STRING}))
    return parts


def _key(source: Source, segments: UserSegments | None, settings: Settings) -> tuple[str, Key]:
    """Choose what a part is, and return its name and the key that gives it."""
    columns = [settings.by] if settings.by in source.keys and settings.by != source.unit else []
    if not columns and segments is not None and len(segments.profiles) > 1:
        return "segment", segments.segment_of
    for column in [*columns, *source.keys]:
        if len(source.names(column)) > 1:
            return column, column
    raise InputError(
        "the log has at most one segment, group, cluster and GPU type, so the total has no parts to forecast."
    )


def _usage_by_part(source: Source, key: Key, settings: Settings) -> pd.DataFrame:
    usage = source.usage(key, settings.freq, source.demand)
    wide = usage.pivot(index="ds", columns="unique_id", values="y")
    if len(wide) < _MIN_BINS:
        raise InputError(f"forecasts of parts need at least {_MIN_BINS} bins; the log has {len(wide)}.")
    wide = _sum_smallest(wide[wide.columns[(wide > 0).any()]])
    long = wide.rename_axis(columns="unique_id").unstack().rename("y").reset_index()
    long["unique_id"] = long["unique_id"].astype(STRING)
    long.attrs = dict(usage.attrs)
    return long


def _sum_smallest(wide: pd.DataFrame) -> pd.DataFrame:
    """Sort the parts by usage, and sum those beyond the largest."""
    wide = wide[wide.sum().sort_values(ascending=False, kind="stable").index]
    rest = wide.iloc[:, _MAX_PARTS:]
    if rest.shape[1] < 2:
        return wide
    return wide.iloc[:, :_MAX_PARTS].assign(**{f"{rest.shape[1]:,} others": rest.sum(axis=1, skipna=False)})


def scale_to_total(parts: pd.DataFrame, model: str, total: pd.DataFrame, total_model: str) -> pd.DataFrame:
    """Scale the forecasts of parts, or their backtest, with their bounds, to the series ``mean`` of the total.

    Unchanged where the parts sum to zero.

    >>> day = pd.Timestamp("2026-03-01")
    >>> parts = pd.DataFrame({"unique_id": ["a", "b"], "ds": day, "Naive": [1.0, 3.0]})
    >>> total = pd.DataFrame({"unique_id": ["mean"], "ds": day, "ETS": [8.0]})
    >>> scale_to_total(parts, "Naive", total, "ETS")["Naive"].tolist()
    [2.0, 6.0]
    """
    keys = [name for name in ("cutoff", "ds") if name in parts.columns]
    target = total[total["unique_id"] == MEAN].set_index(keys)[total_model]
    own = parts.groupby(keys)[model].sum()
    ratio = target.reindex(own.index).div(own.where(own > 0)).fillna(1.0).clip(lower=0.0).rename("ratio")
    factor = parts[keys].join(ratio, on=keys)["ratio"].to_numpy(dtype=float)
    columns = [
        name for name in parts.columns if name == model or str(name).startswith((f"{model}-lo-", f"{model}-hi-"))
    ]
    out = parts.copy()
    out[columns] = parts[columns].mul(factor, axis=0)
    out.attrs = dict(parts.attrs)
    return out


def _table(
    usage: pd.DataFrame, forecast: pd.DataFrame, model: str, selected: SelectedForecast, evaluated: pd.DataFrame
) -> pd.DataFrame:
    newest = np.sort(usage["ds"].unique())[-forecast["ds"].nunique() :]
    last = usage[usage["ds"].isin(newest)].groupby("unique_id")["y"].mean()
    parts = pd.DataFrame({"last": last, "next": forecast.groupby("unique_id")[model].mean()})
    parts = parts.sort_values("last", ascending=False, kind="stable")
    table = pd.concat([parts.sum().rename("total").to_frame().T, parts])
    total = selected.forecast[selected.forecast["unique_id"] == MEAN].assign(unique_id="total")
    table["width_80"] = pd.concat([_width(total, selected.model), _width(forecast, model)])
    table["change"] = (table["next"] / table["last"].where(table["last"] > 0)) - 1
    table = table.join(pd.concat([_scores_of_total(selected), _scores_of_parts(evaluated, model)]))
    return table.rename_axis("part").reset_index().astype({"part": STRING, "best_naive": STRING})


def _width(forecast: pd.DataFrame, model: str) -> pd.Series:
    return (forecast[f"{model}-hi-80"] - forecast[f"{model}-lo-80"]).groupby(forecast["unique_id"]).mean()


def _scores_of_parts(evaluated: pd.DataFrame, model: str) -> pd.DataFrame:
    scores = evaluate(evaluated, ["wape", "coverage"], by="unique_id")
    naive = scores["wape"].unstack("model")[NAIVE_NAMES]
    best = naive.fillna(np.inf).idxmin(axis=1)
    own = scores.loc[model][["wape", "coverage_80", "coverage_95"]]
    return own.assign(best_naive=best, best_naive_wape=naive.min(axis=1))


def _scores_of_total(selected: SelectedForecast) -> pd.DataFrame:
    own, naive = selected.score(MEAN), selected.best_naive(MEAN)
    best = {"best_naive": naive["model"], "best_naive_wape": naive["wape"]}
    return pd.DataFrame({**own[["wape", "coverage_80", "coverage_95"]], **best}, index=["total"])
