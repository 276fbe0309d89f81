from .backtest import demand_cross_validation, plan_backtest
from .capacity.capacity_plan import CapacityPlan
from .capacity.plan import plan_capacity
from .capacity.quantiles import QuantileTable
from .capacity.wait_plan import PooledWaitPlan, WaitPlan
from .capacity.wait_requirement import plan_waits
from .demand.arrivals import forecast_submissions
from .demand.job_demand import JobDemandModel
from .placement import place_jobs, predicted_times
from .queue.calibration import effective_capacity
from .queue.expected import expected_queueing
from .queue.simulate import simulate_queue
from .queue.wait_backtest import WaitBacktest, wait_backtest
from .runtime.ratios import run_time_ratios
from .runtime.run_time import RunTimeModel
from .runtime.survival import SurvivalCurves
from .runtime.training import CostStepTime, TrainingRunTime
from .scenarios.changes import Growth, MoreUsers, RemoveGroup, Reweight, StepEvent
from .scenarios.fewer_gpus import fewer_gpus
from .scenarios.hardware import LargerBatch, MoveTo, Precision
from .scenarios.measured import MeasuredRunTimes
from .scenarios.programme import Programme
from .scenarios.serving import Serving
from .scenarios.what_if import WhatIf, fits_on_cards

__all__ = [
    "CapacityPlan",
    "CostStepTime",
    "Growth",
    "JobDemandModel",
    "LargerBatch",
    "MeasuredRunTimes",
    "MoreUsers",
    "MoveTo",
    "PooledWaitPlan",
    "Precision",
    "Programme",
    "QuantileTable",
    "RemoveGroup",
    "Reweight",
    "RunTimeModel",
    "Serving",
    "StepEvent",
    "SurvivalCurves",
    "TrainingRunTime",
    "WaitBacktest",
    "WaitPlan",
    "WhatIf",
    "demand_cross_validation",
    "effective_capacity",
    "expected_queueing",
    "fewer_gpus",
    "fits_on_cards",
    "forecast_submissions",
    "place_jobs",
    "plan_backtest",
    "plan_capacity",
    "plan_waits",
    "predicted_times",
    "run_time_ratios",
    "simulate_queue",
    "wait_backtest",
]
