"""Data to try things on: bundled samples, public traces by their address, and clusters made up with their truth."""

from gpudemand.datasets.fetch import (
    cache_folder,
    fetch_cdnow,
    fetch_file,
    fetch_jobs,
    fetch_openb,
    fetch_pai_jobs,
    fetch_philly_jobs,
    fetch_philly_nodes,
    fetch_philly_users,
    fetch_spot_hourly,
    fetch_venus_jobs,
    fetch_venus_users,
)
from gpudemand.datasets.load import load_jobs_sample, load_truth_sample
from gpudemand.datasets.make import expected_usage, make_cluster, true_run_time, true_step_time
from gpudemand.datasets.registry import bundled_path, catalog

__all__ = [
    "bundled_path",
    "cache_folder",
    "catalog",
    "expected_usage",
    "fetch_cdnow",
    "fetch_file",
    "fetch_jobs",
    "fetch_openb",
    "fetch_pai_jobs",
    "fetch_philly_jobs",
    "fetch_philly_nodes",
    "fetch_philly_users",
    "fetch_spot_hourly",
    "fetch_venus_jobs",
    "fetch_venus_users",
    "load_jobs_sample",
    "load_truth_sample",
    "make_cluster",
    "true_run_time",
    "true_step_time",
]
