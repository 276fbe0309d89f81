"""Computations of the report: usage, model selection, requirement, segments, risk, scenarios."""
