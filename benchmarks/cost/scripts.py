"""Step times that public projects print of their training scripts, beside predictions of the bare step.

    python -m benchmarks.cost --track scripts [--train DIR] [--cache DIR]

The bundled model was fitted to loops that load no data, and neither log nor evaluate. Rows are facts from public pages,
each with its source. Half of the projects are for development; the other half was drawn once and is scored once.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cost.fit_large import fit_script_effect, save_script_effect
from benchmarks.cost.jobs import jobs_of, with_terms
from benchmarks.cost.load import version_number
from benchmarks.cost.methods import SimpleBoosting, WorkAlone
from benchmarks.cost.table import time_table
from benchmarks.cost.traced import TraceCache
from gpudemand.cost.model import CostModel
from gpudemand.cost.step_time_model import ScriptEffect
from gpudemand.datasets.registry import bundled_path, data_folder
from scripts.checksums import refresh_checksums

log = logging.getLogger(__name__)
#: Of the draw of the projects that are scored.
_SEED = 20261124
#: The oldest software that the bundled model knows is of this year; with older one a ratio tells of that, too.
_YEAR = 2020
_LEVEL = 90


def printed_rows() -> pd.DataFrame:
    """The table as it was printed."""
    return pd.read_csv(bundled_path("cost/training_scripts.csv"), dtype={"framework_version": "string"})


def script_jobs(cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Features and seconds of a step of all rows whose network has a graph; ``host`` is the year of the software."""
    rows = printed_rows()
    known = rows["framework"].isin(["pytorch", "tensorflow"])
    rows = rows.assign(
        framework=rows["framework"].where(known, "pytorch"),
        version=rows["framework_version"].where(known).map(version_number),
        compiled=rows["compiled"].astype(bool),
        mode="train",
        n_nodes=1,
        host=rows["year"],
    )
    if trace:
        cache.trace(rows["graph"].unique())
    jobs = jobs_of(rows)
    # A version of another framework means nothing to the model; 0.0 is another table's.
    return with_terms(jobs.assign(framework_version=jobs["framework_version"].replace("0.0", "")), cache)


