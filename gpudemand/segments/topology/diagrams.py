"""Persistence diagrams of several series in giotto-tda's format, and their published lifetime statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice
from gpudemand.segments.topology.sweep import STATISTICS, summarise

#: Statistics of one homology dimension; the first notebooks of the paper have all but ``distinct``.
SUMMARIES = ("count", "largest", "distinct", "long_lived", "mean", "sum")
_FIRST = [name for name in SUMMARIES if name != "distinct"]
#: The two published summaries, and both: homology dimension and statistic of each feature.
PUBLISHED = {
    "both": [(dimension, name) for dimension in (0, 1) for name in SUMMARIES],
    "lifetimes": [(dimension, name) for dimension in (0, 1) for name in _FIRST],
    "loops": [(1, name) for name in ("largest", "distinct", "count")],
}
# Relative tolerance for equal lifetimes: giotto-ph computes in single precision.
_SAME = 1e-5


def stack_diagrams(diagrams: Sequence[FloatArray]) -> FloatArray:
    """Stack diagrams of different sizes as giotto-tda does.

    Parameters
    ----------
    diagrams : sequence of ndarray, each of shape (n_pairs, 3)
        Birth, death and dimension (0 or 1).

    Returns
    -------
    ndarray, shape (n_diagrams, n_rows, 3)
        Every homology dimension has as many rows as in the largest diagram, at least one; pairs of no lifetime fill
        the others up.

    Examples
    --------
    >>> stack_diagrams([np.array([[0.0, 1, 0], [1, 3, 1]]), np.array([[0.0, 2, 0], [0, 4, 0]])])[0].tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 3.0, 1.0]]
    """
    blocks = []
    for dimension in (0, 1):
        parts = [diagram[diagram[:, 2] == dimension] for diagram in diagrams]
        block = np.zeros((len(parts), max([len(part) for part in parts] + [1]), 3))
        block[:, :, 2] = dimension
        for row, part in zip(block, parts, strict=True):
            row[:, :2] = part[:, 0].min(initial=np.inf) if len(part) else 0.0
            row[: len(part)] = part
        blocks.append(block)
    return np.concatenate(blocks, axis=1)


def diagram_statistics(diagrams: object, summary: str = "both") -> FloatArray:
    """Compute the lifetime statistics of Rivera-Castro et al. of each persistence diagram.

    Parameters
    ----------
    diagrams : array-like, shape (n_diagrams, n_rows, 3)
        Birth, death and dimension, as `RipsStatistics.diagrams` and giotto-tda's transformers return them. Pairs of no
        lifetime, which fill diagrams up, are ignored.
    summary : {"both", "lifetimes", "loops"}, default="both"
        ``"lifetimes"``, the ten features of the authors' first notebooks: in dimensions 0 and 1 the number of pairs,
        the largest lifetime, the number of those of at least 80 % of it, their mean and their sum. ``"loops"``, the
        three of their later ones: largest lifetime, number of distinct pairs and number of pairs in dimension 1.

    Returns
    -------
    ndarray, shape (n_diagrams, n_features)
        Zeros for a dimension without pairs.

    Raises
    ------
    InputError
        If the diagrams have another shape, or the summary is unknown.

    References
    ----------
    R. Rivera-Castro et al., *Topology-based clusterwise regression for user segmentation and demand forecasting*,
    DSAA 2019, arXiv:2009.03661, and its authors' public notebooks.

    Examples
    --------
    >>> diagram_statistics([[[0.0, 1.0, 0], [0.0, 4.0, 0], [2.0, 5.0, 1], [0.0, 0.0, 1]]], "loops").tolist()
    [[3.0, 1.0, 1.0]]
    """
    stacked = np.asarray(diagrams, dtype=float)
    if stacked.ndim != 3 or stacked.shape[2] != 3:
        raise InputError(f"diagrams must have shape (n_diagrams, n_rows, 3); got {stacked.shape}.")
    chosen = PUBLISHED[check_choice("summary", summary, PUBLISHED)]
    out = np.zeros((len(stacked), 2, len(STATISTICS)))
    for diagram, rows in zip(stacked, out, strict=True):
        lifetimes = diagram[:, 1] - diagram[:, 0]
        for dimension in (0, 1):
            summarise(lifetimes[(lifetimes > 0) & (diagram[:, 2] == dimension)], _SAME, rows[dimension])
    return np.column_stack([out[:, dimension, STATISTICS.index(name)] for dimension, name in chosen])
