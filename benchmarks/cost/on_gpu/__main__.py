"""Measure what the networks of the zoo do not show, and compare it with predictions.

    python -m benchmarks.cost.on_gpu measure {kernels,decoders,operators} --out ROWS.csv [--device cuda] [--minutes 9]
    python -m benchmarks.cost.on_gpu compare {kernels,decoders,operators} --out ROWS.csv --device H200

``measure`` goes on where it was stopped. A step that does not fit into memory is a row with the status ``oom``; after
any other error of the device the process ends, because nothing that follows could be trusted; start it again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.cost.on_gpu import decoders, kernels, operators
from benchmarks.cost.on_gpu.session import Measured, ModuleSession, predicted_job
from benchmarks.cost.score import summary
from benchmarks.measure.child import failed
from benchmarks.measure.meter import ENVIRONMENT_COLUMNS, RowFile, Sampling, measure
from benchmarks.measure.runs import MEASURED_COLUMNS
from gpudemand import CostModel
from gpudemand.cost.step_time_model import FarFromTrainingWarning

PLAN = Path("data/cost/plans/operators.csv")
COLUMNS = ("design", *MEASURED_COLUMNS, *ENVIRONMENT_COLUMNS)
DESIGNS: dict[str, Any] = {"decoders": decoders.Decoder, "operators": operators.OneOperator}
_SAMPLING = Sampling(steps=8, min_time_s=0.2, max_time_s=5.0)


def designs(what: str, plan: Path) -> list[Any]:
    """What is measured, in the order of the plan."""
    return decoders.plan() if what == "decoders" else operators.plan(plan)


def measure_designs(found: list[Any], out: Path, device: str, minutes: float) -> None:
    """Append a row a design that the file lacks, until the time is over."""
    calls = {json.dumps(asdict(each)): partial(_row, each, device) for each in found}
    _append(out, COLUMNS, "design", calls, minutes)


def measure_kernels(out: Path, device: str, minutes: float) -> None:
    """Append a row a network that the file lacks, until the time is over."""
    calls = {job.network: partial(kernels.measure, job) for job in kernels.plan(device)}
    _append(out, tuple(kernels.COLUMNS), "network", calls, minutes)


def _append(
    out: Path, columns: tuple[str, ...], key: str, calls: dict[str, Callable[[], dict[str, Any]]], minutes: float
) -> None:
    end = time.monotonic() + 60 * minutes
    with RowFile(out, columns) as rows:
        known = {row[key] for row in rows.read()}
        for name, call in calls.items():
            if name in known:
                continue
            if time.monotonic() > end:
                print(f"{out.name}: out of time, start it again to go on.")
                return
            row = call()
            rows.append({key: name, **row})
            if row.get("status") == "error":
                raise SystemExit(f"{name}: {row['message']}; start it again to go on.")


def _row(design: Any, device: str) -> dict[str, Any]:
    start = time.monotonic()
    try:
        session = ModuleSession(Measured(design, device))
        row = {"status": "ok", **measure(session, _SAMPLING, on_device=device == "cuda")}
    except Exception as error:  # any exception of training is the result of this row
        row = failed(error)
    return {**row, "wall_s": time.monotonic() - start, "process": "shared"}


def compare(what: str, rows: Path, device: str) -> pd.DataFrame:
    """Measured and predicted step time and memory of each design that was measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarFromTrainingWarning)
        return pd.DataFrame(_compared(what, pd.read_csv(rows), device))


def _compared(what: str, rows: pd.DataFrame, device: str) -> Iterator[dict[str, Any]]:
    model = CostModel.load()
    for row in rows.to_dict("records"):
        design = DESIGNS[what](**json.loads(row["design"]))
        job = predicted_job(design, device)
        cost = model.predict([job]).iloc[0]
        group = getattr(design, "kind", None) or f"{design.attention}{', LoRA' if design.lora else ''}"
        measured = {"y": row["step_time_s"], "memory": row["reserved_gib"], "status": row["status"]}
        interval = {"low": cost["step_time_s-lo-90"], "high": cost["step_time_s-hi-90"]}
        predicted = {"predicted": cost["step_time_s"], "predicted_memory": cost["memory_gib"]}
        yield {"group": group, **measured, **predicted, **interval, "fits": model.fits(job)}


def _comparison(what: str, rows: Path, device: str) -> pd.DataFrame:
    """Kernels that were launched over those recorded by network, or errors of step times by group."""
    if what == "kernels":
        return pd.read_csv(rows).assign(ratio=lambda table: table["launched"] / table["recorded"])
    table = compare(what, rows, device)
    timed = table[table["status"] == "ok"]
    return pd.DataFrame({name: {"rows": len(part), **summary(part)} for name, part in timed.groupby("group")}).T


def main() -> None:
    """Measure or compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=["measure", "compare"])
    parser.add_argument("what", choices=["kernels", *DESIGNS])
    parser.add_argument("--out", type=Path, required=True, help="the rows")
    parser.add_argument("--device", default="cuda", help="cuda or cpu; of a comparison, the model of the device")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--plan", type=Path, default=PLAN, help="of operators")
    options = parser.parse_args()
    if options.action == "compare":
        print(_comparison(options.what, options.out, options.device).round(3).to_string())
    elif options.what == "kernels":
        measure_kernels(options.out, options.device, options.minutes)
    else:
        measure_designs(designs(options.what, options.plan), options.out, options.device, options.minutes)


if __name__ == "__main__":
    main()
