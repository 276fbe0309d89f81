"""Where the usage of a study comes from, and its settings."""
