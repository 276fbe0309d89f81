"""Accuracy of demand from jobs, run times and plans, beside naive methods; prints tables."""
