"""Earlier reports: read, kept, and compared with."""
