"""What the language models are put together from: contexts of words, gates, the output."""
