"""What a training job costs: the operator graph of a network, its features, and predictions made from them.

Names are loaded when first used: a process that only measures should not wait for what only predicts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudemand.cost.breakdown import MemoryBreakdown, memory_breakdown
    from gpudemand.cost.bundled import load_architectures, load_held_out, load_measurements
    from gpudemand.cost.describe import measured_jobs
    from gpudemand.cost.devices import Device, device
    from gpudemand.cost.families import family_of
    from gpudemand.cost.features import GraphFeatures, graph_features, shape_inference_memory, training_flops
    from gpudemand.cost.graph import OpGraph, UnknownOperatorWarning
    from gpudemand.cost.job import TrainingJob, jobs_table
    from gpudemand.cost.largest_batch import max_batch_size
    from gpudemand.cost.linear import AugmentedLinearRegression
    from gpudemand.cost.measure import measure_training_cost, noise_floor, read_rows
    from gpudemand.cost.memory import memory_features, simulate_memory
    from gpudemand.cost.memory_model import MemoryModel
    from gpudemand.cost.model import CostModel
    from gpudemand.cost.nsm import NetworkStructuralMatrix, structural_matrix
    from gpudemand.cost.plan import make_plan, read_plan, write_plan
    from gpudemand.cost.regression import TrainingCostRegressor
    from gpudemand.cost.splits import DeviceSplit, ExtrapolationSplit, FamilySplit, InterpolationSplit
    from gpudemand.cost.table import job_table, trace_architectures

_HOME = {
    "AugmentedLinearRegression": "linear",
    "CostModel": "model",
    "Device": "devices",
    "DeviceSplit": "splits",
    "ExtrapolationSplit": "splits",
    "FamilySplit": "splits",
    "GraphFeatures": "features",
    "InterpolationSplit": "splits",
    "MemoryBreakdown": "breakdown",
    "MemoryModel": "memory_model",
    "NetworkStructuralMatrix": "nsm",
    "OpGraph": "graph",
    "TrainingCostRegressor": "regression",
    "TrainingJob": "job",
    "UnknownOperatorWarning": "graph",
    "device": "devices",
    "family_of": "families",
    "graph_features": "features",
    "job_table": "table",
    "jobs_table": "job",
    "load_architectures": "bundled",
    "load_held_out": "bundled",
    "load_measurements": "bundled",
    "make_plan": "plan",
    "max_batch_size": "largest_batch",
    "measure_training_cost": "measure",
    "measured_jobs": "describe",
    "memory_breakdown": "breakdown",
    "memory_features": "memory",
    "noise_floor": "measure",
    "read_plan": "plan",
    "read_rows": "measure",
    "shape_inference_memory": "features",
    "simulate_memory": "memory",
    "structural_matrix": "nsm",
    "trace_architectures": "table",
    "training_flops": "features",
    "write_plan": "plan",
}

__all__ = [
    "AugmentedLinearRegression",
    "CostModel",
    "Device",
    "DeviceSplit",
    "ExtrapolationSplit",
    "FamilySplit",
    "GraphFeatures",
    "InterpolationSplit",
    "MemoryBreakdown",
    "MemoryModel",
    "NetworkStructuralMatrix",
    "OpGraph",
    "TrainingCostRegressor",
    "TrainingJob",
    "UnknownOperatorWarning",
    "device",
    "family_of",
    "graph_features",
    "job_table",
    "jobs_table",
    "load_architectures",
    "load_held_out",
    "load_measurements",
    "make_plan",
    "max_batch_size",
    "measure_training_cost",
    "measured_jobs",
    "memory_breakdown",
    "memory_features",
    "noise_floor",
    "read_plan",
    "read_rows",
    "shape_inference_memory",
    "simulate_memory",
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
