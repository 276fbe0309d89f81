"""Names and colours of segments in figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._validation import InputError
from gpudemand.plotting._base import GROUPS, OTHER

#: Edges between stacked segments.
EDGES: dict[str, Any] = {"linewidth": 0.4, "edgecolor": "white"}


def segment_colors(n_segments: int) -> list[str]:
    """Colour of each segment, in a fixed order; grey from the eighth on.

    Examples
    --------
    >>> segment_colors(8)[-1]
    '#c8c8cc'
    """
    return [*GROUPS[:n_segments], *[OTHER] * max(n_segments - len(GROUPS), 0)]


def checked_labels(users: pd.Index, labels: Sequence[int]) -> pd.Series:
    """Validate labels; return them by user."""
    codes = np.asarray(labels)
    if codes.shape != (len(users),) or not np.issubdtype(codes.dtype, np.integer):
        raise InputError(f"labels must be one whole number a user; got shape {codes.shape} for {len(users)} users.")
    return pd.Series(codes, index=users)


def segment_names(labels: pd.Series, names: Sequence[str] | None) -> dict[int, str]:
    """Name of each segment that occurs: the names given, in the order of the labels, or their numbers."""
    found = sorted(labels.unique().tolist())
    if names is None:
        return {label: f"segment {label}" for label in found}
    if len(names) != len(found):
        raise InputError(f"names must be one a segment; got {len(names)} for {len(found)} segments.")
    return {label: str(name) for label, name in zip(found, names, strict=True)}
