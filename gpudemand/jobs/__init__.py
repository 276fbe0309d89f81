"""Job logs of any format, as one canonical table."""

from gpudemand.jobs.log_formats import read_prometheus
from gpudemand.jobs.read import formats, read_jobs, write_jobs

__all__ = ["formats", "read_jobs", "read_prometheus", "write_jobs"]
