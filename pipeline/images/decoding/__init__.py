"""Decoding of image files to 8-bit RGB by a stated rule, with reasons for rejected files."""
