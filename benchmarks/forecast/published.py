"""The published pipeline end to end: homology of 2,000 users, a classifier for the others, a forecast by cluster."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import KFold, cross_val_predict

from benchmarks.forecast import load
from benchmarks.forecast.origins import Origins
from gpudemand.forecast import Panel, TemporalFactorization
from gpudemand.segments import TopologicalSegmenter

TITLE = "CDNOW, daily spend, the newest 70 days, as in the notebooks of Rivera-Castro et al. (RMSE)"
AIM = "2,000 clustered users and 8,000 assigned ones end to end in less than 300 s"
#: Clusters in the published notebooks by consensus, and users whose homology is computed.
CLUSTERS = {"pairs": 12, "voting": 8}
PUBLISHED = {"pairs": "GMM_Pair", "voting": "GMM_Voting"}
USERS, CLUSTERED, H = (2600, 5000, 10000), 2000, 70


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """Score each consensus and number of users; `origins` is not used, as the test period is the published one.

    ``mean of clusters`` is the published score, the mean of the clusters' RMSE weighted by their users; it falls by
    clustering alone, also for a zero forecast. ``pooled`` is the RMSE over all users. ``assigned alike`` is the
    adjusted Rand index of the segments of the clustered users with those the classifier gives them in three folds.
    """
    panel = load.cdnow_daily(data)
    paper = pd.read_csv(data / "series" / "clusterwise-paper-results" / "tables.csv")
    rng = np.random.default_rng(0)
    rows = {}
    for n_users in USERS:
        chosen = np.sort(rng.choice(len(panel.ids), n_users, replace=False))
        some = Panel(panel.ids[chosen], panel.times, panel.values[chosen], panel.freq, panel.attrs)
        for method in CLUSTERS:
            rows[n_users, method] = _scores(some, method) | {
                "published": _reported(paper, "after_classifier", PUBLISHED[method], n_users),
                "published, one factorization": _reported(paper, "all_data", "none", n_users),
            }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["users", "consensus"])


def _scores(panel: Panel, method: str) -> dict[str, float]:
    history, truth = panel.until(len(panel.times) - H), panel.values[:, -H:]
    began = time.perf_counter()
    segmenter = TopologicalSegmenter(CLUSTERS[method], method=method, sample_size=CLUSTERED, random_state=0)
    labels = segmenter.fit(pd.DataFrame(history.values, history.ids, history.times)).labels_
    path = np.empty(truth.shape)
    for label in np.unique(labels):
        path[labels == label] = _forecast(history, np.flatnonzero(labels == label))
    seconds = time.perf_counter() - began
    shuffled = np.random.default_rng(0).permutation(labels)
    everyone = _forecast(history, np.arange(len(labels)))
    return {
        "clusters": segmenter.n_segments_,
        "assigned alike": _assigned_alike(segmenter, history.ids, labels),
        "mean of clusters": _mean_of_clusters(truth, path, labels),
        "zero, mean of clusters": _mean_of_clusters(truth, 0 * path, labels),
        "zero, random clusters": _mean_of_clusters(truth, 0 * path, shuffled),
        "pooled": _rmse(truth - path),
        "pooled, one factorization": _rmse(truth - everyone),
        "pooled, zero": _rmse(truth),
        "seconds": seconds,
    }


def _assigned_alike(segmenter: TopologicalSegmenter, ids: pd.Index, labels: np.ndarray) -> float:  # type: ignore[type-arg]
    """Adjusted Rand index of the labels of clustered users with a classifier's that has not seen them."""
    inside = ids.isin(segmenter.rips_statistics_.index)
    trees = ExtraTreesClassifier(200, random_state=0)
    found = cross_val_predict(
        trees, segmenter.features_[inside], labels[inside], cv=KFold(3, shuffle=True, random_state=0)
    )
    return float(adjusted_rand_score(labels[inside], found))


def _forecast(history: Panel, rows: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Forecast of some users by a factorization of their own, shape (n_users, H)."""
    usage = Panel(history.ids[rows], history.times, history.values[rows], history.freq, {})
    frame = usage.long_frame(usage.times, {"y": usage.values})
    found = TemporalFactorization().fit(frame, freq=history.freq).predict(H)
    wide = found.pivot(index="unique_id", columns="ds", values="TemporalFactorization")
    return wide.loc[usage.ids].to_numpy()


def _mean_of_clusters(truth: np.ndarray, path: np.ndarray, labels: np.ndarray) -> float:  # type: ignore[type-arg]
    groups = [labels == label for label in np.unique(labels)]
    return sum(group.mean() * _rmse((truth - path)[group]) for group in groups)


def _rmse(error: np.ndarray) -> float:  # type: ignore[type-arg]
    return float(np.sqrt(np.square(error).mean()))


def _reported(paper: pd.DataFrame, step: str, clusters: str, n_users: int) -> float:
    """Score of the notebooks for TRMF."""
    rows = paper[
        paper["dataset"].str.contains("CDNOW")
        & (paper["model"] == "trmf")
        & (paper["step"] == step)
        & (paper["clusters"].fillna("none") == clusters)
        & (paper["users"] == n_users)
    ]
    return float(rows["value"].min())
