"""Simulated memory of a training step: liveness, caching allocator, workspaces."""
