"""Figures as SVG, and thumbnails."""
