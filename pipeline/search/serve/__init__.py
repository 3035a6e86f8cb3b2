"""A page of this machine for trying an experiment: sentences and pictures in, their nearest out.

Read `app` for which requests are answered or refused, `service` for queries and answers as data,
`server` for the port. `pages` renders the templates, `pictures` shows the dataset's images by id.
How a query is embedded and searched stands in `pipeline.search`, not here.
"""
