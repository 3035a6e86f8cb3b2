"""Annex: research code on finished outputs. No room of the core imports it."""
