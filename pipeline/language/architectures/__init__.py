"""The trained language models, one torch module each."""
