"""Bundled measurements, the graphs of their networks, and held-out predictions."""

from __future__ import annotations

import pandas as pd

from gpudemand._validation import check_choice
from gpudemand.cost.measuring.measure import read_rows
from gpudemand.datasets.registry import bundled_path

#: Kinds of device with bundled measurements.
DEVICES = ("cpu",)


def load_measurements(device: str = "cpu") -> pd.DataFrame:
    """Load the bundled measurements of step time and memory.

    Parameters
    ----------
    device : {"cpu"}, default="cpu"
        Kind of device that was measured.

    Returns
    -------
    DataFrame
        A row a job, as `measure_training_cost` returns them; ``attrs["kind"]`` is ``"measured"``.

    Raises
    ------
    InputError
        If there are no measurements on such a device.

    Examples
    --------
    >>> rows = load_measurements()
    >>> sorted(rows["framework"].unique()), rows["network"].nunique()
    (['keras', 'torch'], 41)
    """
    rows = read_rows(bundled_path(f"cost/{check_choice('device', device, DEVICES)}.csv"))
    rows.attrs.update(kind="measured", source="gpudemand's own measurements")
    return rows


def load_architectures(device: str = "cpu") -> pd.DataFrame:
    """Load the features of the traced networks in the bundled measurements.

    Parameters
    ----------
    device : {"cpu"}, default="cpu"
        Kind of device that was measured.

    Returns
    -------
    DataFrame
        What `trace_architectures` returns for `load_measurements`; `features_from_rows` takes it.

    Examples
    --------
    >>> from gpudemand.cost import features_from_rows
    >>> rows = load_measurements().head(3)
    >>> features_from_rows(rows, load_architectures())[["batch_size", "flops", "edge:Conv->Relu"]].shape
    (3, 3)
    """
    return pd.read_parquet(bundled_path(f"cost/{check_choice('device', device, DEVICES)}_graphs.parquet"))


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
        A row a configuration, a target, a split and a method: ``source``, ``model``, ``class``, ``gpu``, ``target``
        (``time`` or ``memory``), ``split`` (what was held out as a whole: ``source``, ``family`` or ``generation``),
        ``method``, ``ratio`` (predicted over measured; the measurements themselves belong to their projects), and
        ``inside``, 1 if the 90 % interval covered the measurement, NaN for methods without intervals.

    Examples
    --------
    >>> ratios = load_held_out_runs()
    >>> sorted(ratios["split"].unique())
    ['family', 'generation', 'source']
    """
    found = pd.read_parquet(bundled_path("cost/held_out_runs.parquet"))
    found.attrs.update(kind="public trace", source="public benchmarks of training stacks")
    return found
