"""How many GPUs a cluster will need, for whom, when, and at what risk, starting from the jobs themselves.

>>> import gpudemand as gd
>>> jobs = gd.load_jobs_sample()  # your own log: gd.read_jobs("log.psv", format="sacct", tz="Europe/Berlin")
>>> held = gd.usage_series(jobs, by=None, freq="D", value="gpus", partial=False)
>>> forecast = gd.LastValueProfile().fit(held).predict(h=28, level=[80, 95])
>>> plan = gd.plan_capacity(forecast, installed=512, lead_time="60D")

Names are loaded when first used, so the import itself is instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudemand._validation import InputError, RejectedRowsWarning
    from gpudemand.cost import (
        AugmentedLinearRegression,
        CostModel,
        Device,
        DeviceSplit,
        ExtrapolationSplit,
        FamilySplit,
        GraphFeatures,
        InterpolationSplit,
        NetworkStructuralMatrix,
        OpGraph,
        TrainingCostRegressor,
        TrainingJob,
        measure_training_cost,
        structural_matrix,
    )
    from gpudemand.cost.devices import device, devices
    from gpudemand.datasets import load_jobs_sample, make_cluster
    from gpudemand.forecast import (
        ETS,
        SBA,
        TSB,
        AnalogueForecaster,
        ClusterwiseForecaster,
        CombinedForecaster,
        DoubleSeasonalSmoothing,
        LagRegression,
        LastValueProfile,
        Naive,
        RidgeAutoregression,
        SeasonalNaive,
        TemporalFactorization,
        Theta,
        cross_validation,
        find_outages,
        mask_outages,
        reconcile,
    )
    from gpudemand.hierarchy import aggregate_usage
    from gpudemand.jobs import formats, read_jobs, write_jobs, write_swf
    from gpudemand.metrics import evaluate
    from gpudemand.planning import (
        CapacityPlan,
        CostStepTime,
        JobDemandModel,
        RunTimeModel,
        TrainingRunTime,
        WhatIf,
        demand_cross_validation,
        expected_queueing,
        fits_on_cards,
        place_jobs,
        plan_backtest,
        plan_capacity,
    )
    from gpudemand.report import build_report
    from gpudemand.segments import (
        TopologicalSegmenter,
        persistence_statistics,
        rfm_table,
        segment_ablation,
        segment_profiles,
        segment_stability,
        sublevel_persistence,
        superlevel_persistence,
    )
    from gpudemand.usage import read_usage, to_long, to_wide, usage_series

__version__ = "0.1.0"

_HOME = {
    "AnalogueForecaster": "forecast",
    "AugmentedLinearRegression": "cost",
    "CapacityPlan": "planning",
    "ClusterwiseForecaster": "forecast",
    "CombinedForecaster": "forecast",
    "CostModel": "cost",
    "CostStepTime": "planning",
    "Device": "cost",
    "DeviceSplit": "cost",
    "DoubleSeasonalSmoothing": "forecast",
    "ETS": "forecast",
    "ExtrapolationSplit": "cost",
    "FamilySplit": "cost",
    "GraphFeatures": "cost",
    "InputError": "_validation",
    "InterpolationSplit": "cost",
    "JobDemandModel": "planning",
    "LagRegression": "forecast",
    "LastValueProfile": "forecast",
    "Naive": "forecast",
    "NetworkStructuralMatrix": "cost",
    "OpGraph": "cost",
    "RejectedRowsWarning": "_validation",
    "RidgeAutoregression": "forecast",
    "RunTimeModel": "planning",
    "SBA": "forecast",
    "SeasonalNaive": "forecast",
    "TSB": "forecast",
    "TemporalFactorization": "forecast",
    "Theta": "forecast",
    "TopologicalSegmenter": "segments",
    "TrainingCostRegressor": "cost",
    "TrainingJob": "cost",
    "TrainingRunTime": "planning",
    "WhatIf": "planning",
    "aggregate_usage": "hierarchy",
    "build_report": "report",
    "cross_validation": "forecast",
    "demand_cross_validation": "planning",
    "device": "cost.devices",
    "devices": "cost.devices",
    "evaluate": "metrics",
    "expected_queueing": "planning",
    "find_outages": "forecast",
    "fits_on_cards": "planning",
    "formats": "jobs",
    "load_jobs_sample": "datasets",
    "make_cluster": "datasets",
    "mask_outages": "forecast",
    "measure_training_cost": "cost",
    "persistence_statistics": "segments",
    "place_jobs": "planning",
    "plan_backtest": "planning",
    "plan_capacity": "planning",
    "read_jobs": "jobs",
    "read_usage": "usage",
    "reconcile": "forecast",
    "rfm_table": "segments",
    "segment_ablation": "segments",
    "segment_profiles": "segments",
    "segment_stability": "segments",
    "structural_matrix": "cost",
    "sublevel_persistence": "segments",
    "superlevel_persistence": "segments",
    "to_long": "usage",
    "to_wide": "usage",
    "usage_series": "usage",
    "write_jobs": "jobs",
    "write_swf": "jobs",
}

__all__ = [
    "ETS",
    "SBA",
    "TSB",
    "AnalogueForecaster",
    "AugmentedLinearRegression",
    "CapacityPlan",
    "ClusterwiseForecaster",
    "CombinedForecaster",
    "CostModel",
    "CostStepTime",
    "Device",
    "DeviceSplit",
    "DoubleSeasonalSmoothing",
    "ExtrapolationSplit",
    "FamilySplit",
    "GraphFeatures",
    "InputError",
    "InterpolationSplit",
    "JobDemandModel",
    "LagRegression",
    "LastValueProfile",
    "Naive",
    "NetworkStructuralMatrix",
    "OpGraph",
    "RejectedRowsWarning",
    "RidgeAutoregression",
    "RunTimeModel",
    "SeasonalNaive",
    "TemporalFactorization",
    "Theta",
    "TopologicalSegmenter",
    "TrainingCostRegressor",
    "TrainingJob",
    "TrainingRunTime",
    "WhatIf",
    "aggregate_usage",
    "build_report",
    "cross_validation",
    "demand_cross_validation",
    "device",
    "devices",
    "evaluate",
    "expected_queueing",
    "find_outages",
    "fits_on_cards",
    "formats",
    "load_jobs_sample",
    "make_cluster",
    "mask_outages",
    "measure_training_cost",
    "persistence_statistics",
    "place_jobs",
    "plan_backtest",
    "plan_capacity",
    "read_jobs",
    "read_usage",
    "reconcile",
    "rfm_table",
    "segment_ablation",
    "segment_profiles",
    "segment_stability",
    "structural_matrix",
    "sublevel_persistence",
    "superlevel_persistence",
    "to_long",
    "to_wide",
    "usage_series",
    "write_jobs",
    "write_swf",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"gpudemand.{_HOME[name]}"), name)
    raise AttributeError(f"module 'gpudemand' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
