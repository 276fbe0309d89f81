"""The table of devices, bundled samples, simulated clusters with ground truth, and downloads of public traces."""

from gpudemand.datasets.devices import Device, device, save_device
from gpudemand.datasets.registry import (
    bundled_path,
    cache_folder,
    fetch_file,
    fetch_jobs,
    load_jobs_sample,
    load_truth_sample,
)
from gpudemand.datasets.simulate import make_cluster, true_step_time

__all__ = [
    "Device",
    "bundled_path",
    "cache_folder",
    "device",
    "fetch_file",
    "fetch_jobs",
    "load_jobs_sample",
    "load_truth_sample",
    "make_cluster",
    "save_device",
    "true_step_time",
]
