"""Search with a trained experiment: find the images or sentences nearest to a query.

Read `searcher` first, the public entry point. `embedded_dataset` is the searched gallery,
`query_models` embeds queries, and `serve` is the web page. Similarities and the exact and
approximate search are in `pipeline.retrieval`. Nothing here trains or writes features.
"""
