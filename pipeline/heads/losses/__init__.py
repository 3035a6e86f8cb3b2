"""Training losses, one module an idea."""
