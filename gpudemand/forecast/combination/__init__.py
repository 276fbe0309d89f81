"""Combinations of forecasts, weighted by past errors."""
