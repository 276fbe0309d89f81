"""Measure step time and memory of training jobs: plans, processes, rows on disk."""
