"""Slurm's own notations and commands: TRES strings, the rows of sacct, and the calls that print them."""
