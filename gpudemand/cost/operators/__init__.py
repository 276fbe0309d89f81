"""The vocabulary of operators, their arithmetic and their precision."""
