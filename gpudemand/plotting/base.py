"""Style sheet, palette, base class and axis helpers of all figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from gpudemand.metrics import interval_columns
from gpudemand.usage.bins import bin_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.collections import QuadMesh
    from matplotlib.text import Text


Self = TypeVar("Self", bound="Display")

MEASURED = "#1c1c1f"
PREDICTED = "#1f5fa8"
INSTALLED = "#8b1a1a"
BASELINE = "#8c8c90"
OTHER = "#c8c8cc"
CUTOFF = "#b4b4b8"
#: Opacity of the wide and of the narrow interval, both in `PREDICTED`.
WIDE, NARROW = 0.16, 0.30
#: Paul Tol's muted colours, dark and light in turn so that neighbours in a stack differ in lightness.
GROUPS = ("#332288", "#88ccee", "#117733", "#ddcc77", "#cc6677", "#44aa99", "#882255")
#: The same for lines, which need three times the luminance of what is behind them, or a third: the light ones darker.
LINES = ("#332288", "#1e97d3", "#117733", "#a28e28", "#cc6677", "#3e9b8c", "#882255")
_GREYS = ("#f6f6f7", "#8e8e94", "#2c2c31")

#: Axis label, with unit, by the ``value`` of `usage_series`.
VALUE_LABELS = {
    "gpu_hours": "GPU-hours per {bin}",
    "gpus": "GPUs held (mean per {bin})",
    "gpus_peak": "GPUs held (peak per {bin})",
    "wanted": "GPUs wanted (mean per {bin})",
    "jobs": "jobs submitted per {bin}",
}
UNSTATED = "kind of data not stated"
_SHEET = Path(__file__).with_name("gpudemand.mplstyle")


@contextmanager
def style() -> Iterator[None]:
    """Apply the style sheet to figures made inside a ``with`` block; global settings are unchanged.

    Displays apply it themselves; use it for other figures beside them.

    Examples
    --------
    >>> import matplotlib as mpl
    >>> with style():
    ...     mpl.rcParams["axes.titlelocation"]
    'left'
    """
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    with plt.style.context(_SHEET):
        yield
        # The backend of a notebook turns interactive mode on with its first figure; it must stay on.
        interactive = plt.isinteractive()
    mpl.interactive(interactive)


@dataclass(eq=False, repr=False)
class Display:
    """Base class: a figure of data that is already computed. Subclasses implement `_draw`.

    `kind`: of the data, shown in the corner. `ax_`, `figure_`: after `plot`.
    """

    #: Width and height of a new figure, in inches.
    _size = (9.0, 3.8)

    kind: str = field(kw_only=True)

    def plot(self: Self, ax: Axes | None = None) -> Self:
        """Draw the figure.

        `ax`: where to draw; a new figure by default. Returns itself, with the artists as attributes.
        """
        with style():
            if ax is None:
                import matplotlib.pyplot as plt

                ax = plt.subplots(figsize=self._size)[1]
            self.ax_ = ax
            self.figure_ = self.ax_.figure
            self._draw(self.ax_)
        return self

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError

    def _annotate(self, title: str, entries: Sequence[tuple[Any, str]] = ()) -> None:
        """Write title (left), kind of data (right) and, for entries of artist and name, the legend below the axes."""
        literal(self.ax_.set_title(title, loc="left"))
        put_kind(self.ax_, self.kind)
        if entries:
            _put_legend(self.ax_, [entry for entry in entries if entry[0] is not None])

    def _heat_map(self, ax: Axes, values: Any, label: str, **mesh_options: Any) -> QuadMesh:
        """Draw a matrix with its first row at the top, and a colour bar with `label`."""
        mesh = grid_map(ax, values, **mesh_options)
        bar = self.figure_.colorbar(mesh, ax=ax, pad=0.02, aspect=20, format="{x:,.6g}")
        bar.outline.set_visible(False)
        bar.set_label(label)
        return mesh


def grid_map(ax: Axes, values: Any, edgecolor: str = "white", linewidth: float = 1.0, **options: Any) -> QuadMesh:
    """Draw the cells of a matrix, its first row at the top, in greys by default."""
    from matplotlib.colors import LinearSegmentedColormap

    options.setdefault("cmap", LinearSegmentedColormap.from_list("measured", list(_GREYS)))
    mesh = ax.pcolormesh(values, edgecolor=edgecolor, linewidth=linewidth, **options)
    ax.invert_yaxis()
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return mesh


def short_name(name: object, width: int = 40) -> str:
    r"""Make a user-supplied name drawable: one line, at most `width` characters, only glyphs of the font.

    >>> short_name("x" * 10_000) == "x" * 39 + "…"
    True
    >>> short_name("ann\nbob")
    'ann bob'
    """
    text = str(name)[: width + 1]
    drawn = "".join(_drawable(letter) for letter in text)
    return drawn[: width - 1] + "…" if len(drawn) > width else drawn


def _drawable(letter: str) -> str:
    if not letter.isprintable():
        return " "
    return letter if ord(letter) in _glyphs() else "□"


@cache
def _glyphs() -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())


def literal(text: Text) -> Text:
    """Turn off mathtext: ``$`` is an ordinary character."""
    text.set_parse_math(False)
    return text


def put_kind(ax: Axes, kind: str, height: float = 9) -> None:
    """Write the kind of data (measured, public trace, synthetic) `height` points above the upper right corner."""
    text = ax.annotate(kind or UNSTATED, (1, 1), (0, height), "axes fraction", "offset points", ha="right", va="bottom")
    text.set(color="#6a6a6e", style="italic", fontsize=8, gid="data-kind")
    literal(text)


def _put_legend(ax: Axes, entries: Sequence[tuple[Any, str]]) -> None:
    from matplotlib.transforms import ScaledTranslation

    longest = max(len(name) for _, name in entries)
    room = int(np.clip(140 // (longest + 6), 1, len(entries)))
    columns = math.ceil(len(entries) / math.ceil(len(entries) / room))
    handles = [handle for handle, _ in entries]
    # matplotlib drops labels that begin with an underscore, as user names may: the text is set afterwards.
    places = [str(place) for place in range(len(entries))]
    # A fixed distance clears tick labels and axis label at any height of the figure.
    below = ax.transAxes + ScaledTranslation(0, -38 / 72, ax.figure.dpi_scale_trans)
    legend = ax.legend(
        handles, places, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below, ncols=columns, borderaxespad=0
    )
    for text, (_, name) in zip(legend.get_texts(), entries, strict=True):
        literal(text).set_text(name)


def put_stack(ax: Axes, wide: pd.DataFrame, colors: Sequence[str], **options: Any) -> list[Any]:
    """Stack the columns of `wide` over the times of its index, the first at the bottom; return their areas."""
    times, tops = to_utc(wide.index), np.cumsum(wide.to_numpy(dtype=float), axis=1)
    floors = np.hstack([np.zeros((len(tops), 1)), tops[:, :-1]])
    return [ax.fill_between(times, floors[:, i], tops[:, i], color=color, **options) for i, color in enumerate(colors)]


def put_line(ax: Axes, ds: Any, values: Any, color: str, **look: Any) -> Any:
    """Draw a line over times."""
    return ax.plot(to_utc(ds), np.asarray(values, dtype=float), color=color, **look)[0]


def put_bands(ax: Axes, forecast: pd.DataFrame, model: str) -> dict[float, Any]:
    """Draw the intervals of a model; the bands by level in percent, the widest first."""
    times, bands = to_utc(forecast["ds"]), dict[float, Any]()
    for level, bounds in reversed(interval_columns(forecast, model).items()):
        low, high = (forecast[name].to_numpy(dtype=float) for name in bounds)
        alpha = NARROW if bands else WIDE
        bands[level] = ax.fill_between(times, low, high, color=PREDICTED, alpha=alpha, linewidth=0)
    return bands


def named(artists: Iterable[Any], names: Iterable[object]) -> list[tuple[Any, str]]:
    """Entries of a legend."""
    return [(artist, short_name(name)) for artist, name in zip(artists, names, strict=True)]


def put_names(axis: Axis, names: Iterable[object], width: int = 40, shift: float = 0.0, **look: Any) -> None:
    """Name the rows or columns of a figure, which lie at whole numbers and `shift`."""
    shown = [short_name(name, width) for name in names]
    axis.set_ticks(np.arange(len(shown)) + shift, shown, **look)
    for label in axis.get_ticklabels():
        literal(label)


def time_axes(ax: Axes, ds: pd.Series | pd.Index, label: str, margin: float = 0.0) -> None:
    """Format both axes of a time series: dates in the zone of `ds`, counts with the name `label`."""
    count_axis(ax, label)
    ax.margins(x=margin)
    date_axis(ax, ds)


def date_axis(ax: Axes, ds: pd.Series | pd.Index) -> None:
    """Format dates on the x axis, in the time zone of `ds`."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    zone = pd.DatetimeIndex(ds).tz
    locator = AutoDateLocator(tz=zone, maxticks=9)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))
    ax.set_xlabel(f"time ({zone})" if zone is not None else "time", loc="left")


