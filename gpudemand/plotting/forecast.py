"""Displays of forecasts and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._validation import InputError, check_choice, check_columns, check_usage, nearest, shorten
from gpudemand.metrics import KEYS, check_forecast, evaluate, forecast_names, levels, model_names
from gpudemand.plotting import base
from gpudemand.plotting.segments import EDGES, segment_colors

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: History is shown for this many horizons.
HORIZONS_SHOWN = 3


@dataclass(eq=False, repr=False)
class ForecastDisplay(base.Display):
    """History, median forecast and prediction intervals of one series.

    Parameters
    ----------
    history : DataFrame
        ``ds``, ``y`` before the forecast.
    forecast : DataFrame
        ``ds``, the model's column and its ``-lo-`` and ``-hi-`` columns; a further model's column is the baseline.
    actual : DataFrame, optional
        ``ds``, ``y`` of the forecast bins.
    kind : str
        Kind of data, shown in the corner.
    label : str, default="GPUs"
        What is forecast, with its unit.

    Attributes
    ----------
    line_, history_line_, baseline_line_, actual_line_ : Line2D or None
        Median forecast, history, baseline and actual values, after `plot`.
    bands_ : dict of float to PolyCollection
        Band by level in percent, the widest first.
    cutoff_line_ : Line2D
        End of the history.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=12, tz="UTC")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds[:9], "y": 4.0})
    >>> forecast = pd.DataFrame({"unique_id": "total", "ds": ds[9:], "Naive": 4.0})
    >>> forecast = forecast.assign(**{"Naive-lo-80": 3.0, "Naive-hi-80": 5.0})
    >>> display = ForecastDisplay.from_forecast(forecast, usage).plot()
    >>> display.line_.get_ydata().tolist(), list(display.bands_)
    ([4.0, 4.0, 4.0], [80.0])
    """

    history: pd.DataFrame
    forecast: pd.DataFrame
    _: KW_ONLY
    actual: pd.DataFrame | None = None
    label: str = "GPUs"

    @property
    def model(self) -> str:
        """Name of the model: the first column of the forecast that is neither a key nor a bound."""
        return forecast_names(self.forecast)[0]

    @property
    def levels(self) -> list[float]:
        """Levels of the intervals in percent, the widest first."""
        return levels(self.forecast, self.model)[::-1]

    @classmethod
    def from_forecast(
        cls,
        forecast: pd.DataFrame,
        usage: pd.DataFrame,
        *,
        baseline: pd.DataFrame | None = None,
        actual: pd.DataFrame | None = None,
        unique_id: str | None = None,
    ) -> ForecastDisplay:
        """Show a forecast after three horizons of history.

        Parameters
        ----------
        forecast : DataFrame
            ``unique_id``, ``ds``, a model's column and its bounds, as a forecaster's ``predict`` returns it.
        usage : DataFrame
            ``unique_id``, ``ds``, ``y``; rows from the first forecast timestamp on are not drawn.
        baseline : DataFrame, optional
            Forecast of a naive method for the same timestamps.
        actual : DataFrame, optional
            ``unique_id``, ``ds``, ``y`` of the forecast timestamps.
        unique_id : str, optional
            Which series to draw; needed when there are several.

        Raises
        ------
        InputError
            If the series is not in the frames, or there are several and none is named.
        """
        forecast = check_forecast(forecast)
        name = choose_series(forecast, unique_id)
        ahead = _series(forecast, name)
        if baseline is not None:
            baseline = check_forecast(baseline)
            column = forecast_names(baseline)[0]
            ahead = ahead.merge(_series(baseline, name)[["ds", column]], on="ds", suffixes=("", " (baseline)"))
        return cls(
            history_before(usage, name, ahead),
            ahead,
            actual=None if actual is None else _series(check_usage(actual, allow_missing=True), name),
            kind=base.kind_of(usage, forecast),
            label=base.value_label(usage, forecast),
        )

    def _draw(self, ax: Axes) -> None:
        ds = self.forecast["ds"]
        self.bands_ = base.put_bands(ax, self.forecast, self.model)
        model, *others = forecast_names(self.forecast)
        self.baseline_line_ = self.actual_line_ = None
        if others:
            self.baseline_line_ = base.put_line(ax, ds, self.forecast[others[0]], base.BASELINE, linestyle="--")
        self.history_line_ = base.put_line(ax, self.history["ds"], self.history["y"], base.MEASURED)
        if self.actual is not None:
            self.actual_line_ = base.put_line(ax, self.actual["ds"], self.actual["y"], base.MEASURED, linestyle=":")
        self.line_ = base.put_line(ax, ds, self.forecast[model], base.PREDICTED)
        self.cutoff_line_ = ax.axvline(base.to_utc(ds)[0], color=base.CUTOFF, linewidth=0.8)
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]) if (self.forecast[model] < 0).any() else 0.0)
        base.time_axes(ax, ds, self.label, margin=0.01)
        entries = [
            (self.history_line_, "history"),
            (self.line_, f"{model}, median"),
            *[(band, f"{level:g}% interval") for level, band in self.bands_.items()],
            (self.actual_line_, "actual"),
            (self.baseline_line_, "".join(others[:1])),
        ]
        shown = "Forecast" if self.actual is None else "Forecast and actual values"
        self._annotate(f"{shown}: {self.label}", entries)


def history_before(usage: pd.DataFrame, unique_id: str, frame: pd.DataFrame) -> pd.DataFrame:
    """`HORIZONS_SHOWN` horizons of one series before `frame` begins; a horizon is the length of `frame`."""
    past = _series(check_usage(usage, allow_missing=True), unique_id)
    return past[past["ds"] < frame["ds"].min()].tail(HORIZONS_SHOWN * len(frame))


def choose_series(frame: pd.DataFrame, unique_id: str | None) -> str:
    """Name of the series to draw: `unique_id`, or the only one of `frame`."""
    names = [str(name) for name in frame["unique_id"].unique()]
    if unique_id is None and len(names) == 1:
        return names[0]
    if unique_id is None:
        raise InputError(f"there are {len(names)} series; choose one with unique_id={shorten(names[0])!r}.")
    if unique_id not in names:
        raise InputError(f"there is no series {shorten(unique_id)!r}.{nearest(unique_id, names)}")
    return unique_id


def _series(frame: pd.DataFrame, unique_id: str) -> pd.DataFrame:
    return frame[frame["unique_id"] == unique_id].drop(columns="unique_id").sort_values("ds", ignore_index=True)


_METRICS = ("wape", "rmse", "mae")
_DASHES = ("--", "-.", ":")


@dataclass(eq=False, repr=False)
class HorizonErrorDisplay(base.Display):
    """Forecast error of each method by horizon.

    Parameters
    ----------
    errors : DataFrame, shape (h, n_methods)
        By bins ahead, from 1 on; the first method is highlighted.
    kind : str
        Kind of data, shown in the corner.
    label : str, default="WAPE"
        Name of the metric.

    Attributes
    ----------
    lines_ : dict of str to Line2D
        By method, after `plot`.

    Examples
    --------
    >>> ds = pd.date_range("2026-03-02", periods=2)
    >>> rows = {"unique_id": "total", "ds": ds, "cutoff": ds[0] - pd.Timedelta("1D"), "y": [10.0, 10.0]}
    >>> display = HorizonErrorDisplay.from_backtest(pd.DataFrame({**rows, "ETS": [9.0, 8.0], "Naive": [8.0, 5.0]}))
    >>> display.errors
         ETS  Naive
    1  0.1    0.2
    2  0.2    0.5
    >>> list(display.plot().lines_)
    ['ETS', 'Naive']
    """

    _size = (7.0, 3.8)

    errors: pd.DataFrame
    _: KW_ONLY
    label: str = "WAPE"

    @classmethod
    def from_backtest(
        cls, backtest: pd.DataFrame, *, models: Sequence[str] | None = None, metric: str = "wape"
    ) -> HorizonErrorDisplay:
        """Pool the errors of a backtest by bins ahead.

        Parameters
        ----------
        backtest : DataFrame
            ``unique_id``, ``ds``, ``cutoff``, ``y`` and a column per model, as `cross_validation` returns it.
        models : sequence of str, optional
            Which models, the highlighted one first; by default all in their order.
        metric : {"wape", "rmse", "mae"}, default="wape"

        Raises
        ------
        InputError
            If a model or the metric is not known.
        """
        backtest = check_columns(backtest, KEYS, "backtest")
        check_choice("metric", metric, _METRICS)
        known = model_names(backtest)
        chosen = known if models is None else [check_choice("models", name, known) for name in models]
        if not chosen:
            raise InputError("the backtest has no model's column; there is nothing to draw.")
        ahead = backtest.groupby("cutoff")["ds"].rank(method="dense").astype(int)
        scores = evaluate(backtest[[*KEYS, *chosen]].assign(h=ahead), [metric], by="h")[metric].unstack("h").T
        return cls(
            scores[chosen].rename_axis(index=None, columns=None), kind=base.kind_of(backtest), label=metric.upper()
        )

    def _draw(self, ax: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        self.lines_ = {str(name): self._line(ax, place) for place, name in enumerate(self.errors.columns)}
        ax.set_ylim(bottom=0)
        ax.set_xlim(self.errors.index.min(), self.errors.index.max())
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("bins ahead", loc="left")
        ax.set_ylabel(self.label)
        self._annotate("Forecast error by horizon", base.named(self.lines_.values(), self.lines_))

    def _line(self, ax: Axes, place: int) -> Any:
        color, dash = (base.PREDICTED, "-") if place == 0 else (base.BASELINE, _DASHES[(place - 1) % 3])
        marker = "o" if len(self.errors) == 1 else None
        values = self.errors.iloc[:, place].to_numpy(dtype=float)
        return ax.plot(self.errors.index, values, color=color, linestyle=dash, marker=marker)[0]


@dataclass(eq=False, repr=False)
class StackedForecastDisplay(base.Display):
    """Usage and forecasts of parts, stacked to the total.

    Parameters
    ----------
    parts : DataFrame, shape (n_times, n_parts)
        Usage by part before `cutoff`, forecasts from it on.
    cutoff : Timestamp
        First forecast bin.
    total : Series
        Usage and forecast of the total at the same times.
    kind : str
        Kind of data, shown in the corner.
    label : str, default="GPUs"
        What is shown, with its unit.

    Attributes
    ----------
    areas_ : list of PolyCollection
        One per part, the lowest first, after `plot`.
    total_line_, forecast_line_, cutoff_line_ : Line2D

    Examples
    --------
    >>> ds = pd.date_range("2026-03-01", periods=6)
    >>> usage = pd.DataFrame({"unique_id": ["a"] * 4 + ["b"] * 4, "ds": [*ds[:4]] * 2, "y": [1.0] * 4 + [2.0] * 4})
    >>> forecast = pd.DataFrame({"unique_id": [*"aabb"], "ds": [*ds[4:]] * 2, "Naive": [1.0, 1.0, 2.0, 2.0]})
    >>> display = StackedForecastDisplay.from_forecast(forecast, usage).plot()
    >>> len(display.areas_), display.total_line_.get_ydata().tolist()
    (2, [3.0, 3.0, 3.0, 3.0, 3.0, 3.0])
    """

    parts: pd.DataFrame
    cutoff: pd.Timestamp
    _: KW_ONLY
    total: pd.Series
    label: str = "GPUs"

    @classmethod
    def from_forecast(
        cls, forecast: pd.DataFrame, usage: pd.DataFrame, *, labels: pd.Series | None = None
    ) -> StackedForecastDisplay:
        """Sum series by segment, after three horizons of history.

        Parameters
        ----------
        forecast : DataFrame
            ``unique_id``, ``ds`` and a model's column: the bottom series, or those of segments.
        usage : DataFrame
            ``unique_id``, ``ds``, ``y`` of the same series.
        labels : Series, optional
            Segment by ``unique_id``; by default every series is a segment.

        Returns
        -------
        StackedForecastDisplay
            The largest segment at the bottom.
        """
        forecast = check_forecast(forecast)
        model = forecast_names(forecast)[0]
        ahead = forecast.pivot(index="ds", columns="unique_id", values=model)
        past = (
            check_usage(usage, allow_missing=True)
            .pivot(index="ds", columns="unique_id", values="y")
            .reindex(columns=ahead.columns)
        )
        past = past[past.index < ahead.index[0]].tail(HORIZONS_SHOWN * len(ahead))
        both = pd.concat([past, ahead]).fillna(0.0)
        if labels is not None:
            both = both.T.groupby(labels.reindex(both.columns).to_numpy()).sum().T
        both = both[both.sum().sort_values(ascending=False).index].rename_axis(columns=None, index=None)
        kind, label = base.kind_of(usage, forecast), base.value_label(usage, forecast)
        return cls(both, ahead.index[0], total=both.sum(axis=1), kind=kind, label=label)

    def _draw(self, ax: Axes) -> None:
        times, total = base.to_utc(self.parts.index), self.total.to_numpy(dtype=float)
        self.areas_ = base.put_stack(ax, self.parts, segment_colors(self.parts.shape[1]), **EDGES)
        start = max(int(np.argmax(self.parts.index >= self.cutoff)) - 1, 0)
        # Forecasts have the colours of the history, paler.
        ax.fill_between(
            times[start:], 0, self.parts.sum(axis=1).iloc[start:], color="white", alpha=base.NARROW, linewidth=0
        )
        self.total_line_ = ax.plot(times, total, color=base.MEASURED)[0]
        self.forecast_line_ = ax.plot(times[start:], total[start:], color=base.PREDICTED)[0]
        self.cutoff_line_ = ax.axvline(times[start], color=base.CUTOFF, linewidth=0.8)
        ax.set_ylim(bottom=0)
        base.time_axes(ax, self.parts.index, self.label)
        lines = [(self.total_line_, "total"), (self.forecast_line_, "forecast of the total")]
        self._annotate("Usage and forecast by part", [*lines, *base.named(self.areas_, self.parts.columns)])
