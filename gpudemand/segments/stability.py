"""Bootstrap stability of segments."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.validation import check_is_fitted

from gpudemand import _parallel
from gpudemand._validation import check_number
from gpudemand.segments.base.usage_matrix import as_matrix
from gpudemand.segments.clustering.selection import jaccard_recovery
from gpudemand.segments.segmenter import TopologicalSegmenter


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
