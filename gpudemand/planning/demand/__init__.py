"""Demand from the jobs up: arrivals times run time, plus jobs still running."""
