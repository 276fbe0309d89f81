"""`Forecaster`: the contract of all forecasters, models of other libraries, and sample paths."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from gpudemand._array import BoolArray, FloatArray, IntArray, one_thread
from gpudemand._validation import (
    InputError,
    UnlikelyUsageWarning,
    check_columns,
    check_levels,
    check_number,
    check_seed,
    shorten,
    stack_level,
    told,
)
from gpudemand.forecast.intervals import (
    PastErrors,
    PathsFunction,
    backtest_origins,
    prediction_intervals,
)
from gpudemand.forecast.panel import (
    Panel,
    Seasonality,
    begun,
    fill_missing,
    group_by_seasonality,
    season_length,
    warn_unlikely,
)

SAMPLE = "sample"
_SIDES = (("lo", -1), ("hi", 1))
#: Shares between whose quantiles a marginal distribution is interpolated.
_SHARES = norm.cdf(np.linspace(-3.0, 3.0, 61))


#: Horizon that is allowed after any history; after long ones, ten times their length. Most sample paths.
_FURTHEST = _MOST_SAMPLES = 10_000


def joint_samples(
    point: FloatArray, past: PastErrors, floor: FloatArray, spread: FloatArray | float, n_samples: int, seed: int
) -> FloatArray:
    """Draw paths with the marginal distributions of the intervals, and the dependence of past errors.

    Each path takes the ranks of the errors from one earlier origin, in all series and steps (Schaake shuffle), so what
    was too high or too low together is so again.

    `floor`: shape (n_series, 1). `spread`: shape (h,); factor on the errors of each step. Returns shape (n_samples,
    n_series, h).

    References
    ----------
    Clark, Gangopadhyay, Hay, Rajagopalan and Wilby, "The Schaake shuffle", Journal of Hydrometeorology 5 (2004);
    Schefzik, Thorarinsdottir and Gneiting, "Uncertainty quantification in complex simulation models using ensemble
    copula coupling", Statistical Science 28 (2013).
    """
    rng, quantiles = np.random.default_rng(seed), past.quantiles(list(_SHARES))
    low, width = _ranks(past.errors, rng)
    chosen = rng.integers(0, low.shape[1], n_samples)
    # Within the width of a rank, a path lies at a place of its own in each series.
    shares = low[:, chosen] + rng.random((len(low), n_samples, 1)) * width[:, chosen]
    out = np.empty((n_samples, *point.shape))
    for row, step in np.ndindex(point.shape):
        out[:, row, step] = np.interp(shares[row, :, step], _SHARES, quantiles[:, row, step])
    return np.asarray(np.maximum(point + spread * out, floor))


def scale_samples(samples: pd.DataFrame, total: pd.DataFrame) -> pd.DataFrame:
    """Scale sample paths of parts so that their sum has the distribution of the total.

    At each time the sums of the parts are replaced by the samples of the total in the same order, and the parts are
    scaled to them (top-down by forecast proportions, sample by sample).

    Parameters
    ----------
    samples : DataFrame
        ``unique_id``, ``ds``, ``sample`` and one more column, as `Forecaster.sample` returns them.
    total : DataFrame
        The same for one series, the total, with as many samples and times.

    Returns
    -------
    DataFrame
        Like `samples`; where all parts are zero, they stay so.

    Raises
    ------
    InputError
        If `total` is more than one series, or has other times or another number of samples.
    """
    name, of_total = _value(samples), _value(total)
    sums = samples.pivot_table(index="ds", columns=SAMPLE, values=name, aggfunc="sum")
    if len(total["unique_id"].unique()) != 1:
        raise InputError("total must be samples of one series.")
    drawn = total.pivot(index="ds", columns=SAMPLE, values=of_total)
    if not (drawn.index.equals(sums.index) and drawn.shape == sums.shape):
        raise InputError("samples and total must have the same times and the same number of samples.")
    order = sums.to_numpy().argsort(axis=1, kind="stable").argsort(axis=1)
    wanted = np.take_along_axis(np.sort(drawn.to_numpy(), axis=1), order, axis=1)
    ratio = (wanted / sums.where(sums > 0)).fillna(0.0).stack().rename("ratio")
    factor = samples[["ds", SAMPLE]].join(ratio, on=["ds", SAMPLE])["ratio"].to_numpy()
    out = samples.assign(**{name: samples[name] * factor})
    out.attrs = dict(samples.attrs)
    return out


def sum_samples(
    samples: pd.DataFrame, groups: Mapping[str, str] | None = None, level: Sequence[float] | float = (80, 95)
) -> pd.DataFrame:
    """Median and intervals of sums of series, from sample paths.

    Parameters
    ----------
    samples : DataFrame
        ``unique_id``, ``ds``, ``sample`` and one more column, as `Forecaster.sample` returns them.
    groups : mapping of str to str, optional
        Group of each series; by default all are one, ``total``.
    level : sequence of float, default=(80, 95)
        Of the intervals, in percent.

    Returns
    -------
    DataFrame
        ``unique_id`` (the group), ``ds``, the column of the model and its bounds ``-lo-80``, ``-hi-80``, ...

    Raises
    ------
    InputError
        If a series has no group.
    """
    name = _value(samples)
    group = pd.Series("total", samples.index) if groups is None else samples["unique_id"].map(groups)
    if group.isna().any():
        raise InputError(f"series {shorten(str(samples['unique_id'][group.isna()].iloc[0]))!r} has no group; name one.")
    sums = samples.groupby([group.rename("unique_id"), "ds", SAMPLE])[name].sum().groupby(level=[0, 1])
    table = {name: sums.median()}
    for value in check_levels(level):
        table |= {f"{name}-{side}-{value:g}": sums.quantile(0.5 + sign * value / 200) for side, sign in _SIDES}
    frame = pd.DataFrame(table).reset_index()
    frame.attrs = dict(samples.attrs)
    return frame


def _value(samples: pd.DataFrame) -> str:
    """Name of the column of values."""
    keys = ("unique_id", "ds", SAMPLE)
    names = [str(column) for column in check_columns(samples, keys, "samples").columns if column not in keys]
    if len(names) != 1:
        raise InputError(f"samples must have one column of values; these have {', '.join(names) or 'none'}.")
    return names[0]


def _ranks(errors: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Shares of the errors of a series and step that are smaller, and that are equal in rank: (n_series, n_origins, h).

    A step that the history does not reach from an origin has the rank of the one before it. The ranks of a series that
    had not begun are those of random origins.
    """
    # Origins from which less than half of the horizon is known say little about its course.
    n_known = (~np.isnan(errors)).any(axis=0).sum(axis=1)
    errors = errors[:, 2 * n_known >= max(n_known.max(), 1)]
    known = ~np.isnan(errors)
    order = np.lexsort((rng.random(errors.shape), errors), axis=1)
    ranks = np.argsort(order, axis=1)
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    low, width = np.where(known, ranks / count, np.nan), np.where(known, 1 / count, np.nan)
    for row, origin in np.argwhere(~known[..., 0]):
        others = np.flatnonzero(known[row, :, 0])
        other = rng.choice(others) if others.size else None
        low[row, origin] = 0.0 if other is None else low[row, other]
        width[row, origin] = 1.0 if other is None else width[row, other]
    newest = np.maximum.accumulate(np.where(np.isnan(low), 0, np.arange(errors.shape[2])), axis=2)
    return np.take_along_axis(low, newest, axis=2), np.take_along_axis(width, newest, axis=2)


