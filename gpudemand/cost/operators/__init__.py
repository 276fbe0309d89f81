"""Operator types, their arithmetic, and their precision under autocast."""
