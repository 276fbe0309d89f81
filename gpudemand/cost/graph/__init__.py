"""Operator graphs: the graph itself, its network structural matrix, and features of it."""
