"""What the report shows: sentences, tables, figures, and the page itself."""
