"""Benchmark on public runs of large models, and the fit of the bundled predictor.

    python -m benchmarks.cost.llm [--train DIR] [--bundle] [--out FILE]

DIR holds ``llm_training.csv.gz``. Whole projects (sources), whole families of models and whole GPU generations are held
out in turn, never rows; repetitions of a configuration count once. Baselines: 6 N D at the best single share of the
peak (MFU), that by type of GPU, gradient boosting on the columns; for memory, the formulas of DeepSpeed (states over
GPUs) and of Hugging Face's estimator (weights, gradients and Adam). ``gpudemand, as read`` is the memory of
PyTorch's tensors or of its allocator where a project says that it measured these; ``gpudemand`` that of the process.
``--bundle`` fits to all rows, and to times of the development half of the bundled public runs (their memory made no
other project's better), and writes ``data/cost/large_models.json``; ``--out`` keeps the ratios of held-out predictions
to measurements.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cost.llm_baselines import fill_baselines
from benchmarks.cost.llm_load import read_runs
from benchmarks.cost.public_runs import split_public_runs
from benchmarks.cost.score import summary
from benchmarks.cost.traced import TraceCache
from gpudemand.cost.large_models import Expansion, LargeModelPredictor, classes_of, coordinates, expand
from gpudemand.cost.measure import load_held_out_runs
from gpudemand.datasets.registry import data_folder, refresh_checksums

SPLITS = ("source", "family", "generation")
_GIB = 2.0**30
_COSTS = ["seconds_per_token", "memory_gib"]
#: Measured rows of a project that predictions of its others are calibrated with, and how often they are drawn.
_OWN_ROWS, _DRAWS = (0, 1, 2, 5), 20


def main(arguments: list[str] | None = None) -> None:
    """Print a table a split and target; fit and store the bundled predictor if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, help="by default the bundled ratios of held-out predictions are shown")
    parser.add_argument("--split", nargs="+", default=list(SPLITS), choices=SPLITS)
    parser.add_argument("--bundle", action="store_true")
    parser.add_argument("--out", type=Path, help="a Parquet file for predicted over measured, of all held-out rows")
    options = parser.parse_args(arguments)
    if options.train is None:
        print(stored_summary().to_string(float_format="{:.3f}".format))
        return
    rows = read_runs(options.train)
    ways = expand(list(rows["run"]))
    kept = _run_splits(rows, ways, options.split)
    if options.out is not None:
        kept.to_parquet(options.out, compression="zstd")
    if options.bundle:
        _bundled(rows).save(data_folder() / "cost" / "large_models.json")
        for name in ("large_models.json", "held_out_runs.parquet"):
            refresh_checksums(data_folder(), f"cost/{name}")


