"""GPUs required: a plan for the mean, one for the peak or for waits, and the headline numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.planning.capacity.capacity_plan import CapacityPlan, plan_utilization
from gpudemand.planning.capacity.inputs import broadcast_by_time, order_date
from gpudemand.planning.capacity.required import first_crossing
from gpudemand.stages.selection import SelectedForecast
from gpudemand.stages.sources.by_pool import installed_changes
from gpudemand.stages.sources.settings import Settings
from gpudemand.stages.usage_tables import MEAN, PEAK, WAIT


@dataclass(frozen=True)
class Requirement:
    """Capacity plans for the mean, and for the peak or for waits.

    The larger of mean and peak is the requirement. Where there is a target for waits, it alone decides: it says how
    much headroom jobs need, which the target utilization and the peak only guess.

    Parameters
    ----------
    plans : dict of str to CapacityPlan
        ``"mean"``: mean per bin at the target utilization. ``"peak"``: peak per bin at full utilization; or
        ``"wait"``: the GPUs with which jobs start in time.
    installed : float
        GPUs installed when the plan begins.
    installed_from : {"given", "pulled", "log"}
        Whether that number was given, is what the nodes said, or is the maximum of the GPUs held at once in the log.
    forecast : DataFrame
        What the plans are for, by basis.
    hourly : DataFrame, optional
        Demand by hour, where bins are longer.
    steps : Series, optional
        GPUs installed from each time on, where deliveries or retirements are known.
    """

    plans: dict[str, CapacityPlan]
    installed: float
    installed_from: str
    forecast: pd.DataFrame
    hourly: pd.DataFrame | None = None
    steps: pd.Series | None = None

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Summaries of both plans: ``basis``, ``target_utilization`` and the columns of ``CapacityPlan.summary``.

        Mean and peak have the ``share_over`` of the mean, which counts how demand varies within bins: of time.
        """
        table = pd.concat([plan.summary for plan in self.plans.values()]).rename_axis("basis").reset_index()
        table.insert(1, "target_utilization", [plan.target_utilization for plan in self.plans.values()])
        if self.plans[MEAN].ratios is not None and PEAK in self.plans:
            table["share_over"] = table["share_over"].iloc[0]
        return table

    @cached_property
    def deciding(self) -> pd.DataFrame:
        """Rows of `summary`, by basis, of the plans that the requirement is the larger of."""
        table = self.summary.set_index("basis")
        return table.drop(MEAN) if WAIT in table.index else table

    @property
    def binding(self) -> str:
        """Basis of the deciding plan that requires more GPUs."""
        return str(self.deciding["required"].idxmax())

    @property
    def required(self) -> float:
        """GPUs that the deciding plans require."""
        return float(self.deciding["required"].max())

    @property
    def shortfall(self) -> float:
        """Largest number of GPUs that is short in a bin."""
        return float(self.deciding["shortfall"].max())

    @property
    def first_crossing(self) -> pd.Timestamp:
        """First bin from which on a week is short, as `CapacityPlan.summary` says; NaT if never."""
        return self.crossing("required")

    def crossing(self, column: str, installed: float | FloatArray | None = None) -> pd.Timestamp:
        """First crossing of other installed GPUs, or at another probability, such as ``required_p90``."""
        table = self.envelope()
        capacity = table["installed"] if installed is None else installed
        return first_crossing(table["ds"], table[column] > capacity, self.plans[MEAN].short_share)

    @property
    def order_by(self) -> pd.Timestamp:
        """`first_crossing` less the lead time; NaT if never."""
        return order_date(self.first_crossing, self.plans[MEAN].lead_time)

    def order_due(self, log_end: pd.Timestamp) -> pd.Timestamp:
        """`order_by` of the first crossing that an order at the end of the log could still meet.

        What a retirement leaves short until a delivery that comes before the order could is not met by ordering.
        """
        table, lead = self.envelope(), self.plans[MEAN].lead_time
        table = table[table["ds"] >= log_end + lead]
        if self.steps is None or table.empty:
            return self.order_by
        later = first_crossing(table["ds"], table["required"] > table["installed"], self.plans[MEAN].short_share)
        return self.order_by if pd.isna(later) else order_date(later, lead)

    def installed_at(self, times: pd.Series) -> FloatArray:
        """GPUs installed at some times, with the deliveries and retirements that are known."""
        return np.full(len(times), self.installed) if self.steps is None else broadcast_by_time(self.steps, times)

    def installed_later(self, log_end: pd.Timestamp) -> float:
        """Fewest GPUs installed from when an order at the end of the log arrives until the plan ends."""
        arrival, bins = log_end + self.plans[MEAN].lead_time, self.plans[MEAN].table["ds"]
        return float(self.installed_at(pd.concat([pd.Series([arrival]), bins[bins > arrival]])).min())

    def to_order(self, log_end: pd.Timestamp) -> int:
        """GPUs required beyond those that are installed when an order at the end of the log arrives."""
        return math.ceil(max(self.required - self.installed_later(log_end), 0.0))

    def envelope(self) -> pd.DataFrame:
        """Maximum of the deciding plans, bin by bin, as `CapacityPlanDisplay` takes it."""
        table = self.to_frame()
        table = table[table["basis"].isin(self.deciding.index)]
        required = [name for name in table.columns if name.startswith("required")]
        return table.groupby("ds", as_index=False)[[*required, "installed"]].max()

    def to_frame(self) -> pd.DataFrame:
        """Both plans bin by bin, with a column ``basis``."""
        table = pd.concat([plan.to_frame() for plan in self.plans.values()], ignore_index=True)
        return table.rename(columns={"unique_id": "basis"})


