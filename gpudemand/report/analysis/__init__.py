"""What the report computes: usage, forecasts, requirement, segments, risk, scenarios."""
