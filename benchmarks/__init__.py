"""Accuracy and speed beside peers; prints tables, never part of the tests."""
