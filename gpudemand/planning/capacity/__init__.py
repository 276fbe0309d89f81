"""Capacity plans: GPUs required against GPUs installed, and what to buy."""
