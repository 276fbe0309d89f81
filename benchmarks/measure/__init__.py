"""Training runs measured on this machine: plans of jobs, a process for each, and rows of what they took."""
