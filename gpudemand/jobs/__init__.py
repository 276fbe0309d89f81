"""Job logs of any format, as one canonical table."""

from gpudemand.jobs.kubernetes import read_prometheus
from gpudemand.jobs.readers import read_jobs, write_jobs
from gpudemand.jobs.registry import formats
from gpudemand.jobs.swf import write_swf

__all__ = ["formats", "read_jobs", "read_prometheus", "write_jobs", "write_swf"]