def positive_int(name: str, value: object) -> int:
    """Return a parameter that must be a whole number of at least 1."""
    return int(check_number(name, value, 1, integer=True))


def check_horizon(h: object, n_times: int) -> int:
    """Return a horizon that a history of `n_times` bins allows: beyond, arrays would fill the memory with nothing."""
    return int(check_number("h", h, 1, max(_FURTHEST, 10 * n_times), integer=True))


def warn_long_season(model: BaseEstimator, n_times: int) -> None:
    """Warn of a season that was asked for and that a history of `n_times` bins does not show."""
    given = getattr(model, "season_length", None)
    longest = 0 if given is None else int(np.max(given))
    if longest > n_times:
        message = (
            f"season_length={longest} is longer than the history of {n_times} bins, so {type(model).__name__} "
            "forecasts without it; give a shorter season or a longer history."
        )
        warnings.warn(message, UnlikelyUsageWarning, stacklevel=stack_level())


class ShortHistoryWarning(UserWarning):
    """The intervals reach further than the errors that the history shows."""


#: Disjoint spans of errors that a horizon needs.
_SPANS = 2


def shown_twice(n_times: int, first_origin: int) -> int:
    """Longest horizon at which a history shows errors twice, without overlap, from its first origin on; at least 1.

    >>> shown_twice(90, 14)
    38
    """
    return max((n_times - first_origin) // _SPANS, 1)


class Forecaster(BaseEstimator):
    """Base class of the forecasters.

    A subclass implements ``_path(y, h)``, a pure function from a history of shape (n_series, n_times) to forecasts of
    shape (n_series, h), or ``_paths(y, origins, h)``, the same from several origins at once. Run at earlier origins,
    it gives the errors behind the prediction intervals; nothing after an origin can reach a forecast made there.

    Attributes
    ----------
    panel_ : Panel
        The training series; in local time where the clock changes.
    season_length_ : int
        Bins in the season that the method uses.
    """

    #: Most origins of the backtest behind the intervals; few for methods that are slow to fit.
    _max_origins = 60
    #: Whether missing values are accepted.
    _allow_missing = True
    #: Whether seasons follow local time where clocks change; otherwise they are counted in bins.
    _local_clock = True

    @told("Fitting {}")
    def fit(self, usage: pd.DataFrame, freq: object = None) -> Self:
        """Fit to the training series.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y``: dense, though a series may begin later than others.
        freq : str or offset, optional
            Frequency of the timestamps; inferred when not given.

        Raises
        ------
        InputError
            For an invalid parameter or series, or a history that is too short for the method.

        Warns
        -----
        UnlikelyUsageWarning
            For series that end before the others, bins without a row, columns that are not used, a value that is a
            thousand times as large as any other of its series, and a season that is longer than the history.
        """
        panel = Panel.from_long(usage, freq, allow_missing=self._allow_missing)
        warn_unlikely(usage, panel)
        self._fit_panel(panel.on_local_clock() if self._local_clock else panel)
        warn_long_season(self, len(panel.times))
        return self

    def _fit_panel(self, panel: Panel) -> None:
        """Fit to a panel; subclasses that estimate parameters extend this method, not `fit`."""
        self.panel_ = panel
        self.season_length_ = self._season()
        self._backtests: dict[int, tuple[FloatArray, PastErrors]] = {}
        self._known_paths: PathsFunction | None = None

    def column_name(self) -> str:
        """Name of the column of forecasts: that of the class."""
        return type(self).__name__

    def _season(self) -> int:
        given = getattr(self, "season_length", None)
        return season_length(self.panel_.freq) if given is None else positive_int("season_length", given)

    @one_thread()
    @told("Forecasting with {}")
    def predict(self, h: int, level: Sequence[float] | float | None = None) -> pd.DataFrame:
        """Forecast the next bins.

        Parameters
        ----------
        h : int
            Horizon in bins.
        level : sequence of float, optional
            Levels of the prediction intervals in percent, for example ``[80, 95]``.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``, a column named after the class, and ``<class>-lo-80``, ``<class>-hi-80``, ...
        """
        check_is_fitted(self, "panel_")
        h, levels = check_horizon(h, len(self.panel_.times)), check_levels(level)
        name, y, steps = self.column_name(), self.panel_.values, self.panel_.local_steps(h)
        floor, ahead = self._floors(y), int(steps.max()) + 1
        if not levels:
            known = self._known_paths
            path = known(y, self._forecast_origins(), ahead)[:, 0] if known else self._path(y, ahead)
            columns = {name: np.maximum(path, floor)}
        else:
            path, errors = self._backtested(ahead)
            columns = {name: np.maximum(path, floor)}
            bounds = prediction_intervals(columns[name], errors, levels, floor, self._spread(ahead))
            columns |= {f"{name}-{side}": matrix for side, matrix in bounds.items()}
        columns = {column: matrix[:, steps] for column, matrix in columns.items()}
        return self.panel_.long_frame(self.panel_.future(h), columns)

    @one_thread()
    def sample(self, h: int, n_samples: int = 200, random_state: int = 0) -> pd.DataFrame:
        """Draw paths of all series together, with the distributions of the intervals and the dependence of past errors.

        Sums of series in each sample have the distribution of the sum (`sum_samples`), which sums of bounds have not.

        Parameters
        ----------
        h : int
            Horizon in bins.
        n_samples : int, default=200
            Paths; each takes the ranks of the errors from one earlier origin, of which there are at most sixty.
        random_state : int, default=0

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``, ``sample`` and a column named after the class, n_samples x n_series x h rows.
        """
        check_is_fitted(self, "panel_")
        h = check_horizon(h, len(self.panel_.times))
        n_samples = int(check_number("n_samples", n_samples, 1, _MOST_SAMPLES, integer=True))
        y, steps, seed = self.panel_.values, self.panel_.local_steps(h), check_seed(random_state)
        ahead = int(steps.max()) + 1
        (path, past), floor = self._backtested(ahead), self._floors(y)
        drawn = joint_samples(np.maximum(path, floor), past, floor, self._spread(ahead), n_samples, seed)
        one = self.panel_.long_frame(self.panel_.future(h), {})
        frame = pd.concat([one] * n_samples, ignore_index=True)
        frame[SAMPLE] = np.repeat(np.arange(n_samples), len(one))
        frame[self.column_name()] = drawn[:, :, steps].ravel()
        frame.attrs = dict(self.panel_.attrs)
        return frame

    @one_thread()
    def forecast_from(self, panel: Panel, origins: IntArray, h: int) -> FloatArray:
        """Forecast from many origins, in one pass where the method has one.

        Parameters
        ----------
        panel : Panel
            Series; values after an origin do not affect the forecast from it.
        origins : ndarray of int, shape (n_origins,)
            Number of bins known at each origin, ascending.
        h : int
            Horizon in bins.

        Returns
        -------
        ndarray of shape (n_series, n_origins, h)
        """
        origins, h = np.asarray(origins, dtype=np.int64), check_horizon(h, len(panel.times))
        known = panel.until(int(origins.min()))
        model = clone(self)
        model._fit_panel(known.on_local_clock() if self._local_clock else known)
        places = panel.local_positions(h) if self._local_clock else np.arange(len(panel.times) + h)
        ends = places[origins - 1] + 1
        steps = np.maximum(places[origins[:, None] + np.arange(h)] - ends[:, None], 0)
        ends, which = np.unique(ends, return_inverse=True)
        y = (panel.on_local_clock() if self._local_clock else panel).values[:, : ends.max()]
        paths = np.maximum(model._paths(y, ends, int(steps.max()) + 1), self._floors(y, ends)[..., None])
        return np.take_along_axis(paths[:, which], steps[None], axis=2)

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        return self._paths(y, np.array([y.shape[1]]), h)[:, 0]

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        """Forecasts from several origins of one history, shape (n_series, n_origins, h)."""
        # The whole history is passed as the same object, so that a subclass can recognise its training data.
        return np.stack([self._path(y[:, :o] if o < y.shape[1] else y, h) for o in origins], axis=1)

    def _past_paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        """As `_paths`, for the errors behind the intervals; parameters fitted at the last origin may serve for all."""
        return self._paths(y, origins, h)

    @staticmethod
    def _floors(y: FloatArray, origins: IntArray | None = None) -> FloatArray:
        """Lower bound of the forecasts, shape (n_series, n_origins): 0, or none for series with negative values."""
        places = [-1] if origins is None else origins - 1
        lowest = np.minimum.accumulate(np.where(np.isnan(y), np.inf, y), axis=1)[:, places]
        return np.where(lowest < 0, -np.inf, 0.0)

    def _backtested(self, h: int) -> tuple[FloatArray, PastErrors]:
        """Forecast, shape (n_series, h), and the errors of forecasts from earlier origins."""
        if h not in self._backtests:
            self._check_reach(h)
            y, paths = self.panel_.values, self._known_paths or self._past_paths
            if y.shape[1] < 3:
                raise InputError(
                    f"intervals need at least 3 bins of history; this one has {y.shape[1]}. Predict with level=None."
                )
            self._backtests[h] = PastErrors.of(paths, y, h, self._forecast_origins(past=True)[:-1])
        return self._backtests[h]

    def _steps_ahead(self, h: int) -> int:
        """Steps that the method looks ahead for the next `h` bins, of which the local clock may skip some."""
        return int(self.panel_.local_steps(h).max()) + 1

    def _forecast_origins(self, *, past: bool = False) -> IntArray:
        """Origins of a forecast: the end of the history, and with `past` before it those of its intervals."""
        now = self.panel_.values.shape[1]
        if not past:
            return np.array([now])
        return np.append(backtest_origins(now, self._min_train(), self._max_origins, self.season_length_), now)

    @property
    def _fits_nothing(self) -> bool:
        """Whether forecasts need only the values before their origin, so that one pass serves fits to shorter parts."""
        own = type(self)
        return all(getattr(own, name) is getattr(Forecaster, name) for name in ("fit", "_fit_panel", "_past_paths"))

    def _method(self) -> list[Any]:
        """What forecasts depend on besides the values."""
        return [repr(self), self.season_length_]

    def _spread(self, h: int) -> FloatArray | float:
        """Factor on the width of the intervals at each step."""
        return 1.0

    def _check_reach(self, h: int) -> None:
        """Warn if the history shows too few errors as far ahead."""
        n_times = self.panel_.values.shape[1]
        longest = shown_twice(n_times, self._min_train())
        if h > longest:
            message = (
                f"The history of {n_times} bins shows errors {longest} bins ahead at least twice, not {h}: "
                "intervals further ahead extend the growth of the errors with distance, so leave a margin."
            )
            warnings.warn(message, ShortHistoryWarning, stacklevel=stack_level())

    def _min_train(self) -> int:
        """Bins before the first origin of the backtest."""
        return min(2 * self.season_length_, self.panel_.values.shape[1] // 2)


class SeasonalForecaster(Forecaster):
    """Base class of methods that forecast from all origins that show the same seasons at once: `_seasonal_paths`."""

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        out = np.empty((len(y), origins.size, h))
        for seasonality, chosen in self._observable(origins):
            known = y[:, : origins[chosen].max()]
            out[:, chosen] = self._seasonal_paths(known, origins[chosen], h, seasonality)
        return np.where(begun(y, origins)[..., None], out, 0.0)

    def _seasonal_paths(self, y: FloatArray, origins: IntArray, h: int, seasonality: Seasonality) -> FloatArray:
        raise NotImplementedError

    def _observable(self, origins: IntArray) -> Iterable[tuple[Seasonality, BoolArray]]:
        """Seasons that are seen from the origins, and a mask of those that see them."""
        return group_by_seasonality(origins, self.season_length_, self.panel_.freq)


def last_known(y: FloatArray) -> FloatArray:
    """Newest value of each series, shape (n_series, 1); 0 for a series without any.

    >>> last_known(np.array([[1.0, 2.0, np.nan], [np.nan, np.nan, np.nan]])).tolist()
    [[2.0], [0.0]]
    """
    known = ~np.isnan(y)
    newest = y.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    return np.where(known.any(axis=1), y[np.arange(len(y)), newest], 0.0)[:, None]


_KEYS = ("unique_id", "ds")


class ExternalForecaster(Forecaster):
    """A forecaster of another library, fitted anew at each origin, with intervals from its errors at earlier ones.

    Parameters
    ----------
    model : object
        In the manner of statsforecast, ``fit(df)`` and ``predict(h)``, with one model, or one of its models by itself,
        ``fit(y)`` and ``predict(h)``; of sktime, ``fit(y, fh=fh)`` and ``predict(fh)``; or of statsmodels, a class or
        function that makes of the values ``y`` what has ``fit().forecast(h)``. All but the first are fitted series by
        series. It is copied, and sees times without a zone.
    name : str, optional
        Of the column of its forecasts; by default what the library calls it.
    regressors : DataFrame, optional
        ``ds`` and columns known ahead (holidays, planned runs), also ``unique_id`` where they differ by series. They
        reach the model as further columns of ``df`` and as ``X_df``, or as ``X``.

    Examples
    --------
    >>> class Mean:
    ...     def fit(self, y, X=None, fh=None):
    ...         self.mean = y.mean()
    ...         return self
    ...
    ...     def predict(self, fh, X=None):
    ...         return pd.Series(self.mean, index=range(len(fh)))
    >>> usage = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2026-03-01", periods=4), "y": [1.0, 3, 1, 3]})
    >>> ExternalForecaster(Mean()).fit(usage).predict(2)
      unique_id         ds  Mean
    0         a 2026-03-05   2.0
    1         a 2026-03-06   2.0
    """

    _local_clock = False
    _max_origins = 8

    def __init__(self, model: Any, *, name: str | None = None, regressors: pd.DataFrame | None = None) -> None:
        self.model = model
        self.name = name
        self.regressors = regressors

    def column_name(self) -> str:
        """Name of the column of forecasts."""
        inner = getattr(self.model, "models", None)
        if self.name is None and isinstance(inner, (list, tuple)) and len(inner) == 1:
            return str(inner[0])
        return self.name or str(getattr(self.model, "__name__", type(self.model).__name__))

    def _fit_panel(self, panel: Panel) -> None:
        if protocol(self.model) is None:
            if isinstance(self.model, type):
                raise InputError(f"{self.model.__name__} is a class; pass {self.model.__name__}(...).")
            raise InputError(
                f"{type(self.model).__name__} is no forecaster: it has neither statsforecast's fit(df) and predict(h) "
                "nor sktime's fit(y, fh) and predict(fh)."
            )
        if self.regressors is not None and protocol(self.model) in ("y", "forecast"):
            raise InputError(
                f"regressors do not reach {self.column_name()} by itself; give StatsForecast(models=[...], freq=...)."
            )
        super()._fit_panel(panel)

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        n_times = y.shape[1]
        known, begins = self.panel_.until(n_times), np.isnan(y).cumprod(axis=1).sum(axis=1)
        filled = fill_missing(y, self.season_length_)
        # A regular clock without a zone, which every library takes.
        clock = pd.date_range(known.times[0].tz_localize(None), periods=n_times + h, freq=known.freq)
        extra = self._known_ahead(known.times.append(known.future(h)))
        fit = {"h": _by_table, "fh": _by_series}.get(str(protocol(self.model)), _by_values)

        def path(rows: IntArray) -> FloatArray:
            known_ahead = None if extra is None else [extra[row] for row in rows]
            return fit(self.model, self.panel_.ids[rows], clock, filled[rows], begins[rows], known_ahead)

        out, refused = _where_possible(path, np.flatnonzero(begins < n_times), np.repeat(last_known(filled), h, axis=1))
        if refused and n_times == len(self.panel_.times):
            self._tell(refused, n_times - begins)
        return np.where(begins[:, None] < n_times, out, 0.0)

    def _tell(self, refused: dict[int, Exception], lengths: IntArray) -> None:
        """Warn of series that the model cannot be fitted to, or refuse them if there are no others."""
        row, error = next(iter(refused.items()))
        found = f"{self.column_name()} cannot be fitted to {len(refused)} of {len(lengths)} series"
        first = f"{shorten(str(self.panel_.ids[row]))!r} with {lengths[row]} values ({shorten(str(error))})"
        if len(refused) == len(lengths):
            raise InputError(f"{found}, the first {first}; give longer ones, or another model.") from error
        message = f"{found}, the first {first}; their newest value is repeated instead."
        warnings.warn(message, UnlikelyUsageWarning, stacklevel=stack_level())

    def _known_ahead(self, times: pd.DatetimeIndex) -> list[pd.DataFrame] | None:
        """Regressors of each series at some times, all of which must be known."""
        if self.regressors is None:
            return None
        table = check_columns(self.regressors, ("ds",), "regressors")
        found = []
        for name in self.panel_.ids:
            own = table[table["unique_id"] == name] if "unique_id" in table else table
            rows = _at_times(own.drop(columns="unique_id", errors="ignore").set_index("ds"), times, self.panel_.zoned)
            unknown = rows.isna().any()
            if unknown.any() or rows.empty:
                column = unknown.idxmax()
                first = rows.index[rows[column].isna()][0]
                raise InputError(
                    f"the regressor {column!r} is not known at {first}; give its values over the whole history and "
                    "horizon, or leave it out if it is not known ahead."
                )
            found.append(rows.reset_index(drop=True))
        return found


def _at_times(table: pd.DataFrame, times: pd.DatetimeIndex, zoned: pd.DatetimeIndex | None) -> pd.DataFrame:
    """Rows of a table at the times of a panel; of one on the local clock, by the rules of `Panel.on_local_clock`."""
    if zoned is None or getattr(table.index, "tz", None) is None:
        return table.reindex(times)
    there = times.tz_localize(zoned.tz, ambiguous=np.ones(len(times), dtype=bool), nonexistent="NaT")
    rows = table.reindex(there)
    return rows.where(there.notna()[:, None], rows.ffill())


def adapt(model: Any, *, name: str | None = None, regressors: pd.DataFrame | None = None) -> Forecaster:
    """Adapt a model of statsforecast, sktime or statsmodels to the contract of a `Forecaster`.

    It then has intervals and a backtest, and can be a member of `CombinedForecaster`, which adapts its members itself.

    Parameters
    ----------
    model : object
        A model of another library, as `ExternalForecaster` takes it; a `Forecaster` is returned as it is.
    name, regressors
        As those of `ExternalForecaster`.

    Raises
    ------
    InputError
        At ``fit``, for a model of which no forecasts can be had; at ``predict``, if it can be fitted to no series.

    Warns
    -----
    UnlikelyUsageWarning
        Of series that the model cannot be fitted to, as of few values; their newest value is repeated.

    Examples
    --------
    >>> class Newest:
    ...     def fit(self, y):
    ...         self.newest = y[-1]
    ...         return self
    ...
    ...     def predict(self, h):
    ...         return {"mean": np.full(h, self.newest)}
    >>> usage = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2026-03-01", periods=4), "y": [1.0, 3, 1, 3]})
    >>> adapt(Newest()).fit(usage).predict(2)["Newest"].tolist()
    [3.0, 3.0]
    """
    if isinstance(model, Forecaster) and name is None and regressors is None:
        return model
    return ExternalForecaster(model, name=name, regressors=regressors)


def protocol(model: Any) -> str | None:
    """``"h"`` for the manner of statsforecast, ``"y"`` for that of its models, ``"fh"`` for sktime's, or none.

    ``"forecast"`` is that of statsmodels, whose models are made of their data.
    """
    if not hasattr(model, "fit"):
        return "forecast" if callable(model) else None
    found = None
    if callable(model.fit) and callable(getattr(model, "predict", None)):
        names = inspect.signature(model.predict).parameters
        found = next((name for name in ("fh", "h") if name in names), None)
    if isinstance(model, type):
        # The class of a forecaster is none; that of a model of statsmodels is.
        return "forecast" if found is None else None
    return "y" if found == "h" and "y" in inspect.signature(model.fit).parameters else found


def _where_possible(
    path: Callable[[IntArray], FloatArray], rows: IntArray, instead: FloatArray
) -> tuple[FloatArray, dict[int, Exception]]:
    """Forecasts of some rows, all at once or, if that fails, one by one; and why rows have what is given instead."""
    out, refused = instead.copy(), dict[int, Exception]()
    for batch in [rows, *rows[:, None]] if rows.size else []:
        try:
            found = path(batch)
            if not np.isfinite(found).all():
                raise ValueError("no finite forecast")
        except InputError:
            raise
        except Exception as error:  # libraries raise what they like
            if batch is not rows:
                refused[int(batch[0])] = error
        else:
            out[batch] = found
            if batch is rows:
                break
    return out, refused


def _by_values(
    model: Any, ids: pd.Index, clock: pd.DatetimeIndex, y: FloatArray, begins: Any, extra: list[pd.DataFrame] | None
) -> FloatArray:
    """Forecasts by a model of statsforecast by itself, or of statsmodels."""
    rows, h = [], len(clock) - y.shape[1]
    for row, begin in zip(y, begins, strict=True):
        if protocol(model) == "forecast":
            found = model(row[begin:]).fit().forecast(h)
        else:
            found = deepcopy(model).fit(row[begin:]).predict(h=h)
        rows.append(np.asarray(found["mean"] if isinstance(found, dict) else found, dtype=float))
    return np.vstack(rows)


def _by_table(
    model: Any, ids: pd.Index, clock: pd.DatetimeIndex, y: FloatArray, begins: Any, extra: list[pd.DataFrame] | None
) -> FloatArray:
    n_times, frames = y.shape[1], []
    for place, name in enumerate(ids):
        columns = {} if extra is None else dict(extra[place].items())
        frames.append(pd.DataFrame({"unique_id": name, "ds": clock, **columns}))
    past = [
        frame.iloc[begin:n_times].assign(y=row[begin:]) for frame, row, begin in zip(frames, y, begins, strict=True)
    ]
    fitted = deepcopy(model)
    fitted.fit(pd.concat(past, ignore_index=True))
    ahead = {} if extra is None else {"X_df": pd.concat([frame.iloc[n_times:] for frame in frames], ignore_index=True)}
    found = fitted.predict(h=len(clock) - n_times, **ahead)
    names = [name for name in found.columns if name not in _KEYS and "-lo-" not in name and "-hi-" not in name]
    if len(names) != 1:
        raise InputError(f"{type(model).__name__} forecasts {len(names)} columns; give it one model at a time.")
    found = found if "unique_id" in found else found.reset_index()
    wide = found.pivot(index="unique_id", columns="ds", values=names[0])
    return wide.reindex(ids).to_numpy(dtype=float)


def _by_series(
    model: Any, ids: pd.Index, clock: pd.DatetimeIndex, y: FloatArray, begins: Any, extra: list[pd.DataFrame] | None
) -> FloatArray:
    n_times, steps, rows = y.shape[1], np.arange(1, len(clock) - y.shape[1] + 1), []
    for place, begin in enumerate(begins):
        fitted, past, ahead = deepcopy(model), {}, {}
        if extra is not None:
            table = extra[place].set_axis(clock)
            past, ahead = {"X": table.iloc[begin:n_times]}, {"X": table.iloc[n_times:]}
        series = pd.Series(y[place, begin:], index=clock[begin:n_times], name=str(ids[place]))
        fitted.fit(series, fh=steps, **past)
        rows.append(np.asarray(fitted.predict(fh=steps, **ahead), dtype=float).ravel())
    return np.vstack(rows)
