"""A local page for trying an experiment: sentences and pictures in, their nearest out."""
