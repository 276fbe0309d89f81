"""Split conformal prediction intervals around positive costs, from errors of held-out groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import check_number


class ConformityScores(NamedTuple):
    """Log errors of held-out rows in units of their predicted scale, sorted, with their weights.

    Attributes
    ----------
    scores : ndarray of shape (n_rows,)
        In ascending order.
    weights : ndarray of shape (n_rows,)
        They sum to 1.

    References
    ----------
    Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", Springer 2005.

    Examples
    --------
    >>> scores = ConformityScores.from_errors(np.linspace(-1.0, 1.0, 99), np.arange(99))
    >>> scores.intervals(np.array([10.0]), np.array([0.1]), [90]).round(2).tolist()
    [[10.0, 9.12, 10.96]]
    """

    scores: FloatArray
    weights: FloatArray

    @classmethod
    def from_errors(cls, errors: FloatArray, groups: IntArray) -> ConformityScores:
        """Sort scaled errors; a group of n rows weighs ``sqrt(n)``, so that large groups do not dominate."""
        weights = 1.0 / np.sqrt(np.bincount(groups)[groups])
        order = np.argsort(errors, kind="stable")
        return cls(errors[order], weights[order] / weights.sum())

    def quantile(self, coverage: float) -> float:
        """Conformal quantile of the absolute scores."""
        size = np.abs(self.scores)
        order = np.argsort(size, kind="stable")
        reached = np.cumsum(self.weights[order]) * (order.size / (order.size + 1.0))
        # Relative to rounding: with equal weights, ranks that reach the coverage exactly are common.
        place = int(np.searchsorted(reached, coverage * (1.0 - 1e-12)))
        return float(size[order[min(place, order.size - 1)]])

    def cdf(self, score: FloatArray) -> FloatArray:
        """Weighted share of scores at or below each of `score`."""
        reached = np.concatenate([[0.0], np.cumsum(self.weights)])
        return np.asarray(np.minimum(reached[np.searchsorted(self.scores, score, side="right")], 1.0))

    def intervals(self, cost: FloatArray, scale: FloatArray, levels: Sequence[float]) -> FloatArray:
        """Costs with their intervals, shape (n, 1 + 2 n_levels): the cost, then both ends at each level in percent."""
        shares = [check_number("level", level, 0, 99.9, open_low=True) / 100 for level in levels]
        widths = [np.exp(self.quantile(share) * scale) for share in shares]
        return np.column_stack([cost, *(end for width in widths for end in (cost / width, cost * width))])
