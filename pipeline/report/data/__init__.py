"""What a report is about: results, provenance, published numbers."""
