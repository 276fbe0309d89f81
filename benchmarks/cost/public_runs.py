"""The bundled predictor of large models on bundled public runs, half of which it was never fitted to.

    python -m benchmarks.cost.public_runs [--half development scoring]

``data/cost/public_runs.csv`` holds runs that further projects print. Its projects are divided by a fixed seed: those of
the development half were looked at while the predictor was worked on, and their times are in its training set; those of
the scoring half are scored once a change. Beside the predictor stand 6 N D at the median share of the peak (MFU) of the
other half, and that by type of GPU; for memory, the formulas of DeepSpeed and of Hugging Face's estimator.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.cost.llm_baselines import ideal_seconds, names_of, state_gib
from benchmarks.cost.llm_load import read_runs
from benchmarks.cost.score import summary
from benchmarks.cost.traced import TraceCache
from gpudemand.cost.large_models import LargeModelPredictor, classes_of, expand
from gpudemand.datasets.registry import bundled_path
from gpudemand.units import GIB

HALVES = ("development", "scoring")
#: Of the draw of the halves.
_SEED = 20261124
#: Groups that errors are listed by.
_BY = ("class", "source")


def split_public_runs() -> pd.DataFrame:
    """Rows of the bundled public runs with their ``half``."""
    rows = read_runs(bundled_path("cost/public_runs.csv"))
    return rows.assign(half=rows["source"].map(halves_of(rows, _SEED)))


def halves_of(rows: pd.DataFrame, seed: int) -> dict[str, str]:
    """Half of each project, drawn apart for those that have mixtures of experts, for both halves to have some."""
    sparse, found = rows["class"].eq("experts").groupby(rows["source"]).any(), {}
    rng = np.random.default_rng(seed)
    for has in (True, False):
        names = rng.permutation(sorted(sparse.index[sparse == has])).tolist()
        found.update({name: HALVES[place % 2] for place, name in enumerate(names)})
    return found


def main(arguments: list[str] | None = None) -> None:
    """Print the errors of both halves, or of one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", nargs="+", default=list(HALVES), choices=HALVES)
    options = parser.parse_args(arguments)
    rows, predictor = split_public_runs(), LargeModelPredictor.load()
    for half in options.half:
        inside = rows["half"] == half
        report(predictor, rows[inside].reset_index(drop=True), rows[~inside], half)


def run(data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """As `main`; nothing is held out, so that there are no ratios to keep."""
    main([])
    return pd.DataFrame()


def report(predictor: LargeModelPredictor, rows: pd.DataFrame, others: pd.DataFrame, half: str) -> None:
    """Print errors of time and memory by method, class and project, and how many run out of memory as said."""
    runs, ways = list(rows["run"]), expand(list(rows["run"]))
    kinds, columns = classes_of(runs), ["predicted", "low", "high"]
    seconds = pd.DataFrame(predictor.predict_expanded(ways, kinds)[0], columns=columns)
    as_read = ways.as_read(list(rows["reading"]))
    memory = pd.DataFrame(predictor.predict_expanded(as_read, kinds)[1] / GIB, columns=columns)
    print(f"\n{half}: {len(rows)} configurations of {rows['source'].nunique()} projects")
    formulas = {"DeepSpeed's formula": True, "Hugging Face's formula": False}
    sizes = {
        name: pd.DataFrame({"predicted": [state_gib(run, sharded=sharded) for run in runs]})
        for name, sharded in formulas.items()
    }
    _print(rows, rows["seconds_per_token"], {"gpudemand": seconds, **ideal(rows, others)}, "time")
    _print(rows, rows["memory_gib"].where(rows["status"] == "ok"), {"gpudemand, as read": memory, **sizes}, "memory")
    ran, said = (rows["status"] == "ok").to_numpy(), predictor.fits_expanded(ways, runs) >= 0.5
    print(
        f"\nfits: right {np.mean(said == ran):.3f} ({int((~ran).sum())} ran out); of those said to fit "
        f"{np.mean(~ran[said]):.3f} fail; of those that ran {np.mean(said[ran]):.3f} are said to fit"
    )


def ideal(rows: pd.DataFrame, others: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Seconds a token of 6 N D at the share of the peak of other runs, all of them and those on the same GPU."""
    least = pd.Series([ideal_seconds(run) for run in others["run"]], index=others.index)
    share, gpus = least / others["seconds_per_token"], names_of(others)
    by_gpu = share.groupby(gpus).median().reindex(names_of(rows)).fillna(share.median()).to_numpy()
    own = np.array([ideal_seconds(run) for run in rows["run"]])
    found = {"6 N D, one MFU": own / share.median(), "6 N D, MFU by GPU": own / by_gpu}
    return {name: pd.DataFrame({"predicted": values}) for name, values in found.items()}


def _print(rows: pd.DataFrame, y: pd.Series, outs: dict[str, pd.DataFrame], what: str) -> None:
    known = y.notna() & (y > 0)
    print(f"\n{what}: {int(known.sum())} configurations")
    tables = {name: out[known].assign(y=y[known]) for name, out in outs.items()}
    print(pd.DataFrame({name: summary(out) for name, out in tables.items()}).T.to_string(float_format="{:.3f}".format))
    for name in _BY:
        parts = next(iter(tables.values())).groupby(rows.loc[known, name])
        found = {key: {"rows": len(out), **summary(out)} for key, out in parts}
        if name == "class":
            found = {key: {**found[key], **_by_project(out, rows["source"])} for key, out in parts}
        print(pd.DataFrame(found).T.to_string(float_format="{:.3f}".format))


def _by_project(out: pd.DataFrame, sources: pd.Series) -> dict[str, float]:
    """Share inside the interval if each project counts once: the rows of a project err alike."""
    inside = out["y"].between(out["low"], out["high"]).groupby(sources[out.index]).mean()
    return {"inside, by project": float(inside.mean())}


if __name__ == "__main__":
    main()
