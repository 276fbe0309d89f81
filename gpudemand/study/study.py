"""`Study`: from a job log to the number of GPUs."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import pandas as pd

from gpudemand._files import check_replaceable
from gpudemand._validation import as_pandas, check_number
from gpudemand.forecast.forecaster import as_forecaster
from gpudemand.planning.programmes import PlannedWork, check_planned
from gpudemand.planning.scenarios import NetworkCosts
from gpudemand.report.build import write_report
from gpudemand.report.history import MANIFEST
from gpudemand.report.text import dates, requirement
from gpudemand.study.chain import Chain
from gpudemand.study.settings import EACH, Installed, LeadTime, Prices, Settings, cluster_names, select_clusters
from gpudemand.study.source import source_of
from gpudemand.study.usage_tables import MEAN

#: Name of the columns of `Study.forecast`.
FORECAST = "Study"


class Study:
    """From a job log to the number of GPUs, when to order them, and how far to trust that.

    Stages are tables, computed when they are first asked for, and kept. One that a log does not allow raises an
    `InputError` that says why. Planned for are the mean of the GPUs wanted, at the target utilization, and the peak of
    those held, whichever needs more; or the target for waits alone, where there is one.

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
        where they were pulled, or else the maximum of the GPUs held at once.
    lead_time : str or mapping of str to str, default="90D"
        From the order of GPUs to their first use, or by ``gpu_type``; for all types together the longest counts.
    wait : str, optional
        Time within which jobs are to start, such as ``"1h"``. GPUs are then planned for waits, by simulating the queue;
        by default for the peak of the GPUs held at once.
    wait_share : float in (0, 1), default=0.9
        Share of the jobs that are to start within `wait`.
    horizon : int, optional
        Bins to forecast; by default the lead time and four weeks, or what the log bears: it must be twice as long, and
        four weeks.
    by : {"user", "group", "cluster", "gpu_type", "partition", "qos", "total"}, default="user"
        Key that usage is split by; of usage without jobs, what its series are.
    freq : str, default="D"
        Width of a bin of the forecast: ``"h"``, ``"D"``, ``"W-MON"``, ...
    target_utilization : float, default=0.85
        Share of the GPUs that the mean demand of a bin may take, in (0, 1].
    service_level : float, default=0.95
        Probability with which demand does not exceed the GPUs required, above 0.5, at most 0.999.
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
    forecasters : sequence, default=()
        Further candidates for the forecast of the total, also of other libraries; see `ExternalForecaster`.
    step_costs : CostStepTime, optional
        Predicts step times of the networks that the log's jobs name: programmes with a `job` are corrected by what runs
        of their user took, and jobs that move to another GPU type by the ratio of their networks.
    progress : callable, optional
        Called with the name of each step as it begins.

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
        horizon: int | None = None,
        by: str = "user",
        freq: str = "D",
        target_utilization: float = 0.85,
        service_level: float = 0.95,
        tz: str | None = None,
        until: object = None,
        cluster: str | Sequence[str] | None = None,
        prices: Prices = None,
        programmes: Sequence[PlannedWork] = (),
        events: pd.DataFrame | None = None,
        holidays: str | None = None,
        type_aliases: Mapping[str, str] | None = None,
        forecasters: Sequence[object] = (),
        step_costs: NetworkCosts | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        targets = (installed, target_utilization, service_level, lead_time, wait, wait_share)
        bins = 0 if horizon is None else int(check_number("horizon", horizon, 1, 100_000, integer=True))
        pools = ("cluster" if cluster == EACH else "gpu_type", None if cluster is None else cluster_names(cluster))
        known = (*pools, holidays, events, type_aliases)
        settings = Settings(by, freq, bins, *targets, tz or "UTC", until, prices, "given", *known)
        given = select_clusters(as_pandas(jobs, "jobs"), cluster)
        models = [as_forecaster(model) for model in forecasters]
        self._chain = Chain(source_of(given, settings, tz), check_planned(programmes), progress, models, step_costs)

    @property
    def usage(self) -> pd.DataFrame:
        """GPUs by bin: ``ds``, means ``held`` and ``wanted`` (where the log tells submissions), and ``peak`` held."""
        usage = self._chain.usage
        series = {name: rows.set_index("ds")["y"] for name, rows in usage.total.groupby("unique_id")}
        table = {"held": usage.held.set_index("ds")["y"], "wanted": series.pop(MEAN), **series}
        if self._chain.source.demand == "gpus":
            del table["wanted"]
        return pd.DataFrame(table).reset_index()

    def usage_by(self, by: str) -> pd.DataFrame:
        """Mean GPUs wanted (or held) per bin, by user, group, cluster, GPU type or segment.

        Parameters
        ----------
        by : {"user", "group", "cluster", "gpu_type", "partition", "qos", "segment"}

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``, ``y``.
        """
        source = self._chain.source
        key = self._chain.segments.segment_of if by == "segment" else by
        return source.usage(key, source.settings.freq, source.demand)

    @property
    def waits(self) -> pd.DataFrame:
        """Waits by the size of a job: the first row ``all``, then a row per number of GPUs."""
        return self._chain.waits.table.copy()

    @property
    def idle(self) -> pd.DataFrame:
        """GPU-hours held at under 5, 20 and 50 % utilization; see `idle_table`.

        Returns
        -------
        DataFrame
            ``by`` (``user``, ``group``, ``partition`` or ``namespace``) and the columns of `idle_table`.
        """
        tables = {by: table.rename(columns={by: "unique_id"}) for by, table in self._chain.idle.items()}
        return pd.concat(tables, names=["by"]).reset_index(level=0).reset_index(drop=True)

    @property
    def segments(self) -> pd.DataFrame:
        """Segments of users, the largest first; see `segment_profiles`."""
        return self._chain.segments.profiles.copy()

    @property
    def forecast(self) -> pd.DataFrame:
        """Mean GPUs of the total, which is the sum of its parts, and the peak held.

        Returns
        -------
        DataFrame
            ``unique_id`` (``total``, ``peak``, and ``total/`` with the name of a part), ``ds``, and the columns
            ``Study``, ``Study-lo-80``, ``Study-hi-80``, ...
        """
        chain, parts = self._chain, self._chain.skipped.attempt("parts", lambda: self._chain.parts)
        frames = [_renamed(chain.demand.forecast.replace({"unique_id": {MEAN: "total"}}), chain.demand.model)]
        if parts is not None:
            of_parts = parts.forecast.assign(unique_id="total/" + parts.forecast["unique_id"].astype(str))
            frames.append(_renamed(of_parts, parts.model))
        table = pd.concat(frames, ignore_index=True)
        table.attrs = dict(chain.demand.forecast.attrs)
        return table

    @property
    def events(self) -> pd.DataFrame:
        """Events that are known, and what they change; see `events` of this class.

        Returns
        -------
        DataFrame
            ``event``, ``bins_past`` and ``bins_ahead``, ``first_ahead``, ``effect`` (relative change of demand), and
            ``effect_from``: ``"stated"``, ``"history"``, or ``"none shown"`` beyond chance.
        """
        return self._chain.events.copy()

    @property
    def plan(self) -> pd.DataFrame:
        """GPUs required against GPUs installed: a row for the mean, and one for the peak or for waits.

        Where each cluster is a pool of its own, a row for all as one pool, and one for each cluster.
        """
        chain = self._chain
        plan = chain.cluster_plans.table if chain.settings.pool == "cluster" else chain.requirement.summary
        return plan.copy()

    @property
    def wait_plan(self) -> pd.DataFrame:
        """Waits by number of GPUs; see `WaitPlan.to_frame`."""
        return self._chain.wait_plan.to_frame()

    @property
    def orders(self) -> pd.DataFrame:
        """What is idle, short and waited for with an order now, later, or none."""
        return self._chain.orders.copy()

    @property
    def drivers(self) -> pd.DataFrame:
        """Change of demand since the period before, by users who came, left, grew, shrank, and by GPU type."""
        return self._chain.drivers.copy()

    @property
    def scenarios(self) -> pd.DataFrame:
        """GPUs required with more growth, fewer or more users."""
        return self._chain.scenarios.table.copy()

    @property
    def run_time_ratios(self) -> pd.DataFrame:
        """Observed over predicted run times of the log's training jobs, by user; see `run_time_ratios`."""
        return self._chain.run_time_ratios.copy()

    @property
    def trust(self) -> pd.DataFrame:
        """Errors and coverage of each method on windows that the selection did not see."""
        return self._chain.selected.scores.copy()

    @property
    def headline(self) -> dict[str, object]:
        """The answer as numbers, texts and None."""
        return dict(self._chain.numbers)

    @property
    def skipped(self) -> dict[str, str]:
        """Why stages that were asked for are missing, by stage."""
        return dict(self._chain.skipped)

    def report(
        self, out_dir: str | Path, *, previous: str | Path | None = None, style: str | Path | None = None
    ) -> Path:
        """Write the stages as a page, figures and tables; see `build_report`.

        Parameters
        ----------
        out_dir : str or Path
        previous, style : str or Path, optional

        Returns
        -------
        Path
            Of ``index.html``.
        """
        check_replaceable(out_dir, MANIFEST)  # before the minutes of computation
        return write_report(self._chain, out_dir, previous, style)

    def __repr__(self) -> str:
        numbers = self._chain.numbers
        return f"Study: {requirement(numbers)}\n{dates(numbers)}\n{self.plan.to_string(index=False)}"

    def _repr_html_(self) -> str:
        answer, when = (html.escape(sentence(self._chain.numbers)) for sentence in (requirement, dates))
        return f"<p><b>{answer}</b> {when}</p>{self.plan.to_html(index=False)}"


