"""The usage matrix that segments are made from, and the transformer that every block of features extends."""
