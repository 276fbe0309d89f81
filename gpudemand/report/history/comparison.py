"""What changed since an earlier report, and how its forecast did."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.metrics import evaluate, levels
from gpudemand.report.history.earlier import EarlierReport
from gpudemand.report.history.settings import settings_of
from gpudemand.stages.chain import Chain
from gpudemand.stages.drivers import explain_change
from gpudemand.stages.requirement import Requirement
from gpudemand.stages.selection import SCORED_LEVELS
from gpudemand.stages.usage_tables import MEAN

#: The forecast that an earlier one has to beat: the value of the last bin that it knew.
LAST_VALUE = "last value"
_KEYS = ["unique_id", "ds"]
_REQUIREMENT = ("log_end", "plan_end", "basis", "required", "installed", "shortfall", "first_crossing", "order_by")
_TIMES = ("log_end", "plan_end", "first_crossing", "order_by")


def compare_requirements(earlier: EarlierReport, numbers: dict[str, Any], requirement: Requirement) -> pd.DataFrame:
    """Requirement of an earlier report and of this one.

    Parameters
    ----------
    earlier : EarlierReport
    numbers : dict
        Headline of this report.
    requirement : Requirement
        Of this report.

    Returns
    -------
    DataFrame of two rows, the earlier report first
        ``log_end``, ``plan_end``, ``basis``, ``required``, ``required_both`` (in the bins that both plan for; missing
        where there are none), ``installed``, ``shortfall``, ``first_crossing`` and ``order_by`` (NaT if never).
    """
    reports = [{name: each.get(name) for name in _REQUIREMENT} for each in (earlier.numbers, numbers)]
    table = pd.DataFrame(reports).astype({"basis": STRING})
    table = table.assign(**{name: pd.to_datetime(table[name], utc=True) for name in _TIMES})
    plans = (earlier.table("plan"), requirement.to_frame())
    then, now = (_by_bin(plan, each["basis"]) for plan, each in zip(plans, (earlier.numbers, numbers), strict=True))
    both = then.index.intersection(now.index)
    table.insert(4, "required_both", [float(each[both].max()) for each in (then, now)])
    return table


def _by_bin(plan: pd.DataFrame, basis: str) -> pd.Series:
    """GPUs required by bin; a target for waits alone decides, otherwise the larger of both plans."""
    rows = plan[plan["basis"] == basis] if basis == "wait" else plan
    return rows.assign(ds=rows["ds"].dt.tz_convert("UTC")).groupby("ds")["required"].max()


def changed_settings(earlier: EarlierReport, chain: Chain) -> list[str]:
    """Names of the settings that differ from those of an earlier report."""
    before = earlier.content["settings"]
    return [name for name, value in settings_of(chain).items() if before.get(name) != value]


def past_forecast(earlier: EarlierReport, chain: Chain) -> pd.DataFrame:
    """Forecast of an earlier report for the whole bins since, beside the actual values and the last value that it knew.

    Parameters
    ----------
    earlier : EarlierReport
    chain : Chain
        Of this report.

    Returns
    -------
    DataFrame
        ``unique_id`` (``mean`` and ``peak``), ``ds``, ``cutoff``, ``y``, the columns of the forecast, ``last value``.

    Raises
    ------
    InputError
        If bins or measures differ, or no whole bin has passed since.
    """
    before, settings = earlier.content["settings"], settings_of(chain)
    for name, what in (("freq", "bins of"), ("tz", "days in the zone"), ("demand", "demand as")):
        if before[name] != settings[name]:
            raise InputError(f"the earlier report has {what} {before[name]}, and this one {settings[name]}.")
    forecast, usage, actual = _forecast_of_model(earlier), earlier.table("usage"), chain.usage.total
    last = usage.sort_values("ds").groupby("unique_id")["y"].last()
    both = actual.assign(ds=actual["ds"].dt.tz_convert("UTC"))[[*_KEYS, "y"]].merge(forecast, on=_KEYS)
    if both.empty:
        raise InputError("no whole bin of the earlier forecast has passed since.")
    both.insert(2, "cutoff", usage["ds"].max())
    both[LAST_VALUE] = both["unique_id"].map(last).astype(float)
    both["ds"] = both["ds"].dt.tz_convert(settings["tz"])
    return both.sort_values(_KEYS, ignore_index=True)


def _forecast_of_model(earlier: EarlierReport) -> pd.DataFrame:
    """Its forecast without that of the naive method that stands beside it."""
    forecast, model = earlier.table("forecast"), earlier.numbers["model"]
    bounds = [f"{model}-{side}-{level:g}" for level in levels(forecast, model) for side in ("lo", "hi")]
    return forecast[[*_KEYS, model, *bounds]]


def score_forecast(past: pd.DataFrame) -> pd.DataFrame:
    """Score an earlier forecast and the last value.

    Parameters
    ----------
    past : DataFrame
        As `past_forecast` returns it.

    Returns
    -------
    DataFrame
        ``series``, ``model``, ``bins``, ``mean_forecast`` and ``mean_actual`` (GPUs), ``wape_since``, ``bias``,
        ``coverage_80`` and ``coverage_95`` (missing for the last value).
    """
    model = next(name for name in past if name not in (*_KEYS, "cutoff", "y"))
    scores = evaluate(past, ["wape", "bias", "coverage"], by="unique_id").rename(columns={"wape": "wape_since"})
    means = past.groupby("unique_id")[["y", model, LAST_VALUE]].mean()
    bins = past.groupby("unique_id").size()
    rows = [
        {"series": series, "model": name, "bins": int(bins[series]), "mean_forecast": float(means.loc[series, name])}
        | {"mean_actual": float(means.loc[series, "y"])}
        | {column: scores.loc[(name, series)].get(column) for column in _SCORES}
        for series in means.index
        for name in (model, LAST_VALUE)
    ]
    return pd.DataFrame(rows).astype({"series": STRING, "model": STRING, **dict.fromkeys(_SCORES, float)})


_SCORES = ("wape_since", "bias", *(f"coverage_{level}" for level in SCORED_LEVELS))


def drivers_since(earlier: EarlierReport, chain: Chain) -> pd.DataFrame:
    """Change of demand since the end of an earlier report's log, against as many days before; see `explain_change`."""
    days = (pd.Timestamp(str(chain.numbers["log_end"])) - earlier.log_end).days
    return explain_change(chain.source, max(days, 1))


def past_score(scores: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Scores of the mean: of the earlier forecast, and of the last value."""
    rows = scores[scores["series"] == MEAN]
    return rows.iloc[0], rows.iloc[1]
