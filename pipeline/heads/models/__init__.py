"""The heads, one module a family of published systems."""
