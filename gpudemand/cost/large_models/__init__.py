"""Training of large transformers on many GPUs: parameters, memory and time by layout, from a configuration."""
