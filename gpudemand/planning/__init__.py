"""How many GPUs, when, and what if: from demand to a plan."""

from gpudemand.planning.capacity import CapacityPlan, plan_capacity
from gpudemand.planning.quantiles import QuantileTable

__all__ = ["CapacityPlan", "QuantileTable", "plan_capacity"]
