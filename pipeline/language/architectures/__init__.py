"""The language models that are trained, each a module of torch."""
