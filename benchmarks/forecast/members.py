"""What each member and each part of the rule of the combined forecast buys: its error without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.forecast.origins import Origins
from benchmarks.forecast.panels import _KeepsMembers, member_names
from benchmarks.forecast.sources import SOURCES, Case, scored_origins
from gpudemand.forecast import combination
from gpudemand.forecast.combination import PastLosses, inverse_loss_weights, weighted_trimmed_mean
from gpudemand.forecast.panel import season_length
from gpudemand.forecast.regression import History

TITLE = "Errors of the combined forecast without each of its members and parts, relative to the whole, on public panels"
AIM = "what costs nothing beyond two standard errors over traces is deleted"
_ORIGINS, _LONGEST = 12, 336
_ERROR = "standard error over traces"
_MEASURES = ("every step", "mean over the horizon")
Array = np.ndarray[Any, Any]


class Part(NamedTuple):
    """Members left out, how forecasts are averaged and weighted, and the half-life of losses, in horizons."""

    without: tuple[str, ...] = ()
    mean: Callable[[Array, Array], Array] = weighted_trimmed_mean
    weights: Callable[..., Array] = inverse_loss_weights
    half_life: float = combination._HALF_LIFE


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """A row a measure and part left out, a column a trace, and the mean; ``--origins`` is the number of origins.

    Of every step, and of the mean over the horizon, which is what capacity is planned for.
    """
    most = _ORIGINS if origins is None or origins.count is None else origins.count
    rows = [row for source, make in SOURCES.items() for case in make(data) for row in _rows(source, case, most)]
    logs = np.log(pd.DataFrame(rows).set_index(["measure", "trace", "panel"]))
    by_trace = logs.groupby(level=["measure", "trace"]).mean().stack().unstack("trace")
    return np.exp(by_trace).assign(mean=np.exp(by_trace.mean(axis=1)), **{_ERROR: by_trace.sem(axis=1)})


def _rows(source: str, case: Case, most: int) -> Iterator[dict[str, Any]]:
    for h in (h for h in case.horizons if h <= _LONGEST):
        model = _KeepsMembers(season_length=case.season or season_length(case.panel.freq))
        usage = case.panel.long_frame(case.panel.times, {"y": case.panel.values})
        errors = _errors(model.fit(usage, freq=case.panel.freq), scored_origins(case, h, most), h)
        of = {"trace": source.split()[0], "panel": f"{source}, {case.name}, {h}"}
        for measure, row in errors.div(errors["whole"], axis=0).drop(columns="whole").iterrows():
            yield {"measure": measure, **of, **row}


def _errors(model: _KeepsMembers, origins: Array, h: int) -> pd.DataFrame:
    """Sums of absolute errors by measure (rows), of the whole and without each part."""
    y, half_life = model.panel_.values, max(h, model.season_length_)
    model._paths(y, origins, h)
    names, places = member_names(model), model.places_
    losses, scales = PastLosses.of(y, model.paths_.copy(), places), History.of(y, 1).scales(origins)
    found = pd.DataFrame(0.0, index=_MEASURES, columns=["whole", *_parts(names)])
    for column, origin in enumerate(origins):
        earlier = np.searchsorted(places, model._backtest_origins(int(origin), len(y), h))
        now, actual = model.paths_[:, :, np.searchsorted(places, origin)], y[:, origin : origin + h]
        for name, part in {"whole": Part(), **_parts(names)}.items():
            kept = [place for place, member in enumerate(names) if member not in part.without]
            sums, span = losses.known(int(origin), earlier, half_life=part.half_life * half_life)
            weights = part.weights(sums[kept], span / h, scales[:, column])
            error = part.mean(now[kept], weights[..., None]) - actual
            found[name] += [np.nansum(np.abs(error)), np.abs(np.nansum(error, axis=1)).sum()]
    return found


def _parts(names: list[str]) -> dict[str, Part]:
    return {
        **{f"without {name}": Part((name,)) for name in names},
        "weighted mean": Part(mean=_weighted_mean),
        "equal weights": Part(weights=partial(inverse_loss_weights, power=0.0)),
        "own losses only": Part(weights=lambda sums, n, scales: inverse_loss_weights(sums, n + 1e9, scales)),
        "losses of all only": Part(weights=lambda sums, n, scales: inverse_loss_weights(sums, 0 * n, scales)),
        "no half-life": Part(half_life=np.inf),
    }


def _weighted_mean(values: Array, weights: Array) -> Array:
    return np.asarray((values * weights).sum(axis=0) / np.broadcast_to(weights, values.shape).sum(axis=0))
