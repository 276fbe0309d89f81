"""Measurements beyond the networks of the zoo: decoder blocks, single operators, and kernels that are launched."""
