"""GPU-hours of whole trainings as projects publish them, beside those that `training_totals` predicts.

    python -m benchmarks.cost --track trainings [--train DIR]
    python -m benchmarks.cost.trainings [--half development scoring]

Rows of ``data/cost/trainings.csv`` are facts, each with its document. A fixed seed halves the projects: one half was
looked at, the other is scored once a change. Beside the predictor stand 6 N D at 40 % of the peak (MFU), and at the
share that fits the first half best.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cost.llm_baselines import ideal_seconds
from benchmarks.cost.llm_load import read_runs
from benchmarks.cost.scripts import held_out, summary
from benchmarks.cost.traced import TraceCache
from gpudemand.cost.job import TrainingJob, TrainingRun
from gpudemand.cost.large_models import LargeModelPredictor
from gpudemand.cost.layouts import training_totals
from gpudemand.cost.parallel import Parallel
from gpudemand.datasets.devices import device
from gpudemand.datasets.registry import bundled_path

HALVES = ("development", "scoring")
#: Of the draw of the halves.
_SEED = 20261126
_CHECKPOINTING = {"none": False, "selective": "selective", "full": "full"}
#: Where no document states how many GPUs there were: as many as take so long at this share of the peak.
_HOURS, MFU = 30 * 24, 0.4
#: Where ``python -m benchmarks.cost`` looks for the measurements that the predictor was fitted to.
_DATA = Path("../shared/data/cost")


def read_trainings() -> pd.DataFrame:
    """Rows of the bundled table with their ``job`` and ``half``."""
    rows = pd.read_csv(bundled_path("cost/trainings.csv"))
    halves = rows["source"].map(halves_of(rows, _SEED))
    return rows.assign(job=[_job(row) for row in rows.to_dict("records")], half=halves)


def halves_of(rows: pd.DataFrame, seed: int) -> dict[str, str]:
    """Half of each project, drawn apart for those that have mixtures of experts, for both halves to have some."""
    sparse, found = rows["class"].eq("experts").groupby(rows["source"]).any(), {}
    rng = np.random.default_rng(seed)
    for has in (True, False):
        names = rng.permutation(sorted(sparse.index[sparse == has])).tolist()
        found.update({name: HALVES[place % 2] for place, name in enumerate(names)})
    return found


def main(arguments: list[str] | None = None, data: Path = _DATA) -> None:
    """Print the errors of both halves, or of one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", nargs="+", default=list(HALVES), choices=HALVES)
    options = parser.parse_args(arguments)
    rows = read_trainings()
    share, fitted = best_share(rows[rows["half"] == HALVES[0]]), fitted_runs(data)
    print("tokens a step: {:,.0f} x GPUs ** {:.2f}, a project held out {:.2f} doublings off".format(*usual_batch(rows)))
    for half in options.half:
        report(half, rows[rows["half"] == half].reset_index(drop=True), share, fitted)


