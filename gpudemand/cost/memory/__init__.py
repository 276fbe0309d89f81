"""Memory of a training step, simulated from the operator graph: liveness, allocator, workspaces."""
