"""Tables of results, the published numbers beside them, figures, and the report as HTML."""