def run(data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """As `main`; nothing is held out, so that there are no ratios to keep."""
    main([], data)
    return pd.DataFrame()


def report(half: str, rows: pd.DataFrame, share: float, fitted: set[tuple[float, str]]) -> None:
    """Print errors by method, class and project, and whether the predictor knows the model on that GPU."""
    own = predicted_hours(rows)
    outs = {"gpudemand": own, **{f"6 N D, MFU {value:.3g}": ideal_hours(rows, value) for value in (MFU, share)}}
    print(f"\n{half}: {len(rows)} trainings of {rows['source'].nunique()} projects")
    _print(outs)
    effect = summary(held_out(own), ", script")
    print(f"with the effect of the other projects:\n{_text({'gpudemand': effect})}")
    known = ["fitted to" if _key(job.run) in fitted else "not fitted to" for job in rows["job"]]
    for name, groups in {"class": rows["class"], "model on GPU": pd.Series(known), "project": rows["source"]}.items():
        print(f"by {name}:")
        _print({f"{key}, {len(out)}": out for key, out in own.groupby(groups)})


def predicted_hours(rows: pd.DataFrame) -> pd.DataFrame:
    """GPU-hours by `training_totals`: ``y, source, predicted, low, high``."""
    predictor = LargeModelPredictor.load()
    names = {"gpu_hours": "predicted", "gpu_hours-lo-90": "low", "gpu_hours-hi-90": "high"}
    found = [training_totals(*pair, predictor=predictor) for pair in zip(rows["job"], rows["tokens"], strict=True)]
    return rows[["source"]].assign(
        y=rows["gpu_hours"], **pd.DataFrame(found, rows.index)[list(names)].rename(columns=names)
    )


def ideal_hours(rows: pd.DataFrame, share: float) -> pd.DataFrame:
    """GPU-hours of 6 N D at a share of the peak, without intervals."""
    seconds = np.array([ideal_seconds(job.run) for job in rows["job"]]) * rows["tokens"]
    return rows[["source"]].assign(y=rows["gpu_hours"], predicted=seconds / 3600 / share, low=np.nan, high=np.nan)


def best_share(rows: pd.DataFrame) -> float:
    """Share of the peak, in steps of 0.5 %, at which the median relative error is least."""
    out = ideal_hours(rows, 1.0)
    shares = (out["predicted"] / out["y"]).to_numpy()
    return float(min(np.arange(0.05, 0.7, 0.005), key=lambda share: np.median(np.abs(shares / share - 1.0))))


def usual_batch(rows: pd.DataFrame) -> tuple[float, float, float]:
    """Tokens a step on one GPU, the power of the GPUs by which they grow, and doublings by which projects are off.

    Of trainings that state batch and GPUs, projects of the same weight; they are off when held out, root mean square.
    """
    known = rows[rows["global_batch"].notna() & rows["n_gpus"].notna()]
    x, y = np.log2(known["n_gpus"].to_numpy(float)), np.log2((known["global_batch"] * known["seq_len"]).to_numpy(float))
    source = known["source"].to_numpy(dtype=object)
    weight = known.groupby("source")["source"].transform("size").to_numpy() ** -0.5
    power, one = np.polyfit(x, y, 1, w=weight)
    squares = []
    for out in (source == name for name in pd.unique(source)):
        fit = np.polyfit(x[~out], y[~out], 1, w=weight[~out])
        squares.append(np.mean((y[out] - np.polyval(fit, x[out])) ** 2))
    return float(2.0**one), float(power), float(np.sqrt(np.mean(squares)))


def fitted_runs(data: Path) -> set[tuple[float, str]]:
    """Sizes and GPUs of runs whose times the bundled predictor was fitted to; without `data` of bundled ones only."""
    tables = [read_runs(bundled_path("cost/public_runs.csv"))]
    tables += [read_runs(data / "llm_training")] if (data / "llm_training").is_dir() else []
    return {_key(run) for table in tables for run in table["run"][table["seconds_per_token"].notna()]}


def _key(run: TrainingRun) -> tuple[float, str]:
    return run.model.n_parameters, run.job.hardware.name


def _print(outs: dict[str, pd.DataFrame]) -> None:
    print(_text({name: summary(out, "") for name, out in outs.items()}))


def _text(found: dict[str, dict[str, float]]) -> str:
    return pd.DataFrame(found).T.to_string(float_format="{:.3f}".format)


def _job(row: dict[str, Any]) -> TrainingJob:
    """What a user would say of the training; what no document states stays unknown."""
    layout = None if row["layout"] != row["layout"] else Parallel(**_fields(row["layout"]))
    options = {name: int(row[name]) for name in ("global_batch", "micro_batch") if row[name] == row[name]}
    named = row["sizes"] != row["sizes"]
    return TrainingJob.from_config(
        row["model"] if named else {"name": row["model"], **_fields(row["sizes"])},
        None if named and row["class"] == "encoder" else row["seq_len"],
        device=row["gpu"],
        precision=row["precision"],
        n_gpus=int(row["n_gpus"]) if row["n_gpus"] == row["n_gpus"] else _gpus(row),
        parallel=layout,
        checkpointing=_CHECKPOINTING.get(row["checkpointing"]),
        attention=row["attention"],
        execution="compiled" if row["compiled"] == 1 else "eager",
        **options,
    )


def _gpus(row: dict[str, Any]) -> int:
    """The power of two, of eight or more, on which 6 N D takes about `_HOURS`."""
    seconds = 6.0 * 1e9 * row["parameters_b"] * row["tokens"] / device(row["gpu"]).peak("fp16") / MFU
    return int(2 ** max(round(np.log2(seconds / 3600 / _HOURS)), 3))


def _fields(text: str) -> dict[str, Any]:
    """``name=value`` pairs, with a semicolon between them."""
    pairs = dict(part.split("=", 1) for part in text.split(";"))
    known: dict[str, Any] = {"true": True, "false": False}
    return {key: int(value) if value.isdigit() else known.get(value, value) for key, value in pairs.items()}


if __name__ == "__main__":
    main()
