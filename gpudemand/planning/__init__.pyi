from .backtests import demand_cross_validation
from .capacity import CapacityPlan, plan_capacity
from .demand import JobDemandModel, forecast_submissions
from .placement import place_jobs, predicted_times
from .programmes import Programme, Serving
from .purchases import Purchase
from .quantiles import QuantileTable
from .queue import simulate_queue
from .run_time import RunTimeModel, SurvivalCurves, fixed_length
from .scenarios import (
    Growth,
    LargerBatch,
    MeasuredRunTimes,
    MoreUsers,
    MoveTo,
    Precision,
    RemoveGroup,
    Reweight,
    StepEvent,
    WhatIf,
)
from .training_run_time import CostStepTime, TrainingRunTime, costs_against_log, run_time_ratios
from .wait_plan import WaitPlan, plan_waits
from .waits import effective_capacity, expected_queueing

__all__ = [
    "CapacityPlan",
    "CostStepTime",
    "Growth",
    "JobDemandModel",
    "LargerBatch",
    "MeasuredRunTimes",
    "MoreUsers",
    "MoveTo",
    "Precision",
    "Programme",
    "Purchase",
    "QuantileTable",
    "RemoveGroup",
    "Reweight",
    "RunTimeModel",
    "Serving",
    "StepEvent",
    "SurvivalCurves",
    "TrainingRunTime",
    "WaitPlan",
    "WhatIf",
    "costs_against_log",
    "demand_cross_validation",
    "effective_capacity",
    "expected_queueing",
    "fixed_length",
    "forecast_submissions",
    "place_jobs",
    "plan_capacity",
    "plan_waits",
    "predicted_times",
    "run_time_ratios",
    "simulate_queue",
]