def run(data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Print the tables of all splits; return the ratios of `summary`. Large models need no cache of graphs."""
    rows = read_runs(data / "llm_training")
    return _run_splits(rows, expand(list(rows["run"])), SPLITS)


def _bundled(rows: pd.DataFrame) -> LargeModelPredictor:
    """Fit to all rows, and to times of the development half of the bundled public runs."""
    public = split_public_runs()
    further = public[public["half"] == "development"].assign(memory_gib=np.nan)
    both = pd.concat([rows, further], ignore_index=True)
    return _fitted(both, expand(list(both["run"])), np.ones(len(both), dtype=bool))


def _run_splits(rows: pd.DataFrame, ways: Expansion, splits: Sequence[str]) -> pd.DataFrame:
    print(f"{len(rows)} configurations: {rows['class'].value_counts().to_dict()}")
    return pd.concat([table for split in splits for table in run_split(rows, ways, split)], ignore_index=True)


def stored_summary() -> pd.DataFrame:
    """Errors of the bundled held-out predictions by split, target and class."""
    ratios = load_held_out_runs()
    error = (ratios["ratio"] - 1.0).abs()
    by = [ratios[name] for name in ("split", "target", "class", "method")]
    table = error.groupby(by).agg(rows="size", median="median", p90=lambda part: part.quantile(0.9))
    return table.assign(inside=ratios["inside"].groupby(by).mean())


def run_split(rows: pd.DataFrame, ways: Expansion, split: str) -> list[pd.DataFrame]:
    """Hold out each value of a column in turn; print and return errors of all methods."""
    ends = {"low": np.nan, "high": np.nan}
    time, held, read = (_empty(rows).assign(**ends) for _ in range(3))
    chance = np.full(len(rows), np.nan)
    outs = {name: _empty(rows) for name in ("6 N D, one MFU", "6 N D, MFU by GPU", "boosting")}
    sizes = {name: _empty(rows) for name in ("DeepSpeed's formula", "Hugging Face's formula", "boosting")}
    learned: list[pd.DataFrame] = []
    for value in rows[split].unique():
        test = (rows[split] == value).to_numpy()
        part, kinds = _part(ways, test), classes_of(list(rows["run"][test]))
        predictor = _fitted(rows, ways, ~test)
        seconds, memory = predictor.predict_expanded(part, kinds)
        time.loc[test], held.loc[test] = seconds, memory / _GIB
        as_read = part.as_read(list(rows["reading"][test]))
        read.loc[test] = predictor.predict_expanded(as_read, kinds)[1] / _GIB
        chance[test] = predictor.fits_expanded(part, list(rows["run"][test]))
        if split == "source":
            learned.append(_calibrated(predictor, part, kinds, rows[test]))
        fill_baselines(rows, ~test, test, outs, sizes)
    kept = [_report(rows, rows["seconds_per_token"], {"gpudemand": time, **outs}, "time", split)]
    memory_known = rows["memory_gib"].where(rows["status"] == "ok")
    kept.append(_report(rows, memory_known, {"gpudemand": held, "gpudemand, as read": read, **sizes}, "memory", split))
    _report_fit(rows, chance, split)
    if learned:
        print(f"\nafter so many measured rows of the project\n{_after_own_rows(pd.concat(learned))}")
    return kept


def _fitted(rows: pd.DataFrame, ways: Expansion, train: Any) -> LargeModelPredictor:
    part = rows[train].reset_index(drop=True)
    about = pd.DataFrame({"source": part["source"], "class": classes_of(list(part["run"]))})
    costs = part[_COSTS].assign(memory_gib=part["memory_gib"].where(part["status"] == "ok"))
    return LargeModelPredictor().fit_expanded(_part(ways, train), costs, about)


def _calibrated(predictor: LargeModelPredictor, ways: Expansion, kinds: list[str], rows: pd.DataFrame) -> pd.DataFrame:
    """Errors of the other rows of a project after calibrating with some, drawn again and again."""
    rng, found = np.random.default_rng(0), []
    at = coordinates(list(rows["run"]))
    amounts = {"step_time_s": rows["seconds_per_token"], "memory_gib": _GIB * rows["memory_gib"]}
    for name, target in predictor.targets.items():
        y = amounts[name].where(rows["status"] == "ok").to_numpy(dtype=float)
        inputs = (ways.rows, ways.weights, ways.time if name == "step_time_s" else ways.memory)
        known = np.flatnonzero(np.isfinite(y))
        for own in _OWN_ROWS if len(known) > _OWN_ROWS[-1] else ():
            for _ in range(_DRAWS):
                use = np.isin(np.arange(len(y)), rng.choice(known, own, replace=False))
                target.calibrate(inputs, kinds, np.where(use, y, np.nan), at)
                out = target.predict(inputs, kinds, (90,), np.zeros(len(y)), at)[known]
                inside = (y[known] >= out[:, 1]) & (y[known] <= out[:, 2])
                about = {"target": name, "own rows": own, "project": rows["source"].iloc[0]}
                one = pd.DataFrame({**about, "error": np.abs(out[:, 0] / y[known] - 1), "inside": inside})
                found.append(one[~use[known]])
    return pd.concat(found) if found else pd.DataFrame()


def _after_own_rows(errors: pd.DataFrame) -> str:
    by = ["target", "own rows"]
    each = errors.groupby([*by, "project"])["error"].median().groupby(by).median()
    spread = errors.groupby(by)["error"].quantile([0.5, 0.9]).unstack().set_axis(["median", "p90"], axis=1)
    table = spread.assign(inside=errors.groupby(by)["inside"].mean(), **{"median by project": each})
    return table.to_string(float_format="{:.3f}".format)


def _part(ways: Expansion, use: Any) -> Expansion:
    place, chosen = np.cumsum(use) - 1, use[ways.rows]
    return Expansion(place[ways.rows[chosen]], ways.weights[chosen], ways.time[chosen], ways.memory[chosen])


def _empty(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(np.nan, index=rows.index, columns=["predicted"])


def _report(rows: pd.DataFrame, y: pd.Series, outs: dict[str, pd.DataFrame], what: str, split: str) -> pd.DataFrame:
    known = y.notna() & (y > 0)
    print(f"\n{what}, {split} held out: {int(known.sum())} configurations")
    tables = {name: out[known].assign(y=y[known]) for name, out in outs.items()}
    print(pd.DataFrame({name: summary(out) for name, out in tables.items()}).T.to_string(float_format="{:.3f}".format))
    ours = tables["gpudemand"]
    for name in ("class", "class, steady", split):
        parts = {key: {"rows": len(out), **summary(out)} for key, out in ours.groupby(rows.loc[known, name])}
        print(pd.DataFrame(parts).T.to_string(float_format="{:.3f}".format))
    about = rows.loc[known, ["source", "model", "class"]]
    about = about.assign(gpu=[run.job.hardware.name for run in rows.loc[known, "run"]], target=what, split=split)
    return pd.concat([_ratios(about, name, out) for name, out in tables.items()], ignore_index=True)


def _ratios(about: pd.DataFrame, method: str, out: pd.DataFrame) -> pd.DataFrame:
    """Predicted over measured, which may be published; the measurements may not."""
    inside = ((out["y"] >= out["low"]) & (out["y"] <= out["high"])).astype(float) if "low" in out.columns else np.nan
    return about.assign(method=method, ratio=(out["predicted"] / out["y"]).round(4), inside=inside)


def _report_fit(rows: pd.DataFrame, chance: Any, split: str) -> None:
    """Runs or does not: rows that ran, or ran out of memory."""
    ran = (rows["status"] == "ok").to_numpy()
    said = chance >= 0.5
    sure = chance >= 0.95
    print(
        f"\nfits, {split} held out: right {np.mean(said == ran):.3f} of {len(ran)} ({int((~ran).sum())} ran out); of "
        f"{int(said.sum())} said to fit {np.mean(~ran[said]):.3f} fail; of {int(sure.sum())} with 95 % "
        f"{np.mean(~ran[sure]):.3f}; of those that ran {np.mean(said[ran]):.3f} are said to fit"
    )


if __name__ == "__main__":
    main()
