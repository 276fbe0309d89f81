"""One self-contained page on a job log, with every figure and table beside it."""

from gpudemand.report.build import build_report

__all__ = ["build_report"]