def count_axis(ax: Axes, label: str) -> None:
    """Name the y axis and format its numbers with thousands separators."""
    ax.set_ylabel(label)
    ax.yaxis.set_major_formatter("{x:,.6g}")


def to_utc(ds: pd.Series | pd.Index) -> np.ndarray[Any, np.dtype[np.datetime64]]:
    """Convert times to UTC without a zone, as matplotlib takes them."""
    index = pd.DatetimeIndex(ds)
    index = index if index.tz is None else index.tz_convert("UTC").tz_localize(None)
    return index.to_numpy(dtype="datetime64[ns]")


def kind_of(*frames: Any) -> str:
    """Kind of data that the first of `frames` (or plans) states in its ``attrs``; a remark if none does."""
    kinds = (getattr(frame, "attrs", {}).get("kind") for frame in frames)
    return next((str(kind) for kind in kinds if kind), UNSTATED)


def value_label(*frames: pd.DataFrame | None) -> str:
    """Axis label, with its unit, for the value and bin that the first of `frames` states in its ``attrs``.

    >>> import pandas as pd
    >>> usage = pd.DataFrame()
    >>> usage.attrs = {"value": "gpus", "freq": "W-MON"}
    >>> value_label(usage)
    'GPUs held (mean per week)'
    """
    stated = (frame.attrs for frame in frames if frame is not None)
    attrs: Mapping[Any, Any] = next((attrs for attrs in stated if attrs.get("value")), {})
    label = VALUE_LABELS.get(str(attrs.get("value")), "GPUs")
    return label.format(bin=bin_name(attrs.get("freq", "bin")))
