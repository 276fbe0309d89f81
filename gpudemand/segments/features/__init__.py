"""Features of users: recency, frequency, monetary value, spectrum, rhythm."""
