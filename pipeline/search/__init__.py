"""Search of a trained experiment: sentences and images in, their nearest images or sentences out.

Read `searcher` for the whole, `embedded_dataset` for what is searched and `query_models` for what
embeds a query and what it refuses; `serve/` shows it on a page. Similarities, exact and
approximate search are in `pipeline.retrieval`; nothing here trains or writes features.
"""
