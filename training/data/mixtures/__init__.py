"""Mixtures: which corpora are prepared as one, and their files."""
