"""Small series that the tests of the figures share."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HOSTILE = ["x_$<script>", "_under", "y" * 10_000, "line\nbreak", "张伟", "$\\frac{1}{0}$"]


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture
def corner() -> Callable[[Axes], str]:
    """Text of the kind of data in the corner."""

    def text_of(ax: Axes) -> str:
        (text,) = [text for text in ax.texts if text.get_gid() == "data-kind"]
        return str(text.get_text())

    return text_of


@pytest.fixture
def draw_without_warning() -> Callable[[Figure], None]:
    """Render the figure: missing glyphs, bad dates or invalid mathtext warn or raise here."""
    return lambda figure: figure.savefig(io.BytesIO(), format="svg")


@pytest.fixture
def by_user() -> pd.DataFrame:
    """Sixty days of twelve users; the hostile names have the largest usage."""
    ds = pd.date_range("2026-01-01", periods=60, tz="Europe/Berlin")
    names = [*(f"user-{i}" for i in range(6)), *HOSTILE]
    rng = np.random.default_rng(0)
    parts = [
        pd.DataFrame({"unique_id": name, "ds": ds, "y": (i + 1) * rng.uniform(1, 2, 60)})
        for i, name in enumerate(names)
    ]
    usage = pd.concat(parts, ignore_index=True)
    usage.attrs = {"kind": "synthetic", "value": "gpus", "freq": "D"}
    return usage


@pytest.fixture
def total() -> pd.DataFrame:
    """One hundred and fifty days of the total, rising."""
    ds = pd.date_range("2026-01-01", periods=150, tz="Europe/Berlin")
    usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": 50 + 0.2 * np.arange(150)})
    usage.attrs = {"kind": "measured", "value": "gpus", "freq": "D"}
    return usage


@pytest.fixture
def forecast(total: pd.DataFrame) -> pd.DataFrame:
    """Thirty days after `total`, with two intervals."""
    ds = pd.date_range(total["ds"].iloc[-1], periods=31, freq="D")[1:]
    median = np.linspace(80, 110, 30)
    frame = pd.DataFrame({"unique_id": "total", "ds": ds, "ETS": median})
    for level, width in ((80, 5), (95, 9)):
        frame[f"ETS-lo-{level}"], frame[f"ETS-hi-{level}"] = median - width, median + width
    return frame