def _renamed(forecast: pd.DataFrame, model: str) -> pd.DataFrame:
    return forecast.rename(columns=lambda name: FORECAST + name[len(model) :] if name.startswith(model) else name)


class StudyOptions(TypedDict, total=False):
    """Keyword arguments of `Study`."""

    installed: Installed
    lead_time: LeadTime
    wait: str | None
    wait_share: float
    horizon: int | None
    by: str
    freq: str
    target_utilization: float
    service_level: float
    tz: str | None
    until: object
    cluster: str | Sequence[str] | None
    prices: Prices
    programmes: Sequence[PlannedWork]
    events: pd.DataFrame | None
    holidays: str | None
    type_aliases: Mapping[str, str] | None
    forecasters: Sequence[object]
    step_costs: NetworkCosts | None
    progress: Callable[[str], None] | None


def build_report(
    jobs: pd.DataFrame,
    out_dir: str | Path,
    *,
    previous: str | Path | None = None,
    style: str | Path | None = None,
    **options: Unpack[StudyOptions],
) -> Path:
    r"""Write a report on a job log: usage, waits, demand forecast, capacity plan, orders, and their backtests.

    Parameters
    ----------
    jobs : DataFrame
        Job table, as `read_jobs` returns it, or any with ``user``, ``start``, ``end`` and ``gpus``.
    out_dir : str or Path
        Folder of the report; made if absent. Gets ``index.html`` (one self-contained page), ``figures/*.svg`` and
        ``*.png``, ``tables/*.csv`` and ``*.parquet``, ``headline.json``, and ``report.json``, which holds the numbers
        and lists all files. An older report in it is replaced as a whole: interrupted at any time, the old one or the
        new one is there. What later reports need of it is kept in ``history``.
    previous : str or Path, optional
        Folder of an earlier report: the page says what has changed since, and how its forecast did. By default, of
        those that `out_dir` holds, the newest whose log ends at least four weeks earlier, or else the oldest.
    style : str or Path, optional
        File of CSS whose rules come after those of the page, such as ``:root { --blue: #005a3c; }``.
    **options
        Parameters of `Study`, such as ``installed``, ``lead_time`` and ``wait``.

    Returns
    -------
    Path
        Of ``index.html``.

    Raises
    ------
    InputError
        If the table or a parameter is not valid, the log is too short for the horizon, or the folder holds anything
        but a report that was written by this function.
    OSError
        If the folder cannot be written.

    Notes
    -----
    Sections that the log does not support state the reason.

    Names come from users. Control characters in them are written as ``\x07``; in CSV files, text that a spreadsheet
    would take for a formula begins with an apostrophe (``'=1+1``). Parquet files have the names as they are otherwise.

    Examples
    --------
    >>> build_report(jobs, "report", wait="1h")  # doctest: +SKIP
    PosixPath('report/index.html')
    """
    check_replaceable(out_dir, MANIFEST)
    return Study(jobs, **options).report(out_dir, previous=previous, style=style)
