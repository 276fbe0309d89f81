"""Temporal regularized matrix factorization."""
