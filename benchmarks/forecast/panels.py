"""The combined forecast beside its members, their mean and median, and naive forecasts, on every public panel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import gmean, studentized_range

from benchmarks.forecast.origins import Origins
from benchmarks.forecast.sources import SOURCES, Case
from gpudemand.forecast import CombinedForecaster, SeasonalNaive
from gpudemand.forecast.base.intervals import PastErrors, prediction_intervals
from gpudemand.forecast.base.panel import season_length, week_length

TITLE = "All public panels, origins spread over the whole of each: WAPE relative to the best naive forecast"
AIM = (
    "Combined at most 1 % above the best naive and 2 % above the median of its members on every panel; geometric means "
    "12 % below the best naive, 3 % below the median, .97 of the best member in hindsight; coverage within 3 points"
)
#: Traces are split as a whole, because panels of one trace share their time and events. The rule of combination, its
#: members and constants, and the rate of the intervals were chosen on the first half of the traces; the effective size
#: of overlapping errors on simulated clusters. Of the second half, M4 decided between variants that were alike on the
#: first (`LagRegression` as a member, and a weaker prior), and CDNOW the origins where no season shows. The members
#: themselves are older and had seen the newest months of spot, Venus, Philly, CDNOW, M4 and Hangzhou.
GPU_TRACES = ("spot", "Venus", "Philly", "DLRM", "GenAI", "PAI")
OTHER_TRACES = ("KTH-SP2", "Atlas", "M4", "Hangzhou", "carparts", "hospital", "CDNOW")
_SEED, _MOST_ORIGINS, _MOST_SCORED = 0, 150, 40
_NAIVE = ("Naive", "SeasonalNaive", "SeasonalNaive of a week", "SeasonallyAdjustedNaive")
_RULES = ("mean", "median", "median within a quarter")
#: Earlier origins behind an interval.
_PAST = 60
Paths = dict[str, np.ndarray]  # type: ignore[type-arg]


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """Score all panels of both halves; ``--origins`` is the number of scored origins."""
    most = _MOST_SCORED if origins is None or origins.count is None else origins.count
    half = development_half()
    halves = {"development": half, "scoring": frozenset({*GPU_TRACES, *OTHER_TRACES}) - half}
    return pd.concat({name: scores(data, traces, most) for name, traces in halves.items()})


def development_half() -> frozenset[str]:
    """Half of the traces of either kind, drawn with a fixed seed."""
    rng, chosen = np.random.default_rng(_SEED), []
    for traces in (GPU_TRACES, OTHER_TRACES):
        chosen += [traces[place] for place in rng.permutation(len(traces))[: len(traces) // 2]]
    return frozenset(chosen)


def scores(data: Path, traces: frozenset[str], most: int = _MOST_SCORED) -> pd.DataFrame:
    """A row a panel and horizon, then geometric means, the largest ratios, and mean ranks."""
    table = pd.DataFrame(dict(_rows(data, traces, most))).T
    ratios = [name for name in table if not str(name).startswith(("WAPE", "bias", "cover", "width", "earlier"))]
    common = table[[name for name in ratios if table[name].notna().all() and "/" not in name]]
    ranks = common.rank(axis=1).mean()
    summary = {
        "geometric mean": table[ratios].apply(lambda column: gmean(column.dropna())),
        "largest": table[ratios].max(),
        "mean rank": ranks,
        "critical difference of ranks": pd.Series(critical_difference(*common.shape), index=common.columns),
        f"within 3 points after {_PAST}": _within(table[table["earlier origins"] == _PAST]),
    }
    return pd.concat([table, pd.DataFrame(summary).T])


def _within(table: pd.DataFrame) -> pd.Series:
    """Share of panels whose coverage is within three points of the level."""
    return (table.filter(like="cover") - [80, 95]).abs().le(3).mean()


def critical_difference(n_panels: int, n_methods: int) -> float:
    """Difference of mean ranks that is significant at 5 % (Nemenyi)."""
    quantile = studentized_range.ppf(0.95, n_methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_panels)))


def _rows(data: Path, traces: frozenset[str], most: int) -> Iterator[tuple[str, dict[str, float]]]:
    for source, make in SOURCES.items():
        if source.split()[0] in traces:
            for case in make(data):
                for h in case.horizons:
                    row = _score(case, h, most)
                    print(f"{source}, {case.name}, {h}: Combined {row['Combined']:.3f}", flush=True)
                    yield f"{source}, {case.name}, {h}", row


def _score(case: Case, h: int, most: int) -> dict[str, float]:
    y, grid = case.panel.values, _grid(case, h)
    late = np.flatnonzero(3 * grid >= y.shape[1])
    chosen = late[np.unique(np.linspace(0, late.size - 1, min(most, late.size)).round().astype(int))]
    paths = _forecasts(case, grid, h)
    actual = np.concatenate([y, np.full((len(y), h), np.nan)], axis=1)[:, grid[:, None] + np.arange(h)]
    paths |= _simple_rules(paths, actual, grid)
    truth = actual[:, chosen]
    errors = {name: np.abs(path[:, chosen] - truth) for name, path in paths.items()}
    wape = {name: float(np.nansum(error) / np.nansum(np.abs(truth))) for name, error in errors.items()}
    best = min(wape[name] for name in _NAIVE if name in wape)
    members = [name for name in paths if name not in {*_RULES, "Combined", "SeasonalNaive of a week"}]
    combined = paths["Combined"]
    squares = {name: np.nansum(np.square(errors[name])) for name in [*members, "Combined"]}
    return {
        "WAPE of the best naive": best,
        **{name: value / best for name, value in wape.items()},
        "Combined / best member": wape["Combined"] / min(wape[name] for name in members),
        "Combined / median": wape["Combined"] / wape["median"],
        "Combined / quarter rule": wape["Combined"] / wape["median within a quarter"],
        "Combined / best member, RMSE": float(np.sqrt(squares.pop("Combined") / min(squares.values()))),
        "bias": float(np.nansum(combined[:, chosen] - truth) / np.nansum(np.abs(truth))),
        **_coverage(combined, actual, grid, chosen, y),
    }


def _grid(case: Case, h: int) -> np.ndarray:  # type: ignore[type-arg]
    """Origins a season apart below a day, else a bin, from a sixth of the panel on; multiples of that for long ones."""
    n_times, season = len(case.panel.times), case.season or season_length(case.panel.freq)
    step = season if case.panel.freq.freqstr == "h" else 1
    first, last = max(n_times // 6, min(2 * season, n_times // 4), 3), n_times - h
    step *= 1 + (last - first) // step // _MOST_ORIGINS
    return np.arange(last, first - 1, -step)[::-1]


class _KeepsMembers(CombinedForecaster):
    """Combination that keeps the forecasts of its members, and the bins known at their origins."""

    def _member_paths(self, y: np.ndarray, places: np.ndarray, h: int) -> np.ndarray:  # type: ignore[type-arg]
        self.places_, self.paths_ = places, super()._member_paths(y, places, h)
        return self.paths_


def _forecasts(case: Case, grid: np.ndarray, h: int) -> Paths:  # type: ignore[type-arg]
    """Members and combination at every origin, each from the data before it."""
    panel, y = case.panel, case.panel.values
    season, week = case.season or season_length(panel.freq), week_length(panel.freq)
    model = _KeepsMembers(season_length=season)
    usage = panel.long_frame(panel.times, {"y": y})
    combined = model.fit(usage, freq=panel.freq)._paths(y, grid, h)
    members = model.paths_[:, :, np.searchsorted(model.places_, grid)]
    paths = dict(zip(_names(model), members, strict=True))
    if week > season and week <= grid[0]:
        weekly = SeasonalNaive(week)
        weekly._fit_panel(panel)
        paths["SeasonalNaive of a week"] = weekly._paths(y, grid, h)
    return paths | {"Combined": combined}


def _names(model: CombinedForecaster) -> list[str]:
    anchors = [f" {member.anchor}" if hasattr(member, "anchor") else "" for member in model.members_]
    return [type(member).__name__ + anchor for member, anchor in zip(model.members_, anchors, strict=True)]


def _simple_rules(paths: Paths, actual: np.ndarray, grid: np.ndarray) -> Paths:  # type: ignore[type-arg]
    """Mean and median of the members, and the median of those whose pooled error is within a quarter of the best."""
    members = np.stack([path for name, path in paths.items() if name not in {"Combined", "SeasonalNaive of a week"}])
    h = actual.shape[-1]
    losses = np.nan_to_num(np.abs(members - actual)).sum(axis=1).cumsum(axis=-1)
    rule = np.median(members, axis=0)
    for place, origin in enumerate(grid):
        past = np.flatnonzero((grid < origin) & (2 * grid >= origin))
        if past.size:
            pooled = losses[:, past, np.minimum(origin - grid[past], h) - 1].sum(axis=1)
            rule[:, place] = np.median(members[pooled <= 1.25 * pooled.min(), :, place], axis=0)
    found = (members.mean(axis=0), np.median(members, axis=0), rule)
    return dict(zip(_RULES, found, strict=True))


def _coverage(
    combined: np.ndarray,  # type: ignore[type-arg]
    actual: np.ndarray,  # type: ignore[type-arg]
    grid: np.ndarray,  # type: ignore[type-arg]
    chosen: np.ndarray,  # type: ignore[type-arg]
    y: np.ndarray,  # type: ignore[type-arg]
) -> dict[str, float]:
    """Coverage in percent, and mean width relative to demand, of intervals from up to 60 earlier origins."""
    inside, widths = {80: [], 95: []}, {80: [], 95: []}  # type: ignore[var-annotated]
    steps = np.arange(actual.shape[-1])
    floor = np.where(np.nanmin(y, axis=1) < 0, -np.inf, 0.0)[:, None]
    enough = min(_PAST, grid.size // 2)
    for place in chosen[chosen >= enough]:
        past = np.arange(max(place - _PAST, 0), place)
        known = grid[past, None] + steps < grid[place]
        errors = np.where(known, actual[:, past] - combined[:, past], np.nan)
        bounds = prediction_intervals(combined[:, place], PastErrors(errors, grid[past]), (80, 95), floor)
        seen = ~np.isnan(actual[:, place])
        for level in inside:
            low, high = bounds[f"lo-{level}"], bounds[f"hi-{level}"]
            inside[level].append(((low <= actual[:, place]) & (actual[:, place] <= high))[seen])
            widths[level].append((high - low)[seen])
    demand = np.nanmean(np.abs(actual[:, chosen]))
    coverage = {f"coverage {level}": 100 * float(np.concatenate(found).mean()) for level, found in inside.items()}
    width = {f"width {level}": float(np.concatenate(found).mean() / demand) for level, found in widths.items()}
    return {"earlier origins": enough, **coverage, **width}
