"""Layers of the language models: word contexts, gates, output."""
