from .architectures.architecture import Transformer
from .architectures.published import published_architectures
from .devices import device, save_device
from .families import family_of
from .graph.features import GraphFeatures, graph_features, shape_inference_memory, training_flops
from .graph.op_graph import OpGraph
from .graph.structural_matrix import NetworkStructuralMatrix, structural_matrix
from .hardware import Device
from .job import TrainingJob
from .job_features import features_from_jobs
from .large_models.parallel import LoRA, Parallel
from .layouts import smallest_n_gpus, suggest_layouts, training_totals
from .measuring.bundled import load_architectures, load_held_out, load_held_out_runs, load_measurements
from .measuring.measure import measure_training_cost, noise_floor, read_rows
from .measuring.plan import make_plan, read_plan, write_plan
from .memory.breakdown import MemoryBreakdown, memory_breakdown
from .memory.simulation import memory_features, simulate_memory
from .model import CostModel
from .model_inputs import measured_jobs
from .operators.operator import UnknownOperatorWarning
from .predict.largest_batch import max_batch_size
from .predict.memory_model import MemoryModel
from .regression.augmented_linear import AugmentedLinearRegression
from .regression.feature_table import features_from_rows, trace_architectures
from .regression.training_cost import TrainingCostRegressor
from .splits import DeviceSplit, ExtrapolationSplit, FamilySplit, InterpolationSplit

__all__ = [
    "AugmentedLinearRegression",
    "CostModel",
    "Device",
    "DeviceSplit",
    "ExtrapolationSplit",
    "FamilySplit",
    "GraphFeatures",
    "InterpolationSplit",
    "LoRA",
    "MemoryBreakdown",
    "MemoryModel",
    "NetworkStructuralMatrix",
    "OpGraph",
    "Parallel",
    "TrainingCostRegressor",
    "TrainingJob",
    "Transformer",
    "UnknownOperatorWarning",
    "device",
    "family_of",
    "features_from_jobs",
    "features_from_rows",
    "graph_features",
    "load_architectures",
    "load_held_out",
    "load_held_out_runs",
    "load_measurements",
    "make_plan",
    "max_batch_size",
    "measure_training_cost",
    "measured_jobs",
    "memory_breakdown",
    "memory_features",
    "noise_floor",
    "published_architectures",
    "read_plan",
    "read_rows",
    "save_device",
    "shape_inference_memory",
    "simulate_memory",
    "smallest_n_gpus",
    "structural_matrix",
    "suggest_layouts",
    "trace_architectures",
    "training_flops",
    "training_totals",
    "write_plan",
]
