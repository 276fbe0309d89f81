from .augmented_linear import AugmentedLinearRegression
from .feature_table import features_from_jobs, features_from_rows, trace_architectures
from .graph import OpGraph, structural_matrix
from .job import TrainingJob
from .layouts import smallest_n_gpus, suggest_layouts, training_totals
from .measure import (
    load_architectures,
    load_held_out,
    load_held_out_runs,
    load_measurements,
    measure_training_cost,
    noise_floor,
    read_rows,
)
from .memory import MemoryBreakdown
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
    "OpGraph",
    "Parallel",
    "TrainingCostRegressor",
    "TrainingJob",
    "Transformer",
    "UnknownOperatorWarning",
    "family_of",
    "features_from_jobs",
    "features_from_rows",
    "load_architectures",
    "load_held_out",
    "load_held_out_runs",
    "load_measurements",
    "measure_training_cost",
    "measured_jobs",
    "mix_ratios",
    "noise_floor",
    "published_architectures",
    "read_rows",
    "smallest_n_gpus",
    "structural_matrix",
    "suggest_layouts",
    "trace_architectures",
    "training_totals",
]