def plan_requirement(
    forecast: pd.DataFrame, max_held: float, settings: Settings, hourly: pd.DataFrame | None = None
) -> Requirement:
    """Plan capacity for the mean, and for the peak or for waits.

    Parameters
    ----------
    forecast : DataFrame
        Forecast of the series ``mean``, and ``peak`` or ``wait``. Where there is a target for waits, it decides how
        many GPUs peaks need.
    max_held : float
        Maximum of the GPUs held at once in the log; taken as installed where no number is given.
    settings : Settings
        ``installed``, ``target_utilization``, ``service_level`` and ``lead_time`` are read.
    hourly : DataFrame, optional
        Demand by hour, for bins that are longer: see ``held`` of `plan_capacity`.

    Returns
    -------
    Requirement
    """
    given = settings.total_installed
    installed = float(max_held) if given is None else given
    # The target utilization is headroom of the mean for peaks; a peak itself may use every GPU.
    targets = {MEAN: settings.target_utilization} | {
        basis: 1.0 for basis in forecast["unique_id"].unique() if basis != MEAN
    }
    plans = {
        basis: plan_utilization(
            of_basis(forecast, basis),
            installed=installed,
            target_utilization=target,
            service_level=settings.service_level,
            lead_time=settings.longest_lead_time,
            held=hourly if basis == MEAN else None,
        )
        for basis, target in targets.items()
    }
    begin = installed_now(settings, max_held, forecast)
    steps = given if isinstance(given, pd.Series) else None
    return Requirement(plans, begin, "log" if given is None else settings.installed_from, forecast, hourly, steps)


def of_basis(forecast: pd.DataFrame, basis: str) -> pd.DataFrame:
    """The forecast of one basis, with the levels that it has."""
    return forecast[forecast["unique_id"] == basis].dropna(axis=1, how="all").reset_index(drop=True)


def installed_now(settings: Settings, max_held: float, forecast: pd.DataFrame) -> float:
    """GPUs installed when the forecast begins: as given, or the most held at once so far."""
    given = settings.total_installed
    if isinstance(given, pd.Series):
        return float(broadcast_by_time(given, forecast["ds"].sort_values().head(1))[0])
    return float(max_held) if given is None else given


def headline(
    requirement: Requirement, selected: SelectedForecast, log: pd.DataFrame, settings: Settings
) -> dict[str, object]:
    """Collect the numbers at the top of the page and of ``--json``.

    Parameters
    ----------
    requirement : Requirement
    selected : SelectedForecast
    log : DataFrame
        As `gpudemand.stages.log_tables.log_summary` returns it.
    settings : Settings

    Returns
    -------
    dict
        Plain numbers, texts (dates in ISO form) and None.
    """
    facts, basis = log.iloc[0], requirement.binding
    to_order = requirement.to_order(facts["last"])
    plan: Any = requirement.summary.set_index("basis").loc[basis]
    return {
        "required": int(plan["required"]),
        "installed": requirement.installed,
        "installed_from": requirement.installed_from,
        "shortfall": math.ceil(requirement.shortfall),
        "basis": basis,
        "first_crossing": _iso(requirement.first_crossing),
        "order_by": _iso(requirement.order_due(facts["last"])) if to_order else None,
        "to_order": to_order,
        "installed_later": requirement.installed_later(facts["last"]),
        "installed_changes": installed_changes(settings.installed, facts["last"], selected.forecast["ds"].max()),
        **{name: getattr(settings, name) for name in _SETTINGS},
        "lead_time": settings.longest_lead_time,
        "log_begin": facts["first"].isoformat(),
        "log_end": facts["last"].isoformat(),
        "plan_end": selected.forecast["ds"].max().isoformat(),
        "model": selected.model,
        "selected": selected.windows.n_selection > 0,
        **_scores(selected, basis),
        "data_kind": str(facts["kind"]),
        **{name: None if pd.isna(facts[name]) else int(facts[name]) for name in ("jobs", "rejected", "users")},
    }


def _scores(selected: SelectedForecast, basis: str) -> dict[str, object]:
    # Waits are simulated for the mean demand: its forecast is what is scored.
    series = PEAK if basis == PEAK else MEAN
    score, naive = selected.score(series), selected.best_naive(series)
    return {
        "wape": _finite(score["wape"]),
        "best_naive": str(naive["model"]),
        "best_naive_wape": _finite(naive["wape"]),
        "coverage_80": _finite(score["coverage_80"]),
        "coverage_95": _finite(score["coverage_95"]),
    }


_SETTINGS = ("service_level", "target_utilization", "lead_time", "wait", "wait_share", "horizon", "freq")


def _iso(time: pd.Timestamp) -> str | None:
    return None if pd.isna(time) else pd.Timestamp(time).isoformat()


def _finite(value: float) -> float | None:
    # JSON has no NaN.
    return float(value) if math.isfinite(value) else None
