"""Run times of training jobs from predicted step times, and corrections from the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm, t
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gpudemand._array import STRING, FloatArray
from gpudemand._validation import InputError, as_numbers, as_pandas, check_columns, check_number, nearest, told
from gpudemand.datasets.devices import device
from gpudemand.jobs.table import as_of, check_jobs, seconds_since, start_times, training_steps
from gpudemand.jobs.times import parse_timestamp

#: Prior weight of a completion ratio relative to that of a step-time ratio: early ends vary more.
_COMPLETION_PRIOR = 10
#: Settings that a cost model is calibrated with.
_MOST_SETTINGS = 100
#: Seconds of a job before its first step, by default.
STARTUP_S = 60.0
#: Jobs -> seconds of one step, NaN where unknown.
StepTime = Callable[[pd.DataFrame], FloatArray]


class CostPredictor(Protocol):
    """Predictor of the costs of training jobs, such as `CostModel`; planning needs no more of it."""

    def predict(self, jobs: Any, *, training_script: bool = False) -> pd.DataFrame:
        """``step_time_s`` and ``memory_gib`` with their intervals, a row a job."""

    def fits(self, job: Any) -> float:
        """Probability that the memory of a device suffices."""

    def calibrate(self, jobs: Any, step_time_s: Any) -> Any:
        """Calibrate with measured jobs."""

    def on_one_host(self) -> CostPredictor:
        """The same with one host for all GPUs, by which these compare."""


class CostStepTime:
    """Step time of the jobs of a log by a `CostModel`, given the graphs of the networks that the log names.

    GPU types compare on one host (`CostModel.on_one_host`): what the host bounds is not faster on a faster GPU.

    Parameters
    ----------
    model : CostModel
    networks : mapping of str to tuple
        Name in the column ``network`` -> arguments of `TrainingJob`: the model, the shape of a sample, and optionally a
        dict of others (``optimizer``, ``layout`` ...).

    Examples
    --------
    >>> from gpudemand.cost import CostModel, networks
    >>> shape = (3, 32, 32)
    >>> steps = CostStepTime(CostModel.load(), {"resnet18": (networks.build("resnet18", input_shape=shape), shape)})
    >>> jobs = pd.DataFrame({"network": ["resnet18"], "batch_size": [16], "gpus": [1.0], "gpu_type": ["AMD EPYC"]})
    >>> bool(0 < steps(jobs)[0] < 10)
    True
    """

    def __init__(self, model: CostPredictor, networks: Mapping[str, tuple[Any, ...]]) -> None:
        self.model = model
        self.networks = networks
        self._cache: dict[tuple[Any, ...], tuple[float, float, float]] = {}

    def __call__(self, jobs: pd.DataFrame) -> FloatArray:
        """Seconds of one step, shape (n_jobs,); each distinct setting is predicted once."""
        return self.costs(jobs)["step_time_s"].to_numpy(dtype=float)

    def knows(self, jobs: pd.DataFrame) -> NDArray[np.bool_]:
        """Whether each job names a network of `networks`, a batch size and a known GPU type, shape (n_jobs,)."""
        jobs = as_pandas(jobs, "jobs")
        if not {"network", "batch_size", "gpus", "gpu_type"} <= set(jobs.columns):
            return np.zeros(len(jobs), dtype=bool)
        types = [name for name in jobs["gpu_type"].dropna().unique() if _is_device(str(name))]
        known = jobs["network"].isin(list(self.networks)) & jobs["gpu_type"].isin(types)
        return (known & (jobs["batch_size"] > 0) & (jobs["gpus"] > 0)).fillna(False).to_numpy(dtype=bool)

    def costs(self, jobs: pd.DataFrame) -> pd.DataFrame:
        """Step time and memory of the jobs of a log.

        Returns
        -------
        DataFrame
            Index of `jobs`; ``step_time_s``, ``memory_gib``, and ``fits``, the probability that memory suffices.

        Raises
        ------
        InputError
            For an unknown network, and for arguments that `TrainingJob` rejects.
        """
        jobs = check_columns(jobs, ("network", "batch_size", "gpus", "gpu_type"), "jobs")
        distinct, code = _distinct_settings(jobs)
        rows = [tuple(row) for row in distinct.itertuples(index=False)]
        new = [row for row in rows if row not in self._cache]
        if new:
            self._predict(new, [self._training_job(row) for row in distinct[[row in new for row in rows]].itertuples()])
        table = pd.DataFrame([self._cache[row] for row in rows], columns=["step_time_s", "memory_gib", "fits"])
        return table.iloc[code].set_axis(jobs.index)

    def calibrate(self, jobs: pd.DataFrame, startup_s: float = STARTUP_S) -> CostStepTime:
        """Calibrate the model, in place, with the steps of completed jobs of known networks.

        Of a setting (a network, batch and precision on a number of GPUs of a type) counts the median of its jobs; of
        more than a hundred settings, those with most jobs.

        Parameters
        ----------
        jobs : DataFrame
            As for `costs_against_log`.
        startup_s : float, default=60
            Seconds before the first step.
        """
        jobs = as_pandas(jobs, "jobs")
        done = _completed(jobs[self.knows(jobs)], self, startup_s)
        distinct, code = _distinct_settings(done)
        step = (done["taken_s"] / training_steps(done)).groupby(code).median()
        most = pd.Series(code).value_counts().index[:_MOST_SETTINGS]
        listed = [self._training_job(row) for row in distinct.iloc[most].itertuples()]
        self.model.calibrate(listed, step[most].to_numpy(dtype=float))
        self._cache.clear()
        return self

    def _predict(self, settings: list[tuple[Any, ...]], jobs: list[Any]) -> None:
        model = self.model.on_one_host()
        costs = model.predict(jobs)
        for setting, job, step, memory in zip(settings, jobs, costs["step_time_s"], costs["memory_gib"], strict=True):
            self._cache[setting] = (float(step), float(memory), model.fits(job))

    def _training_job(self, row: Any) -> Any:
        # Only who gives networks needs the code of costs.
        from gpudemand.cost.job import TrainingJob

        if row.network not in self.networks:
            raise InputError(
                f"networks says nothing about {row.network!r}.{nearest(str(row.network), self.networks)} "
                "It needs the model and the input shape of each network in the log."
            )
        net, shape, *others = self.networks[row.network]
        return TrainingJob(
            net,
            shape,
            batch_size=int(row.batch_size),
            precision=str(row.precision),
            device=str(row.gpu_type),
            n_gpus=max(int(row.gpus), 1),
            **(others[0] if others else {}),
        )


def _is_device(name: str) -> bool:
    try:
        device(name)
    except InputError:
        return False
    return True


def _distinct_settings(jobs: pd.DataFrame) -> tuple[pd.DataFrame, Any]:
    """Distinct settings of jobs, and the index of each job's."""
    settings = jobs[["network", "batch_size", "gpus", "gpu_type"]].copy()
    settings["precision"] = jobs["precision"] if "precision" in jobs.columns else "fp32"
    code = settings.groupby(list(settings.columns), sort=False, dropna=False).ngroup().to_numpy()
    return settings.drop_duplicates(), code


