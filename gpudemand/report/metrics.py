"""Numbers of a report as metrics for Prometheus' textfile collector."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand._files import replace_file
from gpudemand._validation import InputError
from gpudemand.report.history import LAST_VALUE

#: Name without ``gpudemand_`` -> help. All are gauges.
_HELP = {
    "required_gpus": "GPUs required over the horizon, at the service level.",
    "installed_gpus": "GPUs installed when the plan begins.",
    "shortfall_gpus": "GPUs short in the four weeks after an order could arrive.",
    "order_due": "Whether GPUs must be ordered now to be there in time (1) or not (0).",
    "order_by_timestamp_seconds": "Date by which GPUs must be ordered; absent if none must.",
    "first_crossing_timestamp_seconds": "Date from which GPUs are short; absent if never.",
    "log_end_timestamp_seconds": "End of the job log that the report is on.",
    "plan_end_timestamp_seconds": "Begin of the last bin that is forecast.",
    "gpu_type_required_gpus": "GPUs of one type required over the horizon, each type a pool of its own.",
    "gpu_type_installed_gpus": "GPUs of one type installed.",
    "gpu_type_shortfall_gpus": "GPUs of one type short in the four weeks after an order could arrive.",
    "backtest_wape_ratio": "Sum of absolute errors over sum of demand, on evaluation windows of the backtest.",
    "backtest_coverage_ratio": "Share of the bins of the backtest within the interval of a level.",
    "since_wape_ratio": "Sum of absolute errors over sum of demand since an earlier report, of its forecast.",
    "since_bias_ratio": "Sum of errors over sum of demand since an earlier report; positive if it was too high.",
    "since_coverage_ratio": "Share of the bins since an earlier report within its interval of a level.",
}
_LEVELS = ("80", "95")
#: Name, value and labels of a sample.
_Sample = tuple[str, Any, dict[str, str]]


def check_metrics_path(path: Path) -> Path:
    """Return the path of a file of metrics; raises if the collector would not read it, or there is no such folder."""
    if path.suffix != ".prom":
        raise InputError(f"metrics={str(path)!r} must end in .prom; the textfile collector reads no other file.")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {str(path.parent)!r} for metrics={str(path)!r}; make it first.")
    return path


def write_metrics(path: str | os.PathLike[str], numbers: Mapping[str, Any], report: str) -> None:
    """Write the numbers of a report for the textfile collector of Prometheus' node exporter, in one step.

    `report`: value of the label that tells the reports of one machine apart: the exporter refuses files with the same
    series.
    """
    with replace_file(check_metrics_path(Path(path))) as new:
        new.write_text(metrics_text(numbers, report), encoding="utf-8")


def metrics_text(numbers: Mapping[str, Any], report: str) -> str:
    r"""Numbers of a report in Prometheus' text format; what is not known has no sample.

    >>> escaped('a\\b "c"\n')
    'a\\\\b \\"c\\"\\n'
    """
    samples = list(_samples(numbers))
    lines = []
    for name, text in _HELP.items():
        rows = [
            (value, {"report": report, **labels}) for key, value, labels in samples if key == name and value is not None
        ]
        lines += [f"# HELP gpudemand_{name} {text}", f"# TYPE gpudemand_{name} gauge"] if rows else []
        for value, labels in rows:
            label = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
            lines.append(f"gpudemand_{name}{{{label}}} {float(value)!r}")
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Value of a label as the text format has it."""
    printable = text.encode("utf-8", "backslashreplace").decode()  # no halves of surrogate pairs
    return printable.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _samples(numbers: Mapping[str, Any]) -> Iterator[_Sample]:
    n, order = numbers["headline"], numbers["order"]
    for name in ("required", "installed", "shortfall"):
        yield f"{name}_gpus", n[name], {}
        for gpu_type, row in numbers["gpu_types"].items():
            yield f"gpu_type_{name}_gpus", row[name], {"gpu_type": gpu_type}
    yield "order_due", order["due"], {}
    times = {"order_by": order["by"], **{name: n[name] for name in ("first_crossing", "log_end", "plan_end")}}
    for name, time in times.items():
        yield f"{name}_timestamp_seconds", None if time is None else pd.Timestamp(time).timestamp(), {}
    yield "backtest_wape_ratio", n["wape"], {"method": "selected"}
    yield "backtest_wape_ratio", n["best_naive_wape"], {"method": "naive"}
    for level in _LEVELS:
        yield "backtest_coverage_ratio", n[f"coverage_{level}"], {"level": level}
    for row in (numbers["since"] or {}).get("forecast", ()):
        labels = {"series": row["series"], "method": "naive" if row["model"] == LAST_VALUE else "selected"}
        yield "since_wape_ratio", row["wape_since"], labels
        yield "since_bias_ratio", row["bias"], labels
        for level in _LEVELS:
            yield "since_coverage_ratio", row[f"coverage_{level}"], labels | {"level": level}
