"""A web page for searching with an experiment: sentences and images in, their nearest out.

Read `app` for which requests are answered or refused, `service` for queries and answers as data,
`server` for the port. `result_pages` renders the templates, `served_images` shows the images.
How a query is embedded and searched is in `pipeline.search`, not here.
"""
