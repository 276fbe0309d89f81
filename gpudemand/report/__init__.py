"""Self-contained HTML report on a job log, with its figures and tables as files."""

from gpudemand.report.build import build_report

__all__ = ["build_report"]
