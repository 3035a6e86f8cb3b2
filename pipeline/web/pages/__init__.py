"""Shared style and rendering of the HTML pages of `pipeline report` and `pipeline serve`."""

from pipeline.store.extras import require

require("jinja2", "HTML pages need")
