"""Coverage-guided fuzzing of everything that reads a file, and what it has found."""
