"""Architectures of transformers: from a configuration, or from the table of published ones."""
