"""What a training job costs: the operator graph of a network, its features, and predictions made from them.

Names are loaded when first used: a process that only measures should not wait for what only predicts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudemand.cost.features import GraphFeatures, graph_features, shape_inference_memory, training_flops
    from gpudemand.cost.graph import OpGraph, UnknownOperatorWarning
    from gpudemand.cost.measure import measure_training_cost, noise_floor, read_rows
    from gpudemand.cost.nsm import NetworkStructuralMatrix, structural_matrix
    from gpudemand.cost.plan import make_plan, read_plan, write_plan
    from gpudemand.cost.regression import TrainingCostRegressor
    from gpudemand.cost.table import job_table, trace_architectures

_HOME = {
    "GraphFeatures": "features",
    "NetworkStructuralMatrix": "nsm",
    "OpGraph": "graph",
    "TrainingCostRegressor": "regression",
    "UnknownOperatorWarning": "graph",
    "graph_features": "features",
    "job_table": "table",
    "make_plan": "plan",
    "measure_training_cost": "measure",
    "noise_floor": "measure",
    "read_plan": "plan",
    "read_rows": "measure",
    "shape_inference_memory": "features",
    "structural_matrix": "nsm",
    "trace_architectures": "table",
    "training_flops": "features",
    "write_plan": "plan",
}

__all__ = [
    "GraphFeatures",
    "NetworkStructuralMatrix",
    "OpGraph",
    "TrainingCostRegressor",
    "UnknownOperatorWarning",
    "graph_features",
    "job_table",
    "make_plan",
    "measure_training_cost",
    "noise_floor",
    "read_plan",
    "read_rows",
    "shape_inference_memory",
    "structural_matrix",
    "trace_architectures",
    "training_flops",
    "write_plan",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
