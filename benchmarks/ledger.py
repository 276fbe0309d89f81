"""Accuracy and time of the main parts on bundled data, beside what they were: ``make bench-check``.

    python -m benchmarks.ledger [--record] [--cost DIR [--cache DIR]]

Each line of ``ledger.csv`` was measured at a commit. Lower is better; times are processor seconds relative to work of a
known kind in the same process, so that machines compare. Ends with 1 where one is worse than the last line by more than
its tolerance. With public measurements of step time (see `benchmarks.cost`) and their traced graphs, errors of costs on
GPUs, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

import gpudemand as gd
from benchmarks.cost.traced import CACHE, TraceCache
from benchmarks.planning.demand import SOURCES, scores
from benchmarks.segments.archetypes import simulated
from benchmarks.segments.speed import dense, diagrams
from benchmarks.usage import make_log, with_gpudemand, with_pandas
from gpudemand.cost.measurements import load_held_out_runs
from gpudemand.datasets import load_jobs_sample
from gpudemand.forecast import ETS, CombinedForecaster, SeasonalNaive
from gpudemand.forecast.backtest import cross_validation
from gpudemand.jobs.read import read_jobs
from gpudemand.jobs.table import check_jobs
from gpudemand.metrics import evaluate
from gpudemand.planning.demand import JobDemandModel
from gpudemand.planning.need import forecast_need, wait_target
from gpudemand.planning.queue import simulate_queue
from gpudemand.usage.series import VALUES, end_of_record, usage_series

LEDGER = Path(__file__).with_name("ledger.csv")
#: How much worse than before is noise: of an error, of a time, and of an error of costs.
_ERROR, _TIME, _COST = 0.02, 0.3, 0.1
#: Turns of a work and its yardstick; a time that seems worse is measured so often in all before it is.
_TURNS, _MEASUREMENTS = 3, 3


def _relative(work: Callable[[], Any], yardstick: Callable[[], Any]) -> float:
    """Least processor seconds of a work over those of a yardstick, in turn, after one turn that compiles.

    What else runs on the machine lengthens some turns, and shortens none.
    """
    took: dict[Callable[[], Any], list[float]] = {work: [], yardstick: []}
    for _ in range(_TURNS + 1):
        for each, seconds in took.items():
            began = time.process_time()
            each()
            seconds.append(time.process_time() - began)
    return min(took[work][1:]) / min(took[yardstick][1:])


def _sorting() -> None:
    np.sort(np.random.default_rng(0).random(2_000_000), kind="mergesort")


def demand_from_jobs() -> float:
    """Day-ahead error of demand from jobs over that of last value and profile, on the sample."""
    jobs, usage = SOURCES["sample"](Path())
    table = scores(jobs, usage, {"JobDemandModel": JobDemandModel}, windows=4)
    return float(table.loc["JobDemandModel", "wape"] / table.loc["SeasonallyAdjustedNaive", "wape"])


def user_forecasts() -> float:
    """28-day error of `CombinedForecaster` over that of seasonal naive, users of the sample."""
    usage = usage_series(load_jobs_sample(), by="user", freq="D")
    forecasts = cross_validation([CombinedForecaster(), SeasonalNaive()], usage, h=28, n_windows=2)
    table = evaluate(forecasts, ["wape"])["wape"]
    return float(table["CombinedForecaster"] / table["SeasonalNaive"])


def segments() -> float:
    """One minus the adjusted Rand index of `TopologicalSegmenter` on simulated archetypes."""
    scores = []
    for seed in (7, 8):
        wide, archetypes = simulated(None, 3.0, seed)
        labels = gd.TopologicalSegmenter(random_state=0).fit_predict(wide)
        scores.append(adjusted_rand_score(archetypes, labels))
    return 1.0 - float(np.mean(scores))


def _large_models(classes: str) -> float:
    """Median error of the stored predictions of step time, of some classes, their projects held out."""
    ratios = load_held_out_runs().query("method == 'gpudemand' and target == 'time' and split == 'source'")
    return float((ratios.loc[ratios["class"].str.fullmatch(classes), "ratio"] - 1.0).abs().median())


def _of_a_file(work: Callable[[Path], Any], yardstick: Callable[[Path], Any]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        make_log(path, 1_000_000, 5_000, 365)
        return _relative(lambda: work(path), lambda: yardstick(path))


def _queue() -> float:
    jobs = load_jobs_sample()
    return _relative(lambda: simulate_queue(jobs, 600.0), _sorting)


def _need() -> float:
    jobs = check_jobs(load_jobs_sample(), allow_unknown=True)
    target, until = wait_target("1h", 0.9), end_of_record(jobs)
    return _relative(lambda: forecast_need(jobs, target, until), _sorting)


def _binning() -> float:
    jobs = load_jobs_sample()
    return _relative(lambda: [usage_series(jobs, by="user", value=value) for value in VALUES], _sorting)


def _intervals() -> float:
    usage, rng = usage_series(load_jobs_sample(), by="group", value="gpus"), np.random.default_rng()

    def predict() -> None:
        # Parameters of a series that was forecast before are kept.
        ETS().fit(usage.assign(y=rng.uniform(1, 2) * usage["y"])).predict(h=28, level=[80, 95])

    return _relative(predict, _sorting)


def _persistence() -> float:
    values = dense(2_000, 365).astype(float)
    return _relative(lambda: diagrams(values), _sorting)


def _of_costs(data: Path, cache: Path) -> dict[str, float]:
    from benchmarks.cost.exam import ledger_lines  # needs torch

    return ledger_lines(data, TraceCache(cache))


#: Name -> measurement and tolerance.
LINES: dict[str, tuple[Callable[[], float], float]] = {
    "demand from jobs, error over last value + profile": (demand_from_jobs, _ERROR),
    "forecasts of users, error over seasonal naive": (user_forecasts, _ERROR),
    "segments, 1 - adjusted Rand index": (segments, 0.25),
    "large models of projects held out, error, dense": (lambda: _large_models("dense.*"), _ERROR),
    "large models of projects held out, error, experts": (lambda: _large_models("experts"), _ERROR),
    "usage of a file, time over pandas and bincount": (lambda: _of_a_file(with_gpudemand, with_pandas), _TIME),
    "reading of a file, time over read_parquet": (lambda: _of_a_file(read_jobs, pd.read_parquet), _TIME),
    "queue of the sample, time over sorting 2 M numbers": (_queue, _TIME),
    "need of the sample, time over sorting 2 M numbers": (_need, _TIME),
    "usage of the sample, time over sorting 2 M numbers": (_binning, _TIME),
    "intervals of ETS, time over sorting 2 M numbers": (_intervals, _TIME),
    "diagrams of 2,000 series, time over sorting 2 M numbers": (_persistence, _TIME),
}


def _measured(name: str, limit: float) -> float:
    """What a line is now; of a time beyond its limit, as of those to record, the least of some measurements."""
    measure, noise = LINES[name]
    value = measure()
    for _ in range(_MEASUREMENTS - 1):
        value = min(value, measure()) if noise == _TIME and value > limit else value
    return value


def main() -> int:
    """Measure, compare with the last line of each name, and with ``--record`` add lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="add what is measured to the ledger")
    parser.add_argument("--cost", type=Path, help="public measurements of step time")
    parser.add_argument("--cache", type=Path, default=CACHE, help="of their traced graphs")
    options = parser.parse_args()
    before = pd.read_csv(LEDGER) if LEDGER.exists() else pd.DataFrame(columns=["date", "commit", "name", "value"])
    last = before.groupby("name")["value"].last()
    costs = _of_costs(options.cost, options.cache) if options.cost else {}
    noise = pd.Series({**{name: noise for name, (_, noise) in LINES.items()}, **dict.fromkeys(costs, _COST)})
    limits = (last.reindex(noise.index) * (1.0 + noise)).fillna(np.inf)
    now = pd.Series({**{name: _measured(name, -np.inf if options.record else limits[name]) for name in LINES}, **costs})
    worse = now > limits
    print(pd.DataFrame({"last": last.reindex(now.index), "now": now, "worse": worse}).round(3).to_string())
    if options.record:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        rows = pd.DataFrame({"date": str(date.today()), "commit": commit.stdout.strip(), "name": now.index})
        pd.concat([before, rows.assign(value=now.round(4).to_numpy())]).to_csv(LEDGER, index=False)
    return int(worse.any() and not options.record)


if __name__ == "__main__":
    sys.exit(main())