class TrainingRunTime(BaseEstimator):
    """Run time of training jobs from their step time, with fitted ratios of observed to predicted.

    The run time of a job that completes is ``startup + steps * step time * ratio of its setting * ratio of its user``,
    where a setting is a network on a GPU type in a precision. Ratios are medians over completed jobs, first by setting,
    then of the residuals by user, both shrunk towards the overall ratio. The mean run time is smaller by the completion
    ratio, the share of that time that jobs use which may fail, be cancelled or time out.

    Parameters
    ----------
    step_time : callable
        Jobs -> seconds of a step: a `CostStepTime`, or any function of the job table.
    startup_s : float, default=60
        Seconds before the first step.
    prior_jobs : float, default=3
        Prior weight of the overall ratio, in jobs.

    Attributes
    ----------
    overall_ratio_, overall_completion_ratio_ : float
        For unseen users and settings: observed over predicted run time of completed jobs; share of that time used by
        all ended jobs.
    setting_ratio_, user_ratio_ : Series
        Further factors by setting and by user.
    completion_ratio_ : Series
        Completion ratio by user.

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> from gpudemand.datasets.simulate import true_step_time
    >>> jobs, truth = make_cluster(n_users=10, n_days=60, random_state=0)
    >>> model = TrainingRunTime(lambda jobs: 2 * true_step_time(jobs)).fit(jobs)
    >>> completed = jobs[jobs["status"] == "completed"]
    >>> ran = (completed["end"] - completed["start"]).dt.total_seconds()
    >>> bool((ran / model.predict(completed)["run_time_s"]).between(0.8, 1.25).mean() > 0.95)
    True
    """

    def __init__(self, step_time: StepTime, startup_s: float = STARTUP_S, prior_jobs: float = 3.0) -> None:
        self.step_time = step_time
        self.startup_s = startup_s
        self.prior_jobs = prior_jobs

    @told("Fitting {}")
    def fit(self, jobs: pd.DataFrame, until: object = None) -> TrainingRunTime:
        """Fit the ratios to the jobs that have ended.

        Parameters
        ----------
        jobs : DataFrame
            Canonical columns and those of `training_steps` and of `step_time`.
        until : time-like, optional
            Nothing later is used.
        """
        check_number("prior_jobs", self.prior_jobs, 0, open_low=True)
        log = check_jobs(jobs) if until is None else as_of(check_jobs(jobs), parse_timestamp(until))
        ended = log[log["end"].notna() & (log["gpus"] > 0)]
        ran = seconds_since(ended["end"], start_times(ended))
        predicted = self._predicted(ended)
        completed = (ended["status"].fillna("completed") == "completed").to_numpy() & (predicted > 0)
        self._fit_ratios(
            ended[completed], np.log(np.maximum(ran - self.startup_s, 1)[completed] / predicted[completed])
        )
        self._fit_completion_ratio(ended, ran)
        return self

    def predict(self, jobs: pd.DataFrame) -> pd.DataFrame:
        """Predict run times.

        Returns
        -------
        DataFrame
            Index of `jobs`; ``run_time_s`` (if the job completes), ``mean_run_time_s``, ``gpu_hours`` (the mean
            times GPUs).
        """
        check_is_fitted(self, "completion_ratio_")
        jobs = check_columns(jobs, ("gpus",), "jobs")
        full = self._full(jobs)
        mean = full * _lookup(_users(jobs), self.completion_ratio_, self.overall_completion_ratio_)
        gpu_hours = mean / 3600 * as_numbers(jobs["gpus"], "jobs['gpus']")
        return pd.DataFrame({"run_time_s": full, "mean_run_time_s": mean, "gpu_hours": gpu_hours}, index=jobs.index)

    def _predicted(self, jobs: pd.DataFrame) -> FloatArray:
        return training_steps(jobs) * np.asarray(self.step_time(jobs), dtype=float)

    def _full(self, jobs: pd.DataFrame) -> FloatArray:
        ratio = self.overall_ratio_ * _lookup(training_settings(jobs), self.setting_ratio_, 1.0)
        return self.startup_s + self._predicted(jobs) * ratio * _lookup(_users(jobs), self.user_ratio_, 1.0)

    def _fit_ratios(self, jobs: pd.DataFrame, residual: FloatArray) -> None:
        self.overall_ratio_ = float(np.exp(np.median(residual))) if len(residual) else 1.0
        residual = residual - np.log(self.overall_ratio_)
        self.setting_ratio_ = self._shrunk(residual, training_settings(jobs))
        residual = residual - np.log(_lookup(training_settings(jobs), self.setting_ratio_, 1.0))
        self.user_ratio_ = self._shrunk(residual, _users(jobs))

    def _shrunk(self, residual: FloatArray, names: pd.Series) -> pd.Series:
        groups = pd.Series(residual).groupby(names.to_numpy())
        count = groups.size()
        return np.exp(count * groups.median() / (count + self.prior_jobs))

    def _fit_completion_ratio(self, jobs: pd.DataFrame, ran: FloatArray) -> None:
        gpus = jobs["gpus"].to_numpy(dtype=float)
        used = pd.DataFrame({"ran": ran * gpus, "full": self._full(jobs) * gpus}).dropna()
        total = used.sum()
        self.overall_completion_ratio_ = float(total["ran"] / total["full"]) if total["full"] > 0 else 1.0
        groups = used.groupby(_users(jobs).to_numpy()[used.index])
        sums, count = groups.sum(), groups.size()
        prior = _COMPLETION_PRIOR * self.prior_jobs
        own = (sums["ran"] / sums["full"]).fillna(self.overall_completion_ratio_)
        self.completion_ratio_ = (count * own + prior * self.overall_completion_ratio_) / (count + prior)


