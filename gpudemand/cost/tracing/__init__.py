"""Tracers: a PyTorch module or a Keras model, read as operator calls and the edges between them."""
