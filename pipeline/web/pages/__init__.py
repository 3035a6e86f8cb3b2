"""Shared style and rendering of the HTML pages of `pipeline report` and `pipeline serve`.

`rendering` makes untrusted data safe to display: text is escaped, and images lose their metadata.
`templates/` has the style of all pages. The content of a page is in the package that writes it.
"""
