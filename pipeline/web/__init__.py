"""Annex: HTML pages, as a report on disk and as a local server. No room of the core imports it."""
