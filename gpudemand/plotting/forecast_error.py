"""Figures of how good forecasts are with distance, and of how segments make up the total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._validation import InputError, check_choice, check_columns, check_usage
from gpudemand.metrics import KEYS, evaluate, model_names
from gpudemand.plotting._base import (
    BASELINE,
    MEASURED,
    NARROW,
    PREDICTED,
    Display,
    count_axis,
    date_axis,
    instants,
    kind_of,
    put_kind,
    put_legend,
    put_title,
    short_name,
    value_label,
)
from gpudemand.plotting.forecast import HORIZONS_SHOWN
from gpudemand.plotting.segments_labels import put_stack

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_METRICS = ("wape", "rmse", "mae")
_DASHES = ("--", "-.", ":")


class HorizonErrorDisplay(Display):
    """Error of each method by distance from the origin.

    Build it with `from_backtest`.

    Parameters
    ----------
    errors : DataFrame, shape (h, n_methods)
        By bins ahead, from 1 on; the first method is the one that is argued for.
    kind : str
        Kind of data, for the corner.
    label : str, default="WAPE"
        What is shown.

    Attributes
    ----------
    lines_ : dict of str to Line2D
        By method, after `plot`.
    ax_, figure_ : Axes, Figure
        After `plot`.

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

    def __init__(self, errors: pd.DataFrame, *, kind: str, label: str = "WAPE") -> None:
        self.errors = errors
        self.kind = kind
        self.label = label

    @classmethod
    def from_backtest(
        cls, backtest: pd.DataFrame, *, models: Sequence[str] | None = None, metric: str = "wape"
    ) -> HorizonErrorDisplay:
        """Pool the errors of a backtest by bins ahead.

        Parameters
        ----------
        backtest : DataFrame
            ``unique_id``, ``ds``, ``cutoff``, ``y`` and a column a model, as `cross_validation` returns it.
        models : sequence of str, optional
            Which models, the one argued for first; by default all in their order.
        metric : {"wape", "rmse", "mae"}, default="wape"

        Raises
        ------
        InputError
            If a model or the metric is not known.

        Returns
        -------
        HorizonErrorDisplay
        """
        check_columns(backtest, KEYS, "backtest")
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
        put_title(ax, "Error by distance")
        put_kind(ax, self.kind)
        put_legend(ax, [(line, short_name(name)) for name, line in self.lines_.items()])

    def _line(self, ax: Axes, place: int) -> Any:
        color = PREDICTED if place == 0 else BASELINE
        dash = "-" if place == 0 else _DASHES[(place - 1) % 3]
        marker = "o" if len(self.errors) == 1 else None
        values = self.errors.iloc[:, place].to_numpy(dtype=float)
        return ax.plot(self.errors.index, values, color=color, linestyle=dash, marker=marker)[0]


class RollUpDisplay(Display):
    """Segments stacked under the total: what was used, and what is forecast.

    Build it with `from_forecast`.

    Parameters
    ----------
    parts : DataFrame, shape (n_times, n_segments)
        Use by segment before `cutoff`, forecasts from it on.
    cutoff : Timestamp
        First forecast bin.
    total : Series
        Use and forecast of the total at the same times.
    kind : str
        Kind of data, for the corner.
    label : str, default="GPUs"
        What is shown, with its unit.

    Attributes
    ----------
    areas_ : list of PolyCollection
        One a segment, the lowest first, after `plot`.
    total_line_ : Line2D
    ax_, figure_ : Axes, Figure
        After `plot`.

    Examples
    --------
    >>> ds = pd.date_range("2026-03-01", periods=6)
    >>> usage = pd.DataFrame({"unique_id": ["a"] * 4 + ["b"] * 4, "ds": [*ds[:4]] * 2, "y": [1.0] * 4 + [2.0] * 4})
    >>> forecast = pd.DataFrame({"unique_id": [*"aabb"], "ds": [*ds[4:]] * 2, "Naive": [1.0, 1.0, 2.0, 2.0]})
    >>> RollUpDisplay.from_forecast(forecast, usage).total.tolist()
    [3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    """

    def __init__(
        self, parts: pd.DataFrame, cutoff: pd.Timestamp, *, total: pd.Series, kind: str, label: str = "GPUs"
    ) -> None:
        self.parts = parts
        self.cutoff = cutoff
        self.total = total
        self.kind = kind
        self.label = label

    @classmethod
    def from_forecast(
        cls, forecast: pd.DataFrame, usage: pd.DataFrame, *, labels: pd.Series | None = None
    ) -> RollUpDisplay:
        """Sum users to segments and cut history to about three horizons.

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
        RollUpDisplay
            The segment that uses most at the bottom.
        """
        model = model_names(check_columns(forecast, ("unique_id", "ds"), "forecast"))[0]
        ahead = forecast.pivot(index="ds", columns="unique_id", values=model)
        past = check_usage(usage).pivot(index="ds", columns="unique_id", values="y").reindex(columns=ahead.columns)
        past = past[past.index < ahead.index[0]].tail(HORIZONS_SHOWN * len(ahead))
        both = pd.concat([past, ahead]).fillna(0.0)
        if labels is not None:
            both = both.T.groupby(labels.reindex(both.columns).to_numpy()).sum().T
        both = both[both.sum().sort_values(ascending=False).index].rename_axis(columns=None, index=None)
        kind, label = kind_of(usage, forecast), value_label(usage, forecast)
        return cls(both, ahead.index[0], total=both.sum(axis=1), kind=kind, label=label)

    def _draw(self, ax: Axes) -> None:
        times, total = instants(self.parts.index), self.total.to_numpy(dtype=float)
        self.areas_ = put_stack(ax, self.parts)
        start = max(int(np.argmax(self.parts.index >= self.cutoff)) - 1, 0)
        # A veil over what is not yet known: the same colours, paler.
        ax.fill_between(times[start:], 0, self.parts.sum(axis=1).iloc[start:], color="white", alpha=NARROW, linewidth=0)
        self.total_line_ = ax.plot(times, total, color=MEASURED)[0]
        self.forecast_line_ = ax.plot(times[start:], total[start:], color=PREDICTED)[0]
        self.cutoff_line_ = ax.axvline(times[start], color="#b4b4b8", linewidth=0.8)
        self._label(ax)

    def _label(self, ax: Axes) -> None:
        count_axis(ax, self.label)
        ax.set_ylim(bottom=0)
        ax.margins(x=0)
        date_axis(ax, self.parts.index)
        put_title(ax, "Parts under the total, and where they are going")
        put_kind(ax, self.kind)
        segments = [(area, short_name(name)) for area, name in zip(self.areas_, self.parts.columns, strict=True)]
        put_legend(ax, [(self.total_line_, "total"), (self.forecast_line_, "forecast of the total"), *segments])
