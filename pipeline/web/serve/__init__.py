"""Web page that searches with an experiment.

`app` handles requests, `service` has queries and answers as data, `server` listens on a port,
`result_pages` renders the templates, and `served_images` has the thumbnails. Queries are embedded
and searched by `pipeline.retrieval.query`.
"""
