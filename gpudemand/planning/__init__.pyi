from .backtest import demand_cross_validation, plan_backtest
from .capacity.plan import CapacityPlan, plan_capacity
from .capacity.quantiles import QuantileTable
from .demand.arrivals import forecast_submissions
from .demand.job_demand import JobDemandModel
from .placement import compare_placements, place_jobs, shortest_makespan
from .queue.expected import expected_queueing
from .runtime.run_time import RunTimeModel
from .runtime.survival import SurvivalCurves
from .runtime.training import CostStepTime, TrainingRunTime
from .scenarios.changes import Growth, Leaves, Mix, MoreUsers, StepEvent
from .scenarios.hardware import LargerBatch, MoveTo, Precision
from .scenarios.what_if import WhatIf, fits_on_cards

__all__ = [
    "CapacityPlan",
    "CostStepTime",
    "Growth",
    "JobDemandModel",
    "LargerBatch",
    "Leaves",
    "Mix",
    "MoreUsers",
    "MoveTo",
    "Precision",
    "QuantileTable",
    "RunTimeModel",
    "StepEvent",
    "SurvivalCurves",
    "TrainingRunTime",
    "WhatIf",
    "compare_placements",
    "demand_cross_validation",
    "expected_queueing",
    "fits_on_cards",
    "forecast_submissions",
    "place_jobs",
    "plan_backtest",
    "plan_capacity",
    "shortest_makespan",
]
