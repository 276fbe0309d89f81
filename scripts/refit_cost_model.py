"""Refit the bundled cost model: ``python -m scripts.refit_cost_model``.

Traces every measured network (some minutes), stores the features of their graphs beside the measurements, and fits
`CostModel` on them. The same data and versions give the same files, bit for bit.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.measure.graphs import features_of_architectures, measured_jobs, trace_graphs
from gpudemand.cost.feature_table import ARCHITECTURE
from gpudemand.cost.measurements import load_measurements
from gpudemand.cost.model import TARGETS, CostModel
from gpudemand.cost.networks import family_of
from gpudemand.datasets.registry import data_folder
from scripts.checksums import refresh_checksums


def median_of_repetitions(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a job, the median of its repetitions; failed measurements are dropped."""
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
    rows = median_of_repetitions(load_measurements())
    graphs = trace_graphs(rows, n_jobs=-1, networks="benchmarks.zoo")
    file = folder / "cost" / "cpu_graphs.parquet"
    features_of_architectures(graphs).to_parquet(file, compression="zstd", compression_level=19)
    families = rows["network"].map(family_of).to_numpy()
    model.fit(measured_jobs(rows, graphs), rows[list(TARGETS)], groups=families)
    model.save(place)
    refresh_checksums(folder, "cost/")
    return model


if __name__ == "__main__":
    refit(data_folder())
