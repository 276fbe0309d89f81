"""Plan of a recurring report as a TOML file: what a report needs besides the jobs."""

from gpudemand.planfile.plan import ReportPlan, read_plan, write_plan

__all__ = ["ReportPlan", "read_plan", "write_plan"]
