"""Embedding files, exact ranks by id and Recall@K."""
