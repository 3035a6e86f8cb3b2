"""Tables of results as JSON, CSV and Markdown."""
