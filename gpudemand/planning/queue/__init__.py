"""Waiting times of jobs."""
