"""Self-contained HTML report on a study, with its figures and tables as files."""
