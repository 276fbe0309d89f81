"""Fit the bundled predictor again: ``python -m gpudemand.cost.refit``.

Traces every network that was measured (some minutes), stores their graphs' features beside the measurements, and fits
`CostModel` on them. The same data and versions give the same files, bit for bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand import _parallel
from gpudemand.cost import zoo
from gpudemand.cost.bundled import DEVICES, load_measurements
from gpudemand.cost.describe import measured_jobs
from gpudemand.cost.graph import OpGraph
from gpudemand.cost.model import TARGETS, CostModel
from gpudemand.cost.table import ARCHITECTURE, EDGE, describe_graph, trace_graph
from gpudemand.datasets.registry import data_folder, refresh_checksums


def trace_graphs(rows: pd.DataFrame, n_jobs: int | None = None) -> dict[tuple[Any, ...], OpGraph]:
    """Trace every distinct architecture of some rows.

    Parameters
    ----------
    rows : DataFrame
        `ARCHITECTURE` of each.
    n_jobs : int, optional
        Processes.

    Returns
    -------
    dict of tuple to OpGraph
    """
    distinct = rows[list(ARCHITECTURE)].drop_duplicates().sort_values(list(ARCHITECTURE)).to_dict("records")
    graphs = _parallel.run(trace_graph, distinct, n_jobs=n_jobs)
    return {tuple(spec.values()): graph for spec, graph in zip(distinct, graphs, strict=True)}


def one_row_a_job(rows: pd.DataFrame) -> pd.DataFrame:
    """Collapse repetitions of a job to their median; drop rows without a result."""
    sound = rows[(rows["status"] == "ok").to_numpy(dtype=bool)]
    job = [*ARCHITECTURE, "batch_size", "optimizer", "precision", "layout", "execution", "device_name"]
    medians = sound.groupby(job, as_index=False)[list(TARGETS)].median()
    first = sound.sort_values(["repeat", "key"]).drop_duplicates(job)
    return first.drop(columns=list(TARGETS)).merge(medians, on=job).sort_values("key", ignore_index=True)


def refit(folder: Path) -> CostModel:
    """Fit on the bundled measurements; write graphs and model.

    Parameters
    ----------
    folder : Path
        The data folder of a checkout.

    Returns
    -------
    CostModel
    """
    model = CostModel()
    place = folder / "cost" / "model"
    if (place / "model.json").is_file():
        model = CostModel.load(place)
    for device in DEVICES:
        rows = one_row_a_job(load_measurements(device))
        graphs = trace_graphs(rows, n_jobs=-1)
        store_features(graphs, folder / "cost" / f"{device}_graphs.parquet")
        families = rows["network"].map(zoo.family).to_numpy()
        model.fit(measured_jobs(rows, graphs), rows[list(TARGETS)], groups=families)
    model.save(place)
    refresh_checksums(folder, "cost/")
    return model


def store_features(graphs: dict[tuple[Any, ...], OpGraph], path: Path) -> None:
    """Write what `load_architectures` reads."""
    keys = pd.MultiIndex.from_tuples(list(graphs), names=ARCHITECTURE)
    table = pd.DataFrame([describe_graph(graph) for graph in graphs.values()], index=keys)
    edges = [name for name in table.columns if name.startswith(EDGE)]
    table.fillna(dict.fromkeys(edges, 0.0)).to_parquet(path, compression="zstd", compression_level=19)


if __name__ == "__main__":
    refit(data_folder())
