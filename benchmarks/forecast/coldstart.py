"""Cold start: the first days of users held out by a hash of their names."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans

from benchmarks.forecast import load, users
from benchmarks.forecast.origins import Origins
from gpudemand.forecast import AnalogueForecaster, Panel
from gpudemand.metrics import pinball

TITLE = "Cold start: users with 0, 1 and 3 days of history, the 3 days that follow, mean pinball loss of nine deciles"
AIM = "10 % lower than the mean of all users and the mean of the segment"
DAYS, HORIZON = (0, 1, 3), 3
SHARES = np.arange(0.1, 0.95, 0.1)
SETS = {"GenTD26": users.gentd, "DLRM": users.dlrm}


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """Score quantiles from analogues beside means and quantiles of all and of segments; `origins` is ignored."""
    tables = {(name, m): _scores(panel, m) for name, panel in load.available(SETS, data) for m in DAYS}
    return pd.DataFrame(tables).T.rename_axis(["set", "days of history"])


def _scores(panel: Panel, m: int) -> dict[str, float]:
    held_out = np.array([zlib.crc32(str(name).encode()) % 5 == 0 for name in panel.ids])
    usage = panel.long_frame(panel.times, {"y": panel.values})
    known = usage[~usage["unique_id"].isin(panel.ids[held_out])]
    model = AnalogueForecaster().fit(known, freq=panel.freq)
    new = AnalogueForecaster().fit(usage[usage["unique_id"].isin(panel.ids[held_out])], freq=panel.freq)
    others, aged = _whole(model.aligned_, m), _whole(new.aligned_, m)
    past, truth = aged[:, :m], aged[:, m:]
    paths = {"analogues": model.quantiles(past if m else np.zeros((len(aged), 1)), HORIZON, list(SHARES))}
    labels, mine = _segments(others[:, :m], past)
    for name, (theirs, own) in {
        "of all": (np.zeros(len(others), int), np.zeros(len(aged), int)),
        "of the segment": (labels, mine),
    }.items():
        groups = [others[theirs == label, m:] for label in range(theirs.max() + 1)]
        paths[f"mean {name}"] = np.stack([np.repeat(group.mean(axis=0)[None], 9, axis=0) for group in groups], 1)[
            :, own
        ]
        paths[f"quantiles {name}"] = np.stack([np.quantile(group, SHARES, axis=0) for group in groups], 1)[:, own]
    paths["own mean"] = np.broadcast_to(past.mean(axis=1)[None, :, None] if m else 0.0, (9, *truth.shape))
    return {"users": len(aged)} | {name: _loss(truth, path) for name, path in paths.items()}


def _whole(aged: np.ndarray, m: int) -> np.ndarray:  # type: ignore[type-arg]
    """First days of the users with a complete window."""
    return aged[~np.isnan(aged[:, : m + HORIZON]).any(axis=1), : m + HORIZON]


def _segments(others: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Four segments by the log of the use on each day; one segment without history."""
    if not others.shape[1]:
        return np.zeros(len(others), int), np.zeros(len(new), int)
    model = KMeans(4, n_init=3, random_state=0).fit(np.log1p(others))
    return model.labels_, model.predict(np.log1p(new))


def _loss(truth: np.ndarray, paths: np.ndarray) -> float:  # type: ignore[type-arg]
    return float(np.mean([pinball(truth, path, share) for share, path in zip(SHARES, paths, strict=True)]))
