"""Cold start: the first days of users held out by a hash of their names."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans

from benchmarks.forecast import load, users
from benchmarks.forecast.origins import Origins
from gpudemand.forecast import Panel
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
    known, new = (aligned(panel.values[rows]) for rows in (~held_out, held_out))
    others, aged = _whole(known, m), _whole(new, m)
    past, truth = aged[:, :m], aged[:, m:]
    paths = {"analogues": analogues(known, past, HORIZON, SHARES)}
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


def aligned(y: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Use since the first use of each user with any, NaN beyond the end of the history."""
    y = np.nan_to_num(y)
    y = y[(y != 0).any(axis=1)]
    place = (y != 0).argmax(axis=1)[:, None] + np.arange(y.shape[1])
    return np.where(place < y.shape[1], np.take_along_axis(y, np.minimum(place, y.shape[1] - 1), axis=1), np.nan)


def analogues(known: np.ndarray, past: np.ndarray, h: int, shares: np.ndarray, n: int = 50) -> np.ndarray:  # type: ignore[type-arg]
    """Quantiles of new users' next bins by their nearest neighbours, shape (n_shares, n_users, h).

    A user with m bins of history is compared with the first m bins of the `known` users, as `aligned`, by level, share
    of active bins and newest bin relative to the level. The later bins of the `n` nearest (a third of all at most;
    without a history, of all), relative to their level, are the predictive distribution relative to the new level.
    """
    m = past.shape[1]
    others = known[~np.isnan(known[:, : m + h]).any(axis=1), : m + h]
    if not m:
        return np.repeat(np.quantile(others, shares, axis=0)[:, None], len(past), axis=1)
    near = _nearest(_features(others[:, :m]), _features(past), n)
    outcomes = (others[:, m:] / others[:, :m].mean(axis=1)[:, None])[near] * past.mean(axis=1)[:, None, None]
    return np.quantile(outcomes, shares, axis=1)


def _features(past: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Log of the level, twice the share of active bins, and the newest bin relative to the level."""
    level = past.mean(axis=1)
    newest = past[:, -1] / np.where(level > 0, level, 1.0)
    return np.column_stack([np.log(np.maximum(level, 1e-9)), 2 * (past != 0).mean(axis=1), newest])


def _nearest(known: np.ndarray, new: np.ndarray, n: int) -> np.ndarray:  # type: ignore[type-arg]
    """Indices of the nearest rows of `known` for each row of `new`, shape (n_new, n)."""
    n = min(n, max(len(known) // 3, 10), len(known))
    blocks = np.array_split(new, max(len(new) * len(known) // 5_000_000, 1))
    distances = (np.square(block[:, None] - known[None]).sum(axis=2) for block in blocks)
    return np.concatenate([np.argpartition(distance, n - 1, axis=1)[:, :n] for distance in distances])


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
