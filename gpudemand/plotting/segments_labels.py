"""Names, colours and stacks of segments in figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._validation import InputError
from gpudemand.plotting._base import GROUPS, OTHER, instants

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = len(GROUPS)


def segment_colors(n_segments: int) -> list[str]:
    """Return a colour a segment, in the fixed order; grey beyond the seventh.

    Examples
    --------
    >>> segment_colors(8)[-1]
    '#c8c8cc'
    """
    return [*GROUPS[:n_segments], *[OTHER] * max(n_segments - _MOST, 0)]


def put_stack(ax: Axes, parts: pd.DataFrame) -> list[Any]:
    """Stack the columns of `parts` over the times of its index, the first at the bottom, and return their areas."""
    times, tops = instants(parts.index), np.cumsum(parts.to_numpy(dtype=float), axis=1)
    floors = np.hstack([np.zeros((len(tops), 1)), tops[:, :-1]])
    return [
        ax.fill_between(times, floors[:, i], tops[:, i], color=color, linewidth=0.4, edgecolor="white")
        for i, color in enumerate(segment_colors(parts.shape[1]))
    ]


def checked_labels(users: pd.Index, labels: Sequence[int]) -> pd.Series:
    """Return labels by user, or complain that they do not fit."""
    codes = np.asarray(labels)
    if codes.shape != (len(users),) or not np.issubdtype(codes.dtype, np.integer):
        raise InputError(f"labels must be one whole number a user; got shape {codes.shape} for {len(users)} users.")
    return pd.Series(codes, index=users)


def segment_names(labels: pd.Series, names: Sequence[str] | None) -> dict[int, str]:
    """Return what to call each segment that occurs: the names given, in the order of the labels, or their numbers."""
    found = sorted(labels.unique())
    if names is None:
        return {label: f"segment {label}" for label in found}
    if len(names) != len(found):
        raise InputError(f"names must be one a segment; got {len(names)} for {len(found)} segments.")
    return {label: str(name) for label, name in zip(found, names, strict=True)}
