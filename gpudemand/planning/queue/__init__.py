"""Waiting times in the queue of a cluster."""
