"""How many GPUs, when, and what if: from single jobs to demand, and from demand to a plan.

Names are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudemand.planning.arrivals import forecast_submissions
    from gpudemand.planning.backtest import demand_cross_validation, plan_backtest
    from gpudemand.planning.capacity import CapacityPlan, plan_capacity
    from gpudemand.planning.changes import Growth, Leaves, Mix, MoreUsers, StepEvent
    from gpudemand.planning.curves import SurvivalCurves
    from gpudemand.planning.hardware import LargerBatch, MoveTo, Precision
    from gpudemand.planning.known import known_at
    from gpudemand.planning.placement import compare_placements, place_jobs, shortest_makespan
    from gpudemand.planning.quantiles import QuantileTable
    from gpudemand.planning.queueing import expected_queueing
    from gpudemand.planning.runtime import RunTimeModel
    from gpudemand.planning.scenario import WhatIf, fits_on_cards
    from gpudemand.planning.training import CostStepTime, TrainingRunTime
    from gpudemand.planning.workload import JobDemandModel

_HOME = {
    "CapacityPlan": "capacity",
    "CostStepTime": "training",
    "Growth": "changes",
    "JobDemandModel": "workload",
    "LargerBatch": "hardware",
    "Leaves": "changes",
    "Mix": "changes",
    "MoreUsers": "changes",
    "MoveTo": "hardware",
    "Precision": "hardware",
    "QuantileTable": "quantiles",
    "RunTimeModel": "runtime",
    "StepEvent": "changes",
    "SurvivalCurves": "curves",
    "TrainingRunTime": "training",
    "WhatIf": "scenario",
    "compare_placements": "placement",
    "demand_cross_validation": "backtest",
    "expected_queueing": "queueing",
    "fits_on_cards": "scenario",
    "forecast_submissions": "arrivals",
    "known_at": "known",
    "place_jobs": "placement",
    "plan_backtest": "backtest",
    "plan_capacity": "capacity",
    "shortest_makespan": "placement",
}

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
    "known_at",
    "place_jobs",
    "plan_backtest",
    "plan_capacity",
    "shortest_makespan",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
