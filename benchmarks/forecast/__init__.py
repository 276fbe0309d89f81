"""Forecast accuracy on public series, beside naive and standard methods."""
