"""Labelled series of the UCR archive: segments, k-means, k-shape, DTW k-means and log-spectrum k-means.

Every set in ``series/ucr-small`` is scored; sktime's repository (``sktime/datasets/data``) has ACSF1 and OSULeaf, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from gpudemand.segments import LogSpectrum, TopologicalSegmenter

#: Best published adjusted Rand index (tsml-eval's result files).
PUBLISHED = {"ACSF1": 0.28, "ArrowHead": 0.26, "GunPoint": 0.11, "ItalyPowerDemand": 0.74, "OSULeaf": 0.33}
N_SEEDS, MAX_SERIES_FOR_DTW = 5, 250
Array = NDArray[Any]


def read_ts(path: Path) -> tuple[Array, Array]:
    """Read series and labels of a .ts file."""
    lines = [line for line in path.read_text().splitlines() if line and line[0] not in "@#"]
    values, labels = zip(*(line.rsplit(":", 1) for line in lines), strict=True)
    return np.array([np.array(text.split(","), dtype=float) for text in values]), np.array(labels)


def z_scores(series: Array) -> Array:
    """Rows with mean 0 and standard deviation 1."""
    return (series - series.mean(axis=1, keepdims=True)) / np.maximum(series.std(axis=1, keepdims=True), 1e-9)


def label_sets(series: Array, n_kinds: int, seed: int) -> dict[str, Array]:
    """Labels of every method; DTW only for small sets."""
    scaled = z_scores(series)
    spectrum = LogSpectrum().fit_transform(series)
    found = {
        "segments": TopologicalSegmenter(n_kinds, random_state=seed).fit(series).labels_,
        "segments, no topology": TopologicalSegmenter(n_kinds, blocks=["spectrum"], random_state=seed)
        .fit(series)
        .labels_,
        "segments, topology only": TopologicalSegmenter(n_kinds, blocks=["persistence"], random_state=seed)
        .fit(series)
        .labels_,
        "k-means": KMeans(n_kinds, n_init=5, random_state=seed).fit_predict(scaled),
        "k-means, log-spectrum": KMeans(n_kinds, n_init=5, random_state=seed).fit_predict(spectrum),
    }
    return found | _peers(scaled, n_kinds, seed)


def _peers(scaled: Array, n_kinds: int, seed: int) -> dict[str, Array]:
    try:
        from tslearn.clustering import KShape, TimeSeriesKMeans
    except ImportError:
        return {}
    found = {"k-shape": KShape(n_kinds, n_init=2, random_state=seed).fit_predict(scaled[:, :, None])}
    if len(scaled) <= MAX_SERIES_FOR_DTW and seed == 0:
        dtw = TimeSeriesKMeans(n_kinds, metric="dtw", max_iter=5, random_state=seed)
        found["DTW k-means (one seed)"] = dtw.fit_predict(scaled[:, :: max(scaled.shape[1] // 80, 1), None])
    return found


def report(data: Path) -> None:
    """Print the table."""
    rows = []
    for train in sorted((data / "series" / "ucr-small").glob("*_TRAIN.ts")):
        name = train.name.removesuffix("_TRAIN.ts")
        parts = [read_ts(train), read_ts(train.with_name(f"{name}_TEST.ts"))]
        series, kinds = np.vstack([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
        for seed in range(N_SEEDS):
            found = label_sets(series, len(set(kinds)), seed)
            rows += [(name, method, adjusted_rand_score(kinds, labels)) for method, labels in found.items()]
        rows.append((name, "best published", PUBLISHED.get(name, np.nan)))
    frame = pd.DataFrame(rows, columns=["set", "method", "ari"])
    print(f"\nAdjusted Rand index on UCR sets, mean of {N_SEEDS} seeds, train and test pooled [public data]")
    print(frame.pivot_table(index="method", columns="set", values="ari", sort=False).round(3).to_string())
