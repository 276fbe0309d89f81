"""Benchmark on public runs of large models, and the fit of the bundled predictor.

    python -m benchmarks.cost.llm [--train DIR] [--bundle] [--out FILE] [--ablate]

Rows are those of ``llm_training.csv.gz`` in DIR and of the bundled ``public_runs.csv``. Whole projects (sources) or
generations of GPUs are held out in turn, never rows; repetitions of a configuration count once. The last table has a
line for each kind of runs; without ``--train`` it is of the bundled ratios. The one before is of runs that state their
batch, as if they did not.
Beside stand 6 N D at the median share of the peak (MFU), that by generation, and gradient boosting of this share on
simple features; for memory, the formulas of DeepSpeed (states over GPUs) and of Hugging Face's estimator (weights,
gradients and Adam). Memory is predicted as each project reads it. ``--bundle`` fits to all rows and writes
``data/cost/large_models.json``; ``--out`` keeps the ratios of held-out predictions to measurements. ``--ablate`` prints
errors of step times without each coefficient, projects held out, instead.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cost.fit_large import FittedTarget, conformity_of, fit_predictor, fit_scales, save_predictor
from benchmarks.cost.llm_baselines import held_out_baselines
from benchmarks.cost.llm_load import read_all_runs, read_without_lengths
from benchmarks.cost.traced import TraceCache
from gpudemand.cost.job import TrainingRun
from gpudemand.cost.large_candidates import candidates
from gpudemand.cost.large_models import (
    LargeModelPredictor,
    classes_of,
    expand,
    seconds_per_token,
)
from gpudemand.cost.large_time import TIME_PRIORS
from gpudemand.cost.measurements import load_held_out_runs
from gpudemand.datasets.registry import data_folder
from gpudemand.units import GIB
from scripts.checksums import refresh_checksums

SPLITS = ("source", "generation")
#: Target -> column of the measurements, their unit, and what it is called.
_UNITS = {"step_time_s": ("seconds_per_token", 1.0, "time"), "memory_gib": ("memory_gib", GIB, "memory")}
#: Columns that errors are listed by.
GROUPS = ("class", "layout", "generation", "vendor", "source")


def main(arguments: list[str] | None = None) -> None:
    """Print a table a split and target; fit and store the bundled predictor if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, help="by default the bundled ratios of held-out predictions are shown")
    parser.add_argument("--bundle", action="store_true")
    parser.add_argument("--out", type=Path, help="a Parquet file for predicted over measured, of all held-out rows")
    parser.add_argument("--ablate", action="store_true")
    options = parser.parse_args(arguments)
    if options.train is None:
        print(lines(load_held_out_runs()))
        return
    rows = read_all_runs(options.train)
    if options.ablate:
        ablate(rows)
        return
    print(f"degrees where stated, mean over projects: {seen_degrees(rows)}")
    predictor = _fitted(rows)
    if options.bundle:
        save_predictor(predictor, data_folder() / "cost" / "large_models.json")
    kept = _run_splits(rows, predictor, options.train)
    if options.out is not None:
        kept.to_parquet(options.out, compression="zstd")
    if options.bundle:
        for name in ("large_models.json", "held_out_runs.parquet"):
            refresh_checksums(data_folder(), f"cost/{name}")


