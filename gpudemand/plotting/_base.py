"""What every figure shares: the style sheet, the palette, and one way to write dates, names and the kind of data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from gpudemand.usage.bins import bin_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
    from matplotlib.text import Text

Self = TypeVar("Self", bound="Display")

MEASURED = "#1c1c1f"
PREDICTED = "#1f5fa8"
INSTALLED = "#8b1a1a"
BASELINE = "#8c8c90"
OTHER = "#c8c8cc"
#: Opacity of the wide and of the narrow interval, both in `PREDICTED`.
WIDE, NARROW = 0.16, 0.30
#: Paul Tol's muted colours, dark and light in turn so that neighbours in a stack stay apart without hue.
GROUPS = ("#332288", "#88ccee", "#117733", "#ddcc77", "#cc6677", "#44aa99", "#882255")

#: What `usage_series` calls a value -> how an axis names it, with its unit.
VALUE_LABELS = {
    "gpu_hours": "GPU-hours per {bin}",
    "gpus": "GPUs held (mean per {bin})",
    "gpus_peak": "GPUs held (peak per {bin})",
    "jobs": "jobs submitted per {bin}",
}
UNSTATED = "kind of data not stated"
_SHEET = Path(__file__).with_name("gpudemand.mplstyle")


@contextmanager
def style() -> Iterator[None]:
    """Give the house style to figures made inside a ``with`` block; global settings stay as they are.

    Every Display draws inside it already; use it for figures of your own that stand beside them.

    Returns
    -------
    context manager

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
        # The backend of a notebook turns interactive mode on when its first figure is made; leaving must keep that.
        interactive = plt.isinteractive()
    mpl.interactive(interactive)


class Display:
    """A figure of data that is already computed: a subclass says what is drawn, this says where and in which style.

    Attributes
    ----------
    ax_, figure_ : Axes, Figure
        After `plot`.
    """

    #: Width and height of a new figure, in inches.
    _size = (9.0, 3.8)

    def plot(self: Self, ax: Axes | None = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Display
            Itself, with the artists as attributes.
        """
        with style():
            self.ax_ = axes_of(ax, self._size)
            self.figure_ = self.ax_.figure
            self._draw(self.ax_)
        return self

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError


def axes_of(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return `ax`, or the axes of a new figure of `size` inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size)[1]


def short_name(name: object, width: int = 40) -> str:
    r"""Make a name that a user supplied fit to draw: one line, at most `width` characters, only known glyphs.

    Examples
    --------
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
    """Keep matplotlib from reading ``$`` as the start of a formula."""
    text.set_parse_math(False)
    return text


def put_title(ax: Axes, title: str) -> None:
    """Write the title at the left, as it stands."""
    literal(ax.set_title(title, loc="left"))


def put_kind(ax: Axes, kind: str) -> Text:
    """Write the kind of data (measured, public trace, synthetic) into the upper right corner, above the axes."""
    text = ax.annotate(kind or UNSTATED, (1, 1), (0, 9), "axes fraction", "offset points", ha="right", va="bottom")
    text.set(color="#6a6a6e", style="italic", fontsize=8, gid="data-kind")
    return literal(text)


def put_legend(ax: Axes, entries: Sequence[tuple[Any, str]]) -> Legend:
    """Write the legend below the axes, in as many columns as the names leave room for."""
    from matplotlib.transforms import ScaledTranslation

    longest = max(len(name) for _, name in entries)
    room = int(np.clip(140 // (longest + 6), 1, len(entries)))
    columns = math.ceil(len(entries) / math.ceil(len(entries) / room))
    handles = [handle for handle, _ in entries]
    # matplotlib leaves out labels that begin with an underscore, as user names may: set the text afterwards.
    places = [str(place) for place in range(len(entries))]
    # A fixed distance, not a share of the height: it has to clear the dates and the label of the axis.
    below = ax.transAxes + ScaledTranslation(0, -38 / 72, ax.figure.dpi_scale_trans)
    legend = ax.legend(
        handles, places, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below, ncols=columns, borderaxespad=0
    )
    for text, (_, name) in zip(legend.get_texts(), entries, strict=True):
        literal(text).set_text(name)
    return legend


def date_axis(ax: Axes, ds: pd.Series | pd.Index) -> None:
    """Write dates along the x axis concisely, in the time zone of `ds`."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    zone = pd.DatetimeIndex(ds).tz
    locator = AutoDateLocator(tz=zone, maxticks=9)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))
    ax.set_xlabel(f"time ({zone})" if zone is not None else "time", loc="left")


def count_axis(ax: Axes, label: str) -> None:
    """Name the y axis and write its numbers with thousands separators."""
    ax.set_ylabel(label)
    ax.yaxis.set_major_formatter("{x:,.6g}")


def instants(ds: pd.Series | pd.Index) -> np.ndarray[Any, np.dtype[np.datetime64]]:
    """Return times as matplotlib takes them: UTC without a zone; the axis puts the zone back."""
    index = pd.DatetimeIndex(ds)
    index = index if index.tz is None else index.tz_convert("UTC").tz_localize(None)
    return index.to_numpy(dtype="datetime64[ns]")


def kind_of(*frames: Any) -> str:
    """Kind of data that the first of `frames` (or plans) states in its ``attrs``, or a remark that none does."""
    kinds = (frame.attrs.get("kind") for frame in frames if frame is not None)
    return next((str(kind) for kind in kinds if kind), UNSTATED)


def value_label(*frames: pd.DataFrame | None) -> str:
    """Axis label, with its unit, for the value and bin that the first of `frames` states in its ``attrs``.

    Examples
    --------
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
