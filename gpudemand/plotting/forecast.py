"""Figure of a forecast: history, median, prediction intervals, baseline and actual values."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpudemand._validation import InputError, check_columns, check_usage, nearest, shorten
from gpudemand.metrics import levels, model_names
from gpudemand.plotting._base import (
    BASELINE,
    CUTOFF,
    MEASURED,
    NARROW,
    PREDICTED,
    WIDE,
    Display,
    annotate,
    kind_of,
    time_axes,
    to_utc,
    value_label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: History is shown for this many horizons.
HORIZONS_SHOWN = 3


@dataclass(eq=False, repr=False)
class ForecastDisplay(Display):
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
    >>> display = ForecastDisplay.from_forecast(forecast, usage)
    >>> display.model, display.levels
    ('Naive', [80.0])
    """

    history: pd.DataFrame
    forecast: pd.DataFrame
    _: KW_ONLY
    actual: pd.DataFrame | None = None
    kind: str
    label: str = "GPUs"

    @property
    def model(self) -> str:
        """Name of the model: the first column of the forecast that is neither a key nor a bound."""
        return _model_columns(self.forecast)[0]

    @property
    def levels(self) -> list[float]:
        """Levels of the intervals in percent, the widest first."""
        return sorted(levels(self.forecast, self.model), reverse=True)

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

        Returns
        -------
        ForecastDisplay
        """
        name = choose_series(check_columns(forecast, ("unique_id", "ds"), "forecast"), unique_id)
        ahead = _series(forecast, name)
        if baseline is not None:
            column = _model_columns(baseline)[0]
            ahead = ahead.merge(_series(baseline, name)[["ds", column]], on="ds", suffixes=("", " (baseline)"))
        return cls(
            history_before(usage, name, ahead),
            ahead,
            actual=None if actual is None else _series(check_usage(actual, allow_missing=True), name),
            kind=kind_of(usage, forecast),
            label=value_label(usage, forecast),
        )

    def _draw(self, ax: Axes) -> None:
        times = to_utc(self.forecast["ds"])
        self.bands_ = draw_bands(ax, self.forecast, self.model)
        model, *others = _model_columns(self.forecast)
        self.baseline_line_ = _line(ax, self.forecast, others[0], BASELINE, "--") if others else None
        self.history_line_ = _line(ax, self.history, "y", MEASURED, "-")
        self.actual_line_ = None if self.actual is None else _line(ax, self.actual, "y", MEASURED, ":")
        self.line_ = _line(ax, self.forecast, model, PREDICTED, "-")
        self.cutoff_line_ = ax.axvline(times[0], color=CUTOFF, linewidth=0.8)
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]) if (self.forecast[model] < 0).any() else 0.0)
        time_axes(ax, self.forecast["ds"], self.label, margin=0.01)
        entries = [
            (self.history_line_, "history"),
            (self.line_, f"{model}, median"),
            *[(band, f"{level:g}% interval") for level, band in self.bands_.items()],
            (self.actual_line_, "actual"),
            (self.baseline_line_, "".join(others[:1])),
        ]
        annotate(ax, f"Forecast: {self.label}", self.kind, entries)


def draw_bands(ax: Axes, forecast: pd.DataFrame, model: str) -> dict[float, Any]:
    """Draw the intervals of a model; the bands by level in percent, the widest first."""
    times, bands = to_utc(forecast["ds"]), dict[float, Any]()
    for level in sorted(levels(forecast, model), reverse=True):
        low, high = (forecast[f"{model}-{side}-{level:g}"].to_numpy(dtype=float) for side in ("lo", "hi"))
        alpha = NARROW if bands else WIDE
        bands[level] = ax.fill_between(times, low, high, color=PREDICTED, alpha=alpha, linewidth=0)
    return bands


def history_before(usage: pd.DataFrame, unique_id: str, frame: pd.DataFrame) -> pd.DataFrame:
    """`HORIZONS_SHOWN` horizons of one series before `frame` begins; a horizon is the length of `frame`."""
    past = _series(check_usage(usage, allow_missing=True), unique_id)
    return past[past["ds"] < frame["ds"].min()].tail(HORIZONS_SHOWN * len(frame))


def _model_columns(forecast: pd.DataFrame) -> list[str]:
    names = [str(name) for name in model_names(forecast)]
    if not names:
        raise InputError(f"the forecast has no model's column; it has {', '.join(map(str, forecast.columns))}.")
    return names


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


def _line(ax: Axes, frame: pd.DataFrame, column: str, color: str, dash: str) -> Any:
    return ax.plot(to_utc(frame["ds"]), frame[column].to_numpy(dtype=float), color=color, linestyle=dash)[0]
