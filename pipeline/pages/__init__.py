"""How pages look and what they may hold: the report's and those of `pipeline serve`.

`rendering` makes untrusted data fit for display: text is escaped, images lose
their metadata. `templates/` has the style that all pages share. The content of a page is the
business of the package that writes it.
"""
