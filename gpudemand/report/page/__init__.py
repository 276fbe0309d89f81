"""Presentation of the report: sentences, tables, figures, and the HTML page."""
