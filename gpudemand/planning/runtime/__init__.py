"""Run times of jobs: survival models on their history, and predicted step times."""
