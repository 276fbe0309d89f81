"""Features of usage series: recency, frequency, monetary value, spectrum, rhythm, and the space they span."""
