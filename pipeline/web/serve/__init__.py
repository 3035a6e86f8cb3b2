"""Web page that searches with an experiment.

`app` handles requests, `service` has queries and answers as data, `server` listens on a port.
"""
