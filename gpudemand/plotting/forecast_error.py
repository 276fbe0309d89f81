"""Figures of forecast error by horizon, and of forecasts stacked by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._validation import InputError, check_choice, check_columns, check_usage
from gpudemand.metrics import KEYS, evaluate, model_names
from gpudemand.plotting._base import (
    BASELINE,
    CUTOFF,
    MEASURED,
    NARROW,
    PREDICTED,
    Display,
    annotate,
    kind_of,
    put_stack,
    short_name,
    time_axes,
    to_utc,
    value_label,
)
from gpudemand.plotting.forecast import HORIZONS_SHOWN
from gpudemand.plotting.segment_labels import EDGES, segment_colors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_METRICS = ("wape", "rmse", "mae")
_DASHES = ("--", "-.", ":")


@dataclass(eq=False, repr=False)
class HorizonErrorDisplay(Display):
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
    >>> HorizonErrorDisplay.from_backtest(pd.DataFrame({**rows, "ETS": [9.0, 8.0], "Naive": [8.0, 5.0]})).errors
         ETS  Naive
    1  0.1    0.2
    2  0.2    0.5
    """

    _size = (7.0, 3.8)

    errors: pd.DataFrame
    _: KW_ONLY
    kind: str
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

        Returns
        -------
        HorizonErrorDisplay
        """
        backtest = check_columns(backtest, KEYS, "backtest")
        check_choice("metric", metric, _METRICS)
        known = model_names(backtest)
        chosen = known if models is None else [check_choice("models", name, known) for name in models]
        if not chosen:
            raise InputError("the backtest has no model's column; there is nothing to draw.")
        ahead = backtest.groupby("cutoff")["ds"].rank(method="dense").astype(int)
        scores = evaluate(backtest[[*KEYS, *chosen]].assign(h=ahead), [metric], by="h")[metric].unstack("h").T
        return cls(scores[chosen].rename_axis(index=None, columns=None), kind=kind_of(backtest), label=metric.upper())

    def _draw(self, ax: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        self.lines_ = {str(name): self._line(ax, place) for place, name in enumerate(self.errors.columns)}
        ax.set_ylim(bottom=0)
        ax.set_xlim(self.errors.index.min(), self.errors.index.max())
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("bins ahead", loc="left")
        ax.set_ylabel(self.label)
        entries = [(line, short_name(name)) for name, line in self.lines_.items()]
        annotate(ax, "Forecast error by horizon", self.kind, entries)

    def _line(self, ax: Axes, place: int) -> Any:
        color, dash = (PREDICTED, "-") if place == 0 else (BASELINE, _DASHES[(place - 1) % 3])
        marker = "o" if len(self.errors) == 1 else None
        values = self.errors.iloc[:, place].to_numpy(dtype=float)
        return ax.plot(self.errors.index, values, color=color, linestyle=dash, marker=marker)[0]


@dataclass(eq=False, repr=False)
class StackedForecastDisplay(Display):
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
    >>> StackedForecastDisplay.from_forecast(forecast, usage).total.tolist()
    [3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    """

    parts: pd.DataFrame
    cutoff: pd.Timestamp
    _: KW_ONLY
    total: pd.Series
    kind: str
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
        model = model_names(check_columns(forecast, ("unique_id", "ds"), "forecast"))[0]
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
        kind, label = kind_of(usage, forecast), value_label(usage, forecast)
        return cls(both, ahead.index[0], total=both.sum(axis=1), kind=kind, label=label)

    def _draw(self, ax: Axes) -> None:
        times, total = to_utc(self.parts.index), self.total.to_numpy(dtype=float)
        self.areas_ = put_stack(ax, self.parts, segment_colors(self.parts.shape[1]), **EDGES)
        start = max(int(np.argmax(self.parts.index >= self.cutoff)) - 1, 0)
        # Forecasts have the colours of the history, paler.
        ax.fill_between(times[start:], 0, self.parts.sum(axis=1).iloc[start:], color="white", alpha=NARROW, linewidth=0)
        self.total_line_ = ax.plot(times, total, color=MEASURED)[0]
        self.forecast_line_ = ax.plot(times[start:], total[start:], color=PREDICTED)[0]
        self.cutoff_line_ = ax.axvline(times[start], color=CUTOFF, linewidth=0.8)
        ax.set_ylim(bottom=0)
        time_axes(ax, self.parts.index, self.label)
        lines = [(self.total_line_, "total"), (self.forecast_line_, "forecast of the total")]
        parts = [(area, short_name(name)) for area, name in zip(self.areas_, self.parts.columns, strict=True)]
        annotate(ax, "Usage and forecast by part", self.kind, [*lines, *parts])
