"""Make the reference mix: usual trainings of today's clusters, with the graphs of their networks.

    python -m scripts.make_reference_mix [--cache DIR]

Networks that the cache of graphs lacks are built and traced, which needs PyTorch, torchvision and timm. Batches,
precisions and optimizers are those of the projects' own recipes: torchvision's and timm's references for images,
NVIDIA's DeepLearningExamples for BERT, recommendation, speech and translation.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from benchmarks.cost.traced import CACHE, TraceCache
from gpudemand.cost.reference_mix import ATTRIBUTES, PATH
from gpudemand.datasets.registry import data_folder
from scripts.checksums import refresh_checksums

#: Kind, key of the network, samples a step, precision, optimizer.
TRAININGS = (
    ("vision_small", "own:resnet18_cifar@32", 128, "fp32", "momentum"),
    ("vision_small", "torchvision:resnet18@224", 64, "fp32", "momentum"),
    ("vision_small", "timm:efficientnet_b0@224", 128, "fp16", "rmsprop"),
    ("vision_large", "torchvision:resnet50@224", 128, "fp16", "momentum"),
    ("vision_large", "timm:convnext_base@224", 64, "fp16", "adamw"),
    ("vision_large", "timm:vit_large_patch16_224@224", 32, "fp16", "adamw"),
    ("vision_large", "own:faster_rcnn_r50_fpn@800", 2, "fp32", "momentum"),
    ("language_small", "own:bert_base@384", 32, "fp16", "adamw"),
    ("language_small", "own:bert_large@384", 10, "fp16", "adamw"),
    ("recommendation", "own:ncf@1", 65536, "fp32", "adam"),
    ("recommendation", "own:ncf@1", 1048576, "fp16", "adam"),
    ("sequence", "own:gnmt@50", 128, "fp16", "adam"),
    ("sequence", "own:deepspeech2@600", 32, "fp32", "momentum"),
    ("sequence", "own:quartznet@1664", 32, "fp16", "adamw"),
)


def make(cache: TraceCache) -> pd.DataFrame:
    """A row a training: its kind, how it is trained, and its network's graph."""
    cache.trace(key for _, key, *_ in TRAININGS)
    rows = []
    for kind, key, batch, precision, optimizer in TRAININGS:
        graph = cache.graph(key)
        rows.append(
            {
                "kind": kind,
                "network": key.partition(":")[2],
                "batch_size": batch,
                "precision": precision,
                "optimizer": optimizer,
                "nodes": graph.nodes.drop(columns=["name", "operator"]).to_dict("list"),
                "kernels": None if graph.kernels is None else graph.kernels.to_dict("list"),
                "edges": graph.edges.ravel().tolist(),
                "input_shapes": [list(shape) for shape in graph.input_shapes],
                **{name: getattr(graph, name) for name in ATTRIBUTES},
            }
        )
    return pd.DataFrame(rows)


def main() -> None:
    """Write the table, and its checksum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=CACHE)
    options = parser.parse_args()
    path = data_folder() / PATH
    make(TraceCache(options.cache)).to_parquet(path, compression="zstd", compression_level=19, index=False)
    refresh_checksums(data_folder(), PATH)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
