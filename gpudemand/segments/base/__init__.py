"""The usage matrix, and the base class of the feature transformers."""
