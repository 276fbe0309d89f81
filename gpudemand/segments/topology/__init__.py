"""Persistent homology of usage series: sublevel sets, sliding windows, Vietoris-Rips."""
