"""The chain from jobs to the plan: each stage is computed when it is first asked for, from those above it, and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import pandas as pd

from gpudemand._validation import InputError, Skipped
from gpudemand.forecast import Forecaster
from gpudemand.planning.programmes import PlannedWork, Programme
from gpudemand.planning.scenarios import NetworkCosts
from gpudemand.planning.wait_plan import WaitPlan
from gpudemand.study.gpu_types import GpuTypePlans, check_pools, gpu_type_numbers, plan_gpu_types
from gpudemand.study.parts import Parts, UserSegments, forecast_parts, segment_users, with_programmes
from gpudemand.study.requirement import (
    Requirement,
    compare_orders,
    costs_by_pool,
    headline,
    installed_now,
    plan_requirement,
    purchase_costs,
    risk_numbers,
    risk_table,
)
from gpudemand.study.scenarios import Scenarios, calibrated, log_ratios, plan_scenarios
from gpudemand.study.selection import Candidates, SelectedForecast, event_table, known_events, select_and_forecast
from gpudemand.study.settings import NOUNS, Settings, mean_prices
from gpudemand.study.source import Source
from gpudemand.study.usage_tables import (
    MEAN,
    UsageTables,
    compute_usage_tables,
    default_horizon,
    explain_change,
    hourly_demand,
    idle_hours,
)
from gpudemand.study.waits import Waits, as_forecast, compute_waits, plan_for_waits


class Chain:
    """Stages of a study.

    A stage that the log does not allow raises an `InputError` with the reason. ``skipped.attempt`` keeps the reason and
    gives None instead.

    `source`: where ``until`` is before the end of the log, the log as it stood then. `programmes`: work to come that
    is in no log yet. `begin`: called with the name of each stage as it begins. `forecasters`: candidates for the
    forecast of the total, besides our own. `step_costs`: predicts the step time of the log's jobs.
    """

    def __init__(
        self,
        source: Source,
        programmes: Sequence[PlannedWork] = (),
        begin: Callable[[str], None] | None = None,
        forecasters: Sequence[Forecaster] = (),
        step_costs: NetworkCosts | None = None,
    ) -> None:
        check_pools(source, programmes)
        self.source, settings = source, source.settings
        self.settings = replace(settings, horizon=settings.horizon or default_horizon(source))
        self._planned, self.forecasters, self.step_costs = tuple(programmes), tuple(forecasters), step_costs
        self.skipped = Skipped()
        self.begin = begin or (lambda step: None)

    @property
    def jobs(self) -> pd.DataFrame:
        """Canonical job table."""
        return self.source.jobs

    @cached_property
    def usage(self) -> UsageTables:
        """Series of GPUs held and wanted, and tables of the log."""
        self.begin("Computing usage")
        return compute_usage_tables(self.source, self.skipped)

    @cached_property
    def run_time_ratios(self) -> pd.DataFrame:
        """Observed over predicted run times of training jobs, by user."""
        return log_ratios(self.source, self.step_costs)

    @cached_property
    def programmes(self) -> tuple[PlannedWork, ...]:
        """Work to come, times of trainings corrected by what the log shows of their users."""
        if not any(isinstance(work, Programme) and work.job is not None for work in self._planned):
            return self._planned
        ratios = self.skipped.attempt("run_time_ratios", lambda: self.run_time_ratios)
        return self._planned if ratios is None else calibrated(self._planned, ratios)

    @cached_property
    def waits(self) -> Waits:
        """Waits as they were."""
        return compute_waits(self.jobs, self.usage, self.settings)

    @cached_property
    def idle(self) -> dict[str, pd.DataFrame]:
        """GPU-hours held at little utilization, by key."""
        return idle_hours(self.source)

    @cached_property
    def drivers(self) -> pd.DataFrame:
        """Change of demand by users and GPU types."""
        return explain_change(self.source)

    @cached_property
    def selected(self) -> SelectedForecast:
        """Selected model and its backtest; the forecast is of the work in the log."""
        total, settings = self.usage.total, self.settings
        candidates = Candidates(self.forecasters, known_events(total, settings))
        self.begin("Backtesting forecasters")
        return select_and_forecast(total, settings.horizon, settings.service_level, candidates)

    @cached_property
    def events(self) -> pd.DataFrame:
        """Events that are known, and their effects."""
        events = self.selected.candidates.events
        if events is None:
            raise InputError("no events were stated, and no country of public holidays.")
        return event_table(self.usage.total, events, self.settings.horizon)

    @cached_property
    def demand(self) -> SelectedForecast:
        """`selected`, its forecast with the programmes."""
        return self.selected.with_programmes(self.programmes)

    @cached_property
    def wait_plan(self) -> WaitPlan:
        """GPUs so that jobs start in time."""
        installed = installed_now(self.settings, self.usage.max_held, self.demand.forecast)
        if self.settings.wait is not None:
            self.begin("Simulating queues")
        return plan_for_waits(self.jobs, self.programmes, self.demand, installed, self.settings)

    @cached_property
    def requirement(self) -> Requirement:
        """Plans for the mean, and for the peak or for waits."""
        forecast, waits = self.demand.forecast, self.skipped.attempt("wait_plan", lambda: self.wait_plan)
        self.begin("Planning capacity")
        if waits is not None:
            forecast = pd.concat([forecast[forecast["unique_id"] == MEAN], as_forecast(waits, forecast)])
        hourly = hourly_demand(self.source, self.settings)
        return plan_requirement(forecast.reset_index(drop=True), self.usage.max_held, self.settings, hourly)

    @cached_property
    def orders(self) -> pd.DataFrame:
        """Orders now, later, or none."""
        waits = self.skipped.attempt("wait_plan", lambda: self.wait_plan)
        end = pd.Timestamp(self.usage.tables["log"]["last"].iloc[0])
        return compare_orders(self.requirement, waits, end, self._at_mean_prices)

    @cached_property
    def costs(self) -> pd.DataFrame:
        """Cheapest mix of reserved and on-demand GPUs, by type where prices are."""
        stage = "cluster_plans" if self.settings.pool == "cluster" else "gpu_type_plans"
        if isinstance(self.settings.prices, Mapping):
            types: GpuTypePlans | None = self.skipped.attempt(stage, lambda: getattr(self, stage))
            if types is not None:
                return costs_by_pool(types.plans, self.settings)
        return purchase_costs(self.requirement, self._at_mean_prices)

    @property
    def _at_mean_prices(self) -> Settings:
        pool, prices = self.settings.pool, self.settings.prices
        return replace(self.settings, prices=mean_prices(prices, lambda: self.source.gpu_hours(pool)))

    @cached_property
    def segments(self) -> UserSegments:
        """Segments of users by the shape of their usage."""
        self.begin("Segmenting users")
        return segment_users(self.source)

    @cached_property
    def parts(self) -> Parts:
        """Forecasts of segments, groups or GPU types that sum to the total, and of each programme."""
        segments, selected = self.skipped.attempt("segments", lambda: self.segments), self.selected
        self.begin("Forecasting by part and GPU type")
        parts = forecast_parts(self.source, segments, selected, self.settings)
        return with_programmes(parts, self.programmes)

    @cached_property
    def gpu_type_plans(self) -> GpuTypePlans:
        """Plans by GPU type."""
        parts = self.skipped.attempt("parts", lambda: self.parts)
        work = self.programmes
        return plan_gpu_types(self.source, self.selected, parts, self.requirement, self.settings, programmes=work)

    @cached_property
    def cluster_plans(self) -> GpuTypePlans:
        """Plans by cluster, where each is a pool of its own."""
        if self.settings.pool != "cluster":
            raise InputError('all clusters are planned as one pool; cluster="each" makes each of them one of its own.')
        parts = self.skipped.attempt("parts", lambda: self.parts)
        return plan_gpu_types(self.source, self.demand, parts, self.requirement, self.settings, by="cluster")

    @cached_property
    def scenarios(self) -> Scenarios:
        """Requirements if the workload changes."""
        segments, requirement = self.skipped.attempt("segments", lambda: self.segments), self.requirement
        self.begin("Planning scenarios")
        return plan_scenarios(self.source, requirement, segments, self.settings, self.step_costs)

    @cached_property
    def numbers(self) -> dict[str, object]:
        """The headline: plain numbers, texts and None."""
        risk = risk_table(self.requirement)
        types = self.skipped.attempt("gpu_type_plans", lambda: self.gpu_type_plans)
        if self.settings.pool == "cluster":
            types = self.skipped.attempt("cluster_plans", lambda: self.cluster_plans)
        numbers = headline(self.requirement, self.demand, self.usage.tables["log"], self.settings)
        waits = self.skipped.attempt("wait_plan", lambda: self.wait_plan)
        numbers["pool"] = NOUNS[self.settings.pool]
        numbers["availability"] = None if waits is None else waits.availability
        return numbers | risk_numbers(self.requirement, self.demand, risk) | gpu_type_numbers(types)
