"""Live sources of usage, pulled into a store: Slurm's accounting and Prometheus."""

from gpudemand.pull.prometheus import pull_prometheus
from gpudemand.pull.slurm import pull_slurm

__all__ = ["pull_prometheus", "pull_slurm"]
