"""Image files to 8-bit RGB: by one stated rule, with what damaged files are refused for."""
