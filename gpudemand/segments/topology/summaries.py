"""Diagrams as vectors, with giotto-tda's names: entropy, Betti curve, landscape, image; batched, no diagram is kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.segments.base.transformer import SeriesTransformer, over_rows, scale_code
from gpudemand.segments.base.usage_matrix import Matrix
from gpudemand.segments.topology.sublevel import FILTRATIONS, SIGNS
from gpudemand.segments.topology.sweep import (
    STATISTICS,
    bounds_rows,
    curve_rows,
    image_rows,
    landscape_rows,
    summarise_rows,
)

# Series on the scale of their own range have all their births, deaths and lifetimes between these.
_UNIT = (0.0, 1.0)


class _Vectorizer(SeriesTransformer):
    """Sublevel and superlevel diagrams of each series, without the essential pair, as numbers."""

    scale: str | None
    filtrations: Sequence[str]

    @property
    def scale_free(self) -> bool:
        """Whether multiplying a series by a positive constant leaves its features as they are."""
        return self.scale is not None

    def _learn(self, matrix: Matrix) -> None:
        scale_code(self.scale)
        for name in self.filtrations:
            check_choice("filtrations", name, FILTRATIONS)
        if not self.filtrations:
            raise InputError(f"filtrations is empty; name one or more of: {', '.join(FILTRATIONS)}.")

    def _grid(self, matrix: Matrix, filtration: str, n_bins: int) -> FloatArray:
        """Thresholds from the lowest birth to the highest death."""
        if self.scale == "range":
            low, high = _UNIT if filtration == "sublevel" else (-1.0, 0.0)
        else:
            ends = over_rows(bounds_rows, matrix.values, 2, SIGNS[filtration], scale_code(self.scale))
            low, high = np.fmin.reduce(ends[:, 0], initial=np.inf), np.fmax.reduce(ends[:, 1], initial=-np.inf)
        return np.linspace(low, high, n_bins) if low < high else np.linspace(*_UNIT, n_bins)


class PersistenceEntropy(_Vectorizer):
    """Entropy of the lifetimes of each diagram, in bits: how evenly a series spreads over its ups and downs.

    Parameters
    ----------
    normalize : bool, default=False
        Divide by the binary logarithm of the number of pairs, so that 1 is "all alike".
    filtrations : sequence of {"sublevel", "superlevel"}, default=("sublevel", "superlevel")
        Valleys, peaks or both.
    nan_fill_value : float, default=-1.0
        What a series without pairs gets.

    Notes
    -----
    giotto-tda's ``normalize`` divides by the logarithm of the *sum* of lifetimes, which depends on the unit of usage;
    here nothing does. Lifetimes are those of the diagrams without the essential pair.

    References
    ----------
    N. Atienza, R. Gonzalez-Diaz, M. Soriano-Trigueros, *On the stability of persistent entropy and new summary
    functions for topological data analysis*, Pattern Recognition 107, 2020.

    Examples
    --------
    >>> PersistenceEntropy().fit_transform([[0, 3, 0, 3, 0, 3, 0], [1, 1, 1, 1, 1, 1, 1]]).round(2).tolist()
    [[1.58, 1.0], [-1.0, -1.0]]
    """

    def __init__(
        self, *, normalize: bool = False, filtrations: Sequence[str] = FILTRATIONS, nan_fill_value: float = -1.0
    ) -> None:
        self.normalize = normalize
        self.filtrations = filtrations
        self.nan_fill_value = nan_fill_value

    # Shares of a sum have no unit.
    scale = "range"

    def _features(self, matrix: Matrix) -> FloatArray:
        table = over_rows(summarise_rows, matrix.values, 2 * len(STATISTICS) + 1, 0)
        return np.column_stack([self._entropy(table, name) for name in self.filtrations])

    def _entropy(self, table: FloatArray, filtration: str) -> FloatArray:
        side = len(STATISTICS) * FILTRATIONS.index(filtration)
        count, entropy = table[:, side + STATISTICS.index("count")], table[:, side + STATISTICS.index("entropy")]
        if self.normalize:
            entropy = entropy / np.log2(np.maximum(count, 2.0))
        return np.where(count > 0, entropy, self.nan_fill_value)

    def _names(self) -> list[str]:
        return [f"{name}_entropy" for name in self.filtrations]


class BettiCurve(_Vectorizer):
    """How many valleys (and peaks) stand apart at each threshold.

    Parameters
    ----------
    n_bins : int, default=100
        Number of thresholds.
    scale : {"range", "std", "mean"} or None, default="range"
        What each series is measured in. With ``"range"`` the thresholds run from its minimum to its maximum; otherwise
        from the lowest birth to the highest death seen at ``fit``.
    filtrations : sequence of {"sublevel", "superlevel"}, default=("sublevel",)
        Valleys, peaks or both. Peaks are counted on the negated series, so their thresholds ascend too.

    Attributes
    ----------
    samplings_ : dict of str to ndarray, shape (n_bins,)
        Thresholds of each filtration.

    Notes
    -----
    A pair counts where birth <= threshold < death. The essential pair is left out. A constant series has zeros.

    Examples
    --------
    >>> BettiCurve(n_bins=5).fit_transform([[0, 4, 1, 4, 2]]).tolist()
    [[0.0, 1.0, 2.0, 2.0, 0.0]]
    """

    def __init__(
        self, n_bins: int = 100, *, scale: str | None = "range", filtrations: Sequence[str] = ("sublevel",)
    ) -> None:
        self.n_bins = n_bins
        self.scale = scale
        self.filtrations = filtrations

    def _learn(self, matrix: Matrix) -> None:
        super()._learn(matrix)
        n_bins = int(check_number("n_bins", self.n_bins, 2, integer=True))
        self.samplings_ = {name: self._grid(matrix, name, n_bins) for name in self.filtrations}

    def _features(self, matrix: Matrix) -> FloatArray:
        code = scale_code(self.scale)
        curves = [
            over_rows(curve_rows, matrix.values, grid.size, SIGNS[name], code, grid)
            for name, grid in self.samplings_.items()
        ]
        return np.hstack(curves)

    def _names(self) -> list[str]:
        return [f"{name}_betti_{place}" for name, grid in self.samplings_.items() for place in range(grid.size)]


class PersistenceLandscape(_Vectorizer):
    """The highest tents over each threshold, where every pair is a tent from its birth to its death.

    Parameters
    ----------
    n_layers : int, default=1
        How many tents deep.
    n_bins : int, default=100
        Number of thresholds.
    scale : {"range", "std", "mean"} or None, default="range"
        What each series is measured in, as for `BettiCurve`.
    filtrations : sequence of {"sublevel", "superlevel"}, default=("sublevel",)
        Valleys, peaks or both.

    Attributes
    ----------
    samplings_ : dict of str to ndarray, shape (n_bins,)
        Thresholds of each filtration.

    References
    ----------
    P. Bubenik, *Statistical topological data analysis using persistence landscapes*, JMLR 16, 2015.

    Examples
    --------
    >>> PersistenceLandscape(n_bins=5).fit_transform([[0, 4, 1, 4, 2]]).tolist()
    [[0.0, 0.0, 0.25, 0.25, 0.0]]
    """

    def __init__(
        self,
        n_layers: int = 1,
        n_bins: int = 100,
        *,
        scale: str | None = "range",
        filtrations: Sequence[str] = ("sublevel",),
    ) -> None:
        self.n_layers = n_layers
        self.n_bins = n_bins
        self.scale = scale
        self.filtrations = filtrations

    def _learn(self, matrix: Matrix) -> None:
        super()._learn(matrix)
        check_number("n_layers", self.n_layers, 1, integer=True)
        n_bins = int(check_number("n_bins", self.n_bins, 2, integer=True))
        self.samplings_ = {name: self._grid(matrix, name, n_bins) for name in self.filtrations}

    def _features(self, matrix: Matrix) -> FloatArray:
        code, layers = scale_code(self.scale), int(self.n_layers)
        landscapes = [
            over_rows(landscape_rows, matrix.values, layers * grid.size, SIGNS[name], code, grid, layers)
            for name, grid in self.samplings_.items()
        ]
        return np.hstack(landscapes)

    def _names(self) -> list[str]:
        return [
            f"{name}_landscape_{layer}_{place}"
            for name, grid in self.samplings_.items()
            for layer in range(int(self.n_layers))
            for place in range(grid.size)
        ]


class PersistenceImage(_Vectorizer):
    """The diagram as a picture: a Gaussian for each pair over birth and lifetime, as heavy as the lifetime.

    Parameters
    ----------
    sigma : float, default=0.05
        Standard deviation of the Gaussians, in the unit of `scale`.
    n_bins : int, default=20
        Pixels along each side.
    scale : {"range", "std", "mean"} or None, default="range"
        What each series is measured in, as for `BettiCurve`.
    filtrations : sequence of {"sublevel", "superlevel"}, default=("sublevel",)
        Valleys, peaks or both.

    Attributes
    ----------
    edges_ : dict of str to ndarray, shape (n_bins + 1,)
        Edges of the pixels along births.
    heights_ : dict of str to ndarray, shape (n_bins + 1,)
        Edges of the pixels along lifetimes.

    Notes
    -----
    A pixel holds the exact mass that falls into it, and the weight is the lifetime (giotto-tda samples and smoothes,
    and by default weighs all pairs alike, which lets noise decide). Mass beyond the edges is lost.

    References
    ----------
    H. Adams et al., *Persistence images: a stable vector representation of persistent homology*, JMLR 18, 2017.

    Examples
    --------
    >>> image = PersistenceImage(sigma=0.01, n_bins=2).fit_transform([[0, 4, 1, 4, 0.5]])
    >>> image.reshape(2, 2).round(3).tolist()  # two pairs, born low, of lifetimes 3/4 and 7/8
    [[0.0, 1.625], [0.0, 0.0]]
    """

    def __init__(
        self,
        sigma: float = 0.05,
        n_bins: int = 20,
        *,
        scale: str | None = "range",
        filtrations: Sequence[str] = ("sublevel",),
    ) -> None:
        self.sigma = sigma
        self.n_bins = n_bins
        self.scale = scale
        self.filtrations = filtrations

    def _learn(self, matrix: Matrix) -> None:
        super()._learn(matrix)
        check_number("sigma", self.sigma, 0.0, open_low=True)
        n_edges = int(check_number("n_bins", self.n_bins, 1, integer=True)) + 1
        self.edges_ = {name: self._grid(matrix, name, n_edges) for name in self.filtrations}
        # No pair lives longer than from the first threshold to the last.
        self.heights_ = {name: edges - edges[0] for name, edges in self.edges_.items()}

    def _features(self, matrix: Matrix) -> FloatArray:
        code, sigma = scale_code(self.scale), float(self.sigma)
        images = [
            over_rows(
                image_rows, matrix.values, (edges.size - 1) ** 2, SIGNS[name], code, edges, self.heights_[name], sigma
            )
            for name, edges in self.edges_.items()
        ]
        return np.hstack(images)

    def _names(self) -> list[str]:
        bins = range(int(self.n_bins))
        return [f"{name}_image_{line}_{column}" for name in self.edges_ for line in bins for column in bins]
