"""Search of a trained experiment: sentences and pictures as queries, their results, and a page."""
