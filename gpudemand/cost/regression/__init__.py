"""Regression models of cost on a table of features, for training jobs that were measured."""
