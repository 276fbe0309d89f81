"""Feature table of measured or planned rows: what is known of a job before it runs, without its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import pandas as pd

from gpudemand import _parallel
from gpudemand._validation import InputError, check_columns
from gpudemand.cost.graph.cache import per_graph
from gpudemand.cost.graph.features import OPTIMIZER_STATES, features_by_name
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.graph.structural_matrix import structural_matrix
from gpudemand.cost.memory.simulation import memory_summary

#: Columns that determine the graph of a network of the zoo.
ARCHITECTURE = ("framework", "network", "input_size", "channels", "n_classes", "vocabulary", "width", "depth")
#: Hyper-parameters beside the network.
CATEGORIES = ("framework", "optimizer", "precision", "layout", "execution", "device")
NUMBERS = ("batch_size", "threads")
EDGE = "edge:"


def features_from_rows(rows: pd.DataFrame, traced: pd.DataFrame | None = None) -> pd.DataFrame:
    """Features of the jobs in measured or planned rows: hyper-parameters and graph, never a network's name.

    Parameters
    ----------
    rows : DataFrame
        Measured rows or a plan: `ARCHITECTURE`, `CATEGORIES` and `NUMBERS`.
    traced : DataFrame, optional
        What `trace_architectures` returned for at least these architectures; by default they are traced now.

    Returns
    -------
    DataFrame
        Index of `rows`; `CATEGORIES` (text), `NUMBERS`, ``optimizer_states`` (copies of the weights that the optimizer
        keeps), the columns of `gpudemand.cost.graph_features` and `memory_summary`, and
        ``edge:<type>-><type>``, the entries of the network structural matrix that occur.

    Raises
    ------
    InputError
        If there are no rows, columns are missing, or `traced` lacks an architecture.
    """
    rows = check_columns(rows, (*ARCHITECTURE, *CATEGORIES, *NUMBERS), "rows")
    if rows.empty:
        raise InputError("rows has no jobs; there is nothing to describe.")
    known = trace_architectures(rows) if traced is None else traced
    graphs = known.reindex(pd.MultiIndex.from_frame(rows[list(ARCHITECTURE)]))
    missing = int(graphs["flops"].isna().sum())
    if missing:
        raise InputError(
            f"{missing} rows have an architecture that is not in `traced`; call trace_architectures first."
        )
    edges = [name for name in graphs.columns if name.startswith(EDGE)]
    graphs = graphs.drop(columns=[name for name in edges if not graphs[name].any()])
    job = rows[[*CATEGORIES, *NUMBERS]].reset_index(drop=True)
    job["optimizer_states"] = job["optimizer"].map(OPTIMIZER_STATES).astype(float)
    return pd.concat([job, graphs.reset_index(drop=True)], axis=1).set_axis(rows.index)


def trace_architectures(rows: pd.DataFrame, n_jobs: int | None = None) -> pd.DataFrame:
    """Build every distinct architecture in rows from the zoo and compute the features of its graph.

    Parameters
    ----------
    rows : DataFrame
        `ARCHITECTURE`; further columns are ignored.
    n_jobs : int, optional
        Processes; tracing takes some tenths of a second each.

    Returns
    -------
    DataFrame
        A row an architecture, `ARCHITECTURE` in the index: `gpudemand.cost.graph_features`,
        `memory_summary`, and the entries of the structural matrix (edge counts).
    """
    return features_of_architectures(trace_graphs(rows, n_jobs))


def features_of_architectures(graphs: Mapping[tuple[Any, ...], OpGraph]) -> pd.DataFrame:
    """Features of architectures that `trace_graphs` traced; see `trace_architectures`."""
    return features_of_graphs(graphs.values(), pd.MultiIndex.from_tuples(list(graphs), names=ARCHITECTURE))


def features_of_graphs(graphs: Iterable[OpGraph], index: pd.Index | None = None) -> pd.DataFrame:
    """`graph_features`, `memory_summary` and edge counts, ``edge:<type>-><type>``, a row a graph."""
    table = pd.DataFrame([_features_of_graph(graph) for graph in graphs], index=index)
    return table.fillna({name: 0.0 for name in table.columns if name.startswith(EDGE)})


@per_graph
def _features_of_graph(graph: OpGraph) -> dict[str, float]:
    counts = structural_matrix(graph).stack()
    counts = counts[counts > 0]
    edges = {f"{EDGE}{producer}->{consumer}": float(n) for (producer, consumer), n in counts.items()}
    return {**features_by_name(graph), **memory_summary(graph), **edges}


def trace_graphs(rows: pd.DataFrame, n_jobs: int | None = None) -> dict[tuple[Any, ...], OpGraph]:
    """Build every distinct architecture in rows from the zoo and trace it.

    Parameters
    ----------
    rows : DataFrame
        `ARCHITECTURE`; further columns are ignored.
    n_jobs : int, optional
        Processes; tracing takes some tenths of a second each.

    Returns
    -------
    dict of tuple to OpGraph
        `ARCHITECTURE` -> graph.
    """
    distinct = rows[list(ARCHITECTURE)].drop_duplicates().sort_values(list(ARCHITECTURE)).to_dict("records")
    graphs = _parallel.run(_trace_graph, distinct, n_jobs=n_jobs)
    return {tuple(spec.values()): graph for spec, graph in zip(distinct, graphs, strict=True)}


def _trace_graph(spec: dict[str, Any]) -> OpGraph:
    """Build one architecture of the zoo (`ARCHITECTURE`) and trace it."""
    from gpudemand.cost import zoo

    name, framework = spec["network"], spec["framework"]
    images = zoo.kind(name) == "image"
    shape = (spec["channels"], spec["input_size"], spec["input_size"]) if images else (spec["input_size"],)
    size = {} if images else {"vocabulary": int(spec["vocabulary"])}
    build = partial(
        zoo.build, name, framework, shape, int(spec["n_classes"]), width=spec["width"], depth=spec["depth"], **size
    )
    if framework == "keras":
        return OpGraph.from_keras(build())
    import torch

    with torch.device("meta"):
        return OpGraph.from_torch(build(), shape)
