"""Stability of segments under resampling, and ablation of feature blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.validation import check_is_fitted

from gpudemand import _parallel
from gpudemand._validation import InputError, check_labels, check_number, told
from gpudemand.segments.clustering import jaccard_recovery
from gpudemand.segments.features import TOPOLOGY, choose_blocks
from gpudemand.segments.segmenter import TopologicalSegmenter
from gpudemand.segments.usage_matrix import as_matrix


@told("Segmenting samples of users")
def segment_stability(
    segmenter: TopologicalSegmenter,
    X: pd.DataFrame,
    *,
    n_resamples: int = 20,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Refit a segmenter to bootstrap samples of the users, and compare the labels of all users.

    Parameters
    ----------
    segmenter : TopologicalSegmenter
        Fitted on `X`.
    X : DataFrame, shape (n_users, n_timestamps)
        Usage.
    n_resamples : int, default=20
    random_state : int, default=0
    n_jobs : int or None, default=None
        Processes; Dask's workers when a client is active.

    Returns
    -------
    DataFrame, one row a resample
        ``ari``: adjusted Rand index of the two labelings of all users; ``segment_0``, ``segment_1``, ...: the largest
        Jaccard index of each segment with one of the refit. A segment with a mean below 0.5 is unstable (Hennig).

    Raises
    ------
    InputError
        If `n_resamples` is not a whole number of at least 1.

    References
    ----------
    C. Hennig, *Cluster-wise assessment of cluster stability*, CSDA 52, 2007.

    Examples
    --------
    >>> import gpudemand as gd
    >>> jobs, truth = gd.make_cluster(60, 120, archetypes=["nightly", "burst"], random_state=0)
    >>> wide = gd.to_wide(gd.usage_series(jobs, by="user", freq="D"))
    >>> segmenter = TopologicalSegmenter(2, random_state=0).fit(wide)
    >>> segment_stability(segmenter, wide, n_resamples=3)["ari"].round(2).tolist()
    [1.0, 1.0, 1.0]
    """
    check_is_fitted(segmenter, "labels_")
    count = int(check_number("n_resamples", n_resamples, 1, integer=True))
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(*as_matrix(X))
    seeds = np.random.default_rng(random_state).integers(2**31, size=count)
    rows = _parallel.run(_resample, [(segmenter, frame, int(seed)) for seed in seeds], n_jobs=n_jobs)
    names = ["ari", *(f"segment_{label}" for label in range(segmenter.n_segments_))]
    return pd.DataFrame(rows, columns=names).rename_axis("resample")


def _resample(task: tuple[TopologicalSegmenter, pd.DataFrame, int]) -> list[float]:
    segmenter, frame, seed = task
    drawn = np.random.default_rng(seed).integers(len(frame), size=len(frame))
    sample = frame.iloc[drawn].set_axis(pd.RangeIndex(len(frame)), axis=0)
    refit = clone(segmenter).set_params(n_segments=segmenter.n_segments_, random_state=seed).fit(sample)
    labels = refit.predict(frame)
    return [adjusted_rand_score(segmenter.labels_, labels), *jaccard_recovery(segmenter.labels_, labels)]


@told("Segmenting without each group of features")
def segment_ablation(
    segmenter: TopologicalSegmenter,
    X: pd.DataFrame,
    labels: Sequence[object] | None = None,
) -> pd.DataFrame:
    """Segment the same users with and without each block of features.

    Parameters
    ----------
    segmenter : TopologicalSegmenter
        With method ``"joint"``; need not be fitted. Every row uses its ``n_segments``.
    X : DataFrame, shape (n_users, n_timestamps)
        Usage.
    labels : sequence, shape (n_users,), optional
        True classes of the users; a Series is read by its index, in any order.

    Returns
    -------
    DataFrame
        Rows ``all``, ``without <block>``, ``without topology`` (if two or more blocks are topological) and ``only
        <block>`` (for three or more blocks); columns ``n_segments``, ``agreement`` (adjusted Rand index with row
        ``all``) and ``ari`` (with `labels`).

    Raises
    ------
    InputError
        If the method is not ``"joint"``, or there is not one label per user.

    Examples
    --------
    >>> import gpudemand as gd
    >>> jobs, truth = gd.make_cluster(60, 120, archetypes=["nightly", "burst"], random_state=0)
    >>> wide = gd.to_wide(gd.usage_series(jobs, by="user", freq="D"))
    >>> kinds = truth.set_index("user")["archetype"].loc[wide.index]
    >>> segmenter = TopologicalSegmenter(2, blocks=["persistence", "spectrum"], random_state=0)
    >>> segment_ablation(segmenter, wide, kinds).index.tolist()
    ['all', 'without persistence', 'without spectrum']
    """
    if segmenter.method != "joint":
        raise InputError(f"an ablation needs method='joint', which has blocks; got {segmenter.method!r}.")
    matrix = as_matrix(X)
    known = None if labels is None else check_labels("labels", labels, matrix.ids)
    fits = {
        name: clone(segmenter).set_params(blocks=list(blocks)).fit(X)
        for name, blocks in _variants(choose_blocks(segmenter.blocks, matrix)).items()
    }
    rows = {name: _row(fit, fits["all"], known) for name, fit in fits.items()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("blocks")


def _variants(blocks: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    variants = {"all": blocks}
    if len(blocks) > 1:
        variants |= {f"without {name}": tuple(other for other in blocks if other != name) for name in blocks}
        baseline = tuple(name for name in blocks if name not in TOPOLOGY)
        if 0 < len(baseline) < len(blocks) - 1:
            variants["without topology"] = baseline
    if len(blocks) > 2:
        variants |= {f"only {name}": (name,) for name in blocks}
    return variants


def _row(fit: TopologicalSegmenter, whole: TopologicalSegmenter, labels: NDArray[Any] | None) -> dict[str, float]:
    row = {"n_segments": fit.n_segments_, "agreement": adjusted_rand_score(whole.labels_, fit.labels_)}
    return row if labels is None else {**row, "ari": adjusted_rand_score(labels, fit.labels_)}