def scored_projects() -> list[str]:
    """The half of the projects that was drawn."""
    names = np.sort(printed_rows()["source"].unique().astype(str))
    return np.random.default_rng(_SEED).permutation(names)[: len(names) // 2].tolist()


def run(data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Log errors on scripts of projects never seen, of bare steps and with `ScriptEffect`; return the ratios."""
    rows = script_jobs(cache, trace=trace)
    recent, scored = (rows["host"] >= _YEAR).to_numpy(), rows["source"].isin(scored_projects()).to_numpy()
    methods = {"gpudemand": bundled_steps(rows), **baselines(rows, data, cache, trace=trace)}
    for title, part in {"scored": recent & scored, "scored, older software": ~recent & scored}.items():
        log_errors(title, {n: in_scripts(bare[part], effect_of(bare[recent & ~scored])) for n, bare in methods.items()})
    log_errors("development, in turn", {name: held_out(bare[recent & ~scored]) for name, bare in methods.items()})
    everything = {name: held_out(bare[recent]) for name, bare in methods.items()}
    log_errors("all projects, in turn", everything)
    last = everything["gpudemand"]
    log.info("\nby project, held out:\n%s", _text(by_project(last)))
    about = rows.loc[last.index, ["network", "family", "device_name"]].rename(columns={"device_name": "device"})
    inside = ((last["y"] >= last["low, script"]) & (last["y"] <= last["high, script"])).astype(float)
    ratio = (last["predicted, script"] / last["y"]).round(4)
    return about.assign(ratio=ratio, inside=inside, method="gpudemand", track="scripts").reset_index(drop=True)


def log_errors(title: str, found: dict[str, pd.DataFrame]) -> None:
    """Log the summary of methods on the same rows."""
    first = found["gpudemand"]
    table = pd.DataFrame({name + how: summary(out, end) for name, out in found.items() for how, end in _HOW.items()}).T
    log.info("\n%s: %d rows of %d projects\n%s", title, len(first), first["source"].nunique(), _text(table))


#: Suffix of a method's name -> suffix of its columns.
_HOW = {", bare step": "", ", in a script": ", script"}


def bundled_steps(rows: pd.DataFrame) -> pd.DataFrame:
    """The bundled model's bare steps: ``y, source, predicted, low, high``."""
    found = CostModel.load().models_["gpu", "step_time_s"].predict_all(rows, [_LEVEL])
    return _steps(rows, found)


def baselines(rows: pd.DataFrame, data: Path, cache: TraceCache, *, trace: bool) -> dict[str, pd.DataFrame]:
    """Bare steps of the sum of the work and of LightGBM, fitted to the same training steps; none without the data."""
    if not data.is_dir():
        return {}
    bare, found = time_table(data, cache, inference=False, trace=trace), {}
    work = {name: 0.0 for name in bare.columns if name.startswith("work:")}
    makers: dict[str, Any] = {"work alone": WorkAlone, "LightGBM, simple features": SimpleBoosting}
    for name, make in makers.items():
        try:
            model = make().fit(bare, bare["step_time_s"].to_numpy())
        except ImportError as error:
            log.info("%s is left out: %s", name, error)
            continue
        seconds = model.predict(rows.reindex(columns=bare.columns).fillna(work))
        found[name] = _steps(rows, np.column_stack([seconds, *[np.full(len(rows), np.nan)] * 2]))
    return found


def _steps(rows: pd.DataFrame, found: Any) -> pd.DataFrame:
    table = pd.DataFrame(found, columns=["predicted", "low", "high"], index=rows.index)
    return table.assign(y=rows["step_time_s"], source=rows["source"])


def effect_of(bare: pd.DataFrame) -> ScriptEffect:
    """The effect of the projects of some rows."""
    return fit_script_effect(bare["y"], bare["predicted"], bare["source"])


def in_scripts(bare: pd.DataFrame, effect: ScriptEffect) -> pd.DataFrame:
    """Bare steps with those in scripts beside them."""
    found = effect.apply(bare[["predicted", "low", "high"]].to_numpy(), [_LEVEL])
    return bare.assign(**dict(zip(["predicted, script", "low, script", "high, script"], found.T, strict=True)))


def held_out(bare: pd.DataFrame) -> pd.DataFrame:
    """As `in_scripts`, each project's rows with the effect of the others."""
    out = [bare["source"] == name for name in bare["source"].unique()]
    return pd.concat([in_scripts(bare[test], effect_of(bare[~test])) for test in out])


def summary(out: pd.DataFrame, end: str) -> dict[str, float]:
    """Errors, bias (log ratio to measured), coverage and width, of rows and with projects of equal weight."""
    low, predicted, high = (out[name + end] for name in ("low", "predicted", "high"))
    error, log_ratio = (predicted / out["y"] - 1.0).abs(), np.log(predicted / out["y"])
    equal = 1.0 / out.groupby("source")["y"].transform("size")
    found = {"median": error.median(), "p90": error.quantile(0.9), "bias": log_ratio.median()}
    found |= {"bias, projects": np.average(log_ratio, weights=equal)}
    found |= {"rms, projects": np.sqrt(np.average(log_ratio**2, weights=equal))}
    if low.isna().any():  # a baseline without intervals
        return found
    inside = (out["y"] >= low) & (out["y"] <= high)
    found |= {"inside": inside.mean(), "inside, projects": np.average(inside, weights=equal)}
    return {**found, "high/low": (high / low).median()}


def by_project(out: pd.DataFrame) -> pd.DataFrame:
    """Rows, and errors of the bare step and of the step in a script, by project."""
    parts = dict(list(out.groupby("source")))
    names = ("median", "bias", "inside")
    rows = {
        name: {
            "rows": len(part),
            **{f"{what}{how}": summary(part, end)[what] for how, end in _HOW.items() for what in names},
        }
        for name, part in parts.items()
    }
    return pd.DataFrame(rows).T


def bundle_effect(cache: TraceCache) -> ScriptEffect:
    """Store the effect of all projects beside the bundled model."""
    rows = script_jobs(cache)
    effect = effect_of(bundled_steps(rows)[rows["host"] >= _YEAR])
    save_script_effect(effect, data_folder() / "cost" / "script_effect.json")
    refresh_checksums(data_folder(), "cost/script_effect.json")
    return effect


def _text(table: pd.DataFrame) -> str:
    return table.to_string(float_format="{:.3f}".format)
