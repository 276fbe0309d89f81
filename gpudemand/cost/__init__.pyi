from .augmented_linear import AugmentedLinearRegression
from .feature_table import features_from_jobs, features_from_rows
from .graph import OpGraph, structural_matrix
from .job import TrainingJob
from .layouts import smallest_n_gpus, suggest_layouts, training_totals
from .measurements import (
    load_architectures,
    load_held_out,
    load_held_out_runs,
    load_measurements,
    noise_floor,
)
from .memory import MemoryBreakdown
from .model import CostModel
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
    "mix_ratios",
    "noise_floor",
    "published_architectures",
    "smallest_n_gpus",
    "structural_matrix",
    "suggest_layouts",
    "training_totals",
]
