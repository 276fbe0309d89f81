from . import cli as cli
from . import cost as cost
from . import datasets as datasets
from . import forecast as forecast
from . import jobs as jobs
from . import planning as planning
from . import plotting as plotting
from . import pull as pull
from . import report as report
from . import segments as segments
from . import study as study
from . import usage as usage
from ._validation import InputError
from .bulk import bulk_forecast
from .cost import (
    AugmentedLinearRegression,
    CostModel,
    LoRA,
    OpGraph,
    Parallel,
    TrainingCostRegressor,
    TrainingJob,
    structural_matrix,
    suggest_layouts,
    training_totals,
)
from .datasets import Device, load_jobs_sample, make_cluster
from .forecast import (
    ETS,
    ClusterwiseFactorization,
    ClusterwiseForecaster,
    CombinedForecaster,
    EventForecaster,
    SeasonalNaive,
    TemporalFactorization,
    adapt,
    cross_validation,
)
from .jobs import read_jobs, write_jobs
from .metrics import evaluate
from .planning import JobDemandModel, Programme, WhatIf, expected_queueing, plan_capacity, simulate_queue
from .pull import pull_prometheus, pull_slurm
from .report.build import build_report
from .saved import load_model, save_model
from .segments import TopologicalSegmenter, segment_profiles, sublevel_persistence
from .study.plan_file import read_plan
from .study.purchases import compare_purchases
from .study.study import Study
from .usage.idle import idle_table
from .usage.read import read_usage
from .usage.series import to_long, to_wide, usage_series
from .usage.waits import wait_table

__all__ = [  # noqa: RUF022 (by question, then by use)
    # Jobs and usage.
    "InputError",
    "read_jobs",
    "write_jobs",
    "load_jobs_sample",
    "make_cluster",
    "pull_slurm",
    "pull_prometheus",
    "usage_series",
    "read_usage",
    "to_wide",
    "to_long",
    "wait_table",
    "idle_table",
    # Costs of training jobs.
    "TrainingJob",
    "CostModel",
    "Device",
    "Parallel",
    "LoRA",
    "OpGraph",
    "structural_matrix",
    "TrainingCostRegressor",
    "AugmentedLinearRegression",
    "suggest_layouts",
    "training_totals",
    # Users and forecasts.
    "TopologicalSegmenter",
    "segment_profiles",
    "sublevel_persistence",
    "SeasonalNaive",
    "ETS",
    "TemporalFactorization",
    "ClusterwiseFactorization",
    "ClusterwiseForecaster",
    "CombinedForecaster",
    "EventForecaster",
    "adapt",
    "cross_validation",
    "evaluate",
    "save_model",
    "load_model",
    # Planning and report.
    "Study",
    "build_report",
    "read_plan",
    "JobDemandModel",
    "Programme",
    "plan_capacity",
    "simulate_queue",
    "expected_queueing",
    "compare_purchases",
    "WhatIf",
    "bulk_forecast",
]

__version__: str

# Listed by their packages, and for short here too.
from ._validation import RejectedRowsWarning as RejectedRowsWarning
from ._validation import UnlikelyJobsWarning as UnlikelyJobsWarning
from .cost import smallest_n_gpus as smallest_n_gpus
from .datasets.devices import device as device
from .datasets.devices import devices as devices
from .forecast import SBA as SBA
from .forecast import TSB as TSB
from .forecast import DoubleSeasonalSmoothing as DoubleSeasonalSmoothing
from .forecast import ExternalForecaster as ExternalForecaster
from .forecast import HorizonForecaster as HorizonForecaster
from .forecast import LagRegression as LagRegression
from .forecast import LastValueProfile as LastValueProfile
from .forecast import Naive as Naive
from .forecast import RidgeAutoregression as RidgeAutoregression
from .forecast import SeasonallyAdjustedNaive as SeasonallyAdjustedNaive
from .forecast import SeasonalMedian as SeasonalMedian
from .forecast import ShortHistoryWarning as ShortHistoryWarning
from .forecast import find_outages as find_outages
from .forecast import longest_horizon as longest_horizon
from .forecast import mask_outages as mask_outages
from .forecast import public_holidays as public_holidays
from .forecast import reconcile as reconcile
from .forecast import scale_samples as scale_samples
from .forecast import sum_samples as sum_samples
from .jobs import formats as formats
from .planning import CapacityPlan as CapacityPlan
from .planning import CostStepTime as CostStepTime
from .planning import Purchase as Purchase
from .planning import RunTimeModel as RunTimeModel
from .planning import Serving as Serving
from .planning import TrainingRunTime as TrainingRunTime
from .planning import WaitPlan as WaitPlan
from .planning import demand_cross_validation as demand_cross_validation
from .planning import effective_capacity as effective_capacity
from .planning import place_jobs as place_jobs
from .planning import plan_waits as plan_waits
from .segments import persistence_statistics as persistence_statistics
from .segments import rfm_table as rfm_table
from .segments import segment_ablation as segment_ablation
from .segments import segment_stability as segment_stability
from .segments import superlevel_persistence as superlevel_persistence
from .study.plan_file import ReportPlan as ReportPlan
from .study.plan_file import write_plan as write_plan
from .usage.read import pulled_usage as pulled_usage
from .usage.series import aggregate_usage as aggregate_usage
