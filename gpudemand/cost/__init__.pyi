from .augmented_linear import AugmentedLinearRegression
from .feature_table import features_from_jobs, features_from_rows, trace_architectures
from .graph import OpGraph, structural_matrix
from .graph_features import graph_features
from .job import TrainingJob
from .layouts import smallest_n_gpus, suggest_layouts, training_totals
from .measure import (
    load_architectures,
    load_held_out,
    load_held_out_runs,
    load_measurements,
    measure_training_cost,
    noise_floor,
    read_plan,
    read_rows,
)
from .memory import MemoryBreakdown, memory_breakdown, memory_features, simulate_memory
from .memory_model import MemoryModel, max_batch_size
from .model import CostModel, measured_jobs
from .networks import family_of
from .operators import UnknownOperatorWarning
from .parallel import LoRA, Parallel
from .reference_mix import mix_ratios
from .training_cost import TrainingCostRegressor
from .transformer import Transformer
from .transformer_configs import published_architectures

__all__ = [
    "AugmentedLinearRegression",
    "CostModel",
    "LoRA",
    "MemoryBreakdown",
    "MemoryModel",
    "OpGraph",
    "Parallel",
    "TrainingCostRegressor",
    "TrainingJob",
    "Transformer",
    "UnknownOperatorWarning",
    "family_of",
    "features_from_jobs",
    "features_from_rows",
    "graph_features",
    "load_architectures",
    "load_held_out",
    "load_held_out_runs",
    "load_measurements",
    "max_batch_size",
    "measure_training_cost",
    "measured_jobs",
    "memory_breakdown",
    "memory_features",
    "mix_ratios",
    "noise_floor",
    "published_architectures",
    "read_plan",
    "read_rows",
    "simulate_memory",
    "smallest_n_gpus",
    "structural_matrix",
    "suggest_layouts",
    "trace_architectures",
    "training_totals",
]
