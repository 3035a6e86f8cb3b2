"""HTML pages, as a report on disk and as a local server. No package of the core imports it."""
