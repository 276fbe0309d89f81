"""Cache of the traced graphs of networks in public measurements.

    python -m benchmarks.cost.traced --data DIR [--cache DIR]

A network is a key, ``library:name@size``: ``timm:resnet50@224``. Libraries: ``timm`` (without fused attention, as in
its older versions), ``timm-sdpa`` (with it), ``torchvision``, ``own`` (`benchmarks.cost.networks`). Networks that
cannot be traced are listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._validation import InputError
from gpudemand.cost import OpGraph
from gpudemand.cost.operators import Operator

log = logging.getLogger(__name__)
CACHE = Path.home() / ".cache" / "gpudemand" / "benchmarks"
_FIELDS = ("name", "framework", "n_parameters", "n_trainable", "n_sparse", "n_tensors", "parameter_bytes")


class TraceCache:
    """Graphs by key, a folder of files.

    Parameters
    ----------
    folder : Path
        Made when missing.

    Notes
    -----
    ``graphs/<key>.parquet`` holds the operators, ``<key>.kernels.parquet`` the kernels, ``<key>.json`` the edges and
    what else an `OpGraph` has, ``failed/<key>.txt`` why a network has no graph.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("graphs", "failed"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def __contains__(self, key: str) -> bool:
        return self._path(key, ".json").is_file()

    def graph(self, key: str) -> OpGraph:
        """Read a graph."""
        # Graphs that were stored by earlier versions have no amounts that are independent of the batch.
        nodes = pd.read_parquet(self._path(key, ".parquet")).reindex(columns=list(Operator._fields), fill_value=0.0)
        nodes["output_shape"] = [tuple(int(size) for size in shape) for shape in nodes["output_shape"]]
        about = json.loads(self._path(key, ".json").read_text())
        edges = np.array(about.pop("edges"), dtype=np.int64).reshape(-1, 2)
        shapes = tuple(map(tuple, about.pop("input_shapes")))
        recorded = self._path(key, ".kernels.parquet")
        kernels = pd.read_parquet(recorded) if recorded.is_file() else None
        return OpGraph(nodes=nodes, edges=edges, input_shapes=shapes, kernels=kernels, **about)

    def put(self, key: str, graph: OpGraph) -> None:
        """Store a graph."""
        graph.nodes.assign(output_shape=graph.nodes["output_shape"].map(list)).to_parquet(self._path(key, ".parquet"))
        if graph.kernels is not None:
            graph.kernels.to_parquet(self._path(key, ".kernels.parquet"))
        about = {name: getattr(graph, name) for name in _FIELDS}
        # The file that marks a graph as stored is written last, by an atomic rename.
        text = json.dumps({**about, "input_shapes": graph.input_shapes, "edges": graph.edges.tolist()})
        self._path(key, ".tmp").write_text(text)
        self._path(key, ".tmp").rename(self._path(key, ".json"))

    def keys(self) -> list[str]:
        """Keys of all stored graphs."""
        return sorted(path.stem.replace("__", ":", 1) for path in (self.folder / "graphs").glob("*.json"))

    def failed(self) -> dict[str, str]:
        """Key -> reason, of all networks that could not be traced."""
        files = sorted((self.folder / "failed").glob("*.txt"))
        return {path.stem.replace("__", ":", 1): path.read_text() for path in files}

    def trace(self, keys: Iterable[str]) -> None:
        """Trace missing graphs; failures are stored and not tried again."""
        for key in dict.fromkeys(keys):
            if key not in self and not self._failure(key).is_file():
                self._trace(key)

    def _trace(self, key: str) -> None:
        try:
            self.put(key, _traced(key))
        except Exception as error:  # third-party code raises anything
            self._failure(key).write_text(f"{type(error).__name__}: {error}")
            log.warning("%s: %s", key, error)

    def _path(self, key: str, suffix: str) -> Path:
        return self.folder / "graphs" / f"{key.replace(':', '__', 1)}{suffix}"

    def _failure(self, key: str) -> Path:
        return self.folder / "failed" / f"{key.replace(':', '__', 1)}.txt"


def _traced(key: str) -> OpGraph:
    """Build and trace on the meta device, or in memory if the constructor computes constants."""
    import torch

    from benchmarks.cost.networks import build

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.device("meta"):
                module, shape, dtype = build(key)
            return OpGraph.from_torch(module, shape, input_dtype=dtype)
        except (InputError, NotImplementedError, RuntimeError):
            module, shape, dtype = build(key)
            return OpGraph.from_torch(module, shape, input_dtype=dtype)


def network_keys(data: Path) -> Iterator[str]:
    """Keys behind the labels of a folder of public measurements, the most used first."""
    from benchmarks.cost.load import tables

    for table in tables(data).values():
        yield from table["graph"].drop_duplicates()


def main() -> None:
    """Trace all networks of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=CACHE)
    options: Any = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    cache = TraceCache(options.cache)
    keys = list(dict.fromkeys(network_keys(options.data)))
    cache.trace(keys)
    log.info("%d of %d networks have a graph", sum(key in cache for key in keys), len(keys))


if __name__ == "__main__":
    main()
