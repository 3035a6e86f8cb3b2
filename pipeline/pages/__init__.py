"""How pages look and what they may hold: the report's and those of `pipeline serve`.

`rendering` makes data that nobody vouches for fit to be shown: text is escaped, pictures lose
their metadata. `templates/` has the style that all pages share. What a page says is the business
of the room that writes it.
"""
