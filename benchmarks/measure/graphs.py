"""Graphs and jobs of measured rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd

from benchmarks.measure.meter import configuration_from_row
from benchmarks.measure.networks import ZOO, load_networks
from gpudemand import _parallel
from gpudemand._validation import InputError
from gpudemand.cost.feature_table import ARCHITECTURE, features_of_graphs
from gpudemand.cost.graph import OpGraph
from gpudemand.cost.job import TrainingJob

_EXECUTION = {"torch": {}, "keras": {"layout": "channels_last", "execution": "compiled"}}


def features_of_architectures(graphs: Mapping[tuple[Any, ...], OpGraph]) -> pd.DataFrame:
    """Features of architectures that `trace_graphs` traced, a row each, with `ARCHITECTURE` in the index."""
    return features_of_graphs(graphs.values(), pd.MultiIndex.from_tuples(list(graphs), names=ARCHITECTURE))


def trace_graphs(rows: pd.DataFrame, n_jobs: int | None = None, networks: str = ZOO) -> dict[tuple[Any, ...], OpGraph]:
    """`ARCHITECTURE` -> graph, of every distinct architecture in rows; `n_jobs`: processes."""
    distinct = rows[list(ARCHITECTURE)].drop_duplicates().sort_values(list(ARCHITECTURE)).to_dict("records")
    graphs = _parallel.run(partial(_trace_graph, networks=networks), distinct, n_jobs=n_jobs)
    return {tuple(spec.values()): graph for spec, graph in zip(distinct, graphs, strict=True)}


def _trace_graph(spec: dict[str, Any], networks: str) -> OpGraph:
    """Build one architecture (`ARCHITECTURE`) and trace it."""
    job = configuration_from_row({**_EXECUTION[spec["framework"]], **spec})
    build = partial(job.build, load_networks(networks))
    if job.framework == "keras":
        return OpGraph.from_keras(build())
    import torch

    with torch.device("meta"):
        return OpGraph.from_torch(build(), job.input_shape)


def measured_jobs(rows: pd.DataFrame, graphs: Mapping[Any, OpGraph]) -> list[TrainingJob]:
    """Jobs of rows of `measure_training_cost`, whose `graphs` are those of `trace_graphs`."""
    jobs = []
    for row in rows.to_dict("records"):
        key = tuple(row[column] for column in ARCHITECTURE)
        if key not in graphs:
            raise InputError(f"graphs has no {row['network']} of {row['framework']} as measured; trace the rows first.")
        jobs.append(
            TrainingJob(
                graphs[key],
                batch_size=int(row["batch_size"]),
                optimizer=row["optimizer"],
                precision=row["precision"],
                device=str(row["device_name"]),
                layout=row["layout"],
                execution=row["execution"],
                framework_version=str(row["framework_version"]).partition(" ")[2] or None,
            )
        )
    return jobs