def run(data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Print the tables of all splits; return the ratios of `summary`. Large models need no cache of graphs."""
    rows = read_all_runs(data / "llm_training")
    return _run_splits(rows, _fitted(rows), data / "llm_training")


def _costs(rows: pd.DataFrame) -> pd.DataFrame:
    memory = rows["memory_gib"].where(rows["status"] == "ok")
    return pd.DataFrame({"seconds_per_token": rows["seconds_per_token"], "memory_gib": memory}).astype(float)


def _fitted(rows: pd.DataFrame) -> LargeModelPredictor:
    """Fit to all rows."""
    ways = expand(list(rows["run"])).as_read(list(rows["reading"]))
    about = pd.DataFrame({"source": rows["source"], "class": classes_of(list(rows["run"]))})
    return fit_predictor(ways, _costs(rows), about)


def _without_lengths(rows: pd.DataFrame, predictor: LargeModelPredictor) -> pd.DataFrame:
    """Ratios of rows that state no length, of projects that the fit has no row of."""
    ways = expand(list(rows["run"]))
    # What is measured a token is predicted a token, whatever its sample's length.
    lengths = [way.source_len or way.seq_len for run in rows["run"] for _, way in candidates(run)]
    of_token = (rows["of"] == "token").to_numpy()[ways.rows]
    ways.time["tokens"] *= np.where(of_token, lengths, 1)
    found, _ = predictor.predict_expanded(ways, classes_of(list(rows["run"])))
    y = rows["seconds"].to_numpy(dtype=float)
    inside = ((found[:, 1] <= y) & (y <= found[:, 2])).astype(float)
    about = rows[["source", "model"]].assign(**{"class": "no length", "layout": "", "generation": "", "vendor": ""})
    about = about.assign(gpu=[run.job.hardware.name for run in rows["run"]], target="time", split="source")
    return about.assign(method="gpudemand", ratio=np.round(found[:, 0] / y, 4), inside=inside)


def _without_batches(rows: pd.DataFrame, target: FittedTarget) -> str:
    """Errors of step times of the rows that state their batch, projects held out, as if they did not."""
    y, source, runs = rows["seconds_per_token"].to_numpy(float), rows["source"].to_numpy(object), list(rows["run"])
    known, hidden = np.isfinite(y), list(map(_batch_hidden, runs))
    ways = [expand(each).of("step_time_s") for each in (runs, hidden)]
    mean, variance = target.held_out_by(ways[0], y, source, source, ways[1])
    errors = {one: (np.log(y) - stated)[known] for one, (stated, _) in target.held_out.items()}
    spread = {"source": target.held_out["source"][1][known], "asked": variance[known]}
    off = (np.log(y) - mean)[known]
    half = _half_widths(rows[known].assign(asked=source[known]), errors, spread, "asked")
    found = rows[known].assign(ratio=np.exp(-off), inside=np.abs(off) <= half)
    says = np.array([one is not run for one, run in zip(hidden, runs, strict=True)])[known]
    return _errors(found[says].assign(kind=found["class"].str.split(",").str[0]), ["kind"])


def _batch_hidden(run: TrainingRun) -> TrainingRun:
    """The run without its batch, if it states one and its layout over several GPUs."""
    if run.parallel is None or run.n_gpus == 1 or (run.job.global_batch is None and run.job.accumulate is None):
        return run
    return replace(run.job, micro_batch=None, accumulate=None, global_batch=None).run or run


def _run_splits(rows: pd.DataFrame, predictor: LargeModelPredictor, train: Path) -> pd.DataFrame:
    print(f"{len(rows)} configurations: {rows['class'].value_counts().to_dict()}")
    targets = {name: one for name, one in predictor.targets.items() if isinstance(one, FittedTarget)}
    kept = [_held_out(rows, target, name, split) for split in SPLITS for name, target in targets.items()]
    hidden = _without_batches(rows, targets["step_time_s"])
    print(f"\ntime, source held out, had the rows not stated their batch:\n{hidden}")
    found = pd.concat([*kept, _without_lengths(read_without_lengths(train), predictor)], ignore_index=True)
    print(f"\n{lines(found)}")
    return found


def ablate(rows: pd.DataFrame) -> None:
    """Print median and 90th percentile of the errors of step times without each coefficient, projects held out."""
    expansion = expand(list(rows["run"])).of("step_time_s")
    y, source = rows["seconds_per_token"].to_numpy(dtype=float), rows["source"].to_numpy(dtype=object)
    known = np.isfinite(y)
    for out in ("nothing", *TIME_PRIORS):

        def formula(terms: Any, c: Any, out: str = out) -> Any:
            """Seconds a token without a coefficient."""
            return seconds_per_token(terms, {**c, out: c.get(_SHARED.get(out), 1e-9)})

        target = FittedTarget(formula, {name: prior for name, prior in TIME_PRIORS.items() if name != out})
        mean, _ = target.held_out_by(expansion, y, source, source)
        error = pd.Series(100.0 * np.abs(np.exp(mean - np.log(y)) - 1.0))[known]
        kinds = rows["class"].str.split(",").str[0][known]
        shown = error.groupby(kinds).agg(lambda part: f"{part.median():.1f} / {part.quantile(0.9):.1f}")
        print(f"without {out:24s}", shown.to_dict(), flush=True)


#: Coefficient of some stacks -> that of the others.
_SHARED = {
    "expert products": "products",
    "expert products, plain": "expert products",
    "data, fused": "data",
    "launch, grouped": "launch",
    "fp4 products": "products",
}
#: Name -> target, split, and what rows it is of.
_LINES: dict[str, tuple[str, str, str]] = {
    "dense": ("time", "source", "dense"),
    "dense, tensor, or tensor and pipeline": ("time", "source", "dense and divided"),
    "experts": ("time", "source", "`class` == 'experts'"),
    "experts, without the largest project": ("time", "source", "`class` == 'experts' and source != 'whitecircle/halo'"),
    "experts and state space": ("time", "source", "`class` == 'experts, state space'"),
    "no length stated": ("time", "source", "`class` == 'no length'"),
    "LoRA": ("time", "source", "`class` == 'adapter'"),
    "newest generation held out": ("time", "generation", "generation == 'GB110'"),
    "AMD held out": ("time", "generation", "vendor == 'AMD'"),
    "memory": ("memory", "source", "ratio > 0"),
}


def lines(ratios: pd.DataFrame) -> str:
    """Median and 90th percentile of errors in percent, and the percentage inside, beside constant MFU and boosting."""
    names = {"gpudemand": "ours", "6 N D, MFU by generation": "constant MFU", "boosting": "boosting"}
    dense = ratios["class"].str.startswith("dense")
    about = ratios.assign(dense=dense, divided=ratios["layout"].isin(["tensor", "pipeline + tensor"]))
    table = pd.DataFrame(index=pd.Index(list(_LINES), name="line"))
    for line, (target, split, query) in _LINES.items():
        rows = about[(about["target"] == target) & (about["split"] == split)].query(query)
        for method, short in names.items():
            error = 100.0 * (rows.loc[rows["method"] == method, "ratio"] - 1.0).abs()
            table.loc[line, short] = f"{error.median():.1f} / {error.quantile(0.9):.1f}" if len(error) else ""
        ours = rows[rows["method"] == "gpudemand"]
        table.loc[line, ["rows", "projects", "inside"]] = [
            len(ours),
            ours["source"].nunique(),
            f"{100.0 * ours['inside'].mean():.0f}",
        ]
    return table[["rows", "projects", "ours", "inside", "constant MFU", "boosting"]].to_string(
        float_format="{:.0f}".format
    )


def seen_degrees(rows: pd.DataFrame) -> dict[str, dict[int, float]]:
    """Mean over the projects of the shares of their runs that have each degree, of those that state it."""
    runs = [(source, run) for source, run in zip(rows["source"], rows["run"], strict=True) if run.parallel is not None]
    found = {
        "expert": [(s, run.layout.expert) for s, run in runs if run.model.routed_experts and run.n_gpus > 1],
        "interleaved": [
            (s, run.layout.virtual_pipeline and int(run.layout.virtual_pipeline > 1))
            for s, run in runs
            if run.layout.pipeline > 1
        ],
        "length": [(s, 2 ** round(math.log2(run.seq_len))) for s, run in runs],
    }
    return {name: _mean_shares(pd.DataFrame(pairs, columns=["source", "degree"])) for name, pairs in found.items()}


def _mean_shares(rows: pd.DataFrame) -> dict[int, float]:
    shares = rows.dropna().groupby("source")["degree"].value_counts(normalize=True).unstack(fill_value=0.0)
    return {int(degree): round(share, 2) for degree, share in shares.mean().items()}


def _held_out(rows: pd.DataFrame, target: FittedTarget, name: str, split: str) -> pd.DataFrame:
    """Print and return ratios of predictions, each value of a column held out, to measurements."""
    column, unit, label = _UNITS[name]
    y = _costs(rows)[column].to_numpy() * unit
    known = np.isfinite(y)
    part, y = rows[known].reset_index(drop=True), y[known]
    errors = {one: np.log(y) - mean[known] for one, (mean, _) in target.held_out.items()}
    spread = {one: variance[known] for one, (_, variance) in target.held_out.items()}
    half = _half_widths(part, errors, spread, split)
    outs = {"gpudemand": y / np.exp(errors[split]), **held_out_baselines(part, y, label, split)}
    about = part[["source", "model", "gpu", *(one for one in GROUPS if one != "source")]]
    found = [
        about.assign(target=label, split=split, method=method, ratio=np.round(values / y, 4), inside=np.nan)
        for method, values in outs.items()
    ]
    found[0]["inside"] = (np.abs(errors[split]) <= half).astype(float)
    table = pd.concat(found, ignore_index=True)
    print(f"\n{label}, {split} held out: {len(part)} configurations\n{_errors(table, ['method'])}")
    for column in GROUPS:
        print(_errors(table[table["method"] != "DeepSpeed's formula"], [column, "method"]))
    return table


def _half_widths(rows: pd.DataFrame, errors: dict[str, Any], spread: dict[str, Any], split: str) -> Any:
    """Half of the 90 % interval of the logarithm, by the errors of the other groups."""
    kinds, half = classes_of(list(rows["run"])), np.zeros(len(rows))
    source, error = rows["source"].to_numpy(dtype=object), errors["source"]
    for name in rows[split].unique():
        out = (rows[split] == name).to_numpy()
        others = [kind for kind, left in zip(kinds, out, strict=True) if not left]
        scales = fit_scales(error[~out], spread["source"][~out], others, source[~out], errors["generation"][~out])
        scores = conformity_of(error[~out], spread["source"][~out], others, source[~out], scales)
        own = scales.of([kind for kind, left in zip(kinds, out, strict=True) if left])
        half[out] = scores.quantile(0.9) * np.hypot(own, np.sqrt(spread[split][out]))
    return half


def _errors(ratios: pd.DataFrame, by: list[str]) -> str:
    """Relative errors by some columns, and the share inside the 90 % interval."""
    error = (ratios["ratio"] - 1.0).abs()
    groups = error.groupby([ratios[name] for name in by])
    table = groups.agg(rows="size", median="median", p90=lambda part: part.quantile(0.9))
    table["inside"] = ratios["inside"].groupby([ratios[name] for name in by]).mean()
    return table.to_string(float_format="{:.3f}".format)


if __name__ == "__main__":
    main()