def _users(jobs: pd.DataFrame) -> pd.Series:
    return _names(jobs, "user")


def training_settings(jobs: pd.DataFrame) -> pd.Series:
    """Setting of each job: its network, GPU type and precision."""
    return _names(jobs, "network").str.cat([_names(jobs, name) for name in ("gpu_type", "precision")], sep=" ")


def _names(jobs: pd.DataFrame, column: str) -> pd.Series:
    names = jobs[column] if column in jobs.columns else pd.Series(None, index=jobs.index, dtype=STRING)
    return names.astype(STRING).fillna("unknown")


def _lookup(names: pd.Series, values: pd.Series, default: float) -> FloatArray:
    return names.astype(object).map(values).fillna(default).to_numpy(dtype=float)


class RandomEffects(NamedTuple):
    """Common mean of the true values of groups, the variance of its error, and the variance of the true values."""

    mean: float
    error: float
    between: float

    def shrunk(self, value: FloatArray, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Posterior means of the groups' true values, and the variances of their errors."""
        weight = self.between / (np.maximum(noise, 1e-9) + self.between)
        return self.mean + weight * (value - self.mean), self.between * (1 - weight) + (1 - weight) ** 2 * self.error


def random_effects(value: FloatArray, noise: FloatArray) -> RandomEffects:
    """Mean and variance of the true values of at least one group.

    The variance is that of DerSimonian and Laird, Controlled Clinical Trials 7, 1986.

    `value`, `noise`: shape (n_groups,); what was seen of each group, and the variance of its error.

    >>> effects = random_effects(np.array([0.0, 1.0, 2.0]), np.full(3, 0.25))
    >>> effects.mean, effects.between
    (1.0, 0.75)
    """
    weight = 1 / np.maximum(noise, 1e-9)
    mean = float(np.average(value, weights=weight))
    scale = weight.sum() - np.square(weight).sum() / weight.sum()
    excess = (weight * np.square(value - mean)).sum() - (value.size - 1)
    between = float(max(excess / scale, 0.0)) if scale > 0 else 0.0
    weight = 1 / (np.maximum(noise, 1e-9) + between)
    return RandomEffects(float(np.average(value, weights=weight)), float(1 / weight.sum()), between)


def pooled_variance(groups: list[pd.api.typing.SeriesGroupBy]) -> float:
    """Pooled variance of logarithms of run times within groups; that of a doubling where no group has two values."""
    squares = sum(float((side.var(ddof=1) * (side.size() - 1)).sum()) for side in groups)
    freedom = sum(float((side.size() - 1).sum()) for side in groups)
    return squares / freedom if freedom else float(np.log(2) ** 2)


#: Name of the row that stands for users without one.
OTHERS = "other users"
#: Two-sided: 90 % intervals.
_TAIL = 0.95


def run_time_ratios(jobs: pd.DataFrame, step_time: StepTime, startup_s: float = STARTUP_S) -> pd.DataFrame:
    """Ratios of observed to predicted run times of completed training jobs, by user.

    Of each user and setting (a network on a GPU type in a precision) counts the median, so that many runs of one
    network, which share the error of its prediction, are not taken for many networks. Ratios of users are shrunk
    towards their mean by their evidence, as in a random-effects meta-analysis of their logarithms.

    Parameters
    ----------
    jobs : DataFrame
        Canonical columns and those of `training_steps` and of `step_time`.
    step_time : callable
        Jobs -> predicted seconds of a step: a `CostStepTime`, or any function of the job table.
    startup_s : float, default=60
        Seconds before the first step.

    Returns
    -------
    DataFrame
        ``user``, ``jobs`` (completed), ``ratio``, ``low``, ``high`` (90 % interval). The first row, ``other users``,
        stands for users without a row, if there are at least three to learn from; its interval is one of prediction
        (Higgins, Thompson and Spiegelhalter, J. R. Stat. Soc. A 172, 2009). Then the users, those with most jobs first.

    Raises
    ------
    InputError
        If a column is missing, or no job of a user completed with a predicted time.

    Notes
    -----
    On settings that are new to their user, in 40 simulated clusters, the RMS log error is .406; .412 with the plain
    ratio of the user, .421 without correction (``make bench-planning ARGS="--data DIR --only ratios"``).

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster, true_step_time
    >>> jobs, truth = make_cluster(n_users=10, n_days=60, random_state=0)
    >>> ratios = run_time_ratios(jobs, true_step_time).set_index("user")
    >>> efficiency = truth.set_index("user")["efficiency"]
    >>> bool((ratios["ratio"] / efficiency).dropna().between(0.9, 1.1).all())
    True
    """
    done = _completed(jobs, step_time, startup_s)
    done = done[done["user"].notna()]
    if done.empty:
        raise InputError("no completed job has a user, so run times cannot be compared by user.")
    known = pd.DataFrame({"user": done["user"].astype(str), "setting": training_settings(done)})
    return _ratios(known.assign(value=np.log(done["taken_s"] / done["predicted_s"])))


def _completed(jobs: pd.DataFrame, step_time: StepTime, startup_s: float = STARTUP_S) -> pd.DataFrame:
    """Completed jobs with ``predicted_s`` and ``taken_s`` of their steps together."""
    check_number("startup_s", startup_s, 0)
    log = check_jobs(jobs)
    log = log.assign(
        predicted_s=training_steps(log) * np.asarray(step_time(log), dtype=float),
        taken_s=seconds_since(log["end"], start_times(log)) - startup_s,
    )
    done = log[(log["status"].fillna("completed") == "completed") & (log["predicted_s"] > 0) & (log["taken_s"] > 0)]
    if done.empty:
        raise InputError("no completed job has a predicted run time, so predictions cannot be compared with the log.")
    return done.reset_index(drop=True)


#: Name of the row that stands for all networks.
ALL_NETWORKS = "all"


@told("Comparing costs with the log")
def costs_against_log(jobs: pd.DataFrame, step_time: StepTime) -> pd.DataFrame:
    """Predicted run times of a log's completed training jobs against what they took, by network and GPU type.

    Parameters
    ----------
    jobs : DataFrame
        Canonical columns and those of `training_steps` and of `step_time`.
    step_time : callable
        Jobs -> predicted seconds of a step: a `CostStepTime`, or any function of the job table. A minute before the
        first step counts neither as predicted nor as taken.

    Returns
    -------
    DataFrame
        ``network``, ``gpu_type``, ``cluster`` (where there are several), ``jobs``, ``predicted_s`` and ``taken_s``
        (medians), ``ratio`` (median of taken over predicted) and ``ratio-lo-90``, ``ratio-hi-90`` (of nine jobs of
        ten). The first row, ``all``, is over the rows below it, each of which counts once.

    Raises
    ------
    InputError
        If a column is missing, or no job completed with a predicted time.

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster, true_step_time
    >>> jobs, _ = make_cluster(n_users=10, n_days=60, random_state=0)
    >>> found = costs_against_log(jobs, lambda jobs: true_step_time(jobs) / 1.3)
    >>> bool(1.25 < found["ratio"].iloc[0] < 1.5)
    True
    """
    done = _completed(jobs, step_time)
    keys = ["network", "gpu_type", *(["cluster"] if len(done["cluster"].dropna().unique()) > 1 else [])]
    groups = done.assign(ratio=done["taken_s"] / done["predicted_s"]).groupby(keys, sort=True)
    table = groups[["predicted_s", "taken_s", "ratio"]].median()
    table.insert(0, "jobs", groups.size())
    low, high = (groups["ratio"].quantile(share) for share in (0.05, 0.95))
    table = table.assign(**{"ratio-lo-90": low, "ratio-hi-90": high}).reset_index()
    low, high = table["ratio"].quantile([0.05, 0.95])
    whole = {"network": ALL_NETWORKS, "gpu_type": "", "jobs": len(done), "ratio-lo-90": low, "ratio-hi-90": high}
    whole |= table[["predicted_s", "taken_s", "ratio"]].median().to_dict()
    return pd.concat([pd.DataFrame([whole], columns=table.columns), table], ignore_index=True)


def _ratios(known: pd.DataFrame) -> pd.DataFrame:
    """Table of ratios from ``user``, ``setting`` and ``value``, the logarithm of the ratio of a job."""
    settings = known.groupby(["user", "setting"])["value"].median().groupby("user")
    users = pd.DataFrame({"jobs": known.groupby("user").size(), "value": settings.mean(), "settings": settings.size()})
    users = users.sort_values("jobs", ascending=False, kind="stable")
    value, noise = users["value"].to_numpy(), pooled_variance([settings]) / users["settings"].to_numpy(dtype=float)
    effects = random_effects(value, noise)
    mean, error = effects.shrunk(value, noise)
    rows = [users.assign(mean=mean, reach=norm.ppf(_TAIL) * np.sqrt(error))]
    if len(users) > 2:
        reach = t.ppf(_TAIL, len(users) - 2) * np.sqrt(effects.between + effects.error)
        rows = [
            pd.DataFrame({"jobs": users["jobs"].sum(), "mean": effects.mean, "reach": reach}, index=[OTHERS]),
            *rows,
        ]
    table = pd.concat(rows)
    bounds = {"ratio": table["mean"], "low": table["mean"] - table["reach"], "high": table["mean"] + table["reach"]}
    columns = {"user": table.index, "jobs": table["jobs"], **{name: np.exp(log) for name, log in bounds.items()}}
    return pd.DataFrame(columns).astype({"user": STRING, "jobs": int}).reset_index(drop=True)
