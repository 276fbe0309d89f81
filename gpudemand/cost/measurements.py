"""Bundled measurements of training costs, and held-out predictions of public ones."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._array import STRING
from gpudemand._validation import InputError, as_numbers, check_columns
from gpudemand.datasets.registry import bundled_path

#: Columns of measured rows that tell a job and where it ran; rows that are equal in these are repetitions.
_JOB = (
    *("framework", "network", "input_size", "channels", "n_classes", "vocabulary", "width", "depth", "batch_size"),
    *("optimizer", "precision", "layout", "execution", "device", "threads", "seed"),
    *("device_name", "cpu", "framework_version", "backend"),
)
#: Those of text.
TEXT_COLUMNS = (
    *("key", "framework", "network", "optimizer", "precision", "layout", "execution", "device"),
    *("status", "message", "device_gib_source", "process"),
    *("device_name", "driver", "framework_version", "backend", "python", "os", "cpu", "gpudemand_version", "date"),
)


def noise_floor(rows: pd.DataFrame, targets: tuple[str, ...] = ("step_time_s", "memory_gib")) -> pd.DataFrame:
    """Relative error of repetitions of one job: a lower bound on the error of predictions.

    Each repetition is compared with the mean of the others of its job; the difference is multiplied by
    ``sqrt((n - 1) / n)`` for n repetitions, which removes the noise of that mean, and divided by the observation.

    Parameters
    ----------
    rows : DataFrame
        Such as `load_measurements` returns; only rows with status ``ok`` count.
    targets : tuple of str
        Columns to compare.

    Returns
    -------
    DataFrame
        A row per framework, device and target: ``n_jobs``, ``n_rows``, and the relative error's ``mean``, ``median``
        and ``p90``. Without repetitions, no rows. Rows of another GPU, processor or version of the framework are no
        repetitions.

    Raises
    ------
    InputError
        If a column is missing, or holds what is no cost: text, zero, negative numbers.

    Examples
    --------
    >>> job = {"framework": "torch", "device": "cpu", "network": "lenet", "status": "ok"}
    >>> rows = pd.DataFrame([{**job, "repeat": i, "step_time_s": s} for i, s in enumerate((1.0, 1.1))])
    >>> noise_floor(rows, ("step_time_s",))["mean"].round(3).tolist()
    [0.067]
    """
    rows = check_columns(rows, ("framework", "device", "status", *targets), "rows")
    job = [name for name in _JOB if name in rows.columns]
    measured = rows[(rows["status"] == "ok").fillna(False).to_numpy(dtype=bool)]
    for target in targets:
        wrong = int((as_numbers(measured[target], f"the column {target} of rows") <= 0).sum())
        if wrong:
            raise InputError(f"the column {target} of rows holds {wrong} values that are not above zero; remove them.")
    parts = [_errors(measured, job, target) for target in targets]
    errors = pd.concat(parts, ignore_index=True)
    groups = errors.groupby(["framework", "device", "target"], sort=True)["error"]
    summary = groups.agg(n_rows="size", mean="mean", median="median", p90=lambda e: e.quantile(0.9)).reset_index()
    jobs = errors.groupby(["framework", "device", "target"], sort=True)["job"].nunique().to_numpy()
    summary.insert(3, "n_jobs", jobs)
    return summary


def _errors(rows: pd.DataFrame, job: list[str], target: str) -> pd.DataFrame:
    """Relative error of each repetition of jobs that were measured more than once."""
    known = rows[rows[target].notna()]
    groups = known.groupby(job, dropna=False)
    n, total = groups[target].transform("size"), groups[target].transform("sum")
    value, number = known[target], groups.ngroup()
    others = (total - value) / (n - 1).where(n > 1)
    error = (value - others).abs() * np.sqrt((n - 1) / n) / value
    table = pd.DataFrame({"framework": known["framework"], "device": known["device"], "job": number, "error": error})
    return table.assign(target=target)[(n > 1).to_numpy()]


def load_measurements() -> pd.DataFrame:
    """Load the bundled measurements of step time and memory, on a CPU.

    Returns
    -------
    DataFrame
        A row a job: the job, ``status``, ``step_time_s``, ``memory_gib`` and more of what was measured, and on what
        (``data/registry.json`` describes each column); ``attrs["kind"]`` is ``"measured"``.

    Examples
    --------
    >>> rows = load_measurements()
    >>> sorted(rows["framework"].unique()), rows["network"].nunique()
    (['keras', 'torch'], 41)
    """
    rows = pd.read_csv(bundled_path("cost/cpu.csv"), dtype=dict.fromkeys(TEXT_COLUMNS, STRING))
    rows.attrs.update(kind="measured", source="gpudemand's own measurements")
    return rows


def load_architectures() -> pd.DataFrame:
    """Load the features of the traced networks in the bundled measurements.

    Returns
    -------
    DataFrame
        A row an architecture of `load_measurements`; what `features_from_rows` takes.

    Examples
    --------
    >>> from gpudemand.cost import features_from_rows
    >>> rows = load_measurements().head(3)
    >>> features_from_rows(rows, load_architectures())[["batch_size", "flops", "edge:Conv->Relu"]].shape
    (3, 3)
    """
    return pd.read_parquet(bundled_path("cost/cpu_graphs.parquet"))


def load_held_out() -> pd.DataFrame:
    """Load held-out predictions of public measurements, as stored by ``python -m benchmarks.cost --out``.

    Returns
    -------
    DataFrame
        A row a job, a track and a method: ``track``, ``method``, ``network``, ``family``, ``device``, ``ratio``
        (predicted over measured; the measurements themselves belong to their projects), and ``inside``, 1 if the 90 %
        interval covered the measurement, NaN for methods without intervals.

    Examples
    --------
    >>> ratios = load_held_out()
    >>> ours = ratios[(ratios["track"] == "family") & (ratios["method"] == "gpudemand")]
    >>> bool((ours["ratio"] - 1).abs().median() < 0.1)
    True
    """
    found = pd.read_parquet(bundled_path("cost/held_out.parquet"))
    found.attrs.update(kind="public trace", source="timm, Lambda Labs, pytorch-gpu-benchmark, Sia, NeuSight, GPUMemNet")
    return found


def load_held_out_runs() -> pd.DataFrame:
    """Load held-out predictions of public runs of large models, as ``python -m benchmarks.cost.llm --out`` stores them.

    Returns
    -------
    DataFrame
        A row a configuration, a target, a split and a method: ``source``, ``model``, ``class``, ``layout``, ``gpu``,
        ``generation``, ``vendor``, ``target`` (``time`` or ``memory``), ``split`` (what was held out as a whole:
        ``source`` or ``generation``), ``method``, ``ratio`` (predicted over measured; the measurements themselves
        belong to their projects), and ``inside``, 1 if the 90 % interval covered the measurement, NaN for methods
        without intervals.

    Examples
    --------
    >>> ratios = load_held_out_runs()
    >>> sorted(ratios["split"].unique())
    ['generation', 'source']
    """
    found = pd.read_parquet(bundled_path("cost/held_out_runs.parquet"))
    found.attrs.update(kind="public trace", source="public benchmarks of training stacks")
    return found
