"""Ablation of the blocks of features of a segmenter."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from gpudemand._validation import InputError
from gpudemand.segments.base.usage_matrix import as_matrix
from gpudemand.segments.features.feature_table import TOPOLOGY, choose_blocks
from gpudemand.segments.segmenter import TopologicalSegmenter
from gpudemand.segments.stability import segment_stability


def segment_ablation(
    segmenter: TopologicalSegmenter,
    X: pd.DataFrame,
    labels: Sequence[object] | None = None,
    *,
    n_resamples: int = 0,
) -> pd.DataFrame:
    """Segment the same users with and without each block of features.

    Parameters
    ----------
    segmenter : TopologicalSegmenter
        With method ``"joint"``; need not be fitted. Every row uses its ``n_segments``.
    X : DataFrame, shape (n_users, n_timestamps)
        Usage.
    labels : sequence, shape (n_users,), optional
        True classes of the users.
    n_resamples : int, default=0
        Resamples of `segment_stability` per row; 0 omits the column.

    Returns
    -------
    DataFrame
        Rows ``all``, ``without <block>``, ``without topology`` (if two or more blocks are topological) and ``only
        <block>`` (for three or more blocks); columns ``n_segments``, ``agreement`` (adjusted Rand index with row
        ``all``), ``ari`` (with `labels`) and ``stability`` (mean over resamples).

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
    if labels is not None and len(labels) != len(matrix.ids):
        raise InputError(f"labels must be one a user; got {len(labels)} for {len(matrix.ids)} users.")
    fits = {
        name: clone(segmenter).set_params(blocks=list(blocks)).fit(X)
        for name, blocks in _variants(choose_blocks(segmenter.blocks, matrix)).items()
    }
    rows = {name: _row(fit, fits["all"], X, labels, n_resamples) for name, fit in fits.items()}
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


def _row(
    fit: TopologicalSegmenter,
    whole: TopologicalSegmenter,
    X: pd.DataFrame,
    labels: Sequence[object] | None,
    n_resamples: int,
) -> dict[str, float]:
    row = {"n_segments": fit.n_segments_, "agreement": adjusted_rand_score(whole.labels_, fit.labels_)}
    if labels is not None:
        row["ari"] = adjusted_rand_score(list(labels), fit.labels_)
    if n_resamples:
        row["stability"] = float(segment_stability(fit, X, n_resamples=n_resamples)["ari"].mean())
    return row
