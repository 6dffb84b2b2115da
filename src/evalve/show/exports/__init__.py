"""Records for other programs: rows, tables, Markdown."""
