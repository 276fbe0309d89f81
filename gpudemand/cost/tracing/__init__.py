"""Tracers of PyTorch modules and Keras models: operator calls and the edges between them."""
