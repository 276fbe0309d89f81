"""Forecast combination with weights from backtest errors."""
