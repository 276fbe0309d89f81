"""Four uses of clusters of users in forecasts, each beside the same use of random clusters of the same sizes."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans

from benchmarks.forecast import means
from benchmarks.forecast.baselines import Theta
from benchmarks.forecast.origins import Origins
from gpudemand.forecast import Panel
from gpudemand.segments import LogSpectrum, PersistenceCurves

TITLE = (
    "Users by day, mean of 28 days ahead: RMSE with clusters relative to that with random clusters of the same sizes"
)
AIM = "a use of clusters enters where its ratio is below .98, and the random ones spread less than that, on each panel"
_H, _CLUSTERS, _ORIGINS, _RANDOM, _NEW = 28, 4, 4, 8, 7
Array = np.ndarray  # type: ignore[type-arg]
#: Regressors and targets of training, (n_users, n_past, p) and (n_users, n_past), regressors now, labels -> means.
Use = Callable[[Array, Array, Array, Array], Array]


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """A row a panel, use and kind of clusters; ``--origins`` is the number of them."""
    most = _ORIGINS if origins is None or origins.count is None else origins.count
    panels = means.panels_of_users(data)
    scores = {name: _scores(means._largest(panel), most) for name, panel in panels.items()}
    return pd.concat(scores, names=["log", "use"])


def _scores(panel: Panel, most: int) -> pd.DataFrame:
    squares: dict[tuple[str, str], list[float]] = {}
    n_times = len(panel.times)
    for origin in np.linspace(n_times // 2, n_times - _H, most).round().astype(int):
        for key, square in _squares(panel, int(origin)).items():
            squares.setdefault(key, []).append(square)
    root = pd.Series({key: float(np.sqrt(np.mean(values))) for key, values in squares.items()}).unstack()
    random = root.filter(regex="^random")
    table = root.drop(columns=random.columns).div(random.mean(axis=1), axis=0)
    return table.assign(**{"spread of random": random.std(axis=1) / random.mean(axis=1)})


def _squares(panel: Panel, origin: int) -> dict[tuple[str, str], float]:
    """Mean squared error of each use with each kind of clusters, which see data before the origin only."""
    y, truth = panel.values, panel.values[:, origin : origin + _H].mean(axis=1)
    x, target, now = means.past_means(panel, origin)
    kinds, found = _clusters(y[:, :origin]), {}
    for name, labels in kinds.items():
        for use, forecast in USES.items():
            found[use, name] = float(np.square(forecast(x, target, now, labels) - truth).mean())
        total = _of_totals(panel.until(origin), labels)
        found["sum of forecasts of totals", name] = float(np.square(total - truth.sum()))
        found["new users", name] = _of_new_users(y, origin, labels)
    return found


def _clusters(y: Array) -> dict[str, Array]:
    used, kinds = (y > 0).any(axis=1), {}
    for name, block in {"topology": PersistenceCurves(), "log-spectrum": LogSpectrum()}.items():
        labels = np.zeros(len(y), dtype=int)
        labels[used] = KMeans(_CLUSTERS, n_init=3, random_state=0).fit_predict(block.fit_transform(y[used]))
        kinds[name] = labels
    rng = np.random.default_rng(0)
    return {"one cluster": np.zeros(len(y), dtype=int), **kinds} | {
        f"random {seed}": rng.permutation(kinds["topology"]) for seed in range(_RANDOM)
    }


def _pooled(x: Array, target: Array, now: Array, labels: Array) -> Array:
    """Ridge on decayed means; clusters depart from the coefficients of all, with a penalty."""
    root = np.sqrt(np.maximum(x[..., -1:], 1e-3 * x[..., -1].mean()))
    member = np.eye(_CLUSTERS)[labels]

    def columns(means: Array, which: Array) -> Array:
        own = (which[..., :, None] * means[..., None, :]).reshape(*means.shape[:-1], -1)
        return np.concatenate([means, own], axis=-1)

    rows = columns(x / root, np.repeat(member[:, None], x.shape[1], axis=1)).reshape(-1, (1 + _CLUSTERS) * x.shape[2])
    even = np.r_[np.full(x.shape[2], 1 / x.shape[2]), np.zeros(_CLUSTERS * x.shape[2])]
    gram = rows.T @ rows
    ridge = (
        0.01 * np.trace(gram) / len(gram) * np.diag(np.r_[np.ones(x.shape[2]), np.full(_CLUSTERS * x.shape[2], 3.0)])
    )
    change = np.linalg.solve(gram + ridge, rows.T @ ((target / root[..., 0]).ravel() - rows @ even))
    return np.asarray(columns(now, member) @ (even + change))


USES: dict[str, Use] = {"partial pooling": _pooled}
if find_spec("lightgbm"):
    USES["label in LightGBM"] = means.boosted


def _of_totals(panel: Panel, labels: Array) -> float:
    """Mean of the sum of forecasts of the totals of clusters."""
    sums = np.stack([panel.values[labels == label].sum(axis=0) for label in np.unique(labels)])
    ids = pd.Index([str(row) for row in range(len(sums))], name="unique_id")
    totals: Any = Panel(ids, panel.times, sums, panel.freq)
    return float(Theta().forecast_from(totals, np.array([sums.shape[1]]), _H).mean(axis=2).sum())


def _of_new_users(y: Array, origin: int, labels: Array) -> float:
    """Squared error for users whose first use was a week before the origin, by the mean growth of their cluster."""
    first = np.where((y > 0).any(axis=1), (y > 0).argmax(axis=1), y.shape[1])
    new, old = np.abs(first - (origin - _NEW)) <= _NEW // 2, first < origin - _NEW - _H
    if not new.any() or not old.any():
        return 0.0
    starts = np.array([y[row, begin : begin + _NEW].mean() for row, begin in enumerate(first)])
    later = np.array([y[row, begin + _NEW : begin + _NEW + _H].mean() for row, begin in enumerate(first) if old[row]])
    overall = later.sum() / starts[old].sum()
    growth = np.array(
        [later[labels[old] == g].sum() / max(starts[old][labels[old] == g].sum(), 1e-9) for g in range(4)]
    )
    known = np.bincount(labels[old], minlength=4) >= 3
    forecast = starts[new] * np.where(known, growth, overall)[labels[new]]
    return float(np.square(forecast - y[new, origin : origin + _H].mean(axis=1)).mean())
