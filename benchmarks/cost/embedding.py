"""Graph embedding of the networks in the bundled measurements: counts of rooted subgraphs, reduced to 32 numbers.

    python -m benchmarks.cost.embedding --out FILE [--graphs DIR]

As in graph2vec, a graph is a document and the subgraphs around its operators (Weisfeiler-Lehman labels up to two edges
upstream) are its words; the document-term matrix, weighted by inverse document frequency, is factorized, here by a
truncated singular value decomposition. Networks are traced, or read from a folder of pickled ``(architecture, graph)``.
"""

from __future__ import annotations

import argparse
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import make_pipeline

from benchmarks.measure.graphs import trace_graphs
from gpudemand.cost import OpGraph, load_measurements
from gpudemand.cost.feature_table import ARCHITECTURE

DEPTH, SIZE, PREFIX = 2, 32, "embedding:"


def subgraphs(graph: OpGraph) -> Counter[str]:
    """Count the operators of a graph by type, and by what is upstream of them."""
    labels = list(graph.nodes["type"])
    words = Counter(labels)
    for _ in range(DEPTH):
        upstream: list[list[str]] = [[] for _ in labels]
        for producer, consumer in graph.edges:
            upstream[consumer].append(labels[producer])
        labels = [f"{own}({','.join(sorted(above))})" for own, above in zip(labels, upstream, strict=True)]
        words.update(labels)
    return words


def embed(graphs: dict[tuple[Any, ...], OpGraph]) -> pd.DataFrame:
    """Embed graphs by architecture; a row a graph, columns ``embedding:0`` and so on."""
    model = make_pipeline(DictVectorizer(), TfidfTransformer(sublinear_tf=True), TruncatedSVD(SIZE, random_state=0))
    points = model.fit_transform([subgraphs(graph) for graph in graphs.values()])
    index = pd.MultiIndex.from_tuples(list(graphs), names=ARCHITECTURE)
    return pd.DataFrame(points, index, [f"{PREFIX}{i}" for i in range(SIZE)]).astype("float32")


def main() -> None:
    """Write the embedding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--graphs", type=Path)
    options = parser.parse_args()
    if options.graphs is None:
        graphs = trace_graphs(load_measurements(), networks="benchmarks.zoo")
    else:
        found = (pickle.loads(path.read_bytes()) for path in options.graphs.glob("*.pkl"))
        graphs = dict(sorted(found, key=lambda pair: pair[0]))
    embed(graphs).to_parquet(options.out, compression="zstd")


if __name__ == "__main__":
    main()
