"""Features that other programs wrote, one module a family of layouts, and their import."""
