"""Usage series: job logs as dense series by user, group or cluster, long or wide."""

from gpudemand.usage.read import read_usage
from gpudemand.usage.series import aggregate_usage, to_long, to_wide, usage_series
from gpudemand.usage.waits import wait_table

__all__ = ["aggregate_usage", "read_usage", "to_long", "to_wide", "usage_series", "wait_table"]
