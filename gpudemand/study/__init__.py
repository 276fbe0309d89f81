"""A study of a job log, from usage to orders."""
