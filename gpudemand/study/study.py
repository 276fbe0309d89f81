"""`Study`: from a job log to the number of GPUs, each stage computed when it is first asked for, and kept."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar, cast, overload

import pandas as pd

from gpudemand._tables import html_table, readable, shown_as_html
from gpudemand._validation import LOGGER, InputError, Skipped, as_pandas, check_list, telling
from gpudemand.forecast.forecaster import adapt
from gpudemand.planning.need import WINDOW
from gpudemand.planning.programmes import PlannedWork, Programme, check_planned
from gpudemand.planning.purchases import Purchase
from gpudemand.planning.scenarios import JobCosts, NetworkCosts, Scenario, check_scenarios
from gpudemand.planning.wait_plan import WaitPlan
from gpudemand.study.gpu_types import GpuTypePlans, check_pools, gpu_type_numbers, order_of_pools, plan_gpu_types
from gpudemand.study.parts import Parts, UserSegments, forecast_parts, forecast_users, segment_users, with_programmes
from gpudemand.study.pools import NOUNS, installed_cost, mean_prices, select_clusters
from gpudemand.study.purchases import PurchaseComparison, check_options
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
from gpudemand.study.scenarios import BaseCase, Scenarios, calibrated, compare_scenarios, log_ratios, plan_scenarios
from gpudemand.study.selection import Candidates, SelectedForecast, event_table, known_events, select_and_forecast
from gpudemand.study.settings import Aliases, Clusters, Installed, LeadTime, PricePair, Prices, Settings
from gpudemand.study.source import source_of
from gpudemand.study.usage_tables import (
    MEAN,
    UsageTables,
    compute_usage_tables,
    default_horizon,
    demand_by_period,
    explain_change,
    hourly_demand,
    idle_hours,
)
from gpudemand.study.waits import (
    Need,
    Waits,
    compute_waits,
    needed_gpus,
    other_targets,
    plan_for_waits,
    programme_table,
    range_by_source,
    recent_shares_in_time,
    requirement_by_period,
    requirement_steps,
    target_grid,
    target_needs,
    with_need,
)

#: Name of the columns of `Study.forecast`.
FORECAST = "Study"
T = TypeVar("T")


class result(cached_property[T]):  # noqa: N801
    """A stage that is computed once and handed out as a copy, as users may edit what they get."""

    @overload
    def __get__(self, study: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, study: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, study: object | None, owner: type[Any] | None = None) -> Self | T:
        if study is None:
            return self
        with telling(f"Computing {str(self.attrname).replace('_', ' ')}"):
            found = deepcopy(super().__get__(study, owner))
        return shown_as_html(found) if isinstance(found, pd.DataFrame) else found

    def __set__(self, study: object, value: T) -> None:  # without it, the stage itself would hide this
        raise AttributeError(f"{self.attrname} of a study cannot be set; make another study.")


class Study:
    """From a job log to the number of GPUs, when to order them, and how far to trust that.

    Stages are tables, computed when they are first asked for, and kept. One that a log does not allow raises an
    `InputError` that says why. Required is what suffices, with a probability, for the four weeks after an order could
    arrive: so that jobs start in time, or, of usage without jobs, for the most GPUs held at once.

    Parameters
    ----------
    jobs : DataFrame
        Job table, as `read_jobs` returns it, or any with ``user``, ``start``, ``end`` and ``gpus``. Or usage without
        jobs, ``unique_id``, ``ds``, ``y`` (mean GPUs held), as `read_usage` and `pulled_usage` return it; what only
        jobs tell (waits, run times) is then skipped, and GPUs wanted are known where pods that waited were pulled. Of
        jobs that are likely entered wrong, an `UnlikelyJobsWarning` and the page say so; they count as they are.
    installed : float, Series, or mapping of str to such, optional
        GPUs installed, or a Series whose index are the times from which on there are so many (deliveries, retirements):
        of all types together, or by ``gpu_type`` (0 for a retired type). By default those of the nodes,
        where they were pulled, or else as many as were held at once on at least three days (of a log of under four
        weeks, the most).
    lead_time : str or mapping of str to str, default="90D"
        From the order of GPUs to their first use, or by ``gpu_type``; for all types together the longest counts.
    wait : str, optional
        Time within which jobs are to start, by default ``"1h"``: by simulating the queue. Usage without jobs is planned
        for the most GPUs held at once.
    wait_share : float in (0, 1), default=0.9
        Share of the jobs that are to start within `wait`.
    availability : float in (0, 1], default=1.0
        Share of the GPUs that runs jobs: nodes are down, reserved or drained.
    horizon : int, optional
        Bins to forecast; by default the lead time and four weeks, or what the log bears: it must be twice as long, and
        four weeks.
    by : {"user", "group", "cluster", "gpu_type", "partition", "qos", "total"}, default="user"
        Key that usage is split by; of usage without jobs, what its series are.
    freq : str, default="D"
        Width of a bin of the forecast: ``"h"``, ``"D"``, ``"W-MON"``, ...
    target_utilization : float, default=0.85
        Share of the GPUs that the mean demand of a bin may take, in (0, 1], in the plan that stands beside.
    service_level : float, default=0.95
        Probability with which the GPUs required suffice, above 0.5, at most 0.999.
    tz : str, optional
        Zone of the calendar, by default UTC (or that of usage without jobs), and of times that have none, which are
        refused without it.
    until : time-like, optional
        End of the period; by default where the log stops being complete. Before that, the log as it stood then.
    cluster : str or sequence of str, optional
        Names of the clusters that are studied, as one pool; or ``"each"``: all, each a pool of its own, whose GPUs
        `installed`, `lead_time` and `prices` may give by their names. By default all, as one pool.
    prices : (float, float) or mapping of str to such, optional
        Prices of a GPU-hour, reserved and on demand, in any currency, or by ``gpu_type``.
    programmes : sequence of Programme or Serving, default=()
        Work to come that is in no log yet.
    events : DataFrame, optional
        Closures, deadlines and the like, past and coming: ``event``, ``start``, ``end`` and, where it is known,
        ``effect``; see `EventForecaster`.
    holidays : str, optional
        Country or region whose public holidays are events, ``"SE"`` or ``"DE-BY"``; see `public_holidays`.
    type_aliases : mapping of str to str, optional
        GPU types that count as another, such as slices as their card; ``"unknown"`` are jobs and pods without a type.
    options : mapping of str to Purchase, optional
        Purchases that are compared, by name: `purchases`.
    forecasters : sequence, default=()
        Further candidates for the forecast of the total, also of other libraries; see `adapt`.
    step_costs : CostStepTime, optional
        Predicts step times of the networks that the log's jobs name: programmes with a `job` are corrected by what runs
        of their user took, and jobs that move to another GPU type by the ratio of their networks.
    progress : callable, optional
        Called with the name of each step as it begins; by default the logger ``gpudemand``.

    Raises
    ------
    InputError
        If the table or a parameter is not valid.

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> jobs, _ = make_cluster(n_users=12, n_days=60, random_state=0)
    >>> study = Study(jobs, installed=96, horizon=7, wait="1h")
    >>> study.plan[["basis", "installed"]].values.tolist()
    [['mean', 96.0], ['wait', 96.0]]
    >>> study.forecast["unique_id"].unique().tolist()[:2]
    ['total', 'peak']
    """

    def __init__(
        self,
        jobs: pd.DataFrame,
        *,
        installed: Installed = None,
        lead_time: LeadTime = "90D",
        wait: str | None = None,
        wait_share: float = 0.9,
        availability: float = 1.0,
        horizon: int | None = None,
        by: str = "user",
        freq: str = "D",
        target_utilization: float = 0.85,
        service_level: float = 0.95,
        tz: str | None = None,
        until: object = None,
        cluster: Clusters = None,
        prices: Prices = None,
        programmes: Sequence[PlannedWork] = (),
        events: pd.DataFrame | None = None,
        holidays: str | None = None,
        type_aliases: Aliases = None,
        options: Mapping[str, Purchase | Mapping[str, Any]] | None = None,
        forecasters: Sequence[object] = (),
        step_costs: NetworkCosts | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        settings = Settings(
            cluster=cluster,
            by=by,
            installed=installed,
            service_level=service_level,
            target_utilization=target_utilization,
            lead_time=lead_time,
            wait=wait,
            wait_share=wait_share,
            availability=availability,
            horizon=cast("int", horizon),
            freq=freq,
            prices=prices,
            until=until,
            tz=cast("str", tz),
            holidays=holidays,
            events=events,
            type_aliases=type_aliases,
        )
        self._planned = check_planned(programmes)
        self._forecasters = [adapt(model) for model in check_list("forecasters", forecasters, "models", empty=True)]
        self._options = check_options(options) if options else {}
        self.step_costs, self._skipped = step_costs, Skipped()
        self.begin = progress or LOGGER.info
        #: Usage of the log: where ``until`` is before its end, of the log as it stood then.
        self.source = source_of(select_clusters(as_pandas(jobs, "jobs"), cluster), settings, tz)
        check_pools(self.source, self._planned)
        settings = self.source.settings
        self.settings = replace(settings, horizon=settings.horizon or default_horizon(self.source))

    def attempt(self, stage: str, compute: Callable[[], T]) -> T | None:
        """Compute a stage; None where the log does not allow it, and the reason is in `skipped`."""
        with telling(f"Computing {stage.replace('_', ' ')}"):
            return self._skipped.attempt(stage, compute)

    @property
    def skipped(self) -> Skipped:
        """Why stages that were asked for are missing, by stage."""
        return Skipped(self._skipped)

    @cached_property
    def usage_tables(self) -> UsageTables:
        """Series of GPUs held and wanted, and tables of the log."""
        self.begin("Computing usage")
        return compute_usage_tables(self.source, self._skipped)

    @result
    def usage(self) -> pd.DataFrame:
        """GPUs by bin: ``ds``, means ``held`` and ``wanted`` (where the log tells submissions), and ``peak`` held."""
        usage = self.usage_tables
        series = {name: rows.set_index("ds")["y"] for name, rows in usage.total.groupby("unique_id")}
        table = {"held": usage.held.set_index("ds")["y"], "wanted": series.pop(MEAN), **series}
        if self.source.demand == "gpus":
            del table["wanted"]
        return pd.DataFrame(table).reset_index()

    @cached_property
    def wait_tables(self) -> Waits:
        """Waits as they were."""
        return compute_waits(self.source, self.usage_tables, self.settings)

    @result
    def waits(self) -> pd.DataFrame:
        """Waits by the size of a job: the first row ``all``, then a row per number of GPUs."""
        return self.wait_tables.table

    @cached_property
    def idle_tables(self) -> dict[str, pd.DataFrame]:
        """GPU-hours held at little utilization, by key."""
        return idle_hours(self.source)

    @result
    def idle(self) -> pd.DataFrame:
        """GPU-hours held at under 5, 20 and 50 % utilization; see `idle_table`.

        Returns
        -------
        DataFrame
            ``by`` (``user``, ``group``, ``partition`` or ``namespace``) and the columns of `idle_table`.
        """
        tables = {by: table.rename(columns={by: "unique_id"}) for by, table in self.idle_tables.items()}
        return pd.concat(tables, names=["by"]).reset_index(level=0).reset_index(drop=True)

    @result
    def drivers(self) -> pd.DataFrame:
        """Change of demand since the period before, by users who came, left, grew, shrank, and by GPU type."""
        return explain_change(self.source)

    @cached_property
    def user_segments(self) -> UserSegments:
        """Segments of users by the shape of their usage."""
        self.begin("Segmenting users")
        return segment_users(self.source)

    @result
    def segments(self) -> pd.DataFrame:
        """Segments of users, the largest first; see `segment_profiles`."""
        return self.user_segments.profiles

    @result
    def run_time_ratios(self) -> pd.DataFrame:
        """Observed over predicted run times of the log's training jobs, by user; see `run_time_ratios`."""
        return log_ratios(self.source, self.step_costs)

    @cached_property
    def programmes(self) -> tuple[PlannedWork, ...]:
        """Work to come, times of trainings corrected by what the log shows of their users."""
        if not any(isinstance(work, Programme) and work.job is not None for work in self._planned):
            return self._planned
        ratios = self.attempt("run_time_ratios", lambda: self.run_time_ratios)
        return self._planned if ratios is None else calibrated(self._planned, ratios)

    @cached_property
    def selected(self) -> SelectedForecast:
        """Selected model and its backtest; the forecast is of the work in the log."""
        total, settings = self.usage_tables.total, self.settings
        candidates = Candidates(self._forecasters, known_events(total, settings))
        self.begin("Backtesting forecasters")
        return select_and_forecast(total, settings.horizon, settings.service_level, candidates)

    @result
    def trust(self) -> pd.DataFrame:
        """Errors and coverage of each method on windows that the selection did not see."""
        return self.selected.scores

    @result
    def events(self) -> pd.DataFrame:
        """Events that are known, and what they change; see `events` of this class.

        Returns
        -------
        DataFrame
            ``event``, ``bins_past`` and ``bins_ahead``, ``first_ahead``, ``effect`` (relative change of demand), and
            ``effect_from``: ``"stated"``, ``"history"``, or ``"none shown"`` beyond chance.
        """
        events = self.selected.candidates.events
        if events is None:
            raise InputError("no events were stated, and no country of public holidays.")
        return event_table(self.usage_tables.total, events, self.settings.horizon)

    @cached_property
    def demand(self) -> SelectedForecast:
        """`selected`, its forecast with the programmes."""
        return self.selected.with_programmes(self.programmes)

    @cached_property
    def parts(self) -> Parts:
        """Forecasts of segments, groups or GPU types that sum to the total, and of each programme."""
        segments, selected = self.attempt("segments", lambda: self.user_segments), self.selected
        self.begin("Forecasting by part and GPU type")
        parts = forecast_parts(self.source, segments, selected, self.settings)
        return with_programmes(parts, self.programmes)

    @result
    def user_forecast(self) -> pd.DataFrame:
        """Forecasts of every user by `ClusterwiseForecaster`, which starts from `segments`; no order rests on them.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``, ``ClusterwiseForecaster`` with its bounds, ``segment`` and ``cluster`` (one for all
            where clusters are no better than one regression).
        """
        return forecast_users(self.source, self.user_segments, self.settings)

    @result
    def forecast(self) -> pd.DataFrame:
        """Mean GPUs of the total, which is the sum of its parts, and the peak held.

        Returns
        -------
        DataFrame
            ``unique_id`` (``total``, ``peak``, and ``total/`` with the name of a part), ``ds``, and the columns
            ``Study``, ``Study-lo-80``, ``Study-hi-80``, ...
        """
        demand, parts = self.demand, self.attempt("parts", lambda: self.parts)
        frames = [_renamed(demand.forecast.replace({"unique_id": {MEAN: "total"}}), demand.model)]
        if parts is not None:
            of_parts = parts.forecast.assign(unique_id="total/" + parts.forecast["unique_id"].astype(str))
            frames.append(_renamed(of_parts, parts.model))
        table = pd.concat(frames, ignore_index=True)
        table.attrs = dict(demand.forecast.attrs)
        return table

    @cached_property
    def need(self) -> Need:
        """GPUs that windows of four weeks need, past and to come."""
        self.begin("Simulating queues" if self.settings.wait else "Measuring peaks")
        return needed_gpus(self.source, self.programmes, self.settings)

    @cached_property
    def queue_plan(self) -> WaitPlan:
        """GPUs so that jobs start in time."""
        installed = installed_now(self.settings, self.usage_tables.max_held, self.demand.forecast)
        return plan_for_waits(self.need, installed, self.settings)

    @result
    def wait_plan(self) -> pd.DataFrame:
        """Waits by number of GPUs; see `WaitPlan.to_frame`."""
        return self.queue_plan.to_frame()

    @cached_property
    def requirement(self) -> Requirement:
        """Plans for the mean, and for the peak or for waits."""
        forecast = with_need(self.demand, self.need, self.settings.freq)
        self.begin("Planning capacity")
        hourly = hourly_demand(self.source, self.settings)
        return plan_requirement(forecast, self.usage_tables.max_held, self.settings, hourly)

    @result
    def plan(self) -> pd.DataFrame:
        """GPUs required against GPUs installed: a row for the mean, and one for the peak or for waits.

        Where each cluster is a pool of its own, a row for all as one pool, and one for each cluster.
        """
        return self.cluster_plans.table if self.settings.pool == "cluster" else self.requirement.summary

    @cached_property
    def gpu_type_plans(self) -> GpuTypePlans:
        """Plans by GPU type."""
        return self._plan_pools("gpu_type")

    @cached_property
    def cluster_plans(self) -> GpuTypePlans:
        """Plans by cluster, where each is a pool of its own."""
        if self.settings.pool != "cluster":
            raise InputError('all clusters are planned as one pool; cluster="each" makes each of them one of its own.')
        return self._plan_pools("cluster")

    @property
    def _pool_plans(self) -> GpuTypePlans | None:
        """Plans by what is a pool, a GPU type or a cluster; None where the log names fewer than two."""
        stage = f"{self.settings.pool}_plans"
        found: GpuTypePlans | None = self.attempt(stage, lambda: getattr(self, stage))
        return found

    def _plan_pools(self, by: str) -> GpuTypePlans:
        parts, total = self.attempt("parts", lambda: self.parts), (self.requirement, self.need)
        return plan_gpu_types(self.source, self.selected, parts, *total, self.settings, by, self.programmes)

    @result
    def periods(self) -> pd.DataFrame:
        """GPUs required from the arrival of an order on, every four weeks; see `requirement_by_period`."""
        need = self.need
        begins = pd.Series([need.log_end + need.lead_time + number * WINDOW for number in range(4)])
        there = [self.requirement.fewest_installed(begin, begin + WINDOW) for begin in begins]
        return requirement_by_period(need, there, begins, self.settings.service_level)

    @result
    def programme_parts(self) -> pd.DataFrame:
        """What each programme takes, and its part of the GPUs required; see `programme_table`."""
        return programme_table(self.need, self.settings.service_level)

    @result
    def order_range(self) -> pd.DataFrame:
        """Range of the GPUs needed if costs, demand or bursts were known, and their shares; see `range_by_source`."""
        return range_by_source(self.need)

    @result
    def requirement_steps(self) -> pd.DataFrame:
        """From what the last weeks needed to the GPUs required: ``step``, ``gpus``."""
        return requirement_steps(self.need, self.settings.service_level)

    @result
    def order_backtest(self) -> pd.DataFrame:
        """Plans at earlier times with the same lead: ``origin``, ``plan``, ``need``, and what a ``rule`` would say."""
        return self.need.backtest(self.settings.service_level)

    @result
    def targets(self) -> pd.DataFrame:
        """GPUs required for other targets for waits, at the service level; see `other_targets`."""
        return other_targets(self.target_grid, self.settings.service_level)

    @result
    def target_grid(self) -> pd.DataFrame:
        """GPUs required for other targets for waits and other probabilities, a row each combination."""
        return target_grid(self.target_needs, self.settings.service_level)

    @cached_property
    def target_needs(self) -> dict[tuple[str, float], Need]:
        """GPUs needed for other targets, and for the stated one; see `gpudemand.study.waits.target_needs`."""
        return target_needs(self.need, self.source, self.settings)

    @result
    def demand_by_period(self) -> pd.DataFrame:
        """Mean GPUs of each user, group and GPU type in the last days and each month, the largest first."""
        return demand_by_period(self.source)

    @result
    def orders(self) -> pd.DataFrame:
        """What is idle, short, waited for and paid with an order now, later, or none.

        Where GPUs and prices are given by type, those installed cost what their type does; those ordered, which may be
        of any, and unmet demand cost the means of the prices, weighted by the GPU-hours used of each type.
        """
        waits = self.attempt("wait_plan", lambda: self.queue_plan)
        end = pd.Timestamp(self.usage_tables.tables["log"]["last"].iloc[0])
        settings, mean = self.settings, self._at_mean_prices
        cost = installed_cost(settings.installed, settings.prices, cast("PricePair | None", mean.prices))
        return compare_orders(self.requirement, self.need, waits, end, mean, cost)

    @result
    def purchase_mix(self) -> pd.DataFrame:
        """Cheapest mix of reserved and on-demand GPUs, by type where prices are."""
        if isinstance(self.settings.prices, Mapping) and (pools := self._pool_plans) is not None:
            return costs_by_pool(pools.plans, self.settings)
        return purchase_costs(self.requirement, self._at_mean_prices)

    @property
    def compares_purchases(self) -> bool:
        """Whether purchases were stated to compare."""
        return bool(self._options)

    @cached_property
    def purchase_comparison(self) -> PurchaseComparison:
        """The purchases of `options` side by side."""
        if not self._options:
            raise InputError("no purchases were stated to compare; give options (in the shell [[options]] in a plan).")
        self.begin("Comparing purchases")
        return PurchaseComparison(self, self._options)

    @result
    def purchases(self) -> pd.DataFrame:
        """GPUs, waits, energy and cost of each of `options`; see `compare_purchases`."""
        return self.purchase_comparison.table

    @property
    def _at_mean_prices(self) -> Settings:
        pool, prices = self.settings.pool, self.settings.prices
        return replace(self.settings, prices=mean_prices(prices, lambda: self.source.gpu_hours(pool)))

    @cached_property
    def scenario_plans(self) -> Scenarios:
        """Requirements if the workload changes."""
        segments, base = self.attempt("segments", lambda: self.user_segments), self._base_case
        self.begin("Planning scenarios")
        return plan_scenarios(base, segments, self.step_costs)

    @cached_property
    def _base_case(self) -> BaseCase:
        # Where GPUs are given by name, each pool stands for itself.
        apart = self._pool_plans if isinstance(self.settings.installed, Mapping) else None
        pools = None if apart is None else apart.pools
        return BaseCase(self.source, self.requirement, self.need, self.selected, self.settings, pools)

    @result
    def scenarios(self) -> pd.DataFrame:
        """GPUs required with more growth, fewer or more users."""
        return self.scenario_plans.table

    def what_if(self, scenarios: Mapping[str, Scenario], *, costs: JobCosts | None = None) -> pd.DataFrame:
        """GPUs required if the work of the log changes, for the target that the order is for; programmes stay.

        Changes act on the work of the last 28 days, whenever it was submitted. The queue of what stays as it is tells
        what that needs, and the rest of the need grows with the work that changes; of usage without jobs, all of it.
        A `StepEvent` is queued as a `Programme` is, on the type that its ``series`` names. Where GPUs installed are
        given by type or cluster, ``to_order`` is what these need each for itself, if that is more than all as one pool
        need, or due earlier, and a job that moves to another type is wanted there; the other columns are those of all
        as one pool. Orders that follow as GPUs leave later count in ``to_order``, which scenarios of more work raise.

        Parameters
        ----------
        scenarios : mapping of str to scenario
            Name -> a change, such as `gpudemand.planning.Growth`, or several.
        costs : object, optional
            As for `WhatIf`.

        Returns
        -------
        DataFrame
            The base case, then a row a scenario: ``scenario``, ``required``, ``change_from_base``, ``shortfall``,
            ``to_order``, ``first_crossing``, ``order_by``, ``share_over``.

        Examples
        --------
        >>> from gpudemand.datasets import make_cluster
        >>> from gpudemand.planning import Growth
        >>> jobs, _ = make_cluster(n_users=5, n_days=40, random_state=0)
        >>> found = Study(jobs, lead_time="7D").what_if({"doubled": Growth(2.0)}).set_index("scenario")["required"]
        >>> print(round(found["doubled"] / found["base case"], 1))
        2.0
        """
        return shown_as_html(compare_scenarios(self._base_case, check_scenarios(scenarios), costs))

    @result
    def headline(self) -> dict[str, object]:
        """The answer as numbers, texts and None."""
        risk = risk_table(self.requirement)
        log = self.usage_tables.tables["log"]
        numbers = headline(self.requirement, self.need, self.demand, log, self.settings)
        waits = self.attempt("waits", lambda: self.wait_tables)
        beside = float("nan") if waits is None else waits.beside_idle
        numbers |= {"pool": NOUNS[self.settings.pool], "waits_beside_idle": None if math.isnan(beside) else beside}
        shares = recent_shares_in_time(self.need, self.source, self.settings)
        numbers |= dict(zip(("share_in_time_recorded", "share_in_time_simulated"), shares, strict=True))
        numbers |= risk_numbers(self.requirement, self.demand, risk) | gpu_type_numbers(self._pool_plans)
        return numbers | order_of_pools(numbers, apart=isinstance(self.settings.installed, Mapping))

    def report(
        self, out_dir: str | Path, *, previous: str | Path | None = None, style: str | Path | None = None
    ) -> Path:
        """Write the stages as a page, figures and tables, and return the path of the page; see `build_report`."""
        from gpudemand.report.build import write_report

        return write_report(self, out_dir, previous, style)

    def __repr__(self) -> str:
        answer, when = self._sentences()
        return f"Study: {answer}\n{when}\n{readable(self.plan).to_string(index=False)}"

    def _repr_html_(self) -> str:
        answer, when = map(html.escape, self._sentences())
        return f"<p><b>{answer}</b> {when}</p>{html_table(self.plan)}"

    def _sentences(self) -> tuple[str, str]:
        from gpudemand.report.text import dates, requirement

        return requirement(self.headline), dates(self.headline)


def _renamed(forecast: pd.DataFrame, model: str) -> pd.DataFrame:
    return forecast.rename(columns=lambda name: FORECAST + name[len(model) :] if name.startswith(model) else name)
