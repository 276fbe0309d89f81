"""How many GPUs: the plan for the mean and the plan for the peak, and the headline that follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gpudemand.planning.capacity.plan import CapacityPlan, plan_capacity
from gpudemand.report.analysis.selection import Outlook
from gpudemand.report.analysis.settings import Settings
from gpudemand.report.analysis.usage import MEAN, PEAK


@dataclass(frozen=True)
class Need:
    """Two plans, and which of them asks for more.

    Parameters
    ----------
    plans : dict of str to CapacityPlan
        ``"mean"``: mean of the bin at the target utilization. ``"peak"``: peak of the bin with every GPU busy.
    installed : float
        GPUs that are there.
    installed_from : {"given", "log"}
        Whether that number was given, or is the most that the log ever held at once.
    """

    plans: dict[str, CapacityPlan]
    installed: float
    installed_from: str

    @property
    def table(self) -> pd.DataFrame:
        """Summaries of both plans: ``basis``, ``target_utilization`` and the columns of ``CapacityPlan.summary``."""
        table = pd.concat([plan.summary for plan in self.plans.values()]).rename_axis("basis").reset_index()
        table.insert(1, "target_utilization", [plan.target_utilization for plan in self.plans.values()])
        return table

    @property
    def deciding(self) -> str:
        """The basis that requires more GPUs."""
        table = self.table.set_index("basis")
        return str(table["required"].idxmax())

    @property
    def required(self) -> float:
        """GPUs that the larger of the two plans requires."""
        return float(self.table["required"].max())

    @property
    def first_crossing(self) -> pd.Timestamp:
        """When either plan first requires more than is installed; NaT if never."""
        return self.table["first_crossing"].min()

    @property
    def order_by(self) -> pd.Timestamp:
        """`first_crossing` less the lead time; NaT if never."""
        return self.table["order_by"].min()

    def larger(self) -> pd.DataFrame:
        """Bin by bin, whatever the larger of the two plans requires, as `CapacityPlanDisplay` takes it."""
        steps = self.steps().drop(columns="basis")
        required = [name for name in steps.columns if name.startswith("required")]
        return steps.groupby("ds", as_index=False)[[*required, "installed"]].max()

    def steps(self) -> pd.DataFrame:
        """Both plans bin by bin, with a column ``basis``."""
        table = pd.concat([plan.to_frame() for plan in self.plans.values()], ignore_index=True)
        return table.rename(columns={"unique_id": "basis"})


def plan_need(forecast: pd.DataFrame, most_held: float, settings: Settings) -> Need:
    """Plan for the mean and for the peak.

    Parameters
    ----------
    forecast : DataFrame
        Forecast of the series ``mean`` and ``peak``.
    most_held : float
        Most GPUs that the log ever held at once; stands for what is installed when nobody says.
    settings : Settings
        ``installed``, ``target_utilization``, ``service_level`` and ``lead_time`` are read.

    Returns
    -------
    Need
    """
    given = settings.total_installed
    installed = float(most_held) if given is None else given
    # Headroom for the mean is there so that a peak fits; a peak itself may use every GPU.
    targets = {MEAN: settings.target_utilization, PEAK: 1.0}
    plans = {
        basis: plan_capacity(
            forecast[forecast["unique_id"] == basis].reset_index(drop=True),
            installed=installed,
            target_utilization=target,
            service_level=settings.service_level,
            lead_time=settings.lead_time,
        )
        for basis, target in targets.items()
    }
    return Need(plans, installed, "log" if given is None else "given")


def headline(need: Need, outlook: Outlook, read: pd.DataFrame, settings: Settings) -> dict[str, object]:
    """Collect the numbers that the page says first and ``--json`` prints.

    Returns
    -------
    dict
        Plain numbers, texts (dates in ISO form) and None.
    """
    facts = read.iloc[0]
    return {
        **_planned(need),
        "service_level": settings.service_level,
        "target_utilization": settings.target_utilization,
        "lead_time": settings.lead_time,
        "horizon": settings.horizon,
        "freq": settings.freq,
        "log_begin": facts["first"].isoformat(),
        "log_end": facts["last"].isoformat(),
        **_foretold(outlook, need.deciding),
        "data_kind": str(facts["kind"]),
        "jobs": int(facts["jobs"]),
        "rejected": int(facts["rejected"]),
        "users": int(facts["users"]),
    }


def _planned(need: Need) -> dict[str, object]:
    row: Any = need.table.set_index("basis").loc[need.deciding]
    return {
        "required": int(row["required"]),
        "installed": need.installed,
        "installed_from": need.installed_from,
        "shortfall": math.ceil(row["shortfall"]),
        "basis": need.deciding,
        "first_crossing": _date(need.first_crossing),
        "order_by": _date(need.order_by),
    }


def _foretold(outlook: Outlook, series: str) -> dict[str, object]:
    score, naive = outlook.score(series), outlook.best_naive(series)
    return {
        "plan_end": outlook.forecast["ds"].max().isoformat(),
        "model": outlook.model,
        "wape": _number(score["wape"]),
        "best_naive": str(naive["model"]),
        "best_naive_wape": _number(naive["wape"]),
        "coverage_80": _number(score["coverage_80"]),
        "coverage_95": _number(score["coverage_95"]),
    }


def _date(moment: pd.Timestamp) -> str | None:
    return None if pd.isna(moment) else pd.Timestamp(moment).isoformat()


def _number(value: float) -> float | None:
    # JSON has no NaN.
    return float(value) if math.isfinite(value) else None
