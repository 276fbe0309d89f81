"""Forecasts by regression on lags and calendar, pooled over series."""
