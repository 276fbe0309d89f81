"""Capacity plans: required against installed GPUs, and the mix of purchases."""
